//! The caller's end of a running command.

use std::fmt;
use std::sync::{Mutex as SyncMutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use sandbox_core::{
    Chunk, ErrorCode, Finished, Process, Result, SandboxError, Signal, TerminalSize, no_terminal,
};
use tokio::sync::{Mutex, mpsc, watch};

use super::Ask;

/// A command, as its caller holds it. Dropped, it takes the command with it.
pub(crate) struct Running {
    id: u64,
    output: Mutex<mpsc::Receiver<Chunk>>,
    stdin: SyncMutex<Option<mpsc::Sender<Bytes>>>,
    asks: mpsc::Sender<Ask>,
    finished: watch::Receiver<Option<Result<Finished>>>,
}

impl Running {
    pub(super) fn new(
        id: u64,
        output: mpsc::Receiver<Chunk>,
        stdin: Option<mpsc::Sender<Bytes>>,
        asks: mpsc::Sender<Ask>,
        finished: watch::Receiver<Option<Result<Finished>>>,
    ) -> Self {
        Self {
            id,
            output: Mutex::new(output),
            stdin: SyncMutex::new(stdin),
            asks,
            finished,
        }
    }

    async fn outcome(&self) -> Result<Finished> {
        let mut finished = self.finished.clone();
        match finished.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(lost())),
            Err(_) => Err(lost()),
        }
    }
}

/// The task is gone without a word: its runtime was shut down.
fn lost() -> SandboxError {
    SandboxError::new(
        ErrorCode::Unavailable,
        "the task that owned the command is gone: its runtime was shut down",
    )
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Process for Running {
    fn id(&self) -> u64 {
        self.id
    }

    async fn next_output(&self) -> Option<Chunk> {
        self.output.lock().await.recv().await
    }

    async fn write_stdin(&self, bytes: Bytes) -> Result<()> {
        let sender = self
            .stdin
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let sender = sender.ok_or_else(|| {
            SandboxError::new(
                ErrorCode::Invalid,
                "standard input takes no bytes: it was closed, or the command was not started with `Stdin::Piped`",
            )
        })?;
        // A command that has ended or closed its input is no error (SPEC PROC-2).
        let _ = sender.send(bytes).await;
        Ok(())
    }

    async fn close_stdin(&self) -> Result<()> {
        self.stdin
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        Ok(())
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        // No task is left once the command has ended, which is no error.
        let _ = self.asks.send(Ask::Signal(signal)).await;
        Ok(())
    }

    async fn resize(&self, _: TerminalSize) -> Result<()> {
        Err(no_terminal())
    }

    async fn stop(&self) -> Result<()> {
        let _ = self.asks.send(Ask::Stop).await;
        match self.outcome().await {
            Err(error) if error.code() == ErrorCode::Unavailable => Err(error),
            _ => Ok(()),
        }
    }

    async fn wait(&self) -> Result<Finished> {
        self.outcome().await
    }
}
