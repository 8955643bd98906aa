//! A private tree made straight from the blobs: cloned where the disk can, else copied.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use crate::error::{Cause, Context as _, Result};
use crate::layout;
use crate::manifest::{Entry, Manifest, Node};
use crate::parallel;
use crate::publish::is_whole;
use crate::record::SessionMode;
use crate::store::Inner;
use crate::sys::{self, Errno, Open};
use crate::tree::{Folders, split};

/// What identifies a file as it was made: a later write changes the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Made {
    pub(crate) inode: u64,
    pub(crate) changed: (i64, u32),
}

/// Makes the tree of a manifest in an empty folder; what each entry became, in its order.
///
/// Folders are open to their owner until everything stands in them, and get their own
/// modes and times last.
pub(crate) fn materialise(
    store: &Inner,
    manifest: &Manifest,
    root: &OwnedFd,
    mode: SessionMode,
    durable: bool,
) -> Result<Vec<Made>> {
    let entries = manifest.entries();
    make_folders(entries, root)?;
    let work = Work {
        store,
        mode,
        durable: durable && entries.len() <= MAX_SINGLE_SYNCS,
    };
    // The first name of each link group is a file, the others are links to it.
    let mut firsts: HashMap<u32, usize> = HashMap::new();
    let (mut files, mut links) = (Vec::new(), Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        match entry.node {
            Node::Directory => {}
            Node::File { group, .. } if group > 0 => match firsts.get(&group) {
                Some(first) => links.push((index, *first)),
                None => {
                    firsts.insert(group, index);
                    files.push(index);
                }
            },
            Node::File { .. } | Node::Symlink { .. } => files.push(index),
        }
    }
    let made = Mutex::new(vec![Made::default(); entries.len()]);
    parallel::for_each(
        files.len(),
        store.threads,
        || Ok((store.act()?, Folders::new(root.as_fd()), Vec::new())),
        |(_acting, folders, buffer), position| {
            let index = files[position];
            let is = work.make(folders, &entries[index], buffer)?;
            if let Ok(mut made) = made.lock() {
                made[index] = is;
            }
            Ok(())
        },
    )?;
    let mut made = made.into_inner().unwrap_or_default();
    for (index, first) in links {
        link(root, &entries[first].path, &entries[index].path)?;
    }
    for (index, entry) in entries.iter().enumerate() {
        // Each further name changed the ctime of all.
        if let Node::File { group, .. } = entry.node
            && group > 0
        {
            made[index] = look(root, &entry.path)?;
        }
    }
    finish_folders(entries, root, durable)?;
    if durable && entries.len() > MAX_SINGLE_SYNCS {
        sys::sync_disk(root).store(|| "syncing a workspace".to_owned())?;
    }
    Ok(made)
}

/// Above this many entries one sync of the whole disk is cheaper than one for each.
const MAX_SINGLE_SYNCS: usize = 2000;

struct Work<'a> {
    store: &'a Inner,
    mode: SessionMode,
    /// Whether each file is synced.
    durable: bool,
}

impl Work<'_> {
    fn make(&self, folders: &mut Folders<'_>, entry: &Entry, buffer: &mut Vec<u8>) -> Result<Made> {
        let what = || "making a file of the workspace".to_owned();
        let (parent, name) = folders.parent(&entry.path).store(what)?;
        match &entry.node {
            Node::Symlink { target } => {
                sys::symlink(target, parent, name).store(what)?;
                sys::set_link_times(parent, name, entry.modified).store(what)?;
                Ok(Made::default())
            }
            Node::File { .. } => self.file(parent, name, entry, buffer),
            Node::Directory => Ok(Made::default()),
        }
    }

    fn file(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        entry: &Entry,
        buffer: &mut Vec<u8>,
    ) -> Result<Made> {
        let what = || "making a file of the workspace".to_owned();
        let Node::File { digest, size, .. } = &entry.node else {
            return Ok(Made::default());
        };
        let (folder, blob_name) = layout::blob(digest);
        let label = || format!("the blob {digest}");
        let blob = match sys::open(
            &self.store.blobs,
            format!("{folder}/{blob_name}"),
            Open::Read,
        ) {
            Ok(blob) => blob,
            Err(Errno::NOENT) => return Err(Cause::damaged(label(), "it is missing")),
            Err(errno) => return Err(Cause::Store(format!("opening {}", label()), errno)),
        };
        let stat = sys::stat(&blob).store(label)?;
        if !is_whole(&stat, *size) {
            return Err(Cause::damaged(
                label(),
                "it has another length or was written to",
            ));
        }
        let file = sys::create(parent, name, layout::RECORD_MODE).store(what)?;
        if *size > 0 {
            let cloned = self.mode == SessionMode::Reflink && sys::clone_file(&blob, &file).is_ok();
            if !cloned {
                let sparse = stat.blocks.saturating_mul(512) < stat.size;
                copy(&blob, &file, *size, sparse, buffer)
                    .store(|| format!("copying {}", label()))?;
            }
        }
        sys::set_mode(&file, u32::from(entry.mode)).store(what)?;
        sys::set_times(&file, entry.modified).store(what)?;
        if self.durable {
            sys::begin_write_out(&file);
            sys::sync_data(&file).store(what)?;
        }
        sys::stat(&file).store(what).map(|stat| made(&stat))
    }
}

