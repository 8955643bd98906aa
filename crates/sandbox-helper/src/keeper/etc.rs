//! Writes the session's `/etc` into the keeper's tmpfs.
//!
//! By descriptor, since it is several hundred links on a usual host and done for each session.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::wire::EtcEntry;

/// Writes all entries, the working directory being the new root.
///
/// The tmpfs bounds what a large folder of the host's can take.
pub(super) fn write(entries: &[EtcEntry]) -> io::Result<()> {
    let target = open_folder(CWD, c"k/etc")?;
    let host = open_folder(CWD, c"/etc")?;
    for entry in entries {
        let (EtcEntry::File { path, .. } | EtcEntry::Copy { path }) = entry;
        let (folders, name) = split(path)?;
        match entry {
            EtcEntry::File { bytes, .. } => {
                let parent = make_folders(&target, &folders)?;
                let mut file = File::from(create(parent.as_fd(), &name, 0o644)?);
                file.write_all(bytes)?;
            }
            EtcEntry::Copy { .. } => {
                let Some(source) = find_folder(&host, &folders)? else {
                    continue;
                };
                let parent = make_folders(&target, &folders)?;
                copy(source.as_fd(), parent.as_fd(), &name, None, 0)?;
            }
        }
    }
    Ok(())
}

/// The names of a path; one that could leave `/etc` is refused.
fn split(path: &CStr) -> io::Result<(Vec<CString>, CString)> {
    let mut names = Vec::new();
    for name in path.to_bytes().split(|byte| *byte == b'/') {
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::INVAL.into());
        }
        names.push(CString::new(name)?);
    }
    let last = names.pop().ok_or(Errno::INVAL)?;
    Ok((names, last))
}

fn make_folders(root: &OwnedFd, names: &[CString]) -> Result<OwnedFd, Errno> {
    let mut folder = rustix::io::fcntl_dupfd_cloexec(root, 3)?;
    for name in names {
        folder = make_folder(folder.as_fd(), name)?;
    }
    Ok(folder)
}

fn make_folder(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => open_folder(parent, name),
        Err(error) => Err(error),
    }
}

/// The folder of the host's below these names; none where it is not there, or not for everybody.
fn find_folder(root: &OwnedFd, names: &[CString]) -> Result<Option<OwnedFd>, Errno> {
    let mut folder = rustix::io::fcntl_dupfd_cloexec(root, 3)?;
    for name in names {
        folder = match open_folder(folder.as_fd(), name) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error),
        };
    }
    Ok(Some(folder))
}

fn open_folder(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn create(parent: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode))
}

/// Copies what everybody may read; what is not there, or not for everybody, is left out.
fn copy(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    name: &CStr,
    kind: Option<FileType>,
    depth: usize,
) -> io::Result<()> {
    // A link needs no look at its mode, and most of it is links.
    if kind == Some(FileType::Symlink) {
        return copy_link(source, target, name);
    }
    let stat = match rustix::fs::statat(source, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mode = stat.st_mode;
    match FileType::from_raw_mode(mode) {
        FileType::Symlink => copy_link(source, target, name),
        FileType::Directory if mode & 0o005 == 0o005 && depth < MAX_DEPTH => {
            let folder = open_folder(source, name)?;
            let made = make_folder(target, name)?;
            for entry in Dir::read_from(&folder)? {
                let entry = entry?;
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    let kind = Some(entry.file_type());
                    copy(folder.as_fd(), made.as_fd(), name, kind, depth + 1)?;
                }
            }
            Ok(())
        }
        FileType::RegularFile if mode & 0o004 != 0 => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut from = File::from(rustix::fs::openat(source, name, flags, Mode::empty())?);
            let mut to = File::from(create(target, name, 0o644 | mode & 0o111)?);
            io::copy(&mut from, &mut to).map(|_| ())
        }
        _ => Ok(()),
    }
}

fn copy_link(source: BorrowedFd<'_>, target: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let link = rustix::fs::readlinkat(source, name, Vec::new())?;
    rustix::fs::symlinkat(link, target, name)?;
    Ok(())
}

/// Deeper than any distribution's configuration.
const MAX_DEPTH: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_leave_etc_are_refused() {
        let names = |names: &[&str]| -> Vec<CString> {
            names
                .iter()
                .map(|name| CString::new(*name).unwrap())
                .collect()
        };
        assert_eq!(
            split(c"ssl/certs").unwrap(),
            (names(&["ssl"]), c"certs".into())
        );
        for refused in [c"", c"/etc", c"..", c"a/../b", c"a//b", c"./a", c"a/"] {
            assert!(split(refused).is_err(), "{refused:?}");
        }
    }
}
