//! What a session changed, against the manifest of its template.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use sandbox_core::{EntryName, FileKind, shown};
use serde::Serialize;

use crate::digest::{Digest, Hashing};
use crate::error::{Cause, Context as _, Result};
use crate::layout::{self, MAX_MANIFEST_BYTES};
use crate::manifest::{Entry, Manifest, Node};
use crate::materialise::Made;
use crate::session::Session;
use crate::stats::Stats;
use crate::sys::{self, Errno, Inode, Open, Stat};
use crate::template::Template;
use crate::tree::{Folders, is_swap};
use crate::walk::{self, At, Visitor};
use crate::{json, parallel};

/// How an entry of a workspace differs from its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its bytes differ; its mode may, too.
    Modified,
    /// Its permission bits differ, and nothing else.
    Mode,
    /// It is another kind of thing. What stood below a folder is listed as removed.
    TypeChanged,
    /// It is a link to somewhere else.
    SymlinkTarget,
    /// It is gone.
    Removed,
}

/// One changed entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Where: names joined by `/`, as bytes; its text form can be read back (SPEC PATH-5).
    pub path: EntryName,
    /// How it differs.
    pub kind: ChangeKind,
    /// What stands there now; for what is gone, what stood there.
    pub entry: FileKind,
}

impl Session {
    /// The entries of the workspace that differ from its template, in byte order of their paths.
    ///
    /// Files are compared by size, then by digest; one that is as it was made is not
    /// read. Times alone are no change. Links are not followed and mounts not entered;
    /// FIFOs, sockets and devices count as added. Commands may be running: what they
    /// change meanwhile is seen before or after. A folder or file whose mode bits shut its
    /// owner out is opened for the walk and gets its mode back.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND` where the template is gone; `SANDBOX_LIMIT` above ten million
    /// entries; `SANDBOX_STORAGE`.
    pub fn changes(&self) -> sandbox_core::Result<Vec<Change>> {
        let record = self.record();
        let template = {
            let _acting = self.store().act()?;
            Template::read(self.store(), &record.template_key)?
        };
        // Not as the owner from here: the kernel's root may read what the owner may not.
        let root = sys::open(self.folder(), layout::WORKSPACE, Open::Folder)
            .store(|| "opening the workspace".to_owned())?;
        let stats = read_stats(self.folder(), template.manifest.entries().len())?;
        let mut scan = Scan {
            root: &root,
            found: Vec::new(),
            opened: Vec::new(),
        };
        let walked = walk::walk(root.as_fd(), &mut scan);
        let mut found = std::mem::take(&mut scan.found);
        let result = walked.and_then(|()| {
            found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
            compare(
                &template.manifest,
                &found,
                stats.as_ref(),
                &root,
                self.store().threads,
            )
        });
        scan.close_again();
        Ok(result?)
    }
}

fn read_stats(folder: &OwnedFd, count: usize) -> Result<Option<Stats>> {
    let label = "the stats of a session";
    let bytes = match json::read_bounded(folder, layout::STATS, label, MAX_MANIFEST_BYTES) {
        Ok(bytes) => bytes,
        // They save reading and decide nothing.
        Err(Cause::Damaged { .. }) => None,
        Err(cause) => return Err(cause),
    };
    Ok(bytes.and_then(|bytes| Stats::decode(&bytes, count)))
}

/// An entry of the workspace.
struct Found {
    path: Vec<u8>,
    kind: FileKind,
    mode: u32,
    size: u64,
    made: Made,
    target: Vec<u8>,
}

struct Scan<'a> {
    root: &'a OwnedFd,
    found: Vec<Found>,
    /// What was opened by force: path, inode and mode.
    opened: Vec<(Vec<u8>, Inode, u32)>,
}

/// The most entries of a workspace that are compared.
const MAX_ENTRIES: usize = 10_000_000;

