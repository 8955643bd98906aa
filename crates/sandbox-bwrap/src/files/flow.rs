//! Bytes between a thread that may block and a caller that may not.
//!
//! The thread holds the workspace, the caller a bounded channel: a slow caller makes the
//! thread wait, and a stop of the session ends it wherever it waits.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use sandbox_core::{ByteStream, ErrorCode, Result, SandboxError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Files, stopped};
use crate::handle::blocking;

/// Pieces that wait between the two.
const MAX_WAITING_PIECES: usize = 4;

impl Files {
    /// A stream of what `work` writes to its sink, on a thread of its own.
    pub(super) fn produce(
        &self,
        work: impl FnOnce(BorrowedFd<'_>, &mut Sink) -> Result<()> + Send + 'static,
    ) -> Result<ByteStream> {
        let workspace = self.workspace()?;
        let (sender, receiver) = mpsc::channel(MAX_WAITING_PIECES);
        let complete = Arc::new(AtomicBool::new(false));
        let mut sink = Sink {
            sender,
            closing: self.0.closing.clone(),
            runtime: Handle::current(),
        };
        let done = Arc::clone(&complete);
        tokio::task::spawn_blocking(move || {
            let outcome = workspace
                .act()
                .and_then(|_acting| work(workspace.root(), &mut sink));
            drop(workspace);
            match outcome {
                Ok(()) => done.store(true, Ordering::Release),
                Err(error) => {
                    // Nobody may be reading any more.
                    let _ = sink.send(Err(error));
                    done.store(!sink.closing.is_cancelled(), Ordering::Release);
                }
            }
        });
        Ok(Box::pin(Flow {
            receiver,
            complete,
            ended: false,
        }))
    }

    /// Does `work` with what the stream brings, on a thread of its own.
    pub(super) async fn consume(
        &self,
        mut stream: ByteStream,
        work: impl FnOnce(BorrowedFd<'_>, &mut Source) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let workspace = self.workspace()?;
        let (sender, receiver) = mpsc::channel(MAX_WAITING_PIECES);
        let mut source = Source {
            receiver,
            piece: Bytes::new(),
            ended: false,
            failure: None,
            closing: self.0.closing.clone(),
            runtime: Handle::current(),
        };
        let working = blocking(move || {
            let _acting = workspace.act()?;
            let outcome = work(workspace.root(), &mut source);
            // What the stream itself said comes first: the rest follows from it.
            source.failure.map_or(outcome, Err)
        });
        let feeding = async move {
            while let Some(piece) =
                std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await
            {
                // The thread has what it needs, or has failed: its own word counts.
                if sender.send(Some(piece)).await.is_err() {
                    return;
                }
            }
            let _ = sender.send(None).await;
        };
        let ((), outcome) = tokio::join!(feeding, working);
        outcome
    }
}

/// Where a thread writes what a caller reads.
pub(super) struct Sink {
    sender: mpsc::Sender<Result<Bytes>>,
    closing: CancellationToken,
    runtime: Handle,
}

impl Sink {
    /// Gives a piece, waiting for a place.
    pub(super) fn send(&self, piece: Result<Bytes>) -> Result<()> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => Err(stopped()),
                sent = self.sender.send(piece) => sent.map_err(|_| abandoned()),
            }
        })
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            self.send(Ok(Bytes::copy_from_slice(bytes)))
                .map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn abandoned() -> SandboxError {
    SandboxError::new(ErrorCode::Cancelled, "nobody reads the stream any more")
}

/// What a caller reads.
struct Flow {
    receiver: mpsc::Receiver<Result<Bytes>>,
    /// Set by the thread once all is in the channel: an end without it was a stop.
    complete: Arc<AtomicBool>,
    ended: bool,
}

impl Stream for Flow {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let piece = std::task::ready!(self.receiver.poll_recv(context));
        self.ended = !matches!(piece, Some(Ok(_)));
        Poll::Ready(match piece {
            None if !self.complete.load(Ordering::Acquire) => Some(Err(stopped())),
            piece => piece,
        })
    }
}

/// Where a thread reads what a caller gives.
pub(super) struct Source {
    receiver: mpsc::Receiver<Option<Result<Bytes>>>,
    piece: Bytes,
    ended: bool,
    failure: Option<SandboxError>,
    closing: CancellationToken,
    runtime: Handle,
}

impl Source {
    fn next(&mut self) -> io::Result<()> {
        let Self {
            receiver,
            closing,
            runtime,
            ..
        } = self;
        let piece = runtime.block_on(async {
            tokio::select! {
                biased;
                () = closing.cancelled() => Some(Some(Err(stopped()))),
                piece = receiver.recv() => piece,
            }
        });
        let failure = match piece {
            Some(Some(Ok(piece))) => {
                self.piece = piece;
                return Ok(());
            }
            Some(None) => {
                self.ended = true;
                return Ok(());
            }
            Some(Some(Err(error))) => error,
            // The caller's future was dropped: nothing may look finished.
            None => SandboxError::new(
                ErrorCode::Cancelled,
                "the caller has gone before the stream ended",
            ),
        };
        self.failure = Some(failure);
        Err(io::Error::other("the stream failed"))
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            self.next()?;
        }
        let length = buffer.len().min(self.piece.len());
        buffer[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}
