//! A running command of the fake, and the task that owns it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sandbox_core::{
    CancelToken, Chunk, CommandBounds, ErrorCode, Exit, Finished, OutputBudget, OutputStream,
    Permit, Process, Result, SandboxError, Signal, Stdin, TerminalSize, no_terminal,
};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio::time::Instant;

use super::lock;

/// What one chunk holds at most, in bytes: what a pipe holds.
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks that wait for a reader before the command waits.
const MAX_WAITING_CHUNKS: usize = 4;

/// Pieces of input that wait before their giver waits.
const MAX_WAITING_INPUT: usize = 2;

/// What a command of the fake reads, writes and hears.
#[derive(Debug)]
pub(super) struct Io {
    input: Input,
    output: mpsc::Sender<Chunk>,
    meter: Arc<Meter>,
    pub(super) signals: mpsc::UnboundedReceiver<Signal>,
}

#[derive(Debug)]
enum Input {
    Bytes(Bytes),
    Piped(mpsc::Receiver<Bytes>),
}

/// What ends a command for what it writes.
#[derive(Debug)]
struct Meter {
    budget: Mutex<OutputBudget>,
    over: CancelToken,
    /// Where the stream is cut by a fault.
    cut: Option<Mutex<OutputBudget>>,
    lost: CancelToken,
}

impl Io {
    /// Writes bytes, waiting for whoever reads them.
    ///
    /// It does not come back once the budget is spent or nobody reads any more: the task
    /// that owns the command then ends it.
    pub(super) async fn write(&self, stream: OutputStream, mut bytes: Bytes) {
        while !bytes.is_empty() {
            let mut piece = bytes.split_to(bytes.len().min(CHUNK_BYTES));
            let Ok(place) = self.output.reserve().await else {
                return std::future::pending().await;
            };
            if let Some(cut) = &self.meter.cut {
                piece.truncate(lock(cut).take(piece.len()));
            }
            let (kept, over) = {
                let mut budget = lock(&self.meter.budget);
                (budget.take(piece.len()), budget.is_exceeded())
            };
            piece.truncate(kept);
            if !piece.is_empty() {
                place.send(Chunk {
                    stream,
                    bytes: piece,
                });
            }
            if over {
                self.meter.over.cancel();
                return std::future::pending().await;
            }
            if self
                .meter
                .cut
                .as_ref()
                .is_some_and(|cut| lock(cut).is_exceeded())
            {
                self.meter.lost.cancel();
                return std::future::pending().await;
            }
            tokio::task::yield_now().await;
        }
    }

    /// The next piece of standard input; none at its end.
    pub(super) async fn read(&mut self) -> Option<Bytes> {
        tokio::task::yield_now().await;
        match &mut self.input {
            Input::Bytes(bytes) if bytes.is_empty() => None,
            Input::Bytes(bytes) => Some(bytes.split_to(bytes.len().min(CHUNK_BYTES))),
            Input::Piped(pieces) => pieces.recv().await,
        }
    }

    /// Closes standard input, whatever is still to come.
    pub(super) fn close_input(&mut self) {
        self.input = Input::Bytes(Bytes::new());
    }
}

/// What a command is held to.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) id: u64,
    pub(super) bounds: CommandBounds,
    pub(super) stdin: Stdin,
    pub(super) permit: Permit,
    pub(super) cancel: CancelToken,
    /// The owner of the session is gone.
    pub(super) abandoned: CancelToken,
    /// The other side of the session is gone.
    pub(super) lost: CancelToken,
    pub(super) cut: Option<u64>,
    pub(super) late: Option<Duration>,
}

/// Starts a command in a task of its own; what `kept` holds is let go when it has ended.
pub(super) fn start<F, K>(terms: Terms, body: impl FnOnce(Io) -> F, kept: K) -> FakeProcess
where
    F: Future<Output = Exit> + Send + 'static,
    K: Send + 'static,
{
    let (output, chunks) = mpsc::channel(MAX_WAITING_CHUNKS);
    let (signal, signals) = mpsc::unbounded_channel();
    let (finish, finished) = watch::channel(None);
    let (stdin, input) = match terms.stdin {
        Stdin::Empty => (None, Input::Bytes(Bytes::new())),
        Stdin::Bytes(bytes) => (None, Input::Bytes(bytes)),
        Stdin::Piped => {
            let (sender, receiver) = mpsc::channel(MAX_WAITING_INPUT);
            (Some(sender), Input::Piped(receiver))
        }
    };
    let meter = Arc::new(Meter {
        budget: Mutex::new(OutputBudget::new(
            terms.bounds.max_output_bytes.map(std::num::NonZeroU64::get),
        )),
        over: CancelToken::new(),
        cut: terms
            .cut
            .map(|after| Mutex::new(OutputBudget::new(Some(after)))),
        lost: CancelToken::new(),
    });
    let body = body(Io {
        input,
        output,
        meter: Arc::clone(&meter),
        signals,
    });
    let killed = CancelToken::new();
    let process = FakeProcess {
        id: terms.id,
        chunks: AsyncMutex::new(chunks),
        stdin: Mutex::new(stdin),
        signal,
        killed: killed.clone(),
        finished,
    };
    let ends = Ends {
        bounds: terms.bounds,
        permit: terms.permit,
        cancel: terms.cancel,
        abandoned: terms.abandoned,
        lost: terms.lost,
        meter,
        killed,
    };
    tokio::spawn(async move {
        let started = Instant::now();
        let outcome = ends.first(body, started).await;
        if let Some(late) = terms.late {
            tokio::time::sleep(late).await;
        }
        // The place is free before the end is told: who waits for one may start the next.
        drop((ends, kept));
        finish.send_replace(Some(
            outcome.map(|exit| Finished::new(exit, started.elapsed())),
        ));
    });
    process
}

