//! Reading the files of a folder that others may be writing to.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::SeekFrom;
use sandbox_core::{FileKind, Timestamp, shown};

use super::report::{Report, SkipReason};
use super::scan::{Item, Kind, bits, special};
use super::stream::{BUFFER_BYTES, digest_again, each_part, is_young};
use super::{IngestOptions, Unreadable, failed, reading};
use crate::digest::{Digest, Hashing};
use crate::error::{Cause, Result};
use crate::manifest::{Entry, Node};
use crate::parallel;
use crate::publish::{BlobWriter, Publication};
use crate::store::Inner;
use crate::sys::{self, Errno, Stat};
use crate::tree::{Folders, is_swap};

/// Reads all files into the publication, and gives the entries of the manifest.
pub(super) fn read(
    store: &Inner,
    publication: &Publication,
    root: BorrowedFd<'_>,
    items: Vec<Item>,
    options: &IngestOptions,
    report: &Report,
    known: &HashMap<Vec<u8>, u64>,
) -> Result<Vec<Entry>> {
    // One file with several names is read once.
    let mut firsts = HashMap::new();
    let mut files = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item.kind {
            Kind::File {
                linked: Some(inode),
            } => {
                if let std::collections::hash_map::Entry::Vacant(entry) = firsts.entry(inode) {
                    entry.insert(index);
                    files.push(index);
                }
            }
            Kind::File { linked: None } => files.push(index),
            Kind::Directory | Kind::Symlink { .. } => {}
        }
    }
    let read: Mutex<HashMap<usize, Content>> = Mutex::new(HashMap::with_capacity(files.len()));
    let work = Work {
        store,
        publication,
        options,
        report,
        known,
        bytes: AtomicU64::new(0),
        unchecked: AtomicU64::new(0),
    };
    parallel::for_each(
        files.len(),
        store.threads,
        || Ok((Folders::new(root), Buffers::default())),
        |(folders, buffers), position| {
            let index = files[position];
            if let Some(content) = work.file(folders, &items[index].path, buffers)?
                && let Ok(mut read) = read.lock()
            {
                read.insert(index, content);
            }
            Ok(())
        },
    )?;
    let read = read.into_inner().unwrap_or_default();
    Ok(assemble(items, &firsts, &read))
}

/// What was read of a file, all of it at one moment.
#[derive(Clone, Copy, Debug)]
struct Content {
    digest: Digest,
    size: u64,
    mode: u16,
    modified: Timestamp,
}

/// Joins what was walked with what was read; files that went meanwhile are left out.
fn assemble(
    items: Vec<Item>,
    firsts: &HashMap<sys::Inode, usize>,
    read: &HashMap<usize, Content>,
) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let Item {
            path,
            mut mode,
            mut modified,
            kind,
        } = item;
        let node = match kind {
            Kind::Directory => Node::Directory,
            Kind::Symlink { target } => Node::Symlink { target },
            Kind::File { linked } => {
                let first = linked.and_then(|inode| firsts.get(&inode)).copied();
                let Some(content) = read.get(&first.unwrap_or(index)) else {
                    continue;
                };
                (mode, modified) = (content.mode, content.modified);
                Node::File {
                    digest: content.digest,
                    size: content.size,
                    // Any number will do: the manifest renumbers.
                    group: first.map_or(0, |first| u32::try_from(first + 1).unwrap_or(0)),
                }
            }
        };
        entries.push(Entry {
            path,
            mode,
            modified,
            node,
        });
    }
    entries
}

struct Work<'a> {
    store: &'a Inner,
    publication: &'a Publication,
    options: &'a IngestOptions,
    report: &'a Report,
    /// What the last template of the folder had, by path.
    known: &'a HashMap<Vec<u8>, u64>,
    /// Read so far, of all files.
    bytes: AtomicU64,
    /// Written since free space was last looked at.
    unchecked: AtomicU64,
}

/// What one try to read a file gave.
enum Try {
    Read(Content),
    /// It changed under the reader.
    Changed,
    Skip(SkipReason),
    Gone,
}

