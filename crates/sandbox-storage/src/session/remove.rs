//! Removing a session: out of sight under its lease, then erased.

use std::sync::Arc;

use sandbox_core::SessionId;

use crate::error::{Cause, Context as _, Result};
use crate::layout;
use crate::lease::{self, Lease};
use crate::store::{Inner, Store, random_name};
use crate::sys::{self, Errno};
use crate::{erase, record};

impl Store {
    /// Removes a session for good; that it is gone already is no error (SPEC STO-7).
    ///
    /// # Errors
    /// `SANDBOX_BUSY`, naming the holder, where someone owns it; `SANDBOX_STORAGE`.
    pub fn delete_session(&self, id: &SessionId) -> sandbox_core::Result<()> {
        let store = &self.0;
        let _acting = store.act()?;
        Ok(delete(store, id)?)
    }
}

/// Removes a session that nobody owns.
fn delete(store: &Arc<Inner>, id: &SessionId) -> Result<()> {
    let lease = match Lease::take(store, id) {
        Err(Cause::NotFound(_)) => {
            // A session without a lease has lost it to a hand from outside.
            lease::restore(store, id)?;
            match Lease::take(store, id) {
                Err(Cause::NotFound(_)) => return Ok(()),
                lease => lease?,
            }
        }
        lease => lease?,
    };
    remove(store, id, lease.keep("sandbox: removing it"))
}

/// Removes a session that expired, unless someone owns it. Whether it was removed.
///
/// Its lease is taken before its record is read: an owner may have renewed it until then.
pub(crate) fn expire(store: &Arc<Inner>, id: &SessionId, now: i64) -> Result<bool> {
    let lease = match Lease::take(store, id) {
        Err(Cause::Busy { .. } | Cause::NotFound(_)) => return Ok(false),
        lease => lease?,
    };
    match record::read(store, id)? {
        Some(record) if record.is_expired(now) => {}
        _ => return Ok(false),
    }
    remove(store, id, lease.keep("sandbox: collecting it"))?;
    Ok(true)
}

/// Takes a session out of sight under its lease, then erases it (section 4.7 of the layout).
pub(super) fn remove(store: &Arc<Inner>, id: &SessionId, lease: Lease) -> Result<()> {
    let what = || format!("removing session {id}");
    let gone = random_name()?;
    let name = layout::session(id);
    let was_there = match sys::rename_new(&store.sessions, &name, &store.trash, &gone) {
        Ok(()) => true,
        Err(Errno::NOENT) => false,
        Err(errno) => return Err(Cause::Store(what(), errno)),
    };
    if store.is_durable() {
        sys::sync(&store.sessions).store(what)?;
    }
    lease.remove()?;
    drop(lease);
    if was_there {
        erase::erase(&store.trash, gone, None).store(|| format!("erasing session {id}"))?;
    }
    Ok(())
}
