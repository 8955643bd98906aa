//! Sessions: a private workspace, a home, and the lease that makes one process their owner.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sandbox_core::{Result, SavedState, SessionId, TemplateKey};

use crate::error::{Cause, Context as _};
use crate::json;
use crate::layout::{self, MAX_RECORD_BYTES};
use crate::lease::Lease;
use crate::record::{Record, SessionMode};
use crate::store::{Inner, Store};
use crate::sys::{self, Errno, Open};
use crate::template::seconds;

mod list;
mod make;
mod remove;
mod resume;

pub use list::{Details, SessionInfo};
pub use make::SessionOptions;
pub(crate) use remove::expire;

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
        Ok(remove::remove(&store, &record.session_id, lease)?)
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

impl Store {
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
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

fn is_dirty(folder: &OwnedFd) -> sys::Result<bool> {
    match sys::stat_at(folder, layout::DIRTY) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}
