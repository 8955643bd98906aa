//! A folder of the host that a person copies to or from.
//!
//! The same rules as for a workspace, the other way round: what comes out of a session is
//! resolved beneath the folder, so that no link in it, old or new, leads a write elsewhere.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use sandbox_core::{
    ByteStream, ErrorCode, FileLimits, Result, SandboxError, Stat, WorkspacePath, WriteOptions,
    shown,
};

use crate::files::Files;

/// An open folder of the host; paths are relative to it, as a [`WorkspacePath`] is.
#[derive(Debug)]
pub struct HostFolder(Files);

impl HostFolder {
    /// Opens the folder; the path itself is the caller's own, and its links are followed.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND` where it is not there or no folder.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder: OwnedFd =
            rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|errno| {
                SandboxError::new(
                    ErrorCode::NotFound,
                    format!(
                        "there is no folder {} that can be opened",
                        shown(path.as_os_str().as_encoded_bytes())
                    ),
                )
                .with_source(std::io::Error::from(errno))
            })?;
        Ok(Self(Files::of_host(folder)))
    }

    /// Describes an entry; a link itself, not what it leads to.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND`, `SANDBOX_PATH`.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn stat(&self, path: &WorkspacePath) -> Result<Stat> {
        self.0.stat(path).await
    }

    /// Reads a regular file as it comes.
    ///
    /// # Errors
    /// As [`Session::read_stream`](sandbox_core::Session::read_stream).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn read_stream(&self, path: &WorkspacePath, max_bytes: u64) -> Result<ByteStream> {
        self.0.read_stream(path, max_bytes).await
    }

    /// Writes a file; it appears whole.
    ///
    /// # Errors
    /// As [`Session::write_stream`](sandbox_core::Session::write_stream).
    ///
    /// # Cancel safety
    /// Dropped, it has written all or nothing.
    pub async fn write_stream(
        &self,
        path: &WorkspacePath,
        content: ByteStream,
        max_bytes: u64,
    ) -> Result<()> {
        self.0
            .write_stream(path, content, WriteOptions::default(), max_bytes)
            .await
    }

    /// Renames an entry, replacing a file.
    ///
    /// # Errors
    /// As [`Session::rename`](sandbox_core::Session::rename).
    ///
    /// # Cancel safety
    /// Dropped, it has happened or not.
    pub async fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> Result<()> {
        self.0.rename(from, to).await
    }

    /// Removes an entry and what is below it.
    ///
    /// # Errors
    /// As [`Session::remove`](sandbox_core::Session::remove).
    ///
    /// # Cancel safety
    /// As there.
    pub async fn remove(&self, path: &WorkspacePath) -> Result<()> {
        self.0.remove(path).await
    }

    /// A tar archive of an entry.
    ///
    /// # Errors
    /// As [`Session::pack`](sandbox_core::Session::pack).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn pack(&self, path: &WorkspacePath, limits: FileLimits) -> Result<ByteStream> {
        self.0.pack(path, limits).await
    }

    /// Unpacks a tar archive below an entry.
    ///
    /// # Errors
    /// As [`Session::unpack`](sandbox_core::Session::unpack).
    ///
    /// # Cancel safety
    /// As there.
    pub async fn unpack(
        &self,
        path: &WorkspacePath,
        archive: ByteStream,
        limits: FileLimits,
    ) -> Result<()> {
        self.0.unpack(path, archive, limits).await
    }
}
