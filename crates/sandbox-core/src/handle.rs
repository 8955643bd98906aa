//! A session's owner.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::TemplateKey;
use crate::session::Session;
use crate::state::SavedState;
use crate::template::TemplateId;

/// The one owner of a session.
///
/// Dropping it without [`Self::stop`] gives the session up as a crash would: commands are
/// killed, and the lease is free once they are gone.
#[async_trait]
pub trait Handle: Debug + Send + Sync {
    /// The session, for callers.
    fn session(&self) -> Arc<dyn Session>;

    /// What is needed to come back; works after a stop (SPEC BAK-4).
    ///
    /// # Errors
    /// `SANDBOX_STOPPED` after a delete.
    async fn capture_state(&self) -> Result<SavedState>;

    /// Ends commands, then the broker, then removes what is temporary, then gives the
    /// lease up; each step runs even if one before it failed (SPEC BAK-5).
    ///
    /// May be called at once from several tasks and repeated: one runs, all wait for it.
    ///
    /// # Errors
    /// The first failure of a step.
    ///
    /// # Cancel safety
    /// It goes on when the future is dropped.
    async fn stop(&self) -> Result<()>;

    /// Stops, then removes the session for good, under one lease (SPEC STO-7). May be repeated.
    ///
    /// # Errors
    /// `SANDBOX_BUSY` where it was stopped before and another owner has it.
    ///
    /// # Cancel safety
    /// It goes on when the future is dropped.
    async fn delete(&self) -> Result<()>;

    /// The ability to make templates of the session, where the backend has it.
    fn snapshots(&self) -> Option<Arc<dyn Snapshots>>;
}

impl dyn Handle + '_ {
    /// The same as [`Handle::stop`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn shutdown(&self) -> Result<()> {
        self.stop().await
    }
}

/// An optional ability of a handle: templates made from its session.
#[async_trait]
pub trait Snapshots: Debug + Send + Sync {
    /// Makes a template of the workspace as it is now.
    ///
    /// # Errors
    /// `SANDBOX_BUSY` while commands run, `SANDBOX_STORAGE`.
    async fn snapshot(&self, id: &TemplateId) -> Result<TemplateKey>;
}
