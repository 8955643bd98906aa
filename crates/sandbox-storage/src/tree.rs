//! Folders of a tree by path, below one descriptor, whatever the depth.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::{self, Errno, Open};

/// Opens folders below a root and keeps the last few open.
///
/// Every step stays beneath the root and follows no link, so that whoever swaps a folder
/// for a link meanwhile gets an error, not a read outside. Paths may be longer than
/// `PATH_MAX`: they are resolved in parts.
pub(crate) struct Folders<'a> {
    root: BorrowedFd<'a>,
    /// The path of the innermost open folder.
    path: Vec<u8>,
    /// The open ones on the way to it, the innermost last; each with the length of its path.
    open: Vec<(usize, OwnedFd)>,
    cross_mounts: bool,
}

/// How many folders of one way stay open.
const MAX_OPEN: usize = 16;

/// The longest part of a path that is resolved at once: below `PATH_MAX`, less its NUL.
const MAX_PART_BYTES: usize = 4000;

impl<'a> Folders<'a> {
    /// Folders below `root`; mounts are not entered.
    pub(crate) fn new(root: BorrowedFd<'a>) -> Self {
        Self {
            root,
            path: Vec::new(),
            open: Vec::new(),
            cross_mounts: false,
        }
    }

    /// The folder at a path; the root for the empty one.
    pub(crate) fn open(&mut self, path: &[u8]) -> sys::Result<BorrowedFd<'_>> {
        while let Some((length, _)) = self.open.last() {
            let length = *length;
            let is_above = path.starts_with(&self.path[..length])
                && (path.len() == length || path[length] == b'/');
            if is_above {
                break;
            }
            self.open.pop();
        }
        let mut reached = self.open.last().map_or(0, |(length, _)| *length);
        self.path.truncate(reached);
        while reached < path.len() {
            let begin = if reached == 0 { 0 } else { reached + 1 };
            let end = begin + part_length(&path[begin..]);
            let from = self
                .open
                .last()
                .map_or(self.root, |(_, folder)| folder.as_fd());
            let folder =
                sys::open_beneath(from, &path[begin..end], Open::Folder, self.cross_mounts)?;
            if self.open.len() == MAX_OPEN {
                self.open.remove(0);
            }
            self.open.push((end, folder));
            self.path.clear();
            self.path.extend_from_slice(&path[..end]);
            reached = end;
        }
        Ok(self
            .open
            .last()
            .map_or(self.root, |(_, folder)| folder.as_fd()))
    }

    /// The folder of an entry, and the entry's name in it.
    pub(crate) fn parent<'p>(&mut self, path: &'p [u8]) -> sys::Result<(BorrowedFd<'_>, &'p [u8])> {
        let (parent, name) = split(path);
        Ok((self.open(parent)?, name))
    }

    /// Opens a file for reading, whatever folders are on the way.
    pub(crate) fn open_file(&mut self, path: &[u8]) -> sys::Result<OwnedFd> {
        let cross_mounts = self.cross_mounts;
        let (parent, name) = self.parent(path)?;
        sys::open_beneath(parent, name, Open::Read, cross_mounts)
    }
}

/// A path's parent and last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// The path of `name` below `parent`.
pub(crate) fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(parent.len() + name.len() + 1);
    if !parent.is_empty() {
        path.extend_from_slice(parent);
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// How many names there are in a path.
pub(crate) fn depth(path: &[u8]) -> usize {
    if path.is_empty() {
        0
    } else {
        1 + path.iter().filter(|byte| **byte == b'/').count()
    }
}

/// Where the part ends that is resolved next: at a slash, or at the end.
fn part_length(rest: &[u8]) -> usize {
    if rest.len() <= MAX_PART_BYTES {
        return rest.len();
    }
    rest[..MAX_PART_BYTES]
        .iter()
        .rposition(|byte| *byte == b'/')
        .unwrap_or(MAX_PART_BYTES)
}

/// Whether an error says that what was seen a moment ago is something else now.
pub(crate) fn is_swap(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE | Errno::NXIO | Errno::NODEV
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_and_join_as_bytes() {
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split(b"a"), (&b""[..], &b"a"[..]));
        assert_eq!(join(b"", b"a"), b"a");
        assert_eq!(join(b"a/b", b"\xff"), b"a/b/\xff");
        assert_eq!((depth(b""), depth(b"a"), depth(b"a/b")), (0, 1, 2));
    }

    // STC-15: a path beyond PATH_MAX is cut at names.
    #[test]
    fn stc_15_long_paths_are_resolved_in_parts() {
        let path = b"abc/".repeat(2000);
        let length = part_length(&path);
        assert!(length <= MAX_PART_BYTES && path[length] == b'/', "{length}");
        assert_eq!(part_length(b"a/b"), 3);
    }
}
