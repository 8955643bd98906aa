//! A session, as its callers use it.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

use crate::cancel::CancelToken;
use crate::command::Command;
use crate::error::{ErrorCode, Result, SandboxError};
use crate::file::{ByteStream, Entry, ReadOptions, Stat, WriteOptions};
use crate::id::SessionId;
use crate::output::Output;
use crate::path::WorkspacePath;
use crate::policy::Policy;
use crate::posture::{Posture, Revision};
use crate::process::Process;

/// One workspace with its identity and policy.
///
/// Paths are what a caller writes; they are parsed once, by the one implementation
/// ([`DriverSession`](crate::DriverSession)). The trait is there so that a session can be
/// wrapped (audit, approval) and faked; what can be said in terms of these operations is
/// written once, on `dyn Session` below.
///
/// After a stop everything is `SANDBOX_STOPPED`.
#[async_trait]
pub trait Session: Debug + Send + Sync {
    /// The session's name.
    fn id(&self) -> SessionId;

    /// Where the broker's socket stands inside, if the backend has a broker.
    fn broker_socket(&self) -> Option<&str>;

    /// How well the session is isolated, measured now, and the policy revision it was
    /// measured under.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` where the probe can't run.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    async fn posture(&self) -> Result<(Posture, Revision)>;

    /// Describes an entry; a link itself, not what it leads to.
    ///
    /// # Errors
    /// `SANDBOX_PATH`, `SANDBOX_NOT_FOUND`.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped; the same holds for all that only read.
    async fn stat(&self, path: &str) -> Result<Stat>;

    /// Lists a folder, in byte order of the names.
    ///
    /// # Errors
    /// `SANDBOX_PATH`, `SANDBOX_NOT_FOUND`, `SANDBOX_INVALID` for what is no folder,
    /// `SANDBOX_LIMIT` for too many entries.
    ///
    /// # Cancel safety
    /// As [`Self::stat`].
    async fn list(&self, path: &str) -> Result<Vec<Entry>>;

    /// Reads a regular file, or a part of it.
    ///
    /// # Errors
    /// `SANDBOX_PATH` for a link that leads out, `SANDBOX_NOT_FOUND`, `SANDBOX_INVALID`
    /// at once for a folder, FIFO, socket or device, `SANDBOX_LIMIT` naming the size,
    /// `SANDBOX_BUSY` while a command holds a lease on it (`fcntl(2)`).
    ///
    /// # Cancel safety
    /// As [`Self::stat`].
    async fn read(&self, path: &str, options: ReadOptions) -> Result<Bytes>;

    /// Reads a regular file of any size as it comes.
    ///
    /// # Errors
    /// As [`Self::read`]; past the stream limit the stream ends with `SANDBOX_LIMIT`.
    ///
    /// # Cancel safety
    /// As [`Self::stat`].
    async fn read_stream(&self, path: &str) -> Result<ByteStream>;

    /// Writes a file whole: a reader sees the old bytes or the new ones.
    ///
    /// Missing parents are made, and an existing file keeps its mode (SPEC SES-4).
    ///
    /// # Errors
    /// `SANDBOX_PATH`, `SANDBOX_INVALID` for a folder or special file, `SANDBOX_LIMIT`
    /// before anything is touched, `SANDBOX_STORAGE` for a full disk.
    ///
    /// # Cancel safety
    /// Dropped, it has either written all or nothing.
    async fn write(&self, path: &str, content: Bytes, options: WriteOptions) -> Result<()>;

    /// Writes a file of any size as it comes; it appears once the stream has ended well.
    ///
    /// # Errors
    /// As [`Self::write`], and the stream's own.
    ///
    /// # Cancel safety
    /// As [`Self::write`].
    async fn write_stream(
        &self,
        path: &str,
        content: ByteStream,
        options: WriteOptions,
    ) -> Result<()>;

    /// Makes a folder with its parents; one that is there is no error.
    ///
    /// # Errors
    /// `SANDBOX_PATH`, `SANDBOX_INVALID` where something else stands there.
    ///
    /// # Cancel safety
    /// Dropped, some of the folders may have been made.
    async fn make_dir(&self, path: &str) -> Result<()>;

    /// Renames an entry, replacing a file or an empty folder of the same kind (`rename(2)`).
    ///
    /// # Errors
    /// `SANDBOX_PATH`, also for the root, `SANDBOX_NOT_FOUND`, `SANDBOX_INVALID`.
    ///
    /// # Cancel safety
    /// Dropped, it has happened or not.
    async fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Removes an entry and what is below it; a missing one is no error.
    ///
    /// # Errors
    /// `SANDBOX_PATH`, also for the root (SPEC SES-3).
    ///
    /// # Cancel safety
    /// Dropped, it goes on or stops half-way below the entry; removing it again is safe.
    async fn remove(&self, path: &str) -> Result<()>;

    /// A tar archive (`ustar` with PAX records) of an entry and what is below it.
    ///
    /// # Errors
    /// `SANDBOX_PATH`, `SANDBOX_NOT_FOUND`; the stream ends with `SANDBOX_LIMIT` past the
    /// stream limit.
    ///
    /// # Cancel safety
    /// As [`Self::stat`].
    async fn pack(&self, path: &str) -> Result<ByteStream>;

