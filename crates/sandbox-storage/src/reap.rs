//! Cleaning up after owners that died: any process may do it, at any time.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use sandbox_core::SessionId;

use crate::error::{Cause, Context as _, Result};
use crate::layout;
use crate::lease;
use crate::store::{Inner, is_folder, random_name};
use crate::sys::{self, Errno, Lock, Open};
use crate::{erase, staging};

/// How long opening a store may spend on erasing; the rest waits for the next or for `gc`.
const OPEN_BUDGET: Duration = Duration::from_millis(200);

/// Reaps what the dead left, best effort: a store on a full or read-only disk still opens.
pub(crate) fn reap(store: &Inner) -> Result<()> {
    let _acting = store.act()?;
    let deadline = Instant::now() + OPEN_BUDGET;
    let steps = [
        staging_of_the_dead(store),
        orphaned_leases(store),
        trash(store, Some(deadline)).map(usize::from),
    ];
    for cause in steps.into_iter().filter_map(Result::err) {
        tracing::warn!(%cause, "leftovers stay");
    }
    Ok(())
}

/// Moves every staging folder whose lock is free to the trash.
pub(crate) fn staging_of_the_dead(store: &Inner) -> Result<usize> {
    let what = || "clearing staging/".to_owned();
    let mut reaped = 0;
    for name in sys::list(&store.staging).store(what)? {
        let folder = match sys::open(&store.staging, &name, Open::Folder) {
            Ok(folder) => Some(folder),
            Err(Errno::NOENT) => continue,
            // No folder of ours: nothing can hold it.
            Err(Errno::NOTDIR | Errno::LOOP) => None,
            Err(errno) => return Err(Cause::Store(what(), errno)),
        };
        let lock = match &folder {
            Some(folder) => match lock_staging(&store.staging, &name, folder).store(what)? {
                Some(lock) => Some(lock),
                None => continue,
            },
            None => None,
        };
        match sys::rename_new(&store.staging, &name, &store.trash, random_name()?) {
            Ok(()) => reaped += 1,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(Cause::Store(what(), errno)),
        }
        drop(lock);
    }
    Ok(reaped)
}

/// Locks a staging folder and checks that it still stands under its name. None where
/// someone else holds it or has moved it.
pub(crate) fn lock_staging(
    parent: &OwnedFd,
    name: impl AsRef<[u8]>,
    folder: &OwnedFd,
) -> sys::Result<Option<OwnedFd>> {
    let lock = match staging::lock(folder) {
        Ok(Some(lock)) => lock,
        // The folder was erased meanwhile: a file can't be made in it any more.
        Ok(None) | Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let here = sys::stat(folder)?.identity();
    match sys::stat_at(parent, name) {
        Ok(stat) if stat.identity() == here => Ok(Some(lock)),
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Removes leases whose session is gone, and side files whose lease is.
pub(crate) fn orphaned_leases(store: &Inner) -> Result<usize> {
    let what = || "clearing leases/".to_owned();
    let mut reaped = 0;
    for name in sys::list(&store.leases).store(what)? {
        let Some((id, is_holder)) = lease_name(&name) else {
            continue;
        };
        let session = layout::session(&id);
        if is_folder(store.sessions.as_fd(), &session).store(what)? {
            continue;
        }
        if is_holder {
            if sys::stat_at(&store.leases, &session) == Err(Errno::NOENT) {
                let _ = sys::unlink(&store.leases, &name);
            }
            continue;
        }
        let Ok(file) = sys::open(&store.leases, &name, Open::Write) else {
            continue;
        };
        let free = sys::lock(&file, Lock::TryAlone).is_ok()
            && lease::is_behind_its_name(store, &id, &file).store(what)?
            && !is_folder(store.sessions.as_fd(), &session).store(what)?;
        if free {
            let _ = sys::unlink(&store.leases, layout::holder(&id));
            sys::unlink(&store.leases, &name).store(what)?;
            reaped += 1;
        }
    }
    Ok(reaped)
}

/// The session that a name in `leases/` is about, and whether it is the side file.
fn lease_name(name: &[u8]) -> Option<(SessionId, bool)> {
    let name = std::str::from_utf8(name).ok()?;
    let (id, is_holder) = match name.strip_suffix(".holder") {
        Some(id) => (id, true),
        None => (name, false),
    };
    id.parse().ok().map(|id| (id, is_holder))
}

/// Erases what is in the trash; whether all of it went before the deadline.
pub(crate) fn trash(store: &Inner, deadline: Option<Instant>) -> Result<bool> {
    let what = || "emptying trash/".to_owned();
    let mut first_failure = None;
    for name in sys::list(&store.trash).store(what)? {
        match erase::erase(&store.trash, name, deadline) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(errno) => {
                first_failure.get_or_insert(errno);
            }
        }
    }
    match first_failure {
        Some(errno) => Err(Cause::Store(what(), errno)),
        None => Ok(true),
    }
}