/// All that ends a command.
struct Ends {
    bounds: CommandBounds,
    permit: Permit,
    cancel: CancelToken,
    abandoned: CancelToken,
    lost: CancelToken,
    meter: Arc<Meter>,
    killed: CancelToken,
}

impl Ends {
    /// Waits for the first of them; what the command held is let go with its future.
    async fn first(&self, body: impl Future<Output = Exit>, started: Instant) -> Result<Exit> {
        let deadline = async {
            match self.bounds.deadline {
                Some(after) => tokio::time::sleep_until(started + after).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.meter.over.cancelled() => Err(SandboxError::new(
                ErrorCode::Limit,
                format!(
                    "the command wrote more than its limit of {} bytes and was killed",
                    self.bounds.max_output_bytes.map_or(0, std::num::NonZeroU64::get)
                ),
            )),
            () = self.permit.stopping() => Err(SandboxError::new(
                ErrorCode::Stopped,
                "the session was stopped and the command killed",
            )),
            () = self.abandoned.cancelled() => Err(SandboxError::new(
                ErrorCode::Stopped,
                "the session was given up and the command killed",
            )),
            () = self.lost.cancelled() => Err(lost()),
            () = self.meter.lost.cancelled() => Err(lost()),
            () = deadline => Err(SandboxError::new(
                ErrorCode::Limit,
                format!(
                    "the command ran longer than its deadline of {} ms and was killed",
                    self.bounds.deadline.unwrap_or_default().as_millis()
                ),
            )),
            () = self.cancel.cancelled() => Err(SandboxError::new(
                ErrorCode::Cancelled,
                "the command was cancelled and killed",
            )),
            () = self.killed.cancelled() => Ok(Exit::Signalled(Signal::KILL.number())),
            exit = body => Ok(exit),
        }
    }
}

fn lost() -> SandboxError {
    SandboxError::new(ErrorCode::Unavailable, "the command was lost")
}

/// A command, as its caller holds it. Dropped, it is killed.
#[derive(Debug)]
pub(super) struct FakeProcess {
    id: u64,
    chunks: AsyncMutex<mpsc::Receiver<Chunk>>,
    stdin: Mutex<Option<mpsc::Sender<Bytes>>>,
    signal: mpsc::UnboundedSender<Signal>,
    killed: CancelToken,
    finished: watch::Receiver<Option<Result<Finished>>>,
}

impl Drop for FakeProcess {
    fn drop(&mut self) {
        self.killed.cancel();
    }
}

#[async_trait]
impl Process for FakeProcess {
    fn id(&self) -> u64 {
        self.id
    }

    async fn next_output(&self) -> Option<Chunk> {
        tokio::task::yield_now().await;
        self.chunks.lock().await.recv().await
    }

    async fn write_stdin(&self, bytes: Bytes) -> Result<()> {
        let Some(stdin) = lock(&self.stdin).clone() else {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                "standard input takes no bytes: it was closed, or is not `Stdin::Piped`",
            ));
        };
        tokio::task::yield_now().await;
        // A command that has ended or closed its input is no error (SPEC PROC-2).
        let _ = stdin.send(bytes).await;
        Ok(())
    }

    async fn close_stdin(&self) -> Result<()> {
        lock(&self.stdin).take();
        Ok(())
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        // Nobody hears it any more once the command has ended, which is no error.
        let _ = self.signal.send(signal);
        Ok(())
    }

    async fn resize(&self, _: TerminalSize) -> Result<()> {
        Err(no_terminal())
    }

    async fn stop(&self) -> Result<()> {
        self.killed.cancel();
        let _ = self.wait().await;
        Ok(())
    }

    async fn wait(&self) -> Result<Finished> {
        let mut finished = self.finished.clone();
        let gone = || SandboxError::new(ErrorCode::Unavailable, "the runtime was shut down");
        match finished.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(gone())),
            Err(_) => Err(gone()),
        }
    }
}
