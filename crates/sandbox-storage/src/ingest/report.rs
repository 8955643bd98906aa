//! What an ingest says about itself, bounded.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sandbox_core::{EntryName, Prewarmed};
use serde::Serialize;

use super::{Ingested, Progress, credential};
use crate::error::{Cause, Result};
use crate::manifest::{Manifest, Node};

/// How much an ingest found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct IngestStats {
    /// Files that went in.
    pub files: u64,
    /// Folders that went in.
    pub directories: u64,
    /// Links that went in.
    pub symlinks: u64,
    /// The bytes of the files, read once each.
    pub bytes: u64,
    /// Entries that were left out though nobody asked for that.
    pub skipped: u64,
    /// Entries left out by the repository's ignore rules; a folder counts as one.
    pub ignored: u64,
    /// Entries left out by the caller's patterns; a folder counts as one.
    pub excluded: u64,
    /// Set-id bits and extended attributes that were dropped.
    pub stripped: u64,
    /// Files that look like credentials.
    pub credential_like: u64,
}

/// Why an entry was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SkipReason {
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A device.
    Device,
    /// The caller may not read it.
    Unreadable,
    /// Something is mounted there.
    Mount,
    /// The store itself.
    Store,
    /// A file that has more bytes than its size says, as in `/proc`.
    Endless,
}

/// An entry that was left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// Where it stands, from the folder's root.
    pub path: EntryName,
    /// Why.
    pub why: SkipReason,
}

/// Something that an entry lost on its way in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stripped {
    /// Where it stands, from the folder's root.
    pub path: EntryName,
    /// What: `setuid`, `setgid`, `sticky`, or an attribute's name.
    pub what: EntryName,
}

/// The report in the making, shared by the threads.
pub(super) struct Report {
    progress: Option<Progress>,
    begun: Instant,
    /// When progress was told last, in milliseconds after the beginning.
    told: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    stats: IngestStats,
    skipped: Vec<Skipped>,
    stripped: Vec<Stripped>,
}

/// The longest list of a report.
const MAX_LISTED: usize = 1000;
const TELL_EVERY: Duration = Duration::from_millis(100);

impl Report {
    pub(super) fn new(progress: Option<Progress>) -> Self {
        Self {
            progress,
            begun: Instant::now(),
            told: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    pub(super) fn skip(&self, path: &[u8], why: SkipReason) {
        self.with(|inner| {
            inner.stats.skipped += 1;
            push(
                &mut inner.skipped,
                Skipped {
                    path: EntryName::from_bytes(path),
                    why,
                },
            );
        });
    }

    pub(super) fn strip(&self, path: &[u8], what: &[u8]) {
        self.with(|inner| {
            inner.stats.stripped += 1;
            push(
                &mut inner.stripped,
                Stripped {
                    path: EntryName::from_bytes(path),
                    what: EntryName::from_bytes(what),
                },
            );
        });
    }

    /// Reports the bits that no template carries.
    pub(super) fn strip_bits(&self, path: &[u8], mode: u32) {
        for (bit, name) in [(0o4000, "setuid"), (0o2000, "setgid"), (0o1000, "sticky")] {
            if mode & bit != 0 {
                self.strip(path, name.as_bytes());
            }
        }
    }

    /// Reports the attributes that no template carries.
    pub(super) fn strip_attributes(&self, path: &[u8], names: &[Vec<u8>]) {
        for name in names {
            // Every file has this one where SELinux runs: a label, not a property.
            if name != b"security.selinux" {
                self.strip(path, name);
            }
        }
    }

    pub(super) fn ignore(&self) {
        self.with(|inner| inner.stats.ignored += 1);
    }

    pub(super) fn exclude(&self) {
        self.with(|inner| inner.stats.excluded += 1);
    }

    /// Counts a file that was read and tells how far it is.
    pub(super) fn file(&self, bytes: u64) -> Result<()> {
        self.with(|inner| {
            inner.stats.files += 1;
            inner.stats.bytes += bytes;
        });
        self.tell()
    }

    /// Tells how far it is, where it is time to; stops where the caller says so.
    pub(super) fn tell(&self) -> Result<()> {
        let Some(progress) = &self.progress else {
            return Ok(());
        };
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let told = self.told.load(Ordering::Relaxed);
        let due = u128::from(now.saturating_sub(told)) >= TELL_EVERY.as_millis();
        if !due
            || self
                .told
                .compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return Ok(());
        }
        let stats = self.with(|inner| inner.stats);
        match progress(&stats) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Cause::Cancelled(
                "the ingest was stopped: nothing was published".to_owned(),
            )),
        }
    }

    /// Counts what the manifest holds, in place of what was counted on the way.
    pub(super) fn count(&self, manifest: &Manifest) {
        self.with(|inner| {
            let stats = &mut inner.stats;
            (stats.files, stats.directories, stats.symlinks) = (0, 0, 0);
            for entry in manifest.entries() {
                match entry.node {
                    Node::Directory => stats.directories += 1,
                    Node::Symlink { .. } => stats.symlinks += 1,
                    Node::File { .. } => {
                        stats.files += 1;
                        stats.credential_like +=
                            u64::from(credential::is_credential_like(&entry.path));
                    }
                }
            }
        });
    }

    pub(super) fn finish(self, prewarmed: Prewarmed, manifest: &Manifest) -> Ingested {
        let Inner {
            stats,
            mut skipped,
            mut stripped,
        } = self.inner.into_inner().unwrap_or_default();
        // Threads report in any order.
        skipped.sort();
        stripped.sort();
        let credential_like = manifest
            .entries()
            .iter()
            .filter(|entry| matches!(entry.node, Node::File { .. }))
            .filter(|entry| credential::is_credential_like(&entry.path))
            .take(MAX_LISTED)
            .map(|entry| EntryName::from_bytes(entry.path.as_slice()))
            .collect();
        Ingested {
            prewarmed,
            stats,
            skipped,
            stripped,
            credential_like,
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(
            &mut self
                .inner
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        )
    }
}

fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() < MAX_LISTED {
        list.push(item);
    }
}
