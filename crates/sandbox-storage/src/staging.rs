//! One operation's private area: what dies with its owner is told apart by a kernel lock.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::{Cause, Context as _, Result};
use crate::layout::{self, FOLDER_MODE};
use crate::store::{Inner, random_name};
use crate::sys::{self, Errno, Lock, Open};
use crate::{erase, reap};

/// A folder in `staging/` whose lock says that its owner lives.
pub(crate) struct Staging {
    store: Arc<Inner>,
    name: String,
    /// Files on their way to `blobs/`, and pins of those that are there.
    pub(crate) blobs: OwnedFd,
    /// What will be renamed to where others see it.
    pub(crate) out: OwnedFd,
    folder: OwnedFd,
    _lock: OwnedFd,
}

impl Staging {
    /// Makes one. The caller acts as the store's owner.
    pub(crate) fn new(store: &Arc<Inner>) -> Result<Self> {
        let what = || "making a staging folder".to_owned();
        for _ in 0..MAX_TRIES {
            let name = format!("{}-{}", store.boot, random_name()?);
            sys::mkdir(&store.staging, &name, FOLDER_MODE).store(what)?;
            match Self::claim(store, &name) {
                Ok(Some(staging)) => return Ok(staging),
                // A reaper met the folder before its lock was taken, and took it away.
                Ok(None) => {}
                Err(cause) => {
                    let _ = discard(store, &name);
                    return Err(cause);
                }
            }
        }
        Err(Cause::Busy {
            message: "other processes clean up faster than a staging folder can be made".to_owned(),
            hint: None,
        })
    }

    /// Takes the lock of a folder just made. None where a reaper was faster.
    fn claim(store: &Arc<Inner>, name: &str) -> Result<Option<Self>> {
        let what = || "making a staging folder".to_owned();
        let folder = match sys::open(&store.staging, name, Open::Folder) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(Cause::Store(what(), errno)),
        };
        let Some(lock) = reap::lock_staging(&store.staging, name, &folder).store(what)? else {
            return Ok(None);
        };
        let part = |part| {
            sys::mkdir(&folder, part, FOLDER_MODE)?;
            sys::open(&folder, part, Open::Folder)
        };
        Ok(Some(Self {
            blobs: part(layout::STAGING_BLOBS).store(what)?,
            out: part(layout::STAGING_OUT).store(what)?,
            store: Arc::clone(store),
            name: name.to_owned(),
            folder,
            _lock: lock,
        }))
    }

    /// Makes `out` visible under this name, which must be free.
    pub(crate) fn publish(&self, folder: &OwnedFd, name: &str) -> sys::Result<()> {
        sys::rename_new(&self.folder, layout::STAGING_OUT, folder, name)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let cleaned = self
            .store
            .act()
            .and_then(|_acting| discard(&self.store, &self.name));
        if let Err(cause) = cleaned {
            // The next reaper finds it: its lock goes with this process at the latest.
            tracing::warn!(%cause, "a staging folder stays behind");
        }
    }
}

/// Takes a staging folder out of sight and erases it.
fn discard(store: &Inner, name: &str) -> Result<()> {
    let what = || "clearing a staging folder".to_owned();
    let gone = random_name()?;
    match sys::rename_new(&store.staging, name, &store.trash, &gone) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(Cause::Store(what(), errno)),
    }
    erase::erase(&store.trash, gone, None).store(what)?;
    Ok(())
}

/// How often a staging folder is made again that a reaper took for a dead one's.
const MAX_TRIES: u32 = 100;

/// Locks the file of a staging folder. Shared with the reaper, so that both go the same way.
pub(crate) fn lock(folder: &OwnedFd) -> sys::Result<Option<OwnedFd>> {
    let lock = sys::lock_file(folder, layout::STAGING_LOCK, layout::RECORD_MODE)?;
    match sys::lock(&lock, Lock::TryAlone) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno),
    }
}
