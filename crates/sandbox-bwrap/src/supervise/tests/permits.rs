//! A permit as a session gives it: through a driver that keeps it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use sandbox_core::{
    ByteStream, Command, Driver, DriverSession, Entry, ErrorCode, FileLimits, Permit, Policy,
    PolicySnapshot, Posture, Process, ReadOptions, Result, SandboxError, Session, SessionId,
    SessionLimits, SpawnOptions, Start, Stat, When, WorkspacePath, WriteOptions,
};

/// A session with one running command, and that command's permit.
pub(super) fn take() -> (DriverSession, Permit) {
    let kept = Arc::new(Keeping::default());
    let session = DriverSession::new(
        SessionId::from_bytes([0; 32]),
        Arc::clone(&kept) as Arc<dyn Driver>,
        SessionLimits::default(),
        Policy::DenyAll,
    )
    .unwrap();
    let command = Command::builder("x").build().unwrap();
    let mut spawning = session.spawn(command, SpawnOptions::default());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let started = std::pin::Pin::new(&mut spawning).poll(&mut context);
    assert!(
        matches!(started, std::task::Poll::Ready(Err(_))),
        "the driver keeps the permit and starts nothing"
    );
    drop(spawning);
    let permit = kept.0.lock().unwrap().take().unwrap();
    (session, permit)
}

#[derive(Debug, Default)]
struct Keeping(Mutex<Option<Permit>>);

fn nothing<T>() -> Result<T> {
    Err(SandboxError::new(
        ErrorCode::Unavailable,
        "this driver has permits only",
    ))
}

#[async_trait]
impl Driver for Keeping {
    fn broker_socket(&self) -> Option<&str> {
        None
    }

    async fn probe(&self) -> Result<Posture> {
        nothing()
    }

    async fn stat(&self, _: &WorkspacePath) -> Result<Stat> {
        nothing()
    }

    async fn list(&self, _: &WorkspacePath, _: usize) -> Result<Vec<Entry>> {
        nothing()
    }

    async fn read(&self, _: &WorkspacePath, _: ReadOptions, _: u64) -> Result<Bytes> {
        nothing()
    }

    async fn read_stream(&self, _: &WorkspacePath, _: u64) -> Result<ByteStream> {
        nothing()
    }

    async fn write(&self, _: &WorkspacePath, _: Bytes, _: WriteOptions) -> Result<()> {
        nothing()
    }

    async fn write_stream(
        &self,
        _: &WorkspacePath,
        _: ByteStream,
        _: WriteOptions,
        _: u64,
    ) -> Result<()> {
        nothing()
    }

    async fn make_dir(&self, _: &WorkspacePath) -> Result<()> {
        nothing()
    }

    async fn rename(&self, _: &WorkspacePath, _: &WorkspacePath) -> Result<()> {
        nothing()
    }

    async fn remove(&self, _: &WorkspacePath) -> Result<()> {
        nothing()
    }

    async fn pack(&self, _: &WorkspacePath, _: FileLimits) -> Result<ByteStream> {
        nothing()
    }

    async fn unpack(&self, _: &WorkspacePath, _: ByteStream, _: FileLimits) -> Result<()> {
        nothing()
    }

    async fn start(&self, start: Start) -> Result<Box<dyn Process>> {
        *self.0.lock().unwrap() = Some(start.permit);
        nothing()
    }

    async fn apply_policy(&self, _: Arc<PolicySnapshot>, _: When) -> Result<()> {
        nothing()
    }

    async fn stop(&self) -> Result<()> {
        Ok(())
    }
}
