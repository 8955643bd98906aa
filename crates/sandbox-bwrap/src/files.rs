//! Files of a session, by the host, through the workspace's descriptor.
//!
//! Every path is resolved by openat2(2) beneath that descriptor at the moment it is used,
//! so that whatever links, mounts and swaps the inside makes meanwhile, nothing outside is
//! reached (SPEC SES-6). No file of a command's can make an operation wait: each open is
//! non-blocking, and only regular files are read.

mod archive;
mod flow;
mod read;
mod remove;
mod resolve;
mod write;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sandbox_core::{
    ByteStream, Entry, ErrorCode, FileLimits, ReadOptions, Result, SandboxError, Stat,
    WorkspacePath, WriteOptions,
};
use sandbox_storage::{Entered, Session, Store};
use tokio_util::sync::CancellationToken;

use crate::handle::blocking;

/// A workspace whose files the host may touch, until [`Files::close_all`].
#[derive(Clone, Debug)]
pub(crate) struct Files(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    workspace: Mutex<Option<Arc<Workspace>>>,
    /// Ends streams that nobody reads on, so that none outlives the lease.
    closing: CancellationToken,
}

/// The workspace's descriptor, which pins its mount, and whose it is.
///
/// The fields close in their order: the descriptor before the lease (FI-33).
#[derive(Debug)]
struct Workspace {
    root: OwnedFd,
    owner: Option<Store>,
    _lease: Option<Arc<Session>>,
}

impl Workspace {
    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Acts as the files' owner on this thread: a root host could list the workspace, but
    /// what it created would be nobody's in there.
    fn act(&self) -> Result<Option<Entered>> {
        self.owner.as_ref().map(Store::act_as_owner).transpose()
    }
}

impl Files {
    /// The files below `root`, under this lease, as the store's owner.
    pub(crate) fn new(root: OwnedFd, store: Store, lease: Arc<Session>) -> Self {
        Self::over(Workspace {
            root,
            owner: Some(store),
            _lease: Some(lease),
        })
    }

    /// The files below a folder of the caller's own.
    pub(crate) fn of_host(root: OwnedFd) -> Self {
        Self::over(Workspace {
            root,
            owner: None,
            _lease: None,
        })
    }

    fn over(workspace: Workspace) -> Self {
        Self(Arc::new(Shared {
            workspace: Mutex::new(Some(Arc::new(workspace))),
            closing: CancellationToken::new(),
        }))
    }

    /// Lets go of the workspace: what is under way ends, held streams end with
    /// `SANDBOX_STOPPED`, and their descriptors are closed.
    pub(crate) fn close_all(&self) {
        self.0.closing.cancel();
        self.0
            .workspace
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    fn workspace(&self) -> Result<Arc<Workspace>> {
        let workspace = self
            .0
            .workspace
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        workspace.clone().ok_or_else(stopped)
    }

    /// Does work on a thread that may block; it goes on when the future is dropped.
    async fn work<T: Send + 'static>(
        &self,
        path: &WorkspacePath,
        work: impl FnOnce(BorrowedFd<'_>, &WorkspacePath) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (workspace, path) = (self.workspace()?, path.clone());
        blocking(move || {
            let _acting = workspace.act()?;
            work(workspace.root(), &path)
        })
        .await
    }

    pub(crate) async fn stat(&self, path: &WorkspacePath) -> Result<Stat> {
        self.work(path, read::stat).await
    }

    pub(crate) async fn list(
        &self,
        path: &WorkspacePath,
        max_entries: usize,
    ) -> Result<Vec<Entry>> {
        self.work(path, move |root, path| read::list(root, path, max_entries))
            .await
    }

    pub(crate) async fn read(
        &self,
        path: &WorkspacePath,
        options: ReadOptions,
        max_bytes: u64,
    ) -> Result<Bytes> {
        self.work(path, move |root, path| {
            read::read(root, path, options, max_bytes)
        })
        .await
    }

    pub(crate) async fn read_stream(
        &self,
        path: &WorkspacePath,
        max_bytes: u64,
    ) -> Result<ByteStream> {
        // Opened here, so that what is no file is said at once and not by the stream.
        let file = self.work(path, read::open).await?;
        let path = path.clone();
        self.produce(move |_, sink| read::stream(&file, &path, max_bytes, sink))
    }

    pub(crate) async fn write(
        &self,
        path: &WorkspacePath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<()> {
        self.work(path, move |root, path| {
            write::write(root, path, &content, options)
        })
        .await
    }

    pub(crate) async fn write_stream(
        &self,
        path: &WorkspacePath,
        content: ByteStream,
        options: WriteOptions,
        max_bytes: u64,
    ) -> Result<()> {
        let path = path.clone();
        self.consume(content, move |root, source| {
            write::write_from(root, &path, source, options, max_bytes)
        })
        .await
    }

    pub(crate) async fn make_dir(&self, path: &WorkspacePath) -> Result<()> {
        self.work(path, write::make_dir).await
    }

    pub(crate) async fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> Result<()> {
        let to = to.clone();
        self.work(from, move |root, from| write::rename(root, from, &to))
            .await
    }

    pub(crate) async fn remove(&self, path: &WorkspacePath) -> Result<()> {
        self.work(path, remove::remove).await
    }

    pub(crate) async fn pack(
        &self,
        path: &WorkspacePath,
        limits: FileLimits,
    ) -> Result<ByteStream> {
        self.stat(path).await?;
        let path = path.clone();
        self.produce(move |root, sink| archive::pack(root, &path, limits, sink))
    }

    pub(crate) async fn unpack(
        &self,
        path: &WorkspacePath,
        archive: ByteStream,
        limits: FileLimits,
    ) -> Result<()> {
        let path = path.clone();
        self.consume(archive, move |root, source| {
            archive::unpack(root, &path, source, limits)
        })
        .await
    }
}

fn stopped() -> SandboxError {
    SandboxError::new(ErrorCode::Stopped, "the session was stopped")
}

#[cfg(test)]
mod tests;
