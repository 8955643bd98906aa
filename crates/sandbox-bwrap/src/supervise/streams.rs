//! The pipes of a command, pumped within its bounds.

use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use sandbox_core::{Chunk, OutputBudget, OutputStream, Stdin};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// The most that one read takes, in bytes: what a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// Pieces of standard input that wait to be written before their giver waits too.
const MAX_WAITING_INPUT: usize = 4;

/// What is written to standard input.
pub(super) enum Feed {
    /// These bytes.
    Bytes(Bytes),
    /// What comes, until the sender is gone.
    Piped(mpsc::Receiver<Bytes>),
}

/// Splits the caller's end from the task's; only a piped input has a caller's end.
pub(super) fn stdin(stdin: Stdin) -> (Option<mpsc::Sender<Bytes>>, Feed) {
    match stdin {
        Stdin::Empty => (None, Feed::Bytes(Bytes::new())),
        Stdin::Bytes(bytes) => (None, Feed::Bytes(bytes)),
        Stdin::Piped => {
            let (sender, receiver) = mpsc::channel(MAX_WAITING_INPUT);
            (Some(sender), Feed::Piped(receiver))
        }
    }
}

/// Writes standard input and closes it.
///
/// A command that does not read it is no error (SPEC PROC-2): what is left is dropped.
pub(super) async fn feed<I: AsyncWrite + Unpin>(mut pipe: I, input: Feed) {
    match input {
        Feed::Bytes(bytes) => {
            let _ = pipe.write_all(&bytes).await;
        }
        Feed::Piped(mut pieces) => {
            while let Some(piece) = pieces.recv().await {
                if pipe.write_all(&piece).await.is_err() {
                    break;
                }
            }
        }
    }
    let _ = pipe.shutdown().await;
}

/// The output budget of a command, shared by its two streams.
pub(super) fn budget(bytes: Option<NonZeroU64>) -> Mutex<OutputBudget> {
    Mutex::new(OutputBudget::new(bytes.map(NonZeroU64::get)))
}

/// How pumping ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    /// Both pipes are closed and read to their end.
    Closed,
    /// More was written than the budget allows; what fits has been passed on.
    OverBudget,
    /// Nobody will read any more.
    Abandoned,
}

/// Passes both streams on, each in its order, until one has a reason to end.
pub(super) async fn pump<O: AsyncRead + Unpin>(
    stdout: O,
    stderr: O,
    chunks: mpsc::Sender<Chunk>,
    budget: &Mutex<OutputBudget>,
) -> Pumped {
    let out = pump_one(OutputStream::Stdout, stdout, &chunks, budget);
    let err = pump_one(OutputStream::Stderr, stderr, &chunks, budget);
    tokio::pin!(out, err);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        let ended = tokio::select! {
            ended = &mut out, if out_open => { out_open = false; ended }
            ended = &mut err, if err_open => { err_open = false; ended }
        };
        if ended != Pumped::Closed {
            return ended;
        }
    }
    Pumped::Closed
}

async fn pump_one<O: AsyncRead + Unpin>(
    stream: OutputStream,
    mut pipe: O,
    chunks: &mpsc::Sender<Chunk>,
    budget: &Mutex<OutputBudget>,
) -> Pumped {
    let mut buffer = BytesMut::new();
    loop {
        // A place for the chunk first: while there is none the pipe fills up and the
        // command waits, and memory stays flat (SPEC PROC-8).
        let Ok(place) = chunks.reserve().await else {
            return Pumped::Abandoned;
        };
        buffer.reserve(READ_BYTES);
        match pipe.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return Pumped::Closed,
            Ok(_) => {}
        }
        let (kept, over) = {
            let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
            (budget.take(buffer.len()), budget.is_exceeded())
        };
        let mut bytes = buffer.split();
        bytes.truncate(kept);
        if !bytes.is_empty() {
            place.send(Chunk {
                stream,
                bytes: bytes.freeze(),
            });
        }
        if over {
            return Pumped::OverBudget;
        }
    }
}
