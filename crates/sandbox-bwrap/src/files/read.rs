//! Looking and reading.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use rustix::fs::{Dir, OFlags};
use rustix::io::{Errno, pread};
use sandbox_core::{
    Entry, EntryName, ErrorCode, ReadOptions, Result, SandboxError, Stat, WorkspacePath, shown,
};

use super::flow::Sink;
use super::resolve;

/// The size of one piece of a stream.
const PIECE_BYTES: usize = 64 * 1024;

pub(super) fn stat(root: BorrowedFd<'_>, path: &WorkspacePath) -> Result<Stat> {
    if path.is_root() {
        return resolve::stat_of(root).map_err(|errno| resolve::error(errno, path));
    }
    let (folder, name) = resolve::parent(root, path)?;
    resolve::stat_at(folder, name.as_bytes()).map_err(|errno| resolve::error(errno, path))
}

pub(super) fn list(
    root: BorrowedFd<'_>,
    path: &WorkspacePath,
    max_entries: usize,
) -> Result<Vec<Entry>> {
    let failed = |errno| resolve::error(errno, path);
    let folder =
        resolve::readable_folder(root, resolve::bytes(path)).map_err(|errno| match errno {
            Errno::NOTDIR => SandboxError::new(
                ErrorCode::Invalid,
                format!("{} is no folder", shown(path.to_string())),
            ),
            errno => resolve::error(errno, path),
        })?;
    let mut entries = Vec::new();
    for name in names(&folder).map_err(failed)? {
        if entries.len() == max_entries {
            return Err(SandboxError::new(
                ErrorCode::Limit,
                format!(
                    "{} has more than {max_entries} entries",
                    shown(path.to_string())
                ),
            ));
        }
        match resolve::stat_at(&folder, &name) {
            Ok(stat) => entries.push(Entry {
                name: EntryName::from_bytes(name),
                stat,
            }),
            // Removed since it was listed.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// The names of an open folder, but for `.` and `..`.
pub(super) fn names(folder: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Opens a regular file for reading; what else stands there is refused at once.
pub(super) fn open(root: BorrowedFd<'_>, path: &WorkspacePath) -> Result<OwnedFd> {
    let file = resolve::open(root, path, OFlags::RDONLY)?;
    let stat = resolve::stat_of(&file).map_err(|errno| resolve::error(errno, path))?;
    resolve::only_files(stat.kind, path)?;
    Ok(file)
}

pub(super) fn read(
    root: BorrowedFd<'_>,
    path: &WorkspacePath,
    ReadOptions { offset, length }: ReadOptions,
    max_bytes: u64,
) -> Result<Bytes> {
    let file = open(root, path)?;
    let wanted = length.map_or(max_bytes, |length| length.get().min(max_bytes));
    // One byte more than may be returned: the size that stat tells may be old already.
    let read = read_at(&file, offset, wanted.saturating_add(1))
        .map_err(|errno| resolve::error(errno, path))?;
    if read.len() as u64 <= wanted {
        return Ok(read.into());
    }
    if length.is_some() {
        let mut read = Bytes::from(read);
        read.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        return Ok(read);
    }
    let size = resolve::stat_of(&file).map_or(0, |stat| stat.size);
    Err(SandboxError::new(
        ErrorCode::Limit,
        format!(
            "{} has {size} bytes, and a read may give {max_bytes}: read parts, or as a stream",
            shown(path.to_string())
        ),
    ))
}

/// Up to `wanted` bytes from `offset` on; memory grows with what is there, not with what
/// is asked for.
fn read_at(file: impl AsFd, offset: u64, wanted: u64) -> Result<Vec<u8>, Errno> {
    let mut all = Vec::new();
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(wanted).unwrap_or(usize::MAX))];
    while (all.len() as u64) < wanted {
        let most = piece
            .len()
            .min(usize::try_from(wanted - all.len() as u64).unwrap_or(usize::MAX));
        match pread(
            &file,
            &mut piece[..most],
            offset.saturating_add(all.len() as u64),
        ) {
            Ok(0) => break,
            Ok(length) => all.extend_from_slice(&piece[..length]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(all)
}

/// Passes an open file on, piece by piece.
pub(super) fn stream(
    file: &OwnedFd,
    path: &WorkspacePath,
    max_bytes: u64,
    sink: &Sink,
) -> Result<()> {
    let mut offset = 0;
    loop {
        let piece = read_at(file, offset, PIECE_BYTES as u64)
            .map_err(|errno| resolve::error(errno, path))?;
        if piece.is_empty() {
            return Ok(());
        }
        offset += piece.len() as u64;
        if offset > max_bytes {
            return Err(SandboxError::new(
                ErrorCode::Limit,
                format!(
                    "{} is longer than the limit of a stream, {max_bytes} bytes",
                    shown(path.to_string())
                ),
            ));
        }
        sink.send(Ok(piece.into()))?;
    }
}
