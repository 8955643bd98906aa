//! Taking a session up again.

use std::sync::Arc;

use sandbox_core::{BackendName, SavedState};

use super::Session;
use crate::error::{Cause, Result};
use crate::layout;
use crate::lease::{self, Lease};
use crate::record::{Record, SessionMode};
use crate::store::{Inner, Store};
use crate::sys::{self, Errno, Open};

impl Store {
    /// Takes a session up again.
    ///
    /// Backend, session id and template key are compared with the caller's and with the
    /// record on disk; nothing is made or changed before that (SPEC STO-4, STO-6).
    ///
    /// # Errors
    /// `SANDBOX_STATE_MISMATCH`, naming the field; `SANDBOX_NOT_FOUND` where the session is
    /// gone; `SANDBOX_BUSY`, naming the holder, where someone owns it; `SANDBOX_STORAGE`
    /// where its record is damaged.
    pub fn reconnect(
        &self,
        backend: &BackendName,
        saved: &SavedState,
        holder: &str,
    ) -> sandbox_core::Result<Session> {
        let store = &self.0;
        let _acting = store.act()?;
        Ok(reconnect(store, backend, saved, holder)?)
    }
}

fn reconnect(
    store: &Arc<Inner>,
    backend: &BackendName,
    saved: &SavedState,
    holder: &str,
) -> Result<Session> {
    if saved.backend != *backend {
        return Err(Cause::Mismatch {
            field: "backend",
            saved: saved.backend.to_string(),
            other: "caller",
            actual: backend.to_string(),
        });
    }
    let id = saved.session_id;
    let lease = Lease::take(store, &id)?;
    let folder = match sys::open(&store.sessions, layout::session(&id), Open::Folder) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Err(lease::not_found(&id)),
        Err(errno) => return Err(Cause::Store(format!("opening session {id}"), errno)),
    };
    let record = Record::read(&folder, &id)?;
    record.check(saved)?;
    if record.mode == SessionMode::Overlay {
        return Err(Cause::damaged(
            format!("state.json of session {id}"),
            "it names the mode overlay, which this version does not know",
        ));
    }
    Ok(Session {
        store: Arc::clone(store),
        record,
        folder,
        lease: lease.keep(holder),
    })
}
