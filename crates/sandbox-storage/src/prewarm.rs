//! A template from bytes.

use std::collections::BTreeMap;

use sandbox_core::{
    BackendName, Mode, Node as Given, Prewarmed, Result, TemplateFiles, TemplateId, Timestamp,
};

use crate::manifest::{Entry, Manifest, Node};
use crate::publish::Publication;
use crate::store::Store;
use crate::template::{self, Policies, Source};

/// When entries without a time were changed: the first moment that zip archives can hold,
/// so that no tool inside trips over it. 1980-01-01.
const DEFAULT_TIME: Timestamp = Timestamp {
    seconds: 315_532_800,
    nanoseconds: 0,
};

impl Store {
    /// Makes a template of entries given as bytes, or finds it made.
    ///
    /// The key depends on backend, template id and the entries' paths, kinds, modes and
    /// contents, and on nothing else (SPEC STO-1). Folders that are left out are added
    /// with mode 0755. Two calls at once with the same content both succeed.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`: nothing half-made is visible, and a retry is safe.
    pub fn prewarm(
        &self,
        backend: &BackendName,
        id: &TemplateId,
        files: &TemplateFiles,
    ) -> Result<Prewarmed> {
        let store = &self.0;
        let _acting = store.act()?;
        let bytes = files.iter().fold(0, |sum, file| match &file.node {
            Given::File(bytes) => u64::saturating_add(sum, bytes.len() as u64),
            _ => sum,
        });
        store.check_space(bytes, files.len() as u64)?;
        let publication = Publication::new(store)?;
        let mut entries: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
        for file in files.iter() {
            for parent in parents(file.path.relative()) {
                entries
                    .entry(parent.as_bytes().to_vec())
                    .or_insert_with(|| folder(parent, Mode::EXECUTABLE));
            }
            let path = file.path.relative();
            let entry = match &file.node {
                Given::Directory => folder(path, file.mode),
                Given::File(bytes) => entry(
                    path,
                    file.mode,
                    Node::File {
                        digest: publication.add(bytes)?,
                        size: bytes.len() as u64,
                        group: 0,
                    },
                ),
                Given::Symlink(target) => entry(
                    path,
                    Mode::SYMLINK,
                    Node::Symlink {
                        target: target.to_vec(),
                    },
                ),
            };
            entries.insert(entry.path.clone(), entry);
        }
        let manifest = Manifest::new(entries.into_values().collect())?;
        let how = (Source::Bytes, Policies::default());
        Ok(template::publish(
            store,
            &publication,
            backend,
            id,
            &manifest,
            how,
        )?)
    }
}

/// The folders above a path, from the nearest to the outermost.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').map(|(at, _)| &path[..at])
}

fn folder(path: &str, mode: Mode) -> Entry {
    entry(path, mode, Node::Directory)
}

fn entry(path: &str, mode: Mode, node: Node) -> Entry {
    Entry {
        path: path.as_bytes().to_vec(),
        mode: u16::try_from(mode.bits()).unwrap_or(0),
        modified: DEFAULT_TIME,
        node,
    }
}
