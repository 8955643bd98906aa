//! Templates: published trees, valid by what they hold and not by being there.

use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

use sandbox_core::{BackendName, EntryName, TemplateId, TemplateKey};
use serde::{Deserialize, Serialize};

use crate::digest::{TreeId, template_key};
use crate::error::{Cause, Context as _, Result};
use crate::json;
use crate::layout::{self, MAX_MANIFEST_BYTES};
use crate::manifest::{Manifest, Node};
use crate::publish::is_whole;
use crate::store::Inner;
use crate::sys::{self, Errno, Lock, Open};

mod list;
mod publish;
mod retire;

pub use list::TemplateInfo;
pub(crate) use publish::publish;
pub(crate) use retire::retire;

/// What a template was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// Entries that the caller gave as bytes.
    Bytes,
    /// A folder of the host.
    Folder {
        /// Its real path at that time.
        path: EntryName,
    },
}

/// The record in `meta.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Meta {
    pub(crate) format: u32,
    pub(crate) template_id: TemplateId,
    pub(crate) backend: BackendName,
    pub(crate) tree_id: TreeId,
    /// The template that this one is a snapshot over.
    pub(crate) parent: Option<TemplateKey>,
    pub(crate) policies: Policies,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) symlinks: u64,
    pub(crate) bytes: u64,
    pub(crate) created: u64,
    pub(crate) source: Source,
}

/// How the tree was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Policies {
    /// Whether ignore rules left something out.
    pub(crate) respect_ignore: bool,
    /// How many patterns of the caller's left something out.
    pub(crate) excludes: u64,
}

/// The number of the records of templates and sessions that this version writes.
pub(crate) const RECORD_FORMAT: u32 = 1;

/// A template that was read and found to be what its name says.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) key: TemplateKey,
    pub(crate) folder: OwnedFd,
    pub(crate) meta: Meta,
    pub(crate) manifest: Manifest,
}

