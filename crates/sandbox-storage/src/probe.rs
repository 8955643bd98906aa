//! What the disk can do, found by doing it.

use std::sync::Arc;

use crate::error::{Cause, Context as _, Result};
use crate::layout::RECORD_MODE;
use crate::store::{Inner, random_name};
use crate::sys::{self, Errno, Lock, Open};

/// Disks that are taken only when [`try_disk`] passes: overlay and FUSE, the roots of
/// containers and encrypted homes.
pub(crate) const NEEDS_TRIAL: [u64; 2] = [0x794c_7630, 0x6573_5546];

/// Tries locks, hard links and renames that refuse to replace.
pub(crate) fn try_disk(store: &Inner) -> Result<()> {
    let lacking = in_scratch(store, |first, second| {
        let what = || "trying the disk".to_owned();
        let file = sys::create(&store.staging, first, RECORD_MODE).store(what)?;
        sys::lock(&file, Lock::TryAlone).store(what)?;
        let rival = sys::open(&store.staging, first, Open::Write).store(what)?;
        if sys::lock(&rival, Lock::TryAlone) != Err(Errno::WOULDBLOCK) {
            return Ok(Some("exclusive locks"));
        }
        if sys::link(&store.staging, first, &store.staging, second).is_err() {
            return Ok(Some("hard links"));
        }
        let rename = sys::rename_new(&store.staging, first, &store.staging, second);
        Ok((rename != Err(Errno::EXIST)).then_some("renames that refuse to replace"))
    })?;
    match lacking {
        None => Ok(()),
        Some(lacking) => Err(Cause::Refused {
            path: store.label(),
            why: format!("its disk lacks {lacking}"),
            fix: "name a folder on a disk of this machine".to_owned(),
        }),
    }
}

/// Clones one small file to another.
pub(crate) fn try_reflink(store: &Inner) -> Result<bool> {
    let _acting = store.act()?;
    in_scratch(store, |first, second| {
        let what = || "trying to clone a file".to_owned();
        let from = sys::create(&store.staging, first, RECORD_MODE).store(what)?;
        sys::write_all(&from, &[0x5a; 4096]).store(what)?;
        let to = sys::create(&store.staging, second, RECORD_MODE).store(what)?;
        Ok(sys::clone_file(&from, &to).is_ok())
    })
}

/// Runs with two free names in `staging/` and removes what they came to name.
fn in_scratch<T>(store: &Inner, work: impl FnOnce(&str, &str) -> Result<T>) -> Result<T> {
    let (first, second) = (random_name()?, random_name()?);
    let result = work(&first, &second);
    for name in [first, second] {
        let _ = sys::unlink(&store.staging, name);
    }
    result
}

/// Whether files of new sessions are clones; a store decides it once.
pub(crate) fn session_mode(store: &Arc<Inner>) -> crate::record::SessionMode {
    if store.reflinks() {
        crate::record::SessionMode::Reflink
    } else {
        crate::record::SessionMode::Copy
    }
}
