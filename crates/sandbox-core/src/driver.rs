//! What a backend implements for a session.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::cancel::CancelToken;
use crate::command::{Command, CommandBounds};
use crate::error::Result;
use crate::file::{ByteStream, Entry, FileLimits, ReadOptions, Stat, WriteOptions};
use crate::gate::Permit;
use crate::path::WorkspacePath;
use crate::policy::PolicySnapshot;
use crate::posture::Posture;
use crate::process::Process;
use crate::session::{Stdin, When};

/// The few primitives of one session.
///
/// [`DriverSession`](crate::DriverSession) asks it, after every check: a driver gets
/// parsed paths, commands that fit their schema, and a [`Permit`] for each command. It is
/// never asked again after [`Self::stop`]. A driver of its own passes the contract suite
/// of `sandbox-testkit`.
///
/// The file operations resolve beneath the workspace, whatever links, mounts or swaps the
/// inside makes meanwhile (SPEC SES-6), and fail as [`Session`](crate::Session) says.
#[async_trait]
pub trait Driver: Debug + Send + Sync {
    /// Where the broker's socket stands inside, if there is one.
    fn broker_socket(&self) -> Option<&str>;

    /// Measures what holds now.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE`.
    async fn probe(&self) -> Result<Posture>;

    /// See [`Session::stat`](crate::Session::stat).
    ///
    /// # Errors
    /// As there.
    async fn stat(&self, path: &WorkspacePath) -> Result<Stat>;

    /// See [`Session::list`](crate::Session::list).
    ///
    /// # Errors
    /// As there.
    async fn list(&self, path: &WorkspacePath, max_entries: usize) -> Result<Vec<Entry>>;

    /// See [`Session::read`](crate::Session::read); no more than `max_bytes`.
    ///
    /// # Errors
    /// As there.
    async fn read(
        &self,
        path: &WorkspacePath,
        options: ReadOptions,
        max_bytes: u64,
    ) -> Result<Bytes>;

    /// See [`Session::read_stream`](crate::Session::read_stream).
    ///
    /// # Errors
    /// As there.
    async fn read_stream(&self, path: &WorkspacePath, max_bytes: u64) -> Result<ByteStream>;

    /// See [`Session::write`](crate::Session::write); the size was checked.
    ///
    /// # Errors
    /// As there.
    async fn write(
        &self,
        path: &WorkspacePath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<()>;

    /// See [`Session::write_stream`](crate::Session::write_stream).
    ///
    /// # Errors
    /// As there.
    async fn write_stream(
        &self,
        path: &WorkspacePath,
        content: ByteStream,
        options: WriteOptions,
        max_bytes: u64,
    ) -> Result<()>;

    /// See [`Session::make_dir`](crate::Session::make_dir).
    ///
    /// # Errors
    /// As there.
    async fn make_dir(&self, path: &WorkspacePath) -> Result<()>;

    /// See [`Session::rename`](crate::Session::rename); neither is the root.
    ///
    /// # Errors
    /// As there.
    async fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> Result<()>;

    /// See [`Session::remove`](crate::Session::remove); it is not the root.
    ///
    /// # Errors
    /// As there.
    async fn remove(&self, path: &WorkspacePath) -> Result<()>;

    /// See [`Session::pack`](crate::Session::pack).
    ///
    /// # Errors
    /// As there.
    async fn pack(&self, path: &WorkspacePath, limits: FileLimits) -> Result<ByteStream>;

    /// See [`Session::unpack`](crate::Session::unpack).
    ///
    /// # Errors
    /// As there.
    async fn unpack(
        &self,
        path: &WorkspacePath,
        archive: ByteStream,
        limits: FileLimits,
    ) -> Result<()>;

    /// Starts a command, which ends when its deadline, its output bound, its token, its
    /// permit ([`Permit::stopping`]) or its `Process` says so.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` where no isolation can be set up, `SANDBOX_CANCELLED`,
    /// `SANDBOX_STOPPED`.
    async fn start(&self, start: Start) -> Result<Box<dyn Process>>;

    /// Enforces the policy; on an error the one before it is still enforced.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` naming what is missing.
    async fn apply_policy(&self, snapshot: Arc<PolicySnapshot>, when: When) -> Result<()>;

    /// Ends every command, then everything else that the session has; returns when all
    /// is gone, within two seconds (SPEC OWN-3). Each step runs even if one before it
    /// failed, and the first failure is the answer (SPEC BAK-5).
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` naming what the kernel has not let go of.
    async fn stop(&self) -> Result<()>;
}

/// A command to start.
#[derive(Debug)]
#[non_exhaustive]
pub struct Start {
    /// The command.
    pub command: Command,
    /// Its bounds, the session's defaults applied.
    pub bounds: CommandBounds,
    /// What it reads.
    pub stdin: Stdin,
    /// The policy it starts under.
    pub snapshot: Arc<PolicySnapshot>,
    /// Its place among the running ones: moved into the task that owns the child.
    pub permit: Permit,
    /// What cancels it.
    pub cancel: CancelToken,
}