fn made(stat: &sys::Stat) -> Made {
    Made {
        inode: stat.inode,
        changed: (stat.changed.seconds, stat.changed.nanoseconds),
    }
}

fn look(root: &OwnedFd, path: &[u8]) -> Result<Made> {
    let what = || "looking at a linked file".to_owned();
    let mut folders = Folders::new(root.as_fd());
    let (parent, name) = folders.parent(path).store(what)?;
    sys::stat_at(parent, name)
        .store(what)
        .map(|stat| made(&stat))
}

/// Copies a whole file; holes stay holes.
fn copy(
    from: &OwnedFd,
    to: &OwnedFd,
    size: u64,
    sparse: bool,
    buffer: &mut Vec<u8>,
) -> sys::Result<()> {
    use rustix::fs::SeekFrom;
    if !sparse {
        return copy_part(from, to, size, buffer);
    }
    let mut at = 0;
    while at < size {
        let begin = match sys::seek(from, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // Nothing but a hole follows.
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        };
        let end = sys::seek(from, SeekFrom::Hole(begin))?;
        sys::seek(from, SeekFrom::Start(begin))?;
        sys::seek(to, SeekFrom::Start(begin))?;
        copy_part(from, to, end.min(size) - begin, buffer)?;
        at = end;
    }
    sys::set_length(to, size)
}

/// Copies `length` bytes from where both files stand.
fn copy_part(from: &OwnedFd, to: &OwnedFd, length: u64, buffer: &mut Vec<u8>) -> sys::Result<()> {
    let mut rest = length;
    while rest > 0 {
        let most = usize::try_from(rest)
            .unwrap_or(usize::MAX)
            .min(MAX_RANGE_BYTES);
        match sys::copy_range(from, to, most) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => rest -= count as u64,
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL) => {
                return copy_by_hand(from, to, rest, buffer);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn copy_by_hand(
    from: &OwnedFd,
    to: &OwnedFd,
    mut rest: u64,
    buffer: &mut Vec<u8>,
) -> sys::Result<()> {
    buffer.resize(BUFFER_BYTES, 0);
    while rest > 0 {
        let most = usize::try_from(rest)
            .unwrap_or(usize::MAX)
            .min(BUFFER_BYTES);
        let count = sys::read(from, &mut buffer[..most])?;
        if count == 0 {
            return Err(Errno::IO);
        }
        sys::write_all(to, &buffer[..count])?;
        rest -= count as u64;
    }
    Ok(())
}

/// The most that the kernel is asked to copy at once, so that a signal is answered soon.
const MAX_RANGE_BYTES: usize = 64 << 20;
const BUFFER_BYTES: usize = 128 * 1024;

/// Makes all folders, open to their owner. A parent comes before what stands in it.
fn make_folders(entries: &[Entry], root: &OwnedFd) -> Result<()> {
    let mut folders = Folders::new(root.as_fd());
    for entry in entries.iter().filter(|entry| entry.node == Node::Directory) {
        let what = || "making a folder of the workspace".to_owned();
        let (parent, name) = folders.parent(&entry.path).store(what)?;
        sys::mkdir(parent, name, layout::FOLDER_MODE).store(what)?;
    }
    Ok(())
}

/// Gives the folders their modes and times, the innermost first.
fn finish_folders(entries: &[Entry], root: &OwnedFd, durable: bool) -> Result<()> {
    let what = || "finishing a folder of the workspace".to_owned();
    let mut folders = Folders::new(root.as_fd());
    let each = durable && entries.len() <= MAX_SINGLE_SYNCS;
    for entry in entries
        .iter()
        .rev()
        .filter(|entry| entry.node == Node::Directory)
    {
        let folder = folders.open(&entry.path).store(what)?;
        if each {
            sys::sync(folder).store(what)?;
        }
        sys::set_times(folder, entry.modified).store(what)?;
        sys::set_mode(folder, u32::from(entry.mode)).store(what)?;
    }
    if each {
        sys::sync(root).store(what)?;
    }
    Ok(())
}

/// Gives a file another name, through the folders' descriptors.
fn link(root: &OwnedFd, first: &[u8], path: &[u8]) -> Result<()> {
    let what = || "linking a file of the workspace".to_owned();
    let mut from = Folders::new(root.as_fd());
    let mut to = Folders::new(root.as_fd());
    let from_folder = from.open(split(first).0).store(what)?;
    let to_folder = to.open(split(path).0).store(what)?;
    sys::link(from_folder, split(first).1, to_folder, split(path).1).store(what)
}
