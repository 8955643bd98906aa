//! Sessions as they are listed.

use std::sync::Arc;

use sandbox_core::{BackendName, SessionId, TemplateId, TemplateKey};
use serde::Serialize;

use super::is_dirty;
use crate::error::{Cause, Context as _, Result};
use crate::record::{self, Record, SessionMode};
use crate::store::{Inner, Store};
use crate::sys::{self, Errno, Open};
use crate::{layout, lease};

/// A session as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id.
    pub session_id: SessionId,
    /// What its record says, or why it can't be read.
    #[serde(flatten)]
    pub details: Details,
    /// Whether someone owns it now.
    pub held: bool,
    /// Whether a writer is live, or died before a clean stop.
    pub dirty: bool,
}

/// What a session's record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Details {
    /// The record.
    Known {
        /// The backend that made it.
        backend: BackendName,
        /// The template it started from.
        template_key: TemplateKey,
        /// What the caller called that.
        template_id: TemplateId,
        /// How its workspace stands on the template.
        mode: SessionMode,
        /// When it was made, in seconds since 1970.
        created: i64,
        /// When `gc` may remove it, in seconds since 1970.
        expires: Option<i64>,
    },
    /// The record can't be read; this is why.
    Damaged(String),
}

impl Store {
    /// All sessions, in the order of their ids, without their leases being kept.
    ///
    /// A session whose record is damaged is listed with what is wrong, so that it can be
    /// removed.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE` where the store can't be read.
    pub fn list_sessions(&self) -> sandbox_core::Result<Vec<SessionInfo>> {
        let store = &self.0;
        let _acting = store.act()?;
        Ok(list(store)?)
    }
}

fn list(store: &Arc<Inner>) -> Result<Vec<SessionInfo>> {
    let mut sessions = Vec::new();
    for id in record::ids(store)? {
        let what = || format!("looking at session {id}");
        let folder = match sys::open(&store.sessions, layout::session(&id), Open::Folder) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(Cause::Store(what(), errno)),
        };
        let details = match Record::read(&folder, &id) {
            Ok(record) => Details::Known {
                backend: record.backend,
                template_key: record.template_key,
                template_id: record.template_id,
                mode: record.mode,
                created: record.created,
                expires: record.expires,
            },
            Err(_) if sys::stat_at(&store.sessions, layout::session(&id)) == Err(Errno::NOENT) => {
                continue;
            }
            Err(cause) => Details::Damaged(cause.to_string()),
        };
        sessions.push(SessionInfo {
            session_id: id,
            details,
            held: lease::is_held(store, &id)?,
            dirty: is_dirty(&folder).store(what)?,
        });
    }
    Ok(sessions)
}