    /// Unpacks a tar archive below a folder, which is made where it is missing.
    ///
    /// Nothing lands outside it: entries with `..`, absolute names and links that lead
    /// out are refused.
    ///
    /// # Errors
    /// `SANDBOX_PATH`, `SANDBOX_INVALID` for a damaged archive, `SANDBOX_LIMIT`,
    /// `SANDBOX_STORAGE`.
    ///
    /// # Cancel safety
    /// Dropped, some of the entries may have been written, each whole.
    async fn unpack(&self, path: &str, archive: ByteStream) -> Result<()>;

    /// Starts a command.
    ///
    /// # Errors
    /// `SANDBOX_BUSY` past the concurrency bound, while the policy is being changed, or
    /// where `options.at` is not the revision in force; `SANDBOX_CANCELLED` where the
    /// token was thrown; `SANDBOX_UNAVAILABLE` where no isolation can be set up.
    ///
    /// # Cancel safety
    /// Dropped, a command that was being started is killed.
    async fn spawn(&self, command: Command, options: SpawnOptions) -> Result<Box<dyn Process>>;

    /// Puts another network policy in force, under the next revision (SPEC BAK-6).
    ///
    /// # Errors
    /// `SANDBOX_BUSY` while commands run and [`When::Idle`] was asked for;
    /// `SANDBOX_UNAVAILABLE` naming what the backend lacks to enforce it. The old policy
    /// is then in force.
    ///
    /// # Cancel safety
    /// Dropped half-way, nothing is admitted until a policy is set again.
    async fn set_network_policy(&self, policy: Policy, when: When) -> Result<()>;
}

impl dyn Session + '_ {
    /// The path inside of what a caller wrote.
    ///
    /// # Errors
    /// `SANDBOX_PATH`.
    pub fn resolve_path(&self, path: &str) -> Result<WorkspacePath> {
        WorkspacePath::parse(path)
    }

    /// Runs a command to its end and gives all it wrote.
    ///
    /// # Errors
    /// Those of [`Session::spawn`] and [`Process::wait`]; one of a command that was cut
    /// carries the output captured so far.
    ///
    /// # Cancel safety
    /// Dropped, the command is killed.
    pub async fn run(&self, command: Command) -> Result<Output> {
        self.run_with(command, SpawnOptions::default()).await
    }

    /// As [`run`](#method.run), with options.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn run_with(&self, command: Command, options: SpawnOptions) -> Result<Output> {
        let process = self.spawn(command, options).await?;
        process.collect().await
    }

    /// Reads a file whole.
    ///
    /// # Errors
    /// Those of [`Session::read`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn read_binary(&self, path: &str) -> Result<Bytes> {
        self.read(path, ReadOptions::default()).await
    }

    /// Reads a file that is UTF-8.
    ///
    /// # Errors
    /// Those of [`Session::read`], and `SANDBOX_INVALID` for bytes that are not UTF-8:
    /// none is replaced (SPEC SES-2).
    ///
    /// # Cancel safety
    /// As there.
    pub async fn read_text(&self, path: &str) -> Result<String> {
        let bytes = self.read_binary(path).await?;
        String::from_utf8(bytes.into()).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "{} is not UTF-8 at byte {at}: read it as bytes",
                    crate::text::shown(path)
                ),
            )
        })
    }

    /// Writes a file.
    ///
    /// # Errors
    /// Those of [`Session::write`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn write_binary(&self, path: &str, content: impl Into<Bytes>) -> Result<()> {
        self.write(path, content.into(), WriteOptions::default())
            .await
    }

    /// Writes a file of text.
    ///
    /// # Errors
    /// Those of [`Session::write`].
    ///
    /// # Cancel safety
    /// As there.
    pub async fn write_text(&self, path: &str, content: impl Into<String>) -> Result<()> {
        self.write(path, content.into().into(), WriteOptions::default())
            .await
    }
}

/// How a command is started.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SpawnOptions {
    /// The policy revision it was prepared under; any, unless given.
    pub at: Option<Revision>,
    /// Cancels it.
    pub cancel: CancelToken,
    /// What it reads from standard input.
    pub stdin: Stdin,
}

impl SpawnOptions {
    /// Sets the revision that must be in force.
    #[must_use]
    pub fn at(mut self, revision: Revision) -> Self {
        self.at = Some(revision);
        self
    }

    /// Sets the token that cancels it.
    #[must_use]
    pub fn cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }

    /// Sets its standard input.
    #[must_use]
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }
}

/// What a command reads from standard input.
#[derive(Clone, Default)]
pub enum Stdin {
    /// Nothing: it is closed.
    #[default]
    Empty,
    /// These bytes, then it is closed.
    Bytes(Bytes),
    /// What [`Process::write_stdin`] gives, until [`Process::close_stdin`].
    Piped,
}

impl Debug for Stdin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Piped => f.write_str("Piped"),
        }
    }
}

/// When a change of policy may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum When {
    /// Only while no command runs.
    #[default]
    Idle,
    /// At once; what runs loses what the new policy no longer allows.
    Now,
}
