//! A template from a folder of the host.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox_core::{BackendName, EntryName, Prewarmed, Result, TemplateId, shown};
use serde::Serialize;

use crate::error::{Cause, Context as _};
use crate::manifest::{Entry, Manifest, Node};
use crate::publish::Publication;
use crate::reference::RefName;
use crate::store::Store;
use crate::sys::{self, Open};
use crate::template::{self, Policies, Source, Template};

mod credential;
mod read;
mod report;
mod rules;
mod scan;
mod stream;

use report::Report;
pub use report::{IngestStats, SkipReason, Skipped, Stripped};

/// A folder of the host, opened once: what is read comes from the folder opened then.
pub struct HostFolder {
    folder: OwnedFd,
    path: PathBuf,
}

impl HostFolder {
    /// Opens a folder. A link is followed here, and never again below.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND` where there is none; `SANDBOX_INVALID` where it is no folder or
    /// may not be read.
    pub fn open(path: &Path) -> Result<Self> {
        let name = shown(path.as_os_str().as_encoded_bytes());
        let real = path.canonicalize().map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                Cause::NotFound(format!("there is no folder {name}"))
            } else {
                Cause::Invalid(format!("the folder {name} can't be resolved: {error}"))
            }
        })?;
        let bytes = real.as_os_str().as_encoded_bytes();
        let folder = sys::open(rustix::fs::CWD, bytes, Open::Folder).map_err(|errno| {
            Cause::Invalid(format!("{name} can't be read as a folder: {errno}"))
        })?;
        Ok(Self { folder, path: real })
    }

    /// Takes a folder that is open already, and the path that it is called by.
    #[must_use]
    pub fn from_fd(folder: OwnedFd, path: PathBuf) -> Self {
        Self { folder, path }
    }

    /// Its real path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for HostFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFolder")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What an ingest may read; more is `SANDBOX_LIMIT`, and nothing is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IngestLimits {
    /// Files, folders and links together. 1 000 000.
    pub max_entries: u64,
    /// The bytes of all files. 32 GiB.
    pub max_bytes: u64,
    /// The bytes of one file. 8 GiB.
    pub max_file_bytes: u64,
    /// The names in the longest path. 256.
    pub max_depth: usize,
}

impl Default for IngestLimits {
    fn default() -> Self {
        Self {
            max_entries: 1_000_000,
            max_bytes: 32 << 30,
            max_file_bytes: 8 << 30,
            max_depth: 256,
        }
    }
}

/// What happens to a file or folder that the caller may not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unreadable {
    /// It is left out and reported.
    #[default]
    Skip,
    /// The ingest fails, naming it.
    Refuse,
}

/// Told how far an ingest is, from its threads, about ten times a second; says whether to go on.
pub type Progress = Arc<dyn Fn(&IngestStats) -> ControlFlow<()> + Send + Sync>;

/// How a folder is ingested. By default all of it goes in: `.git`, ignored files, everything.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct IngestOptions {
    /// Leave out what the repository's own `.gitignore` files and `.git/info/exclude`
    /// ignore and its index does not track. The person's global file has no say.
    pub respect_ignore: bool,
    /// Leave out what these patterns match, in the language of gitignore(5).
    pub exclude: Vec<String>,
    /// What may be read.
    pub limits: IngestLimits,
    /// What happens to what the caller may not read.
    pub unreadable: Unreadable,
    /// Who is told how far it is.
    pub progress: Option<Progress>,
}

impl fmt::Debug for IngestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IngestOptions")
            .field("respect_ignore", &self.respect_ignore)
            .field("exclude", &self.exclude)
            .field("limits", &self.limits)
            .field("unreadable", &self.unreadable)
            .finish_non_exhaustive()
    }
}

/// What an ingest gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Ingested {
    /// The template.
    pub prewarmed: Prewarmed,
    /// How much there was.
    pub stats: IngestStats,
    /// What was left out though nobody asked for that; the first thousand.
    pub skipped: Vec<Skipped>,
    /// What was dropped from entries that went in; the first thousand.
    pub stripped: Vec<Stripped>,
    /// Files that went in and look like credentials by their name; the first thousand.
    pub credential_like: Vec<EntryName>,
}

impl Store {
    /// Makes a template of a folder of the host, or finds it made.
    ///
    /// Names are bytes; modes (the nine permission bits), links, times and hard links
    /// within the folder are kept. FIFOs, sockets and devices are skipped and reported,
    /// set-id bits and extended attributes dropped and reported. No link is followed, no
    /// mount entered, and the store itself is left out. A file that changes while it is
    /// read is read again.
    ///
    /// # Errors
    /// `SANDBOX_LIMIT`, naming limit and value; `SANDBOX_BUSY` where a file never kept
    /// still; `SANDBOX_INVALID` for a pattern that is none, or a folder in the store;
    /// `SANDBOX_CANCELLED` where `progress` said so; `SANDBOX_STORAGE`. Nothing is
    /// published then.
    pub fn ingest(
        &self,
        backend: &BackendName,
        id: &TemplateId,
        folder: &HostFolder,
        options: &IngestOptions,
    ) -> Result<Ingested> {
        let store = &self.0;
        if folder.path.starts_with(&store.path) {
            return Err(Cause::Invalid(format!(
                "the folder {} is part of the store {}: name a folder outside it",
                shown(folder.path.as_os_str().as_encoded_bytes()),
                store.label()
            ))
            .into());
        }
        let report = Report::new(options.progress.clone());
        let root = folder.folder.as_fd();
        let scanned = scan::scan(store, root, options, &report)?;
        // What is known from the last run is looked for before it is copied.
        let known = known_sizes(self, &folder.path);
        let publication = {
            let _acting = store.act()?;
            store.check_space(0, 0)?;
            Publication::new(store)?
        };
        let items = read::read(store, &publication, root, scanned, options, &report, &known)?;
        let _acting = store.act()?;
        let manifest = Manifest::new(items)?;
        report.count(&manifest);
        let how = (
            Source::Folder {
                path: EntryName::from_bytes(folder.path.as_os_str().as_encoded_bytes()),
            },
            Policies {
                respect_ignore: options.respect_ignore,
                excludes: options.exclude.len() as u64,
            },
        );
        let prewarmed = template::publish(store, &publication, backend, id, &manifest, how)?;
        Ok(report.finish(prewarmed, &manifest))
    }
}

/// The sizes of the files that the folder's last template had.
fn known_sizes(store: &Store, path: &Path) -> HashMap<Vec<u8>, u64> {
    let Ok(Some(key)) = store.read_ref(&RefName::for_folder(path)) else {
        return HashMap::new();
    };
    let Ok(_acting) = store.0.act() else {
        return HashMap::new();
    };
    // A hint: without it the same is done with more writing.
    let Ok(template) = Template::read(&store.0, &key) else {
        return HashMap::new();
    };
    let size = |entry: &Entry| match entry.node {
        Node::File { size, .. } => Some((entry.path.clone(), size)),
        _ => None,
    };
    template
        .manifest
        .entries()
        .iter()
        .filter_map(size)
        .collect()
}

/// Says what was done on the host's folder when a call failed.
fn reading(path: &[u8]) -> String {
    format!("reading {} of the folder", shown(path))
}

/// Turns a failed call on the folder into an error.
fn failed<T>(result: sys::Result<T>, path: &[u8]) -> crate::error::Result<T> {
    result.source(|| reading(path))
}
