//! The driver of a fake session.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::Stream;
use sandbox_core::{
    ByteStream, CancelToken, Driver, Entry, ErrorCode, FileLimits, PolicySnapshot, Posture,
    Process, ReadOptions, Result, Revision, SandboxError, Start, Stat, When, WorkspacePath,
    WriteOptions, shown,
};
use tokio::sync::watch;

use super::command::{self, Workspace};
use super::fault::{Fault, Faults};
use super::process::{self, Terms};
use super::program::Program;
use super::tree::Tree;
use super::{archive, lock};

/// The size of one piece of a stream.
const PIECE_BYTES: usize = 64 * 1024;

/// What every session of a backend shares with it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) faults: Faults,
    pub(super) posture: Mutex<Option<Posture>>,
    pub(super) installed: Mutex<BTreeMap<String, Program>>,
}

/// One live fake session.
#[derive(Debug)]
pub(super) struct FakeDriver {
    shared: Arc<Shared>,
    workspace: Arc<Workspace>,
    /// Held by whatever still runs, so that the lease is free only afterwards.
    lease: Weak<()>,
    next: AtomicU64,
    running: Arc<watch::Sender<usize>>,
    enforced: Mutex<Revision>,
    ends: Ends,
}

/// How a session ends, each for good.
#[derive(Clone, Debug, Default)]
struct Ends {
    stopped: CancelToken,
    abandoned: CancelToken,
    lost: CancelToken,
}

impl FakeDriver {
    pub(super) fn new(shared: Arc<Shared>, workspace: Arc<Workspace>, lease: Weak<()>) -> Self {
        Self {
            shared,
            workspace,
            lease,
            next: AtomicU64::new(1),
            running: Arc::new(watch::Sender::new(0)),
            enforced: Mutex::new(Revision::FIRST),
            ends: Ends::default(),
        }
    }

    /// Kills everything, as a death of the owner would.
    pub(super) fn abandon(&self) {
        self.ends.abandoned.cancel();
    }

    /// Yields, then refuses whatever comes after an end.
    async fn enter(&self) -> Result<()> {
        tokio::task::yield_now().await;
        let lost = |fault: &Fault| matches!(fault, Fault::LostSession).then_some(());
        if self.shared.faults.take(lost).is_some() {
            self.ends.lost.cancel();
        }
        self.ends.check()
    }

    /// Works on the files, if the session is still there at that moment.
    async fn files<T>(&self, work: impl FnOnce(&mut Tree) -> Result<T> + Send) -> Result<T> {
        self.enter().await?;
        let done = {
            let mut tree = lock(&self.workspace.tree);
            self.ends.check()?;
            work(&mut tree)
        };
        tokio::task::yield_now().await;
        done
    }

    fn stream(&self, content: Vec<u8>) -> ByteStream {
        Box::pin(Content {
            left: content.into(),
            ends: self.ends.clone(),
            ready: false,
            over: false,
        })
    }
}

impl Ends {
    fn check(&self) -> Result<()> {
        if self.stopped.is_cancelled() || self.abandoned.is_cancelled() {
            return Err(SandboxError::new(
                ErrorCode::Stopped,
                "the session was stopped",
            ));
        }
        if self.lost.is_cancelled() {
            return Err(SandboxError::new(
                ErrorCode::Unavailable,
                "the other side of the session is gone",
            ));
        }
        Ok(())
    }
}

/// A stream that is never ready the first time, and ends with its session.
struct Content {
    left: Bytes,
    ends: Ends,
    ready: bool,
    over: bool,
}

impl Stream for Content {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.ready = !self.ready;
        if self.ready {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.over || self.left.is_empty() {
            return Poll::Ready(None);
        }
        if let Err(error) = self.ends.check() {
            self.over = true;
            return Poll::Ready(Some(Err(error)));
        }
        let length = self.left.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(self.left.split_to(length))))
    }
}

/// All that a stream brings, within a bound.
async fn whole(mut stream: ByteStream, max_bytes: u64) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut next =
        async || std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await;
    while let Some(piece) = next().await {
        all.extend_from_slice(&piece?);
        within(all.len(), max_bytes, "the stream")?;
    }
    Ok(all)
}

fn within(length: usize, max_bytes: u64, what: &str) -> Result<()> {
    if length as u64 > max_bytes {
        return Err(SandboxError::new(
            ErrorCode::Limit,
            format!("{what} has {length} bytes, more than the limit of {max_bytes} bytes"),
        ));
    }
    Ok(())
}

