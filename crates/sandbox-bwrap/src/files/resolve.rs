//! From a path to a descriptor, beneath the workspace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sandbox_core::{
    ErrorCode, FileKind, Result, SandboxError, Stat, Timestamp, WorkspacePath, shown,
};

/// How often a resolution is tried again that renames by a command got in the way of.
const MAX_TRIES: u32 = 64;

/// How many links may lead from a name to a file (`path_resolution(7)`).
const MAX_LINKS: u32 = 40;

/// What is common to every open of a session's file: never waits, never a terminal.
const ALWAYS: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK);

/// Nothing outside, and no detour over processes. A mount inside is none of ours: only
/// what reads may cross one.
const READING: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
const WRITING: ResolveFlags = READING.union(ResolveFlags::NO_XDEV);

/// Opens what stands at a path, links that stay inside followed.
pub(super) fn open(root: BorrowedFd<'_>, path: &WorkspacePath, flags: OFlags) -> Result<OwnedFd> {
    openat2(root, bytes(path), flags, READING).map_err(|errno| error(errno, path))
}

/// Opens a folder to make, replace or remove names in, links that stay inside followed.
pub(super) fn open_folder(root: BorrowedFd<'_>, path: &WorkspacePath) -> Result<OwnedFd> {
    folder(root, bytes(path)).map_err(|errno| error(errno, path))
}

/// The same for a path of raw bytes below `root`; an empty one is `root` itself.
pub(super) fn folder(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(root, path, OFlags::PATH | OFlags::DIRECTORY, WRITING)
}

/// The same again, for reading what is in it.
pub(super) fn readable_folder(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(root, path, OFlags::RDONLY | OFlags::DIRECTORY, READING)
}

/// A file of a path of raw bytes, the last name not followed.
pub(super) fn file(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(root, path, OFlags::RDONLY | OFlags::NOFOLLOW, READING)
}

/// The folder of a path and the name in it; the name itself is not followed.
pub(super) fn parent<'a>(
    root: BorrowedFd<'_>,
    path: &'a WorkspacePath,
) -> Result<(OwnedFd, &'a str)> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(SandboxError::new(
            ErrorCode::Path,
            "/workspace itself has no folder above it",
        ));
    };
    Ok((
        open_folder(root, &above).map_err(|error| renamed(error, path))?,
        name,
    ))
}

/// The folder and name that a write to this path ends at: links are followed while they
/// stay inside, to a name that may be missing (SPEC SES-4, H11).
pub(super) fn target(root: BorrowedFd<'_>, path: &WorkspacePath) -> Result<(OwnedFd, Vec<u8>)> {
    let (mut above, mut name) = split(bytes(path));
    for _ in 0..MAX_LINKS {
        let folder = folder(root, &above).map_err(|errno| error(errno, path))?;
        let link = match fs::readlinkat(&folder, &name[..], Vec::new()) {
            Ok(link) => link.into_bytes(),
            // No link, or nothing at all: this is where it ends.
            Err(Errno::INVAL | Errno::NOENT) => return Ok((folder, name)),
            Err(errno) => return Err(error(errno, path)),
        };
        if link.first() == Some(&b'/') {
            return Err(leads_out(path));
        }
        // The kernel resolves it from the root, so that `..` means what it means there.
        let mut joined = above;
        if !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend(&link);
        (above, name) = split(&joined);
        if matches!(&name[..], b"" | b"." | b"..") {
            return Err(is_folder(path));
        }
    }
    Err(error(Errno::LOOP, path))
}

fn split(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (path[..at].to_vec(), path[at + 1..].to_vec()),
        None => (Vec::new(), path.to_vec()),
    }
}

