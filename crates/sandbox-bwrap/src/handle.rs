//! The owner of a bubblewrap session.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_core::{
    DriverSession, ErrorCode, Handle, Result, SandboxError, SavedState, Session, Snapshots,
};
use sandbox_storage::{Change, Store};
use tokio::sync::Mutex;

/// How long a file operation that is under way may hold a stop up.
const RELEASE_DEADLINE: Duration = Duration::from_secs(2);

/// The one owner of a session, as [`BwrapBackend::open`](crate::BwrapBackend::open) gives it.
#[derive(Debug)]
pub struct BwrapHandle {
    session: Arc<DriverSession>,
    life: Arc<Life>,
}

/// What stop and delete work on, in tasks of their own.
#[derive(Debug)]
struct Life {
    session: Arc<DriverSession>,
    store: Store,
    saved: SavedState,
    stage: Mutex<Stage>,
}

#[derive(Debug)]
enum Stage {
    /// The lease is ours.
    Live(Arc<sandbox_storage::Session>),
    /// The lease was given up; how the stop ended.
    Stopped(Result<()>),
    /// The session is gone for good.
    Deleted,
}

impl BwrapHandle {
    pub(crate) fn new(
        session: Arc<DriverSession>,
        store: Store,
        stored: Arc<sandbox_storage::Session>,
        saved: SavedState,
    ) -> Self {
        let life = Life {
            session: Arc::clone(&session),
            store,
            saved,
            stage: Mutex::new(Stage::Live(stored)),
        };
        Self {
            session,
            life: Arc::new(life),
        }
    }

    /// What differs from the template, in byte order of the paths.
    ///
    /// While commands run the answer is a moment's.
    ///
    /// # Errors
    /// `SANDBOX_STOPPED` after a stop, `SANDBOX_STORAGE`.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn changes(&self) -> Result<Vec<Change>> {
        let stored = match &*self.life.stage.lock().await {
            Stage::Live(stored) => Arc::clone(stored),
            Stage::Stopped(_) | Stage::Deleted => return Err(stopped()),
        };
        blocking(move || stored.changes()).await
    }
}

impl Drop for BwrapHandle {
    /// Gives the session up as a crash would, whoever still holds it or a process of it.
    /// Without a runtime nothing of it runs any more.
    fn drop(&mut self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let life = Arc::clone(&self.life);
            runtime.spawn(async move {
                if let Err(error) = life.stop().await {
                    tracing::warn!(%error, "a session whose handle was dropped did not stop");
                }
            });
        }
    }
}

#[async_trait]
impl Handle for BwrapHandle {
    fn session(&self) -> Arc<dyn Session> {
        Arc::clone(&self.session) as Arc<dyn Session>
    }

    async fn capture_state(&self) -> Result<SavedState> {
        match &*self.life.stage.lock().await {
            Stage::Live(_) | Stage::Stopped(_) => Ok(self.life.saved.clone()),
            Stage::Deleted => Err(SandboxError::new(
                ErrorCode::Stopped,
                "the session was deleted",
            )),
        }
    }

    async fn stop(&self) -> Result<()> {
        let life = Arc::clone(&self.life);
        joined(tokio::spawn(async move { life.stop().await })).await
    }

    async fn delete(&self) -> Result<()> {
        let life = Arc::clone(&self.life);
        joined(tokio::spawn(async move { life.delete().await })).await
    }

    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        None
    }
}

impl Life {
    async fn stop(&self) -> Result<()> {
        let mut stage = self.stage.lock().await;
        let stored = match &*stage {
            Stage::Live(stored) => Arc::clone(stored),
            Stage::Stopped(outcome) => return outcome.clone(),
            Stage::Deleted => return Ok(()),
        };
        let ended = self.session.stop().await;
        // A session that something may still write to is not clean.
        let cleaned = if ended.is_ok() {
            let stored = Arc::clone(&stored);
            blocking(move || stored.clear_dirty()).await
        } else {
            Ok(())
        };
        *stage = Stage::Stopped(Ok(()));
        let released = match sole(stored).await {
            Ok(stored) => {
                blocking(move || {
                    stored.release();
                    Ok(())
                })
                .await
            }
            Err(_) => Err(still_used()),
        };
        let outcome = first_failure([ended, cleaned, released]);
        *stage = Stage::Stopped(outcome.clone());
        outcome
    }

    /// From the stop to the removal under one lease, so that no other owner slips in (SPEC STO-7).
    async fn delete(&self) -> Result<()> {
        let mut stage = self.stage.lock().await;
        match std::mem::replace(&mut *stage, Stage::Deleted) {
            Stage::Deleted => Ok(()),
            Stage::Live(stored) => {
                // Nothing of a session that the kernel has not let go of is removed.
                if let Err(error) = self.session.stop().await {
                    *stage = Stage::Stopped(Err(error.clone()));
                    return Err(error);
                }
                match sole(stored).await {
                    Ok(stored) => blocking(move || stored.delete()).await,
                    Err(stored) => {
                        *stage = Stage::Live(stored);
                        Err(still_used())
                    }
                }
            }
            Stage::Stopped(outcome) => {
                let (store, id) = (self.store.clone(), self.saved.session_id);
                let deleted = blocking(move || store.delete_session(&id)).await;
                if deleted.is_err() {
                    *stage = Stage::Stopped(outcome);
                }
                deleted
            }
        }
    }
}

/// The session alone, once the file operations under way have let go of it.
pub(crate) async fn sole(
    mut stored: Arc<sandbox_storage::Session>,
) -> Result<sandbox_storage::Session, Arc<sandbox_storage::Session>> {
    let deadline = tokio::time::Instant::now() + RELEASE_DEADLINE;
    loop {
        stored = match Arc::try_unwrap(stored) {
            Ok(stored) => return Ok(stored),
            Err(shared) if tokio::time::Instant::now() > deadline => return Err(shared),
            Err(shared) => shared,
        };
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) fn still_used() -> SandboxError {
    SandboxError::new(
        ErrorCode::Unavailable,
        "a file operation has not ended within 2 seconds: the lease stays taken until it has",
    )
}

/// The first failure is the answer, the others are logged (SPEC ERR-4).
fn first_failure(steps: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut first = Ok(());
    for step in steps {
        match (step, &first) {
            (Err(error), Ok(())) => first = Err(error),
            (Err(error), Err(_)) => tracing::warn!(%error, "a later step of a stop failed too"),
            (Ok(()), _) => {}
        }
    }
    first
}

fn stopped() -> SandboxError {
    SandboxError::new(ErrorCode::Stopped, "the session was stopped")
}

/// Runs what blocks on a thread of its own; it goes on when the future is dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    joined(tokio::task::spawn_blocking(work)).await
}

async fn joined<T>(task: tokio::task::JoinHandle<Result<T>>) -> Result<T> {
    task.await.unwrap_or_else(|error| {
        Err(
            SandboxError::new(ErrorCode::Unavailable, "a task of the backend did not end")
                .with_source(error),
        )
    })
}
