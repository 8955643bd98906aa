//! Sessions: a private workspace, a home, and the lease that makes one process their owner.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sandbox_core::{BackendName, Result, SavedState, SessionId, TemplateId, TemplateKey};
use serde::Serialize;

use crate::error::{Cause, Context as _};
use crate::layout::{self, FOLDER_MODE, MAX_RECORD_BYTES, WORKSPACE_MODE};
use crate::lease::{self, Lease};
use crate::materialise::materialise;
use crate::record::{self, Record, SessionMode};
use crate::staging::Staging;
use crate::stats;
use crate::store::{Inner, Store, random_name};
use crate::sys::{self, Errno, Open};
use crate::template::{RECORD_FORMAT, Template, seconds};
use crate::{erase, json, probe};

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

/// A session that this process owns.
///
/// Dropping it gives the ownership up, once every duplicate of its lease is closed; the
/// session stays. Descriptors that came from it must be closed before.
pub struct Session {
    store: Arc<Inner>,
    record: Record,
    folder: OwnedFd,
    lease: Lease,
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
    ) -> Result<Session> {
        let store = &self.0;
        let _acting = store.act()?;
        Ok(create(store, backend, key, options)?)
    }

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
    ) -> Result<Session> {
        let store = &self.0;
        let _acting = store.act()?;
        Ok(reconnect(store, backend, saved, holder)?)
    }

    /// Removes a session for good; that it is gone already is no error (SPEC STO-7).
    ///
    /// # Errors
    /// `SANDBOX_BUSY`, naming the holder, where someone owns it; `SANDBOX_STORAGE`.
    pub fn delete_session(&self, id: &SessionId) -> Result<()> {
        let store = &self.0;
        let _acting = store.act()?;
        Ok(delete(store, id)?)
    }

    /// The policy record of a session that someone may own: see [`Session::write_policy`].
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND` where there is no such session; `SANDBOX_STORAGE` where the
    /// record is no file of a sane size.
    pub fn session_policy(&self, id: &SessionId) -> Result<Option<Vec<u8>>> {
        let store = &self.0;
        let _acting = store.act()?;
        let folder = match sys::open(&store.sessions, layout::session(id), Open::Folder) {
            Err(Errno::NOENT) => {
                return Err(Cause::NotFound(format!("there is no session {id}")).into());
            }
            folder => folder.store(|| format!("opening session {id}"))?,
        };
        let label = format!("policy.json of session {id}");
        Ok(json::read_bounded(
            &folder,
            layout::POLICY,
            &label,
            MAX_RECORD_BYTES,
        )?)
    }

    /// All sessions, in the order of their ids, without their leases being kept.
    ///
    /// A session whose record is damaged is listed with what is wrong, so that it can be
    /// removed.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE` where the store can't be read.
    pub fn list_sessions(&self) -> Result<Vec<SessionInfo>> {
        let store = &self.0;
        let _acting = store.act()?;
        Ok(list(store)?)
    }
}