impl Template {
    /// Reads and checks a template: its record, its manifest against the record's tree id,
    /// and the key recomputed from both against its name.
    pub(crate) fn read(store: &Inner, key: &TemplateKey) -> Result<Self> {
        let name = layout::template(key);
        let label = format!("template {key}");
        let folder = match sys::open(&store.templates, &name, Open::Folder) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => {
                return Err(Cause::NotFound(format!("there is no template {key}")));
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(Cause::damaged(label, "it is no folder"));
            }
            Err(errno) => return Err(Cause::Store(format!("opening {label}"), errno)),
        };
        match Self::check(key, &folder, &label) {
            Ok((meta, manifest)) => Ok(Self {
                key: *key,
                folder,
                meta,
                manifest,
            }),
            // A collector took it away while it was read: not damaged, just gone.
            Err(_) if !is_in_place(store, &name, &folder)? => Err(Cause::NotFound(format!(
                "there is no template {key} any more"
            ))),
            Err(cause) => Err(cause),
        }
    }

    fn check(key: &TemplateKey, folder: &OwnedFd, label: &str) -> Result<(Meta, Manifest)> {
        let meta = read_meta(folder, label)?;
        let manifest_label = format!("the manifest of {label}");
        let bytes = json::read_bounded(
            folder,
            layout::MANIFEST,
            &manifest_label,
            MAX_MANIFEST_BYTES,
        )?
        .ok_or_else(|| Cause::damaged(&manifest_label, "it is missing"))?;
        let tree_id = Manifest::tree_id(&bytes);
        if tree_id != meta.tree_id {
            return Err(Cause::damaged(
                manifest_label,
                format!("its hash is {tree_id}, the record says {}", meta.tree_id),
            ));
        }
        let manifest =
            Manifest::decode(&bytes).map_err(|why| Cause::damaged(manifest_label, why))?;
        let actual = template_key(&meta.backend, &meta.template_id, &manifest.content_root());
        if actual != *key {
            return Err(Cause::damaged(
                label,
                format!("its content is that of {actual}"),
            ));
        }
        Ok((meta, manifest))
    }

    /// Takes the template into use: it is not retired while the descriptor lives.
    pub(crate) fn take_use(&self, store: &Inner) -> Result<OwnedFd> {
        let what = || format!("taking the template {} into use", self.key);
        let file = match sys::lock_file(&self.folder, layout::USE, layout::RECORD_MODE) {
            // Nothing can be made in a folder that was erased.
            Err(Errno::NOENT) => return Err(self.collected()),
            file => file.store(what)?,
        };
        sys::lock(&file, Lock::Share).store(what)?;
        sys::touch(&file).store(what)?;
        // A collector may have retired it between the look and the lock.
        if is_in_place(store, &layout::template(&self.key), &self.folder)? {
            Ok(file)
        } else {
            Err(self.collected())
        }
    }

    /// Says that the template was used now.
    fn touch_use(&self) -> Result<()> {
        let what = || format!("marking the template {} as used", self.key);
        let file = sys::lock_file(&self.folder, layout::USE, layout::RECORD_MODE).store(what)?;
        sys::touch(&file).store(what)
    }

    fn collected(&self) -> Cause {
        Cause::NotFound(format!(
            "the template {} was just collected: prewarm it again",
            self.key
        ))
    }

    /// Looks for all its blobs, with their lengths: once an open store, then remembered.
    pub(crate) fn check_blobs(&self, store: &Inner) -> Result<()> {
        let verified = || {
            store
                .verified
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if verified().contains(&self.key) {
            return Ok(());
        }
        for entry in self.manifest.entries() {
            let Node::File { digest, size, .. } = &entry.node else {
                continue;
            };
            let label = || format!("the blob {digest} of template {}", self.key);
            let (folder, name) = layout::blob(digest);
            match sys::stat_at(&store.blobs, format!("{folder}/{name}")) {
                Ok(stat) if is_whole(&stat, *size) => {}
                Ok(_) => {
                    return Err(Cause::damaged(
                        label(),
                        "it has another length or was written to",
                    ));
                }
                Err(Errno::NOENT) => return Err(Cause::damaged(label(), "it is missing")),
                Err(errno) => return Err(Cause::Store(format!("looking at {}", label()), errno)),
            }
        }
        verified().insert(self.key);
        Ok(())
    }
}

/// Whether a template's folder still stands under its name.
fn is_in_place(store: &Inner, name: &str, folder: &OwnedFd) -> Result<bool> {
    let what = || format!("looking at template {name}");
    let here = sys::stat(folder).store(what)?.identity();
    match sys::stat_at(&store.templates, name) {
        Ok(stat) => Ok(stat.identity() == here),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(Cause::Store(what(), errno)),
    }
}

/// Reads the record of a template's folder.
pub(crate) fn read_meta(folder: &OwnedFd, label: &str) -> Result<Meta> {
    let meta_label = format!("the record of {label}");
    let meta: Meta = json::read(folder, layout::META, &meta_label)?
        .ok_or_else(|| Cause::damaged(&meta_label, "it is missing"))?;
    if meta.format == RECORD_FORMAT {
        Ok(meta)
    } else {
        Err(Cause::damaged(
            meta_label,
            format!(
                "its format is {}, this version reads {RECORD_FORMAT}",
                meta.format
            ),
        ))
    }
}

/// The keys of all templates, sorted; other names in the folder are nobody's.
pub(crate) fn keys(store: &Inner) -> Result<Vec<TemplateKey>> {
    let names = sys::list(&store.templates).store(|| "listing templates/".to_owned())?;
    let mut keys: Vec<TemplateKey> = names
        .iter()
        .filter_map(|name| std::str::from_utf8(name).ok()?.parse().ok())
        .collect();
    keys.sort_unstable();
    Ok(keys)
}

/// Now, in seconds since 1970.
pub(crate) fn now() -> u64 {
    u64::try_from(seconds(SystemTime::now())).unwrap_or(0)
}

/// A moment in whole seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |s| -s),
    }
}
