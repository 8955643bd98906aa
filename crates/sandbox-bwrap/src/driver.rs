//! The driver of a bubblewrap session: files by descriptor, commands by keeper.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sandbox_core::{
    ByteStream, Driver, Entry, ErrorCode, FileLimits, PolicySnapshot, Posture, Process,
    ReadOptions, Result, SandboxError, Start, Stat, When, WorkspacePath, WriteOptions,
};

use crate::files::Files;
use crate::keeper::Keeper;
use crate::launch::Launcher;
use crate::probe;

/// How long the tasks of ended commands have to let go (SPEC OWN-3).
const TASKS_DEADLINE: Duration = Duration::from_secs(2);

/// One live session.
#[derive(Debug)]
pub(crate) struct BwrapDriver {
    keeper: Keeper,
    launcher: Launcher,
    files: Files,
}

impl BwrapDriver {
    pub(crate) fn new(keeper: Keeper, launcher: Launcher, files: Files) -> Self {
        Self {
            keeper,
            launcher,
            files,
        }
    }
}

#[async_trait]
impl Driver for BwrapDriver {
    fn broker_socket(&self) -> Option<&str> {
        None
    }

    async fn probe(&self) -> Result<Posture> {
        probe::measure(&self.keeper, &self.launcher).await
    }

    async fn stat(&self, path: &WorkspacePath) -> Result<Stat> {
        self.files.stat(path).await
    }

    async fn list(&self, path: &WorkspacePath, max_entries: usize) -> Result<Vec<Entry>> {
        self.files.list(path, max_entries).await
    }

    async fn read(
        &self,
        path: &WorkspacePath,
        options: ReadOptions,
        max_bytes: u64,
    ) -> Result<Bytes> {
        self.files.read(path, options, max_bytes).await
    }

    async fn read_stream(&self, path: &WorkspacePath, max_bytes: u64) -> Result<ByteStream> {
        self.files.read_stream(path, max_bytes).await
    }

    async fn write(
        &self,
        path: &WorkspacePath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<()> {
        self.files.write(path, content, options).await
    }

    async fn write_stream(
        &self,
        path: &WorkspacePath,
        content: ByteStream,
        options: WriteOptions,
        max_bytes: u64,
    ) -> Result<()> {
        self.files
            .write_stream(path, content, options, max_bytes)
            .await
    }

    async fn make_dir(&self, path: &WorkspacePath) -> Result<()> {
        self.files.make_dir(path).await
    }

    async fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> Result<()> {
        self.files.rename(from, to).await
    }

    async fn remove(&self, path: &WorkspacePath) -> Result<()> {
        self.files.remove(path).await
    }

    async fn pack(&self, path: &WorkspacePath, limits: FileLimits) -> Result<ByteStream> {
        self.files.pack(path, limits).await
    }

    async fn unpack(
        &self,
        path: &WorkspacePath,
        archive: ByteStream,
        limits: FileLimits,
    ) -> Result<()> {
        self.files.unpack(path, archive, limits).await
    }

    async fn start(&self, start: Start) -> Result<Box<dyn Process>> {
        Ok(Box::new(self.launcher.start(&self.keeper, start).await?))
    }

    async fn apply_policy(&self, snapshot: Arc<PolicySnapshot>, _: When) -> Result<()> {
        check_policy(&snapshot.policy)
    }

    async fn stop(&self) -> Result<()> {
        // With the keeper every process of the session goes, whatever it does; the tasks
        // then see their commands gone, and what is open of the workspace is closed last.
        let closed = self.keeper.close().await;
        let ended = tokio::time::timeout(TASKS_DEADLINE, self.launcher.ended()).await;
        self.files.close_all();
        closed?;
        ended.map_err(|_| {
            SandboxError::new(
                ErrorCode::Unavailable,
                "a task of a killed command has not ended within 2 seconds",
            )
        })
    }
}

/// Refuses what nothing here enforces yet.
pub(crate) fn check_policy(policy: &sandbox_core::Policy) -> Result<()> {
    if policy.denies_everything() {
        return Ok(());
    }
    Err(SandboxError::new(
        ErrorCode::Unavailable,
        "only the policy `deny-all` can be enforced: the egress broker, which an allow list and `allow-all` need, \
         is not a part of this version",
    ))
}