impl Visitor for Scan<'_> {
    fn enter(&mut self, _: &[u8], _: BorrowedFd<'_>) -> Result<()> {
        Ok(())
    }

    fn entry(&mut self, at: &At<'_>, stat: &Stat) -> Result<bool> {
        if self.found.len() >= MAX_ENTRIES {
            return Err(Cause::Limit(format!(
                "the workspace has more than {MAX_ENTRIES} entries, the most that are compared"
            )));
        }
        let mut target = Vec::new();
        match stat.kind {
            FileKind::Symlink => match sys::read_link(at.folder, at.name) {
                Ok(read) => target = read,
                Err(errno) if is_swap(errno) || errno == Errno::INVAL => {}
                Err(errno) => return Err(Cause::Store(what(at.path), errno)),
            },
            FileKind::Directory if stat.mode & 0o500 != 0o500 => self.open_up(at, stat, 0o500),
            FileKind::File if stat.mode & 0o400 == 0 => self.open_up(at, stat, 0o400),
            _ => {}
        }
        self.found.push(Found {
            path: at.path.to_vec(),
            kind: stat.kind,
            mode: stat.mode & 0o777,
            size: stat.size,
            made: Made {
                inode: stat.inode,
                changed: (stat.changed.seconds, stat.changed.nanoseconds),
            },
            target,
        });
        Ok(stat.kind == FileKind::Directory && !stat.mount_root)
    }

    fn closed(&mut self, path: &[u8], errno: Errno) -> Result<()> {
        if is_swap(errno) || errno == Errno::XDEV {
            return Ok(());
        }
        Err(Cause::Store(what(path), errno))
    }
}

impl Scan<'_> {
    /// Lets the owner into what its mode bits shut it out of. The kernel's root needs none.
    fn open_up(&mut self, at: &At<'_>, stat: &Stat, bits: u32) {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let opened = sys::open(at.folder, at.name, Open::Place).and_then(|place| {
            if sys::stat(&place)?.identity() != stat.identity() {
                return Ok(());
            }
            sys::set_mode_of_place(&place, stat.mode | bits)
        });
        if opened.is_ok() {
            self.opened
                .push((at.path.to_vec(), stat.identity(), stat.mode));
        }
    }

    /// Gives what was opened its mode back, the innermost first.
    fn close_again(&mut self) {
        let mut folders = Folders::new(self.root.as_fd());
        for (path, identity, mode) in self.opened.drain(..).rev() {
            let closed = folders.parent(&path).and_then(|(parent, name)| {
                let place = sys::open(parent, name, Open::Place)?;
                if sys::stat(&place)?.identity() == identity {
                    sys::set_mode_of_place(&place, mode)?;
                }
                Ok(())
            });
            if let Err(errno) = closed {
                tracing::warn!(%errno, "an entry keeps the mode that it was opened with");
            }
        }
    }
}

fn what(path: &[u8]) -> String {
    format!("looking at {} in the workspace", shown(path))
}

/// Joins both sorted lists.
fn compare(
    base: &Manifest,
    found: &[Found],
    stats: Option<&Stats>,
    root: &OwnedFd,
    threads: usize,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    // Files of the same size, whose bytes decide: index of the change, entry, found.
    let mut unsure: Vec<(usize, &Entry, &Found)> = Vec::new();
    let mut rest = found.iter().peekable();
    for (index, entry) in base.entries().iter().enumerate() {
        while let Some(new) = rest.next_if(|found| found.path < entry.path) {
            changes.push(Some(change(&new.path, ChangeKind::Added, new.kind)));
        }
        let Some(now) = rest.next_if(|found| found.path == entry.path) else {
            changes.push(Some(change(
                &entry.path,
                ChangeKind::Removed,
                kind_of(&entry.node),
            )));
            continue;
        };
        match look(entry, now, || {
            stats.is_some_and(|stats| stats.is_untouched(index, now.made))
        }) {
            Look::Same => {}
            Look::Differs(kind) => changes.push(Some(change(&now.path, kind, now.kind))),
            Look::Unsure => {
                unsure.push((changes.len(), entry, now));
                changes.push(None);
            }
        }
    }
    changes.extend(rest.map(|new| Some(change(&new.path, ChangeKind::Added, new.kind))));
    let modified = read_unsure(&unsure, root, threads)?;
    for (place, entry, now) in unsure {
        changes[place] = if modified.contains(&place) {
            Some(change(&now.path, ChangeKind::Modified, now.kind))
        } else if now.mode != u32::from(entry.mode) {
            Some(change(&now.path, ChangeKind::Mode, now.kind))
        } else {
            None
        };
    }
    Ok(changes.into_iter().flatten().collect())
}

