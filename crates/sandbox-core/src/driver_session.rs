//! The one session: every check once, then the driver.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::command::{Command, CommandDefaults};
use crate::driver::{Driver, Start};
use crate::error::{ErrorCode, Result, SandboxError};
use crate::file::{ByteStream, Entry, FileLimits, ReadOptions, Stat, WriteOptions};
use crate::gate::Gate;
use crate::id::SessionId;
use crate::path::WorkspacePath;
use crate::policy::{Policy, PolicySnapshot};
use crate::posture::{Posture, Revision};
use crate::process::Process;
use crate::restriction::{Finding, Restriction, Standing};
use crate::session::{Session, SpawnOptions, When};

/// How often a posture is measured again when the policy changes meanwhile.
const MAX_PROBES: usize = 3;

/// Bounds of a session. SPEC CMD-3, OWN-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Commands at once, 1 to 1024. 8.
    pub max_concurrent_commands: usize,
    /// What a command gets that sets no bounds of its own.
    pub command: CommandDefaults,
    /// Bounds of file operations.
    pub files: FileLimits,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            max_concurrent_commands: 8,
            command: CommandDefaults::default(),
            files: FileLimits::default(),
        }
    }
}

/// A [`Session`] over a [`Driver`].
///
/// It parses, admits, stamps the revision and only then asks the driver, so that no
/// driver repeats a check or forgets one (SPEC SES-7).
#[derive(Debug)]
pub struct DriverSession {
    id: SessionId,
    driver: Arc<dyn Driver>,
    gate: Gate,
    limits: SessionLimits,
}

impl DriverSession {
    /// A session that starts under `policy`, which the driver enforces already.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` for a bound that can't be.
    pub fn new(
        id: SessionId,
        driver: Arc<dyn Driver>,
        limits: SessionLimits,
        policy: Policy,
    ) -> Result<Self> {
        Ok(Self {
            id,
            driver,
            gate: Gate::new(limits.max_concurrent_commands, policy)?,
            limits,
        })
    }

    /// How many commands are running or being started.
    #[must_use]
    pub fn running(&self) -> usize {
        self.gate.running()
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<PolicySnapshot> {
        self.gate.snapshot()
    }

    /// Admits nothing more and stops the driver. The handle of a backend calls it, in a
    /// task of its own, once; a second call does nothing.
    ///
    /// # Errors
    /// Those of [`Driver::stop`].
    ///
    /// # Cancel safety
    /// Dropped half-way, the driver may be half stopped: hence the task.
    pub async fn stop(&self) -> Result<()> {
        if !self.gate.begin_stop() {
            return Ok(());
        }
        let stopped = self.driver.stop().await;
        self.gate.finish_stop();
        stopped
    }

    fn parse(&self, path: &str) -> Result<WorkspacePath> {
        self.gate.check_active()?;
        WorkspacePath::parse(path)
    }

    /// A path that is about to be replaced: never the root (SPEC SES-3).
    fn parse_below_root(&self, path: &str, what: &str) -> Result<WorkspacePath> {
        let path = self.parse(path)?;
        if path.is_root() {
            return Err(SandboxError::new(
                ErrorCode::Path,
                format!("/workspace itself can't be {what}: name something below it"),
            ));
        }
        Ok(path)
    }
}

#[async_trait]
impl Session for DriverSession {
    fn id(&self) -> SessionId {
        self.id
    }

    fn broker_socket(&self) -> Option<&str> {
        self.driver.broker_socket()
    }

    async fn posture(&self) -> Result<(Posture, Revision)> {
        for _ in 0..MAX_PROBES {
            self.gate.check_active()?;
            let before = self.gate.snapshot();
            let posture = self.driver.probe().await?;
            if self.gate.snapshot().revision == before.revision {
                return Ok((under(posture, &before.policy), before.revision));
            }
        }
        Err(SandboxError::new(
            ErrorCode::Busy,
            "the network policy changes faster than it can be measured",
        ))
    }

    async fn stat(&self, path: &str) -> Result<Stat> {
        self.driver.stat(&self.parse(path)?).await
    }

