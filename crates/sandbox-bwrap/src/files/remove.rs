//! Removing, whatever a command has left there.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use sandbox_core::{ErrorCode, Result, WorkspacePath};
use sandbox_storage::erase_tree;

use super::resolve;
use super::write::random_hex;

/// Removes an entry and what is below it; a missing one is no error (SPEC SES-2).
///
/// A folder that is not empty is first moved aside, in one step: to the inside it is gone
/// at once, and however deep it is, no path to it grows.
pub(super) fn remove(root: BorrowedFd<'_>, path: &WorkspacePath) -> Result<()> {
    let failed = |errno| resolve::error(errno, path);
    let (folder, name) = match resolve::parent(root, path) {
        Err(error) if error.code() == ErrorCode::NotFound => return Ok(()),
        parent => parent?,
    };
    match unlink(&folder, name) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    }
    let aside = Aside::new(root).map_err(failed)?;
    match fs::renameat(&folder, name, &aside.folder, name) {
        Err(Errno::NOENT) => return Ok(()),
        // Its `..` is rewritten: its owner must be allowed to write in it.
        Err(Errno::ACCESS) => {
            fs::chmodat(&folder, name, Mode::RWXU, AtFlags::empty()).map_err(failed)?;
            fs::renameat(&folder, name, &aside.folder, name).map_err(failed)?;
        }
        moved => moved.map_err(failed)?,
    }
    erase_tree(&aside.folder, name.as_bytes()).map_err(|error| super::write::io_error(error, path))
}

/// Removes a name that is a file or an empty folder.
fn unlink(folder: &OwnedFd, name: &str) -> Result<(), Errno> {
    match fs::unlinkat(folder, name, AtFlags::empty()) {
        // POSIX says EPERM for a folder, Linux EISDIR.
        Err(Errno::ISDIR | Errno::PERM) => fs::unlinkat(folder, name, AtFlags::REMOVEDIR),
        result => result,
    }
}

/// A folder of the workspace that holds what is being erased, gone when this is dropped.
struct Aside<'a> {
    root: BorrowedFd<'a>,
    name: String,
    folder: OwnedFd,
}

impl<'a> Aside<'a> {
    fn new(root: BorrowedFd<'a>) -> Result<Self, Errno> {
        let name = format!(".sandbox-{}", random_hex());
        fs::mkdirat(root, name.as_str(), Mode::RWXU)?;
        let folder = resolve::readable_folder(root, name.as_bytes())?;
        Ok(Self { root, name, folder })
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        // Not empty only where something in it could not be erased, which was said.
        let _ = fs::unlinkat(self.root, self.name.as_str(), AtFlags::REMOVEDIR);
    }
}
