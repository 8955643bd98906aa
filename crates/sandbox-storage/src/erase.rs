//! Erasing a tree that someone hostile may have made.
//!
//! Each folder below the one being erased is first moved up into the trash itself. So no
//! path ever grows, one descriptor is open at a time, and depth costs nothing; a crash
//! leaves entries of the trash like any other. No link is followed and no mount entered:
//! a mount point can't be renamed.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crate::sys::{self, Errno, Open};

/// Erases an entry of the trash; false where the deadline came first.
///
/// What another eraser takes first is fine. What can't be erased (a mount inside) stays,
/// and is the error; everything else goes.
pub(crate) fn erase(
    trash: impl AsFd,
    name: impl Into<Vec<u8>>,
    deadline: Option<Instant>,
) -> sys::Result<bool> {
    let trash = trash.as_fd();
    let mut waiting = vec![name.into()];
    let mut first_failure = None;
    while let Some(name) = waiting.pop() {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
        match erase_one(trash, &name, &mut waiting) {
            // Another eraser was faster, at whatever step.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => {
                first_failure.get_or_insert(errno);
            }
        }
    }
    first_failure.map_or(Ok(true), Err)
}

/// Erases an entry of `trash`, a folder that nobody else uses, and all that is below it.
///
/// What a command left behind is erased whatever it is: folders that shut their owner out,
/// thousands of levels, links that lead anywhere. Nothing outside is touched.
///
/// # Errors
/// The first failure; everything else is gone.
pub fn erase_tree(trash: impl AsFd, name: &[u8]) -> std::io::Result<()> {
    erase(trash, name, None)?;
    Ok(())
}

/// Erases one folder's own entries and then the folder; its folders go to `waiting`.
fn erase_one(trash: impl AsFd, name: &[u8], waiting: &mut Vec<Vec<u8>>) -> sys::Result<()> {
    match sys::rmdir(&trash, name) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR) => return gone(sys::unlink(&trash, name)),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let folder = open_for_erasing(&trash, name)?;
    let mut first_failure = None;
    sys::each_name(&folder, |entry| {
        if let Err(errno) = erase_entry(&trash, &folder, entry, waiting) {
            first_failure.get_or_insert(errno);
        }
        Ok::<_, Errno>(true)
    })?;
    if let Some(errno) = first_failure {
        return Err(errno);
    }
    match sys::rmdir(&trash, name) {
        // A listing may skip names while others are being removed: once more, from the top.
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            waiting.push(name.to_vec());
            Ok(())
        }
        result => gone(result),
    }
}

fn erase_entry(
    trash: impl AsFd,
    folder: &OwnedFd,
    entry: &[u8],
    waiting: &mut Vec<Vec<u8>>,
) -> sys::Result<()> {
    match sys::unlink(folder, entry) {
        // POSIX says EPERM for a folder, Linux EISDIR.
        Err(Errno::ISDIR | Errno::PERM) => {}
        result => return gone(result),
    }
    match sys::rmdir(folder, entry) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        result => return gone(result),
    }
    let up = random_name()?;
    match sys::rename_new(folder, entry, &trash, &up) {
        // A folder that moves has its `..` rewritten: its owner must be allowed to write.
        Err(Errno::ACCESS) => {
            let place = sys::open(folder, entry, Open::Place)?;
            sys::set_mode_of_place(&place, 0o700)?;
            sys::rename_new(folder, entry, &trash, &up)?;
        }
        Err(Errno::NOENT) => return Ok(()),
        result => result?,
    }
    waiting.push(up);
    Ok(())
}

/// Opens a folder whose mode bits may shut its owner out.
fn open_for_erasing(trash: impl AsFd, name: &[u8]) -> sys::Result<OwnedFd> {
    let folder = match sys::open(&trash, name, Open::Folder) {
        Err(Errno::ACCESS) => {
            let place = sys::open(&trash, name, Open::Place)?;
            sys::set_mode_of_place(&place, 0o700)?;
            sys::open(&trash, name, Open::Folder)?
        }
        folder => folder?,
    };
    if sys::stat(&folder)?.mode & 0o700 != 0o700 {
        sys::set_mode(&folder, 0o700)?;
    }
    Ok(folder)
}

fn random_name() -> sys::Result<Vec<u8>> {
    let bytes = sys::random::<16>()?;
    Ok(bytes
        .iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes())
        .collect())
}

/// That it was gone already is fine.
fn gone(result: sys::Result<()>) -> sys::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}