    async fn list(&self, path: &str) -> Result<Vec<Entry>> {
        self.driver
            .list(&self.parse(path)?, self.limits.files.max_entries)
            .await
    }

    async fn read(&self, path: &str, options: ReadOptions) -> Result<Bytes> {
        let path = self.parse(path)?;
        let max = self.limits.files.max_read_bytes;
        if let Some(length) = options.length.filter(|length| length.get() > max) {
            return Err(SandboxError::new(
                ErrorCode::Limit,
                format!(
                    "a read of {length} bytes is more than the limit of {max} bytes: read parts, or as a stream"
                ),
            ));
        }
        self.driver.read(&path, options, max).await
    }

    async fn read_stream(&self, path: &str) -> Result<ByteStream> {
        self.driver
            .read_stream(&self.parse(path)?, self.limits.files.max_stream_bytes)
            .await
    }

    async fn write(&self, path: &str, content: Bytes, options: WriteOptions) -> Result<()> {
        let path = self.parse_below_root(path, "written")?;
        let (size, max) = (content.len() as u64, self.limits.files.max_write_bytes);
        if size > max {
            return Err(SandboxError::new(
                ErrorCode::Limit,
                format!(
                    "a write of {size} bytes to {path} is more than the limit of {max} bytes: write it as a stream"
                ),
            ));
        }
        self.driver.write(&path, content, options).await
    }

    async fn write_stream(
        &self,
        path: &str,
        content: ByteStream,
        options: WriteOptions,
    ) -> Result<()> {
        let path = self.parse_below_root(path, "written")?;
        self.driver
            .write_stream(&path, content, options, self.limits.files.max_stream_bytes)
            .await
    }

    async fn make_dir(&self, path: &str) -> Result<()> {
        self.driver.make_dir(&self.parse(path)?).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let from = self.parse_below_root(from, "renamed")?;
        let to = self.parse_below_root(to, "replaced")?;
        self.driver.rename(&from, &to).await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        self.driver
            .remove(&self.parse_below_root(path, "removed")?)
            .await
    }

    async fn pack(&self, path: &str) -> Result<ByteStream> {
        self.driver
            .pack(&self.parse(path)?, self.limits.files)
            .await
    }

    async fn unpack(&self, path: &str, archive: ByteStream) -> Result<()> {
        self.driver
            .unpack(&self.parse(path)?, archive, self.limits.files)
            .await
    }

    async fn spawn(&self, command: Command, options: SpawnOptions) -> Result<Box<dyn Process>> {
        let SpawnOptions { at, cancel, stdin } = options;
        if cancel.is_cancelled() {
            self.gate.check_active()?;
            return Err(SandboxError::new(
                ErrorCode::Cancelled,
                "the command was cancelled before it started",
            ));
        }
        let (permit, snapshot) = self.gate.admit(at)?;
        let bounds = self.limits.command.apply(&command);
        let started = self
            .driver
            .start(Start {
                command,
                bounds,
                stdin,
                snapshot,
                permit,
                cancel,
            })
            .await;
        // What fails because the session is going fails for that reason (SPEC OWN-2).
        started.or_else(|error| self.gate.check_active().and(Err(error)))
    }

    async fn set_network_policy(&self, policy: Policy, when: When) -> Result<()> {
        let change = self.gate.begin_change(when)?;
        let before = self.gate.snapshot();
        let snapshot = change.publish(policy);
        match self.driver.apply_policy(snapshot, when).await {
            Ok(()) => {
                change.settle();
                Ok(())
            }
            Err(error) => {
                // The driver still enforces the old policy: it gets a revision of its own,
                // so that nothing prepared in between can start.
                change.publish(before.policy.clone());
                change.settle();
                Err(error)
            }
        }
    }
}

/// `network-denied` holds only under a policy that denies everything, whatever a probe saw (SPEC COD-1).
fn under(posture: Posture, policy: &Policy) -> Posture {
    if policy.denies_everything() {
        return posture;
    }
    let mut findings = posture.findings().to_vec();
    findings.push(Finding {
        restriction: Restriction::NetworkDenied,
        standing: Standing::Missing,
        evidence: "the network policy allows destinations".to_owned(),
    });
    Posture::new(findings)
}