impl Session {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.record.session_id
    }

    /// What a caller keeps to come back.
    #[must_use]
    pub fn saved_state(&self) -> SavedState {
        self.record.saved_state()
    }

    /// The template that its workspace started from.
    #[must_use]
    pub fn template_key(&self) -> TemplateKey {
        self.record.template_key
    }

    /// How its workspace stands on the template.
    #[must_use]
    pub fn mode(&self) -> SessionMode {
        self.record.mode
    }

    /// Its folder: `workspace` and `home` in it may be mounted, nothing else is anyone's.
    #[must_use]
    pub fn session_dir(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// The path of its folder, for what can't take a descriptor.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.store
            .path
            .join(layout::SESSIONS)
            .join(layout::session(&self.id()))
    }

    /// A new descriptor of the root of its workspace.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn workspace_fd(&self) -> Result<OwnedFd> {
        self.open_folder(layout::WORKSPACE)
    }

    /// A new descriptor of its home, `/home/agent` inside.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn home_fd(&self) -> Result<OwnedFd> {
        self.open_folder(layout::HOME)
    }

    /// A descriptor for a keeper: the session is owned for as long as it is open.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn lease_fd(&self) -> Result<OwnedFd> {
        Ok(self.lease.duplicate()?)
    }

    /// Keeps the policy that the session runs under: references, never values.
    ///
    /// A reader sees the old record or the new one.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn write_policy(&self, record: &[u8]) -> Result<()> {
        let _acting = self.store.act()?;
        let durable = self.store.is_durable();
        Ok(json::replace(
            &self.folder,
            layout::POLICY,
            "policy.json.new",
            record,
            durable,
        )?)
    }

    /// The record that [`write_policy`](Self::write_policy) keeps, if there is one.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE` where what stands there is no file of a sane size.
    pub fn read_policy(&self) -> Result<Option<Vec<u8>>> {
        let _acting = self.store.act()?;
        let label = format!("policy.json of session {}", self.id());
        Ok(json::read_bounded(
            &self.folder,
            layout::POLICY,
            &label,
            MAX_RECORD_BYTES,
        )?)
    }

    /// Says that a writer may be live: before the first command starts.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn mark_dirty(&self) -> Result<()> {
        let _acting = self.store.act()?;
        sys::lock_file(&self.folder, layout::DIRTY, layout::RECORD_MODE)
            .store(|| self.what("marking"))?;
        Ok(())
    }

    /// Says that no writer is live: after a clean stop.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn clear_dirty(&self) -> Result<()> {
        let _acting = self.store.act()?;
        match sys::unlink(&self.folder, layout::DIRTY) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Cause::Store(self.what("unmarking"), errno).into()),
        }
    }

    /// Whether its last owner died before a clean stop.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn is_dirty(&self) -> Result<bool> {
        let _acting = self.store.act()?;
        Ok(is_dirty(&self.folder).store(|| self.what("looking at"))?)
    }

    /// Lets the session expire that long from now; none is never.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn renew(&self, expires_in: Option<Duration>) -> Result<()> {
        let _acting = self.store.act()?;
        let now = SystemTime::now();
        let record = Record {
            expires: expires_in
                .and_then(|after| now.checked_add(after))
                .map(seconds),
            ..self.record.clone()
        };
        let bytes = json::to_bytes(&record, layout::STATE)?;
        let durable = self.store.is_durable();
        Ok(json::replace(
            &self.folder,
            layout::STATE,
            "state.json.new",
            &bytes,
            durable,
        )?)
    }

    /// Gives the ownership up; the session stays, to be taken up again.
    pub fn release(self) {
        drop(self);
    }

    /// Removes the session for good, the lease held from the first step to the last, so
    /// that no other owner slips in (SPEC STO-7).
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`: before the session left its place it is as it was; after that
    /// it is gone, and what could not be erased goes with a later `gc`.
    pub fn delete(self) -> Result<()> {
        let _acting = self.store.act()?;
        let Self {
            store,
            record,
            folder,
            lease,
        } = self;
        drop(folder);
        Ok(remove(&store, &record.session_id, lease)?)
    }

    pub(crate) fn store(&self) -> &Arc<Inner> {
        &self.store
    }

    pub(crate) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    fn open_folder(&self, name: &str) -> Result<OwnedFd> {
        let _acting = self.store.act()?;
        Ok(sys::open(&self.folder, name, Open::Folder)
            .store(|| format!("opening {name} of session {}", self.id()))?)
    }

    fn what(&self, doing: &str) -> String {
        format!("{doing} session {}", self.id())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

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

fn create(
    store: &Arc<Inner>,
    backend: &BackendName,
    key: &TemplateKey,
    options: &SessionOptions,
) -> crate::error::Result<Session> {
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
fn new_lease(store: &Arc<Inner>, holder: &str) -> crate::error::Result<(SessionId, Lease)> {
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
) -> crate::error::Result<(Record, OwnedFd)> {
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

fn reconnect(
    store: &Arc<Inner>,
    backend: &BackendName,
    saved: &SavedState,
    holder: &str,
) -> crate::error::Result<Session> {
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

/// Removes a session that nobody owns.
pub(crate) fn delete(store: &Arc<Inner>, id: &SessionId) -> crate::error::Result<()> {
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

/// Takes a session out of sight under its lease, then erases it (section 4.7 of the layout).
fn remove(store: &Arc<Inner>, id: &SessionId, lease: Lease) -> crate::error::Result<()> {
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

fn list(store: &Arc<Inner>) -> crate::error::Result<Vec<SessionInfo>> {
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

fn is_dirty(folder: &OwnedFd) -> sys::Result<bool> {
    match sys::stat_at(folder, layout::DIRTY) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}
