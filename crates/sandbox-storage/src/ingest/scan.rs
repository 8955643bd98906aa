//! The walk over the folder: what there is, before anything is read or written.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;

use sandbox_core::{FileKind, Timestamp, shown};

use super::report::{Report, SkipReason};
use super::rules::{Rules, Verdict};
use super::{IngestOptions, Unreadable, failed, reading};
use crate::error::{Cause, Result};
use crate::store::Inner;
use crate::sys::{self, Errno, Inode, Stat};
use crate::tree::{depth, is_swap};
use crate::walk::{self, At, Visitor};

/// An entry that goes in, unless reading it shows otherwise.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) path: Vec<u8>,
    pub(super) mode: u16,
    pub(super) modified: Timestamp,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Directory,
    /// A file; its inode where it has several names.
    File {
        linked: Option<Inode>,
    },
    Symlink {
        target: Vec<u8>,
    },
}

/// Walks the folder within the limits.
pub(super) fn scan(
    store: &Inner,
    root: BorrowedFd<'_>,
    options: &IngestOptions,
    report: &Report,
) -> Result<Vec<Item>> {
    let mut scan = Scan {
        options,
        report,
        rules: Rules::new(options)?,
        store: failed(sys::stat(&store.root), b"")?.identity(),
        items: Vec::new(),
        closed: HashSet::new(),
        bytes: 0,
    };
    walk::walk(root, &mut scan)?;
    let Scan {
        mut items, closed, ..
    } = scan;
    if !closed.is_empty() {
        items.retain(|item| !closed.contains(&item.path));
    }
    Ok(items)
}

struct Scan<'a> {
    options: &'a IngestOptions,
    report: &'a Report,
    rules: Rules,
    /// The inode of the store's own folder.
    store: Inode,
    items: Vec<Item>,
    /// Folders that could not be opened, though they were seen.
    closed: HashSet<Vec<u8>>,
    bytes: u64,
}

impl Visitor for Scan<'_> {
    fn enter(&mut self, path: &[u8], folder: BorrowedFd<'_>) -> Result<()> {
        self.report
            .strip_attributes(path, &sys::attribute_names(folder));
        self.rules.enter(path, folder)
    }

    fn entry(&mut self, at: &At<'_>, stat: &Stat) -> Result<bool> {
        let path = at.path;
        let is_folder = stat.kind == FileKind::Directory;
        match self.rules.judge(path, is_folder) {
            Verdict::Keep => {}
            Verdict::Ignored => {
                self.report.ignore();
                return Ok(false);
            }
            Verdict::Excluded => {
                self.report.exclude();
                return Ok(false);
            }
        }
        let skipped = match stat.kind {
            _ if stat.mount_root => Some(SkipReason::Mount),
            FileKind::Directory if stat.identity() == self.store => Some(SkipReason::Store),
            kind => special(kind),
        };
        if let Some(why) = skipped {
            self.report.skip(path, why);
            return Ok(false);
        }
        let kind = match stat.kind {
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => match sys::read_link(at.folder, at.name) {
                Ok(target) => Kind::Symlink { target },
                // It was replaced since: what is there now is not ours to guess.
                Err(errno) if is_swap(errno) || errno == Errno::INVAL => return Ok(false),
                Err(errno) => return Err(Cause::Source(reading(path), errno)),
            },
            _ => Kind::File {
                linked: (stat.links > 1).then(|| stat.identity()),
            },
        };
        self.check_limits(path, stat)?;
        if is_folder {
            self.report.strip_bits(path, stat.mode);
        }
        self.items.push(Item {
            path: path.to_vec(),
            mode: if stat.kind == FileKind::Symlink {
                0o777
            } else {
                bits(stat.mode)
            },
            modified: stat.modified,
            kind,
        });
        self.report.tell()?;
        Ok(is_folder)
    }

    fn closed(&mut self, path: &[u8], errno: Errno) -> Result<()> {
        self.closed.insert(path.to_vec());
        match errno {
            errno if is_swap(errno) && !path.is_empty() => Ok(()),
            Errno::XDEV => {
                self.report.skip(path, SkipReason::Mount);
                Ok(())
            }
            Errno::ACCESS | Errno::PERM
                if self.options.unreadable == Unreadable::Skip && !path.is_empty() =>
            {
                self.report.skip(path, SkipReason::Unreadable);
                Ok(())
            }
            errno => Err(Cause::Source(reading(path), errno)),
        }
    }
}

impl Scan<'_> {
    /// Refuses more than the limits, before anything is read.
    fn check_limits(&mut self, path: &[u8], stat: &Stat) -> Result<()> {
        let limits = &self.options.limits;
        let refuse = |what: String, name: &str| {
            Err(Cause::Limit(format!(
                "{what} ({name}): leave parts out, or raise the limit"
            )))
        };
        if self.items.len() as u64 >= limits.max_entries {
            return refuse(
                format!("the folder has more than {} entries", limits.max_entries),
                "max_entries",
            );
        }
        if depth(path) > limits.max_depth {
            return refuse(
                format!(
                    "{} is more than {} levels deep",
                    shown(path),
                    limits.max_depth
                ),
                "max_depth",
            );
        }
        if stat.kind != FileKind::File {
            return Ok(());
        }
        if stat.size > limits.max_file_bytes {
            return refuse(
                format!(
                    "{} has {} bytes, more than {}",
                    shown(path),
                    stat.size,
                    limits.max_file_bytes
                ),
                "max_file_bytes",
            );
        }
        self.bytes = self.bytes.saturating_add(stat.size);
        if self.bytes > limits.max_bytes {
            return refuse(
                format!("the folder has more than {} bytes", limits.max_bytes),
                "max_bytes",
            );
        }
        Ok(())
    }
}

/// Why an entry of this kind can't go in, if it can't.
pub(super) fn special(kind: FileKind) -> Option<SkipReason> {
    match kind {
        FileKind::File | FileKind::Directory | FileKind::Symlink => None,
        FileKind::Fifo => Some(SkipReason::Fifo),
        FileKind::Socket => Some(SkipReason::Socket),
        FileKind::Other => Some(SkipReason::Device),
    }
}

/// The nine permission bits.
pub(super) fn bits(mode: u32) -> u16 {
    u16::try_from(mode & 0o777).unwrap_or(0)
}
