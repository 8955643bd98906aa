//! The host's side of a session's keeper.
//!
//! [`Keeper::start`] makes the namespaces of a session and gives its workspace's descriptor;
//! [`Keeper::spawn`] starts one command in them. Everything here fails closed: what can't be
//! established is `SANDBOX_UNAVAILABLE`, and nothing ever runs outside.
//!
//! The socket is the lifeline. Its end on this side, closed in any way, ends the whole session;
//! its end on the other side says that the last process of the session is gone.

mod cause;
mod channel;
mod child;
mod command;
mod etc;
mod executable;
mod host;
mod setup;

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sandbox_core::SandboxError;
use sandbox_helper::wire::{self, BUILD_ID, Body, Failure, Message, PROTOCOL, Request};
use tokio::sync::watch;

use cause::Cause;
use channel::Channel;

pub use command::{Event, RunningCommand};
pub use executable::Executable;
pub use setup::Setup;

/// A session's namespaces, and the process that holds them.
///
/// Dropping it ends everything in them; [`Keeper::close`] also waits for that.
#[derive(Debug)]
pub struct Keeper {
    channel: Arc<Channel>,
    gone: watch::Receiver<Option<Gone>>,
    next: AtomicU32,
}

/// The last process of the session is gone.
#[derive(Clone, Copy, Debug)]
struct Gone {
    /// What the keeper said before it went, if it went by itself.
    failure: Option<Failure>,
}

impl Keeper {
    /// Starts a keeper, and gives the descriptor of the session's workspace with it.
    ///
    /// The descriptor keeps the session's mounts alive: everything that was opened through it
    /// closes before the lease does.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` for a read-only mount that can't be; `SANDBOX_LIMIT` for too few
    /// descriptors; `SANDBOX_UNAVAILABLE` for everything else, naming the step and what to do.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was started.
    pub async fn start(setup: Setup) -> Result<(Self, OwnedFd), SandboxError> {
        let (message, descriptors) = setup.message()?;
        let (channel, theirs) = Channel::pair().map_err(Cause::Descriptors)?;
        let child = OuterProcess::start(&setup.helper, theirs)?;
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        channel
            .send(&message, &borrowed)
            .await
            .map_err(Cause::Descriptors)?;
        let workspace = tokio::time::timeout(START_DEADLINE, ready(&channel))
            .await
            .map_err(|_| Cause::NotReady(START_DEADLINE))??;
        // Mounts and memfd are the keeper's now; held here they would outlive the session.
        drop((descriptors, setup));
        let channel = Arc::new(channel);
        let (sender, gone) = watch::channel(None);
        tokio::spawn(watch_end(Arc::clone(&channel), child, sender));
        let keeper = Self {
            channel,
            gone,
            next: AtomicU32::new(1),
        };
        Ok((keeper, workspace))
    }

    /// Starts a command with these descriptors as its 0, 1 and 2.
    ///
    /// It returns as soon as the keeper was asked. Whether the command runs, and how it ends,
    /// comes as an [`Event`].
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` when the session is gone, `SANDBOX_BUSY` when too many descriptors
    /// are on their way, `SANDBOX_LIMIT` when this process may open no more.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was started.
    pub async fn spawn(
        &self,
        request: &Request,
        stdio: [OwnedFd; 3],
    ) -> Result<RunningCommand, SandboxError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let asked = tokio::time::timeout(ASK_DEADLINE, self.ask(number, request, stdio)).await;
        let command = asked.map_err(|_| Cause::Stuck(ASK_DEADLINE))??;
        Ok(command)
    }

    async fn ask(
        &self,
        number: u32,
        request: &Request,
        stdio: [OwnedFd; 3],
    ) -> Result<RunningCommand, Cause> {
        let (control, init) = Channel::pair().map_err(Cause::Descriptors)?;
        let (report, theirs) = Channel::pair().map_err(Cause::Descriptors)?;
        let (errors, child_errors) = channel::pipe().map_err(Cause::Descriptors)?;
        let memfd = wire::memfd("request", &request.encode()).map_err(Cause::Descriptors)?;
        let [stdin, stdout, stderr] = &stdio;
        // The request waits for init there, and passes through neither keeper nor bubblewrap.
        control
            .send(
                &Message::new(number, Body::Run),
                &[memfd.as_fd(), stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            )
            .await
            .map_err(Cause::Descriptors)?;
        self.channel
            .send(
                &Message::new(number, Body::Spawn),
                &[init.as_fd(), theirs.as_fd(), child_errors.as_fd()],
            )
            .await
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::BrokenPipe => self.why_gone(),
                _ => Cause::Descriptors(error),
            })?;
        Ok(RunningCommand::new(control, report, errors))
    }

    fn why_gone(&self) -> Cause {
        let failure = self.gone.borrow().and_then(|gone| gone.failure);
        Cause::KeeperGone(failure)
    }

    /// Waits until the last process of the session is gone, however that comes.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn gone(&self) {
        // An error means that the watching task is gone, and its runtime with it.
        let _ = self.gone.clone().wait_for(Option::is_some).await;
    }

    /// Ends the session and waits until its last process is gone.
    ///
    /// May be repeated, and called after the session went by itself.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` when the kernel has not let go of everything after two seconds.
    ///
    /// # Cancel safety
    /// The end goes on when the future is dropped.
    pub async fn close(&self) -> Result<(), SandboxError> {
        self.channel.hang_up();
        tokio::time::timeout(CLOSE_DEADLINE, self.gone())
            .await
            .map_err(|_| Cause::Unreaped("processes of the session").into())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The watching task holds the descriptor until the other side has gone.
        self.channel.hang_up();
    }
}

