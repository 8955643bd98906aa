//! The one task that owns a running command.
//!
//! It holds the child, its pipes, its deadline, its output budget, its token and its
//! permit. A caller holds a [`Running`]: channels to this task and nothing else, so that
//! a dropped future loses nothing and a dropped `Running` ends the command (SPEC PROC-6).

mod running;
mod streams;

use std::future::Future;
use std::time::Duration;

use sandbox_core::{
    CancelToken, CommandBounds, ErrorCode, Exit, Finished, Permit, Refusal, Result, SandboxError,
    Signal, Stdin,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

pub(crate) use running::Running;
use streams::{Pumped, feed, pump};

/// How many chunks wait for a reader before the command is slowed down (SPEC PROC-8).
const MAX_WAITING_CHUNKS: usize = 16;

/// How long a killed command's pipes are read on (SPEC PROC-5).
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// When a kill turns to harder means, and when it is given up (SPEC OWN-3).
const HARD_KILL_AFTER: Duration = Duration::from_millis(500);
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);

/// The process side of a command.
pub(crate) trait Child: Send + 'static {
    /// Waits until init has told how the command ended *and* all it started is gone, or
    /// until a kill has ended it. Asked again after a dropped future, it goes on.
    fn ended(&mut self) -> impl Future<Output = Result<Exit>> + Send;

    /// Asks init to end everything: the lifeline.
    fn kill(&mut self);

    /// Ends everything by the kernel's means.
    fn kill_hard(&mut self);

    /// Sends a signal to the command's process group.
    fn signal(&mut self, signal: Signal);
}

/// The host's ends of a command's pipes.
#[derive(Debug)]
pub(crate) struct Pipes<I, O> {
    /// Standard input.
    pub(crate) stdin: I,
    /// Standard output.
    pub(crate) stdout: O,
    /// Standard error.
    pub(crate) stderr: O,
}

/// What a command is held to.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Its number within the session.
    pub(crate) id: u64,
    /// Deadline and output.
    pub(crate) bounds: CommandBounds,
    /// What it reads.
    pub(crate) stdin: Stdin,
    /// Its place among the running ones.
    pub(crate) permit: Permit,
    /// What cancels it.
    pub(crate) cancel: CancelToken,
}

/// Takes a started child over, in a task of its own.
pub(crate) fn supervise<C, I, O>(
    tasks: &TaskTracker,
    child: C,
    pipes: Pipes<I, O>,
    terms: Terms,
) -> Running
where
    C: Child,
    I: AsyncWrite + Unpin + Send + 'static,
    O: AsyncRead + Unpin + Send + 'static,
{
    let (chunks, output) = mpsc::channel(MAX_WAITING_CHUNKS);
    let (asks, asked) = mpsc::channel(1);
    let (feed_end, stdin) = streams::stdin(terms.stdin);
    let (finish, finished) = watch::channel(None);
    let started = Instant::now();
    let task = Task {
        child,
        bounds: terms.bounds,
        permit: terms.permit,
        cancel: terms.cancel,
        asked,
        started,
    };
    tasks.spawn(async move {
        let outcome = task.run(pipes, stdin, chunks).await;
        finish.send_replace(Some(outcome));
    });
    Running::new(terms.id, output, feed_end, asks, finished)
}

/// What a caller asks of the task.
#[derive(Debug)]
pub(crate) enum Ask {
    /// A signal to the command's group.
    Signal(Signal),
    /// The end.
    Stop,
}

struct Task<C> {
    child: C,
    bounds: CommandBounds,
    permit: Permit,
    cancel: CancelToken,
    asked: mpsc::Receiver<Ask>,
    started: Instant,
}

/// Why a command is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Deadline,
    Output,
    Cancelled,
    SessionStopped,
    /// The caller asked, or is gone.
    Stopped,
}

