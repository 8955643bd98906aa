//! `state.json`: what a session is. It is there before the session is visible, and only
//! ever replaced whole.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use sandbox_core::{BackendName, SavedState, SessionId, TemplateId, TemplateKey};
use serde::{Deserialize, Serialize};

use crate::digest::TreeId;
use crate::error::{Cause, Context as _, Result};
use crate::store::Inner;
use crate::sys::{self, Errno, Open};
use crate::template::RECORD_FORMAT;
use crate::{json, layout};

/// How a session's workspace stands on its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SessionMode {
    /// A private layer over the template's tree.
    Overlay,
    /// A private tree whose files share the blobs' blocks until they are written to.
    Reflink,
    /// A private tree.
    Copy,
}

/// The record in `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) format: u32,
    pub(crate) backend: BackendName,
    pub(crate) session_id: SessionId,
    pub(crate) template_key: TemplateKey,
    pub(crate) template_id: TemplateId,
    pub(crate) tree_id: TreeId,
    pub(crate) mode: SessionMode,
    /// Counts the resets of the workspace.
    pub(crate) generation: u64,
    /// In seconds since 1970.
    pub(crate) created: i64,
    /// In seconds since 1970; none is never.
    pub(crate) expires: Option<i64>,
    /// The bytes that workspace and home may take.
    pub(crate) quota: Option<u64>,
    /// The sessions that this one was forked from, the nearest first.
    pub(crate) lineage: Vec<SessionId>,
}

impl Record {
    /// Reads the record of a session's folder.
    pub(crate) fn read(folder: impl AsFd, id: &SessionId) -> Result<Self> {
        let label = format!("state.json of session {id}");
        let record: Self = json::read(folder, layout::STATE, &label)?
            .ok_or_else(|| Cause::damaged(&label, "it is missing"))?;
        if record.format != RECORD_FORMAT {
            return Err(Cause::damaged(
                label,
                format!(
                    "its format is {}, this version reads {RECORD_FORMAT}",
                    record.format
                ),
            ));
        }
        Ok(record)
    }

    pub(crate) fn saved_state(&self) -> SavedState {
        SavedState {
            backend: self.backend.clone(),
            session_id: self.session_id,
            template_key: self.template_key,
        }
    }

    /// Whether its time is over at this moment, in seconds since 1970.
    pub(crate) fn is_expired(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Refuses a saved state that differs from the record, naming the field.
    pub(crate) fn check(&self, saved: &SavedState) -> Result<()> {
        let fields = [
            (
                "session id",
                saved.session_id.to_string(),
                self.session_id.to_string(),
            ),
            (
                "backend",
                saved.backend.to_string(),
                self.backend.to_string(),
            ),
            (
                "template key",
                saved.template_key.to_string(),
                self.template_key.to_string(),
            ),
        ];
        match fields
            .into_iter()
            .find(|(_, saved, actual)| saved != actual)
        {
            None => Ok(()),
            Some((field, saved, actual)) => Err(Cause::Mismatch {
                field,
                saved,
                other: "record on disk",
                actual,
            }),
        }
    }
}

/// The ids of all sessions, sorted; other names in the folder are nobody's.
pub(crate) fn ids(store: &Inner) -> Result<Vec<SessionId>> {
    let names = sys::list(&store.sessions).store(|| "listing sessions/".to_owned())?;
    let mut ids: Vec<SessionId> = names
        .iter()
        .filter_map(|name| std::str::from_utf8(name).ok()?.parse().ok())
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

/// The record of a session. None where there is none of this id.
pub(crate) fn read(store: &Inner, id: &SessionId) -> Result<Option<Record>> {
    let name = layout::session(id);
    let folder = match sys::open(&store.sessions, &name, Open::Folder) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(Cause::Store(format!("opening session {id}"), errno)),
    };
    match Record::read(&folder, id) {
        // Deleted while it was looked at.
        Err(_) if sys::stat_at(&store.sessions, &name) == Err(Errno::NOENT) => Ok(None),
        record => record.map(Some),
    }
}

/// The records of all sessions. One that can't be read is an error, never a gap.
pub(crate) fn read_all(store: &Inner) -> Result<BTreeMap<SessionId, Record>> {
    let mut records = BTreeMap::new();
    for id in ids(store)? {
        if let Some(record) = read(store, &id)? {
            records.insert(id, record);
        }
    }
    Ok(records)
}