/// Waits for the keeper's answer to its configuration.
async fn ready(channel: &Channel) -> Result<OwnedFd, Cause> {
    let Some((message, descriptors)) = channel.receive().await? else {
        return Err(Cause::Silent);
    };
    match message.body {
        Body::Ready => {
            let [workspace]: [OwnedFd; 1] = descriptors
                .try_into()
                .map_err(|_| Cause::Unexpected("a missing descriptor"))?;
            Ok(workspace)
        }
        Body::Failed(failure) => Err(Cause::SetUp(failure)),
        Body::Mismatch { protocol, build } => Err(Cause::Mismatch {
            ours: (PROTOCOL, BUILD_ID),
            theirs: (protocol, build),
        }),
        _ => Err(Cause::Unexpected("an answer out of order")),
    }
}

/// Reads the socket to its end, then reaps the outer process.
async fn watch_end(
    channel: Arc<Channel>,
    child: OuterProcess,
    sender: watch::Sender<Option<Gone>>,
) {
    let mut failure = None;
    loop {
        match channel.receive().await {
            Ok(Some((message, _))) => {
                if let Body::Failed(said) = message.body {
                    tracing::warn!(step = %said.step, errno = said.errno, "the keeper failed");
                    failure = Some(said);
                }
            }
            Ok(None) => break,
            Err(Cause::Wire(error)) => {
                // Nothing that it says is believed any more.
                tracing::warn!(%error, "the keeper's message is refused");
                channel.hang_up();
            }
            Err(error) => {
                tracing::warn!(%error, "the keeper's socket can't be read");
                channel.hang_up();
                break;
            }
        }
    }
    drop(child);
    // Nobody may be waiting.
    let _ = sender.send(Some(Gone { failure }));
}

/// The keeper's outer process, reaped when this is dropped.
#[derive(Debug)]
struct OuterProcess(Option<Child>);

impl OuterProcess {
    fn start(helper: &Executable, socket: OwnedFd) -> Result<Self, Cause> {
        let child = Command::new(helper.path())
            .arg("keeper")
            .env_clear()
            .stdin(Stdio::from(socket))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| Cause::HelperNotStarted {
                helper: helper.path().to_owned(),
                source,
            })?;
        Ok(Self(Some(child)))
    }
}

impl Drop for OuterProcess {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        // It ends within its half second of grace once the socket is closed. A host that
        // ignores SIGCHLD has it reaped by the kernel, which is as good (ECHILD).
        if let Ok(None) = child.try_wait() {
            let reaper = std::thread::Builder::new().name("sandbox-reaper".to_owned());
            let started = reaper.spawn(move || -> Option<ExitStatus> { child.wait().ok() });
            if let Err(error) = started {
                tracing::warn!(%error, "the keeper's outer process is not reaped");
            }
        }
    }
}

/// How long a set-up may take; it takes about two milliseconds.
const START_DEADLINE: Duration = Duration::from_secs(10);

/// How long a keeper may leave a request unread.
const ASK_DEADLINE: Duration = Duration::from_secs(5);

/// How long the end of a session may take (SPEC OWN-3).
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