impl<C: Child> Task<C> {
    async fn run<I, O>(
        mut self,
        pipes: Pipes<I, O>,
        stdin: streams::Feed,
        chunks: mpsc::Sender<sandbox_core::Chunk>,
    ) -> Result<Finished>
    where
        I: AsyncWrite + Unpin + Send,
        O: AsyncRead + Unpin + Send,
    {
        let deadline = self.bounds.deadline.map(|after| self.started + after);
        let budget = streams::budget(self.bounds.max_output_bytes);
        // The reading ends close after the kill: a closed pipe would let the command go on.
        let Pipes {
            stdin: input,
            mut stdout,
            mut stderr,
        } = pipes;
        let feeding = feed(input, stdin);
        let pumping = pump(&mut stdout, &mut stderr, chunks, &budget);
        tokio::pin!(feeding, pumping);

        let (mut fed, mut pumped, mut exit) = (false, false, None);
        // Until a reason to kill, or the natural end: record and both pipes (SPEC PROC-5).
        let reason = loop {
            if pumped && let Some(exit) = exit.take() {
                return self.finish(exit);
            }
            tokio::select! {
                // A bound that was passed counts even if the command ended meanwhile.
                biased;
                result = &mut pumping, if !pumped => {
                    pumped = true;
                    match result {
                        Pumped::Closed => {}
                        Pumped::OverBudget => break Reason::Output,
                        Pumped::Abandoned => break Reason::Stopped,
                    }
                },
                ended = self.child.ended(), if exit.is_none() => match ended {
                    Ok(ended) => exit = Some(ended),
                    // With the session its keeper goes too: the stop is the cause, not the loss.
                    Err(_) if self.permit.is_stopping() => break Reason::SessionStopped,
                    Err(error) => return Err(error),
                },
                () = at(deadline), if exit.is_none() => break Reason::Deadline,
                () = self.cancel.cancelled() => break Reason::Cancelled,
                () = self.permit.stopping() => break Reason::SessionStopped,
                ask = self.asked.recv() => match ask {
                    Some(Ask::Signal(signal)) => self.child.signal(signal),
                    Some(Ask::Stop) | None => break Reason::Stopped,
                },
                () = &mut feeding, if !fed => fed = true,
            }
        };

        self.child.kill();
        let killed = Instant::now();
        let mut hard = false;
        while exit.is_none() || !pumped {
            tokio::select! {
                biased;
                ended = self.child.ended(), if exit.is_none() => exit = Some(ended.unwrap_or(Exit::Signalled(9))),
                _ = &mut pumping, if !pumped => pumped = true,
                // A descriptor in flight to a stopped process may hold a pipe open.
                () = sleep_until(killed + DRAIN_TIME), if exit.is_some() => break,
                () = sleep_until(killed + HARD_KILL_AFTER), if exit.is_none() && !hard => {
                    hard = true;
                    self.child.kill_hard();
                }
                () = sleep_until(killed + GIVE_UP_AFTER), if exit.is_none() => {
                    return Err(SandboxError::new(
                        ErrorCode::Unavailable,
                        "the kernel has not let go of the killed command within 2 seconds",
                    )
                    .with_hint("look for a process in uninterruptible sleep (state D) with `ps`"));
                }
            }
        }
        self.verdict(reason, exit)
    }

    fn finish(&self, exit: Exit) -> Result<Finished> {
        Ok(Finished::new(exit, self.started.elapsed()))
    }

    fn verdict(&self, reason: Reason, exit: Option<Exit>) -> Result<Finished> {
        let (code, rule, message) = match reason {
            Reason::Stopped => return self.finish(exit.unwrap_or(Exit::Signalled(9))),
            Reason::Deadline => (
                ErrorCode::Limit,
                Some("deadline"),
                format!(
                    "the command ran longer than its deadline of {} ms and was killed",
                    self.bounds.deadline.unwrap_or_default().as_millis()
                ),
            ),
            Reason::Output => (
                ErrorCode::Limit,
                Some("output"),
                format!(
                    "the command wrote more than its limit of {} bytes and was killed",
                    self.bounds
                        .max_output_bytes
                        .map_or(0, std::num::NonZeroU64::get)
                ),
            ),
            Reason::Cancelled => (
                ErrorCode::Cancelled,
                None,
                "the command was cancelled and killed".to_owned(),
            ),
            Reason::SessionStopped => (
                ErrorCode::Stopped,
                None,
                "the session was stopped and the command killed".to_owned(),
            ),
        };
        let error = SandboxError::new(code, message);
        let Some(rule) = rule else {
            return Err(error);
        };
        let refusal = Refusal {
            rule: Some(rule.to_owned()),
            ..error.refusal()
        };
        Err(error.with_refusal(refusal))
    }
}

/// Waits for a moment that may never come.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