enum Look {
    Same,
    Differs(ChangeKind),
    /// Only the bytes can tell.
    Unsure,
}

fn look(entry: &Entry, now: &Found, is_untouched: impl FnOnce() -> bool) -> Look {
    if now.kind != kind_of(&entry.node) {
        return Look::Differs(ChangeKind::TypeChanged);
    }
    match &entry.node {
        Node::Symlink { target } if *target != now.target => {
            return Look::Differs(ChangeKind::SymlinkTarget);
        }
        // A link has no mode of its own.
        Node::Symlink { .. } => return Look::Same,
        Node::File { size, .. } if *size != now.size => {
            return Look::Differs(ChangeKind::Modified);
        }
        Node::File { size, .. } if *size > 0 && !is_untouched() => return Look::Unsure,
        Node::File { .. } | Node::Directory => {}
    }
    if now.mode == u32::from(entry.mode) {
        Look::Same
    } else {
        Look::Differs(ChangeKind::Mode)
    }
}

/// Reads the files whose bytes decide; the places of those that differ.
fn read_unsure(
    unsure: &[(usize, &Entry, &Found)],
    root: &OwnedFd,
    threads: usize,
) -> Result<HashSet<usize>> {
    let modified = Mutex::new(HashSet::new());
    parallel::for_each(
        unsure.len(),
        threads,
        || Ok((Folders::new(root.as_fd()), vec![0; BUFFER_BYTES])),
        |(folders, buffer), index| {
            let (place, entry, now) = unsure[index];
            if !is_same(folders, entry, now, buffer)?
                && let Ok(mut modified) = modified.lock()
            {
                modified.insert(place);
            }
            Ok(())
        },
    )?;
    Ok(modified.into_inner().unwrap_or_default())
}

const BUFFER_BYTES: usize = 128 * 1024;

/// Whether a file of the right size has the entry's bytes.
fn is_same(
    folders: &mut Folders<'_>,
    entry: &Entry,
    now: &Found,
    buffer: &mut [u8],
) -> Result<bool> {
    let Node::File { digest, size, .. } = &entry.node else {
        return Ok(false);
    };
    let file = match folders.open_file(&now.path) {
        Ok(file) => file,
        // Replaced since the walk, or mounted over: not what the template has.
        Err(errno) if is_swap(errno) || errno == Errno::XDEV => return Ok(false),
        Err(errno) => return Err(Cause::Store(what(&now.path), errno)),
    };
    let read = digest_of(&file, *size, buffer).store(|| what(&now.path))?;
    Ok(read == Some(*digest))
}

/// The digest of a file of this size. None where it is another kind, or has another size.
fn digest_of(file: &OwnedFd, size: u64, buffer: &mut [u8]) -> sys::Result<Option<Digest>> {
    if sys::stat(file)?.kind != FileKind::File {
        return Ok(None);
    }
    let mut hashing = Hashing::default();
    let mut total = 0;
    while total <= size {
        let count = sys::read(file, buffer)?;
        if count == 0 {
            break;
        }
        hashing.update(&buffer[..count]);
        total += count as u64;
    }
    Ok((total == size).then(|| hashing.finish()))
}

fn kind_of(node: &Node) -> FileKind {
    match node {
        Node::Directory => FileKind::Directory,
        Node::File { .. } => FileKind::File,
        Node::Symlink { .. } => FileKind::Symlink,
    }
}

fn change(path: &[u8], kind: ChangeKind, entry: FileKind) -> Change {
    Change {
        path: EntryName::from_bytes(path),
        kind,
        entry,
    }
}