fn openat2(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    // openat2(2) refuses what O_PATH would ignore.
    let flags = if flags.contains(OFlags::PATH) {
        flags | OFlags::CLOEXEC
    } else {
        flags | ALWAYS
    };
    let mut tries = 0;
    loop {
        match fs::openat2(root, path, flags, Mode::empty(), resolve) {
            // A rename elsewhere left the kernel unsure that nothing led out (openat2(2)),
            // or a command holds a lease on the file (fcntl(2)).
            Err(Errno::AGAIN) if tries < MAX_TRIES => tries += 1,
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

pub(super) fn bytes(path: &WorkspacePath) -> &[u8] {
    path.relative().as_bytes()
}

/// Describes an open file.
pub(super) fn stat_of(file: impl AsFd) -> Result<Stat, Errno> {
    Ok(convert(&fs::fstat(file)?))
}

/// Describes a name, a link itself.
pub(super) fn stat_at(folder: impl AsFd, name: &[u8]) -> Result<Stat, Errno> {
    Ok(convert(&fs::statat(
        folder,
        name,
        AtFlags::SYMLINK_NOFOLLOW,
    )?))
}

fn convert(stat: &fs::Stat) -> Stat {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::Other,
    };
    Stat {
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified: Timestamp {
            seconds: stat.st_mtime,
            nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        },
    }
}

/// What an error of the kernel means for a path.
pub(super) fn error(errno: Errno, path: &WorkspacePath) -> SandboxError {
    let (code, what) = match errno {
        Errno::NOENT => (ErrorCode::NotFound, "is not there"),
        Errno::XDEV => return leads_out(path),
        Errno::LOOP => (ErrorCode::Path, "goes over links that never end"),
        Errno::NAMETOOLONG => (ErrorCode::Path, "is longer than the kernel takes"),
        Errno::NOTDIR => (
            ErrorCode::Invalid,
            "goes through something that is no folder",
        ),
        Errno::ISDIR => return is_folder(path),
        Errno::NXIO => (
            ErrorCode::Invalid,
            "is a socket or a device: only regular files are read and written",
        ),
        Errno::EXIST | Errno::NOTEMPTY => (
            ErrorCode::Invalid,
            "is a folder that is not empty, or something is there already",
        ),
        Errno::AGAIN => (
            ErrorCode::Busy,
            "is held by a command (a lease), or is being renamed all the time",
        ),
        Errno::ACCESS | Errno::PERM => (ErrorCode::Storage, "is closed by its mode bits"),
        Errno::NOSPC | Errno::DQUOT => (ErrorCode::Storage, "can't be written: the disk is full"),
        Errno::ROFS => (
            ErrorCode::Storage,
            "can't be written: the disk is read-only",
        ),
        Errno::MFILE | Errno::NFILE => (
            ErrorCode::Limit,
            "can't be opened: this process may open no more files",
        ),
        Errno::FBIG => (ErrorCode::Limit, "would be larger than a file may be"),
        _ => (ErrorCode::Storage, "can't be used"),
    };
    SandboxError::new(code, format!("{} {what}", shown(path.to_string())))
        .with_source(io::Error::from(errno))
}

pub(super) fn leads_out(path: &WorkspacePath) -> SandboxError {
    SandboxError::new(
        ErrorCode::Path,
        format!(
            "{} leads out of the workspace over a link or a mount",
            shown(path.to_string())
        ),
    )
}

pub(super) fn is_folder(path: &WorkspacePath) -> SandboxError {
    SandboxError::new(
        ErrorCode::Invalid,
        format!("{} is a folder, not a file", shown(path.to_string())),
    )
}

/// Refuses what is no regular file, whatever else it is.
pub(super) fn only_files(kind: FileKind, path: &WorkspacePath) -> Result<()> {
    match kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(is_folder(path)),
        kind => Err(SandboxError::new(
            ErrorCode::Invalid,
            format!(
                "{} is a {kind}: only regular files are read and written",
                shown(path.to_string())
            ),
        )),
    }
}

/// An error of the folder above, said of the path that was asked for.
fn renamed(error: SandboxError, path: &WorkspacePath) -> SandboxError {
    if error.code() == ErrorCode::NotFound {
        SandboxError::new(
            ErrorCode::NotFound,
            format!("{} is not there", shown(path.to_string())),
        )
        .with_source(error)
    } else {
        error
    }
}
