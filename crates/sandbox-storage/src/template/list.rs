//! Templates as they are listed.

use sandbox_core::{BackendName, TemplateId, TemplateKey};
use serde::Serialize;

use super::{Source, keys, read_meta};
use crate::digest::TreeId;
use crate::error::Cause;
use crate::layout;
use crate::store::Store;
use crate::sys::{self, Errno, Open};

/// A template as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TemplateInfo {
    /// Its name by content.
    pub template_key: TemplateKey,
    /// What the caller called it.
    pub template_id: TemplateId,
    /// The backend it is for.
    pub backend: BackendName,
    /// The exact tree, times of change included.
    pub tree_id: TreeId,
    /// How many files, folders and links it has.
    pub entries: u64,
    /// The bytes of its files.
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// What it was made from.
    pub source: Source,
    /// The named refs that lead to it.
    pub refs: Vec<String>,
}

impl Store {
    /// All templates, in the order of their keys, without their content being read.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE` where a record can't be read.
    pub fn list_templates(&self) -> sandbox_core::Result<Vec<TemplateInfo>> {
        let store = &*self.0;
        let _acting = store.act()?;
        let refs = crate::reference::read_all(store)?;
        let mut templates = Vec::new();
        for key in keys(store)? {
            let label = format!("template {key}");
            let folder = match sys::open(&store.templates, layout::template(&key), Open::Folder) {
                Ok(folder) => folder,
                // Collected since the listing.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(Cause::Store(format!("opening {label}"), errno).into()),
            };
            let meta = read_meta(&folder, &label)?;
            templates.push(TemplateInfo {
                template_key: key,
                template_id: meta.template_id,
                backend: meta.backend,
                tree_id: meta.tree_id,
                entries: meta.files + meta.directories + meta.symlinks,
                bytes: meta.bytes,
                created: meta.created,
                source: meta.source,
                refs: refs
                    .iter()
                    .filter(|(_, reference)| reference.key == key)
                    .map(|(name, _)| name.to_string())
                    .collect(),
            });
        }
        Ok(templates)
    }
}
