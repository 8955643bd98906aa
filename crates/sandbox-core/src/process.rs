//! A running command.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{ErrorCode, Result, SandboxError};
use crate::output::{Captured, Chunk, Finished, Output, OutputStream};

/// A command that was started.
///
/// It is owned by one task of its driver; this is the caller's end of that task's
/// channels, so dropping one of the futures below loses nothing. Dropping the `Process`
/// itself asks for a kill, and [`Process::stop`] confirms one (SPEC PROC-6).
///
/// A slow reader slows the command down: output that nobody takes stays in the pipe
/// (SPEC PROC-8). So read to the end, then wait; [`collect`](#method.collect) does both.
#[async_trait]
pub trait Process: Debug + Send + Sync {
    /// A number that no other command of this session has.
    fn id(&self) -> u64;

    /// The next piece of output; none once both streams are closed or were cut.
    ///
    /// # Cancel safety
    /// No piece is lost when the future is dropped.
    async fn next_output(&self) -> Option<Chunk>;

    /// Gives bytes to standard input, waiting while the pipe is full.
    ///
    /// A command that has ended or closed its input is no error (SPEC PROC-2).
    ///
    /// # Errors
    /// `SANDBOX_INVALID` where standard input is not [`Stdin::Piped`](crate::Stdin::Piped) or was closed.
    ///
    /// # Cancel safety
    /// The bytes are given whole or not at all.
    async fn write_stdin(&self, bytes: Bytes) -> Result<()>;

    /// Closes standard input, after what was given before; may be repeated.
    ///
    /// # Errors
    /// None of its own; a driver that lost its process says so in [`Self::wait`].
    async fn close_stdin(&self) -> Result<()>;

    /// Sends a signal to the command's process group. One that has ended is no error.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` naming a signal that the backend lacks.
    async fn signal(&self, signal: Signal) -> Result<()>;

    /// Tells the command's terminal its size.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` where the command has no terminal.
    async fn resize(&self, size: TerminalSize) -> Result<()>;

    /// Kills everything that the command started, and returns when it is gone.
    ///
    /// May be repeated, and called after the end (SPEC PROC-6).
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` naming what the kernel had not let go of after two seconds.
    ///
    /// # Cancel safety
    /// The kill goes on when the future is dropped.
    async fn stop(&self) -> Result<()>;

    /// Waits for the end: the process has exited *and* both streams are closed (SPEC PROC-5).
    ///
    /// May be repeated, and gives the same each time.
    ///
    /// # Errors
    /// `SANDBOX_LIMIT` past a bound, `SANDBOX_CANCELLED`, `SANDBOX_STOPPED` when its
    /// session was stopped, `SANDBOX_UNAVAILABLE` when the isolation could not be set up.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    async fn wait(&self) -> Result<Finished>;
}

impl dyn Process + '_ {
    /// Reads all output and waits for the end.
    ///
    /// # Errors
    /// Those of [`Process::wait`], with the output captured so far (SPEC PROC-3).
    ///
    /// # Cancel safety
    /// The output read so far is lost when the future is dropped.
    pub async fn collect(&self) -> Result<Output> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Some(Chunk { stream, bytes }) = self.next_output().await {
            match stream {
                OutputStream::Stdout => stdout.extend_from_slice(&bytes),
                OutputStream::Stderr => stderr.extend_from_slice(&bytes),
            }
        }
        let captured = Captured {
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        match self.wait().await {
            Ok(finished) => Ok(Output::new(finished, captured)),
            Err(error) => Err(error.with_output(captured)),
        }
    }
}

/// A signal number, as `signal(7)` lists them: 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signal(i32);

impl Signal {
    /// Hang-up.
    pub const HUP: Self = Self(1);
    /// Interrupt: what Ctrl-C means.
    pub const INT: Self = Self(2);
    /// Kill.
    pub const KILL: Self = Self(9);
    /// Terminate.
    pub const TERM: Self = Self(15);

    /// Takes a number.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` outside 1 to 64.
    pub fn new(number: i32) -> Result<Self> {
        if (1..=64).contains(&number) {
            Ok(Self(number))
        } else {
            Err(SandboxError::invalid(
                "the signal",
                number.to_string(),
                "1 to 64 is accepted",
            ))
        }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters a line.
    pub columns: u16,
}

/// What a driver answers to a resize of a command that has no terminal.
#[must_use]
pub fn no_terminal() -> SandboxError {
    SandboxError::new(
        ErrorCode::Invalid,
        "the command has no terminal to resize: its streams are pipes",
    )
}