/// Where the bytes of a file are that was read.
enum Body<'a> {
    /// In the first buffer.
    Buffered,
    /// In the store, and pinned.
    Known,
    /// On their way into it.
    Written(BlobWriter<'a>),
}

/// What one thread reads into.
#[derive(Default)]
struct Buffers {
    first: Vec<u8>,
    second: Vec<u8>,
}

/// Reads a small file whole; none where its size is not what it says.
fn small<'a>(
    file: &OwnedFd,
    path: &[u8],
    size: u64,
    buffer: &mut Vec<u8>,
) -> Result<Option<(Digest, Body<'a>)>> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    // One byte more shows a file that is longer than it says.
    buffer.resize(size + 1, 0);
    let mut filled = 0;
    while filled <= size {
        match failed(sys::read(file, &mut buffer[filled..]), path)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok((filled == size).then(|| (Digest::of(&buffer[..size]), Body::Buffered)))
}

/// How often a file is read again that changes while it is read.
const MAX_TRIES: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(5);
/// Files up to this size are read into memory, and written only if they are new.
const SMALL_BYTES: u64 = 1 << 20;
/// How much is written between two looks at the free space.
const CHECK_SPACE_EVERY: u64 = 32 << 20;

impl Work<'_> {
    fn file(
        &self,
        folders: &mut Folders<'_>,
        path: &[u8],
        buffers: &mut Buffers,
    ) -> Result<Option<Content>> {
        for attempt in 0..MAX_TRIES {
            if attempt > 0 {
                std::thread::sleep(FIRST_WAIT * (1 << (attempt - 1).min(4)));
            }
            match self.try_file(folders, path, buffers)? {
                Try::Read(content) => {
                    self.report.file(content.size)?;
                    return Ok(Some(content));
                }
                Try::Skip(why) => {
                    self.report.skip(path, why);
                    return Ok(None);
                }
                Try::Gone => return Ok(None),
                Try::Changed => {}
            }
        }
        Err(Cause::Busy {
            message: format!(
                "{} kept changing while it was read, {MAX_TRIES} times: nothing was published",
                shown(path)
            ),
            hint: Some("stop what writes to it, or exclude it".to_owned()),
        })
    }

    fn try_file(
        &self,
        folders: &mut Folders<'_>,
        path: &[u8],
        buffers: &mut Buffers,
    ) -> Result<Try> {
        let file = match folders.open_file(path) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Try::Gone),
            Err(Errno::XDEV) => return Ok(Try::Skip(SkipReason::Mount)),
            // A socket, or a device without a driver, took its place.
            Err(Errno::NXIO | Errno::NODEV) => return Ok(Try::Skip(SkipReason::Device)),
            // EAGAIN: someone holds a lease on it (fcntl(2), F_SETLEASE).
            Err(errno) if is_swap(errno) || errno == Errno::AGAIN => return Ok(Try::Changed),
            Err(Errno::ACCESS | Errno::PERM) if self.options.unreadable == Unreadable::Skip => {
                return Ok(Try::Skip(SkipReason::Unreadable));
            }
            Err(errno) => return Err(Cause::Source(reading(path), errno)),
        };
        let before = failed(sys::stat(&file), path)?;
        if let Some(why) = special(before.kind) {
            return Ok(Try::Skip(why));
        }
        if before.kind != FileKind::File {
            return Ok(Try::Changed);
        }
        self.check_limits(path, before.size)?;
        let read = if before.size <= SMALL_BYTES {
            small(&file, path, before.size, &mut buffers.first)?
        } else {
            self.large(&file, path, &before, &mut buffers.first)?
        };
        // A write that takes long shows its time at its beginning only, and clocks tick: of
        // a file this young a second reading has to say the same.
        let says_the_same = match &read {
            Some((digest, _)) if is_young(&before) => {
                let again = digest_again(&file, path, &before, &mut buffers.second)?;
                again == Some(*digest)
            }
            _ => true,
        };
        let after = failed(sys::stat(&file), path)?;
        let kept_still = (before.size, before.modified, before.changed)
            == (after.size, after.modified, after.changed);
        match read {
            Some((digest, body)) if kept_still && says_the_same => {
                self.count(path, before.size)?;
                self.keep(digest, body, &buffers.first, before.size)?;
                self.report.strip_bits(path, before.mode);
                self.report
                    .strip_attributes(path, &sys::attribute_names(&file));
                Ok(Try::Read(Content {
                    digest,
                    size: before.size,
                    mode: bits(before.mode),
                    modified: before.modified,
                }))
            }
            // It claims to be empty and to have kept still, yet there are bytes.
            None if kept_still && before.size == 0 => Ok(Try::Skip(SkipReason::Endless)),
            Some((_, Body::Written(writer))) => {
                let _acting = self.store.act()?;
                writer.abandon();
                Ok(Try::Changed)
            }
            _ => Ok(Try::Changed),
        }
    }

    /// Streams a large file aside; none where it ended elsewhere than its size says.
    fn large(
        &self,
        file: &OwnedFd,
        path: &[u8],
        stat: &Stat,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<(Digest, Body<'_>)>> {
        buffer.resize(BUFFER_BYTES, 0);
        // A file that the last template had at this size is likely the same: hashing it
        // first saves writing it again.
        if self.known.get(path) == Some(&stat.size) {
            let mut hashing = Hashing::default();
            let whole = each_part(file, path, stat, buffer, |part| {
                hashing.update(part);
                self.report.tell()
            })?;
            if !whole {
                return Ok(None);
            }
            let digest = hashing.finish();
            let is_known = {
                let _acting = self.store.act()?;
                self.publication.is_known(&digest, stat.size)?
            };
            if is_known {
                return Ok(Some((digest, Body::Known)));
            }
            failed(sys::seek(file, SeekFrom::Start(0)), path)?;
        }
        let mut writer = {
            let _acting = self.store.act()?;
            self.publication.begin()?
        };
        let whole = each_part(file, path, stat, buffer, |part| {
            self.wrote(part.len() as u64)?;
            self.report.tell()?;
            // Writing to an open descriptor asks for no rights: no need to act as anyone.
            writer.write(part)
        })?;
        if whole {
            let digest = writer.digest();
            return Ok(Some((digest, Body::Written(writer))));
        }
        let _acting = self.store.act()?;
        writer.abandon();
        Ok(None)
    }

    /// Stages what was read and found to be one content.
    fn keep(&self, digest: Digest, body: Body<'_>, buffer: &[u8], size: u64) -> Result<()> {
        let _acting = self.store.act()?;
        match body {
            Body::Buffered => {
                self.wrote(size)?;
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                self.publication.add_as(digest, &buffer[..size])
            }
            Body::Known => Ok(()),
            Body::Written(writer) => writer.finish_as(digest),
        }
    }

    /// Looks at the free space each time that enough was written.
    fn wrote(&self, bytes: u64) -> Result<()> {
        let unchecked = self.unchecked.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unchecked < CHECK_SPACE_EVERY {
            return Ok(());
        }
        self.unchecked.store(0, Ordering::Relaxed);
        self.store.check_space(0, 0)
    }

    fn check_limits(&self, path: &[u8], size: u64) -> Result<()> {
        let limit = self.options.limits.max_file_bytes;
        if size <= limit {
            return Ok(());
        }
        Err(Cause::Limit(format!(
            "{} has {size} bytes, more than {limit} (max_file_bytes): leave it out, or raise the limit",
            shown(path)
        )))
    }

    /// Counts what was read: files may have grown since the walk.
    fn count(&self, path: &[u8], size: u64) -> Result<()> {
        let total = self.bytes.fetch_add(size, Ordering::Relaxed) + size;
        let limit = self.options.limits.max_bytes;
        if total <= limit {
            return Ok(());
        }
        Err(Cause::Limit(format!(
            "with {} the folder has more than {limit} bytes (max_bytes): leave parts out, or raise the limit",
            shown(path)
        )))
    }
}