/// One place among the running ones, until it is dropped.
struct Place(Arc<watch::Sender<usize>>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

#[async_trait]
impl Driver for FakeDriver {
    fn broker_socket(&self) -> Option<&str> {
        None
    }

    async fn probe(&self) -> Result<Posture> {
        self.enter().await?;
        Ok(super::backend::posture(&self.shared))
    }

    async fn stat(&self, path: &WorkspacePath) -> Result<Stat> {
        self.files(|tree| tree.stat(path)).await
    }

    async fn list(&self, path: &WorkspacePath, max_entries: usize) -> Result<Vec<Entry>> {
        self.files(|tree| tree.list(path, max_entries)).await
    }

    async fn read(
        &self,
        path: &WorkspacePath,
        options: ReadOptions,
        max_bytes: u64,
    ) -> Result<Bytes> {
        let mut content = self.files(|tree| tree.read(path)).await?;
        let offset = usize::try_from(options.offset).unwrap_or(usize::MAX);
        let mut part = content.split_off(offset.min(content.len()));
        match options.length {
            Some(length) => part.truncate(usize::try_from(length.get()).unwrap_or(usize::MAX)),
            None => within(part.len(), max_bytes, &shown(path.to_string()))?,
        }
        Ok(part)
    }

    async fn read_stream(&self, path: &WorkspacePath, max_bytes: u64) -> Result<ByteStream> {
        let content = self.files(|tree| tree.read(path)).await?;
        within(content.len(), max_bytes, &shown(path.to_string()))?;
        Ok(self.stream(content.into()))
    }

    async fn write(&self, path: &WorkspacePath, content: Bytes, _: WriteOptions) -> Result<()> {
        self.files(|tree| tree.write(path, content)).await
    }

    async fn write_stream(
        &self,
        path: &WorkspacePath,
        content: ByteStream,
        _: WriteOptions,
        max_bytes: u64,
    ) -> Result<()> {
        self.enter().await?;
        let content = whole(content, max_bytes).await?;
        self.files(|tree| tree.write(path, content.into())).await
    }

    async fn make_dir(&self, path: &WorkspacePath) -> Result<()> {
        self.files(|tree| tree.make_dir(path)).await
    }

    async fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> Result<()> {
        self.files(|tree| tree.rename(from, to)).await
    }

    async fn remove(&self, path: &WorkspacePath) -> Result<()> {
        self.files(|tree| tree.remove(path)).await
    }

    async fn pack(&self, path: &WorkspacePath, limits: FileLimits) -> Result<ByteStream> {
        let archive = self
            .files(|tree| archive::pack(tree, path, limits.max_entries))
            .await?;
        within(archive.len(), limits.max_stream_bytes, "the archive")?;
        Ok(self.stream(archive))
    }

    async fn unpack(
        &self,
        path: &WorkspacePath,
        archive: ByteStream,
        limits: FileLimits,
    ) -> Result<()> {
        self.enter().await?;
        let archive = whole(archive, limits.max_stream_bytes).await?;
        self.files(|tree| archive::unpack(tree, path, &archive, limits.max_entries))
            .await
    }

    async fn start(&self, start: Start) -> Result<Box<dyn Process>> {
        self.enter().await?;
        let enforced = *lock(&self.enforced);
        if start.snapshot.revision < enforced {
            return Err(SandboxError::new(
                ErrorCode::Busy,
                format!(
                    "the command was admitted under policy revision {}, and {enforced} is enforced",
                    start.snapshot.revision
                ),
            ));
        }
        let set_up = |fault: &Fault| matches!(fault, Fault::SetUp).then_some(());
        if self.shared.faults.take(set_up).is_some() {
            return Err(SandboxError::new(
                ErrorCode::Unavailable,
                "the isolation of the command can't be set up",
            ));
        }
        let installed = lock(&self.shared.installed).clone();
        let found = command::find(&start.command, &self.workspace, &installed)?;
        tokio::task::yield_now().await;
        let lease = self
            .lease
            .upgrade()
            .filter(|_| !start.permit.is_stopping())
            .ok_or_else(|| {
                SandboxError::new(
                    ErrorCode::Stopped,
                    "the session was stopped while the command started",
                )
            })?;
        let terms = Terms {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            bounds: start.bounds,
            stdin: start.stdin,
            permit: start.permit,
            cancel: start.cancel,
            abandoned: self.ends.abandoned.clone(),
            lost: self.ends.lost.clone(),
            cut: self.shared.faults.take(|fault| match fault {
                Fault::CutOutput { after } => Some(*after),
                _ => None,
            }),
            late: self.shared.faults.take(|fault| match fault {
                Fault::LateExit(late) => Some(*late),
                _ => None,
            }),
        };
        self.running.send_modify(|running| *running += 1);
        let kept = (Place(Arc::clone(&self.running)), lease);
        let (command, workspace) = (start.command, Arc::clone(&self.workspace));
        let body = |io| command::run(found, command, workspace, io);
        Ok(Box::new(process::start(terms, body, kept)))
    }

    async fn apply_policy(&self, snapshot: Arc<PolicySnapshot>, _: When) -> Result<()> {
        self.enter().await?;
        let held = self.shared.faults.take(|fault| match fault {
            Fault::HeldPolicy(token) => Some(token.clone()),
            _ => None,
        });
        if let Some(token) = held {
            token.cancelled().await;
        }
        let refused = |fault: &Fault| matches!(fault, Fault::Policy).then_some(());
        if self.shared.faults.take(refused).is_some() {
            return Err(SandboxError::new(
                ErrorCode::Unavailable,
                "the policy can't be enforced",
            ));
        }
        *lock(&self.enforced) = snapshot.revision;
        Ok(())
    }

    async fn stop(&self) -> Result<()> {
        self.ends.stopped.cancel();
        // Every task has heard of the stop by its permit; none starts after it.
        let mut running = self.running.subscribe();
        let _ = running.wait_for(|&running| running == 0).await;
        let stuck = |fault: &Fault| matches!(fault, Fault::Stop).then_some(());
        match self.shared.faults.take(stuck) {
            Some(()) => Err(SandboxError::new(
                ErrorCode::Unavailable,
                "something of the session was not let go of",
            )),
            None => Ok(()),
        }
    }
}
