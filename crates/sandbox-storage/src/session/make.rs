//! Making a session: aside, then shown by one rename.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sandbox_core::{BackendName, SessionId, TemplateKey};

use super::Session;
use crate::error::{Cause, Context as _, Result};
use crate::layout::{self, FOLDER_MODE, WORKSPACE_MODE};
use crate::lease::Lease;
use crate::materialise::materialise;
use crate::record::{Record, SessionMode};
use crate::staging::Staging;
use crate::store::{Inner, Store, random_name};
use crate::sys::{self, Open};
use crate::template::{RECORD_FORMAT, Template, seconds};
use crate::{erase, json, probe, stats};

/// How a session is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Whether it survives a power loss from the moment it is made. False.
    pub durable: bool,
    /// After how long `gc` may remove it, unless someone owns it then. 7 days; none is never.
    pub expires_in: Option<Duration>,
    /// What the owner is called in others' `SANDBOX_BUSY` messages: its command line.
    pub holder: String,
    /// The policy record that the session begins with; see [`Session::write_policy`].
    pub policy: Option<Vec<u8>>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            durable: false,
            expires_in: Some(Duration::from_secs(7 * 24 * 60 * 60)),
            holder: String::new(),
            policy: None,
        }
    }
}

impl Store {
    /// Makes a session: a private copy of the template, an empty home, and their lease.
    ///
    /// Where this fails nothing of it is left (SPEC STO-6).
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND` where there is no such template; `SANDBOX_STATE_MISMATCH` where
    /// it is for another backend; `SANDBOX_STORAGE` where it is damaged or the disk is full.
    pub fn create(
        &self,
        backend: &BackendName,
        key: &TemplateKey,
        options: &SessionOptions,
    ) -> sandbox_core::Result<Session> {
        let store = &self.0;
        let _acting = store.act()?;
        Ok(create(store, backend, key, options)?)
    }
}

fn create(
    store: &Arc<Inner>,
    backend: &BackendName,
    key: &TemplateKey,
    options: &SessionOptions,
) -> Result<Session> {
    let template = Template::read(store, key)?;
    if template.meta.backend != *backend {
        return Err(Cause::Mismatch {
            field: "backend",
            saved: backend.to_string(),
            other: "template",
            actual: template.meta.backend.to_string(),
        });
    }
    let _use = template.take_use(store)?;
    template.check_blobs(store)?;
    let entries = template.manifest.entries().len() as u64;
    let mode = probe::session_mode(store);
    let bytes = match mode {
        SessionMode::Copy => template.manifest.total_bytes(),
        _ => 0,
    };
    store.check_space(bytes, entries)?;
    let (id, lease) = new_lease(store, &options.holder)?;
    let made = fill(store, &template, id, mode, options);
    match made {
        Ok((record, folder)) => Ok(Session {
            store: Arc::clone(store),
            record,
            folder,
            lease,
        }),
        Err(cause) => {
            // In reverse: staging went already, and with it all of the session.
            if let Err(second) = lease.remove() {
                tracing::warn!(cause = %second, "a lease stays behind");
            }
            Err(cause)
        }
    }
}

/// A fresh id and its lease (C2).
fn new_lease(store: &Arc<Inner>, holder: &str) -> Result<(SessionId, Lease)> {
    for _ in 0..MAX_TRIES {
        let id = sys::random::<32>().store(|| "asking for random bytes".to_owned())?;
        let id = SessionId::from_bytes(id);
        if let Some(lease) = Lease::make(store, &id, holder)? {
            return Ok((id, lease));
        }
    }
    Err(Cause::Busy {
        message: "other processes clean up faster than a lease can be made".to_owned(),
        hint: None,
    })
}

/// How often a lease is made again that a reaper took for a dead one's.
const MAX_TRIES: u32 = 100;

/// Makes the session aside and shows it (C3, C4).
fn fill(
    store: &Arc<Inner>,
    template: &Template,
    id: SessionId,
    mode: SessionMode,
    options: &SessionOptions,
) -> Result<(Record, OwnedFd)> {
    let what = || "making a session".to_owned();
    let durable = options.durable && store.is_durable();
    let staging = Staging::new(store)?;
    let out = &staging.out;
    sys::mkdir(out, layout::WORKSPACE, FOLDER_MODE).store(what)?;
    let workspace = sys::open(out, layout::WORKSPACE, Open::Folder).store(what)?;
    let made = materialise(store, &template.manifest, &workspace, mode, durable)?;
    sys::set_mode(&workspace, WORKSPACE_MODE).store(what)?;
    json::write_new(out, layout::STATS, &stats::encode(&made), durable)?;
    sys::mkdir(out, layout::HOME, FOLDER_MODE).store(what)?;
    let now = SystemTime::now();
    let record = Record {
        format: RECORD_FORMAT,
        backend: template.meta.backend.clone(),
        session_id: id,
        template_key: template.key,
        template_id: template.meta.template_id.clone(),
        tree_id: template.meta.tree_id,
        mode,
        generation: 0,
        created: seconds(now),
        expires: options
            .expires_in
            .and_then(|after| now.checked_add(after))
            .map(seconds),
        quota: None,
        lineage: Vec::new(),
    };
    if let Some(policy) = &options.policy {
        json::write_new(out, layout::POLICY, policy, durable)?;
    }
    json::write_new(
        out,
        layout::STATE,
        &json::to_bytes(&record, layout::STATE)?,
        durable,
    )?;
    if durable {
        sys::sync(out).store(what)?;
    }
    // Opened before it is shown: after that nothing can fail that would have to be undone.
    let folder = sys::open(out, ".", Open::Folder).store(what)?;
    staging
        .publish(&store.sessions, &layout::session(&id))
        .store(what)?;
    if durable && let Err(errno) = sys::sync(&store.sessions) {
        let gone = random_name()?;
        sys::rename_new(&store.sessions, layout::session(&id), &store.trash, &gone).store(what)?;
        let _ = erase::erase(&store.trash, gone, None);
        return Err(Cause::Store(what(), errno));
    }
    Ok((record, folder))
}
