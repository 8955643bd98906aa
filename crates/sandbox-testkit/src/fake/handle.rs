//! The owner of a fake session.

use std::sync::Arc;

use async_trait::async_trait;
use sandbox_core::{
    DriverSession, ErrorCode, Handle, Result, SandboxError, SavedState, Session, Snapshots,
};
use tokio::sync::Mutex;

use super::backend::Store;
use super::driver::FakeDriver;
use super::lock;

/// The one owner.
#[derive(Debug)]
pub(super) struct FakeHandle(Arc<Life>);

/// What stop and delete work on, in tasks of their own.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) session: Arc<DriverSession>,
    pub(super) driver: Arc<FakeDriver>,
    pub(super) saved: SavedState,
    pub(super) store: Arc<Store>,
    pub(super) stage: Mutex<Stage>,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The lease is ours.
    Live(Arc<()>),
    Stopped(Result<()>),
    Deleted,
}

impl FakeHandle {
    pub(super) fn new(life: Life) -> Self {
        Self(Arc::new(life))
    }
}

impl Drop for FakeHandle {
    fn drop(&mut self) {
        // A stop that is under way has a share of its own, and ends everything itself.
        if Arc::strong_count(&self.0) == 1 {
            self.0.driver.abandon();
        }
    }
}

#[async_trait]
impl Handle for FakeHandle {
    fn session(&self) -> Arc<dyn Session> {
        Arc::clone(&self.0.session) as Arc<dyn Session>
    }

    async fn capture_state(&self) -> Result<SavedState> {
        match &*self.0.stage.lock().await {
            Stage::Live(_) | Stage::Stopped(_) => Ok(self.0.saved.clone()),
            Stage::Deleted => Err(SandboxError::new(
                ErrorCode::Stopped,
                "the session was deleted",
            )),
        }
    }

    async fn stop(&self) -> Result<()> {
        let life = Arc::clone(&self.0);
        joined(tokio::spawn(async move { life.stop().await })).await
    }

    async fn delete(&self) -> Result<()> {
        let life = Arc::clone(&self.0);
        joined(tokio::spawn(async move { life.delete().await })).await
    }

    fn snapshots(&self) -> Option<Arc<dyn Snapshots>> {
        None
    }
}

impl Life {
    async fn stop(&self) -> Result<()> {
        let mut stage = self.stage.lock().await;
        match &*stage {
            Stage::Live(_) => {
                let ended = self.session.stop().await;
                tokio::task::yield_now().await;
                *stage = Stage::Stopped(ended.clone());
                ended
            }
            Stage::Stopped(ended) => ended.clone(),
            Stage::Deleted => Ok(()),
        }
    }

    /// From the stop to the removal under one lease (SPEC STO-7).
    async fn delete(&self) -> Result<()> {
        let mut stage = self.stage.lock().await;
        let lease = match &*stage {
            Stage::Live(lease) => {
                let lease = Arc::clone(lease);
                if let Err(error) = self.session.stop().await {
                    *stage = Stage::Stopped(Err(error.clone()));
                    return Err(error);
                }
                lease
            }
            Stage::Stopped(_) => {
                let lease = lock(&self.store.sessions)
                    .get_mut(&self.saved.session_id)
                    .map(super::backend::Record::take_lease);
                match lease {
                    Some(lease) => lease?,
                    // Another owner has removed it meanwhile.
                    None => {
                        *stage = Stage::Deleted;
                        return Ok(());
                    }
                }
            }
            Stage::Deleted => return Ok(()),
        };
        tokio::task::yield_now().await;
        lock(&self.store.sessions).remove(&self.saved.session_id);
        drop(lease);
        *stage = Stage::Deleted;
        Ok(())
    }
}

async fn joined(task: tokio::task::JoinHandle<Result<()>>) -> Result<()> {
    task.await.unwrap_or_else(|error| {
        Err(
            SandboxError::new(ErrorCode::Unavailable, "the runtime was shut down")
                .with_source(error),
        )
    })
}
