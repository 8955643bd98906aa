//! One running command, as the host holds it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use sandbox_core::{Exit, Result, SandboxError};
use sandbox_helper::wire::{Body, Failure, Message, Record, Status};

use super::Cause;
use super::channel::Channel;

/// A command that the keeper was asked to start.
///
/// It holds the host's only lifeline: dropping it kills the command and everything that it
/// started. [`RunningCommand::end`] does so too, and waits.
#[derive(Debug)]
pub struct RunningCommand {
    control: Channel,
    report: Option<Channel>,
    errors: OwnedFd,
    bubblewrap: Option<OwnedFd>,
    init: Option<OwnedFd>,
    status: Option<Status>,
    failure: Option<Failure>,
    /// Whether the record, or its absence, was told.
    told: bool,
    gone: bool,
    /// What [`crate::supervise::Child`] gives once everything is gone.
    pub(super) exit: Option<Result<Exit>>,
}

/// What becomes of a command, in this order.
#[derive(Debug)]
pub enum Event {
    /// How it ended: its pid 1 says so before it goes.
    Record(Record),
    /// There will be no record: the set-up failed, or something from outside ended it.
    Failed(SandboxError),
    /// Its pid 1 is gone, and the kernel ends what else it started.
    Gone,
}

impl RunningCommand {
    pub(super) fn new(control: Channel, report: Channel, errors: OwnedFd) -> Self {
        Self {
            control,
            report: Some(report),
            errors,
            bubblewrap: None,
            init: None,
            status: None,
            failure: None,
            told: false,
            gone: false,
            exit: None,
        }
    }

    /// The next of the [`Event`]s: one of the first two, once, then [`Event::Gone`] each time.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn event(&mut self) -> Event {
        while !self.gone {
            tokio::select! {
                // A record that is there is taken before the news that bubblewrap has ended.
                biased;
                message = self.control.receive() => match message {
                    Ok(Some((Message { body: Body::Record(record), .. }, _))) if !self.told => {
                        self.told = true;
                        return Event::Record(record);
                    }
                    Ok(None) => self.gone = true,
                    Ok(Some(_)) => return self.refuse(Cause::Unexpected("a message out of order")),
                    Err(cause) => return self.refuse(cause),
                },
                message = next_report(&mut self.report) => self.take_report(message),
            }
        }
        if self.told {
            return Event::Gone;
        }
        let cause = self.lost().await;
        self.told = true;
        Event::Failed(cause.into())
    }

    /// Nothing that its pid 1 says is believed any more.
    fn refuse(&mut self, cause: Cause) -> Event {
        self.end_by_signal();
        self.gone = true;
        self.told = true;
        Event::Failed(cause.into())
    }

    fn take_report(&mut self, message: Option<(Message, Vec<OwnedFd>)>) {
        let Some((message, descriptors)) = message else {
            self.report = None;
            return;
        };
        let descriptor = descriptors.into_iter().next();
        match message.body {
            Body::Started => self.bubblewrap = descriptor,
            Body::InitStarted => self.init = descriptor,
            Body::Ended(status) => {
                self.status = Some(status);
                self.report = None;
                // Over already, but for a bubblewrap that was killed alone: its pid 1 lives.
                self.control.hang_up();
            }
            Body::Failed(failure) => {
                self.failure = Some(failure);
                self.report = None;
                self.control.hang_up();
            }
            _ => self.report = None,
        }
    }

    /// Why there is no record, by what bubblewrap said and how it ended.
    async fn lost(&mut self) -> Cause {
        let told = async {
            while self.report.is_some() {
                let message = next_report(&mut self.report).await;
                self.take_report(message);
            }
        };
        // What does not come in time is not known.
        let _ = tokio::time::timeout(STATUS_GRACE, told).await;
        let words = self.words();
        match (self.failure, self.status) {
            (Some(failure), _) => Cause::SetUp(failure),
            _ if !words.is_empty() => Cause::Bubblewrap { words },
            (None, None) if self.report.is_none() => Cause::KeeperGone(None),
            (None, status) => Cause::InitLost(status),
        }
    }

    /// What bubblewrap wrote to its standard error, as far as it is of a sane length.
    fn words(&self) -> Vec<u8> {
        let mut words = Vec::new();
        let mut piece = [0; 1024];
        while words.len() < MAX_WORDS_BYTES {
            match rustix::io::read(&self.errors, &mut piece) {
                Ok(length) if length > 0 => words.extend(&piece[..length]),
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        words.truncate(words.trim_ascii_end().len());
        words
    }

    /// Sends a signal to the command's process group.
    ///
    /// One that has ended is no error; one that leaves hundreds of signals unread gets no more.
    pub fn try_signal(&self, number: i32) {
        let sent = self
            .control
            .try_send(&Message::new(0, Body::Signal(number)));
        if let Err(error) = sent {
            tracing::debug!(%error, number, "the signal is not sent");
        }
    }

    /// Ends the lifeline: the command's pid 1 ends, and the kernel ends the rest.
    pub fn hang_up(&self) {
        self.control.hang_up();
    }

    /// Kills bubblewrap and the command's pid 1, stopped ones too.
    pub(super) fn end_by_signal(&self) {
        self.control.hang_up();
        for pidfd in [&self.init, &self.bubblewrap].into_iter().flatten() {
            // One that has ended is no failure.
            let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
        }
    }

    /// Ends the command and everything that it started, and waits until it is gone.
    ///
    /// The lifeline first, SIGKILL after half a second. May be repeated.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` when the kernel has not let go of it two seconds after the start;
    /// [`Self::gone`] waits on.
    ///
    /// # Cancel safety
    /// The kill goes on when the future is dropped and called again, or the command dropped.
    pub async fn end(&mut self) -> Result<()> {
        self.hang_up();
        if tokio::time::timeout(LIFELINE_GRACE, self.gone())
            .await
            .is_ok()
        {
            return Ok(());
        }
        self.end_by_signal();
        tokio::time::timeout(KILL_GRACE, self.gone())
            .await
            .map_err(|_| Cause::Unreaped("processes of the command").into())
    }

    /// Waits until the command's pid 1 is gone.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped but the record, if it was not taken.
    pub async fn gone(&mut self) {
        while !matches!(self.event().await, Event::Gone) {}
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if !self.gone {
            self.end_by_signal();
        }
    }
}

/// The keeper's next word about this command; waits for ever once there is none to come.
async fn next_report(report: &mut Option<Channel>) -> Option<(Message, Vec<OwnedFd>)> {
    match report {
        // What can't be read says nothing.
        Some(channel) => channel.receive().await.unwrap_or(None),
        None => std::future::pending().await,
    }
}

/// How long the news of bubblewrap's end may come after that of its pid 1.
const STATUS_GRACE: Duration = Duration::from_millis(500);

/// How long a closed lifeline has, before SIGKILL.
const LIFELINE_GRACE: Duration = Duration::from_millis(500);

/// How long SIGKILL has: two seconds since the lifeline was closed.
const KILL_GRACE: Duration = Duration::from_millis(1500);

/// The longest part of bubblewrap's words that is kept.
const MAX_WORDS_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use sandbox_core::ErrorCode;
    use sandbox_helper::Step;
    use sandbox_helper::wire;

    use super::super::channel;
    use super::*;

    /// The other ends of a command: init's, the keeper's, and bubblewrap's standard error.
    struct Inside {
        init: OwnedFd,
        report: OwnedFd,
        errors: OwnedFd,
    }

    fn command() -> (RunningCommand, Inside) {
        let (control, init) = Channel::pair().unwrap();
        let (report, theirs) = Channel::pair().unwrap();
        let (ours, errors) = channel::pipe().unwrap();
        let inside = Inside {
            init,
            report: theirs,
            errors,
        };
        (RunningCommand::new(control, report, ours), inside)
    }

    fn say(socket: &OwnedFd, body: Body) {
        wire::send(socket, &Message::new(0, body).encode(), &[]).unwrap();
    }

    async fn failure(command: &mut RunningCommand) -> SandboxError {
        let Event::Failed(error) = command.event().await else {
            panic!("no failure");
        };
        assert!(matches!(command.event().await, Event::Gone));
        assert_eq!(error.code(), ErrorCode::Unavailable);
        error
    }

    // PROC-5: the record stands, whatever else comes, and the end comes after it.
    #[tokio::test]
    async fn proc_5_the_record_comes_before_the_news_of_bubblewrap() {
        let (mut command, inside) = command();
        say(&inside.report, Body::Ended(Status::Exited(0)));
        say(&inside.init, Body::Record(Record::Ended(Status::Exited(3))));
        drop(inside);
        let Event::Record(record) = command.event().await else {
            panic!("no record");
        };
        assert_eq!(record, Record::Ended(Status::Exited(3)));
        assert!(matches!(command.event().await, Event::Gone));
        assert!(matches!(command.event().await, Event::Gone));
        command.end().await.unwrap();
    }

    // BAK-3, PROC-7: a set-up that failed is told by bubblewrap's own words.
    #[tokio::test]
    async fn bak_3_without_a_record_the_words_of_bubblewrap_tell() {
        let (mut command, inside) = command();
        rustix::io::write(&inside.errors, b"bwrap: Can't mount proc\n").unwrap();
        drop(inside.init);
        say(&inside.report, Body::Ended(Status::Exited(1)));
        let error = failure(&mut command).await;
        let expected = r#"bubblewrap could not set the sandbox up: "bwrap: Can\'t mount proc""#;
        assert_eq!(error.to_string(), expected);
        assert!(error.hint().unwrap().contains("unmask"));
    }

    #[tokio::test]
    async fn without_a_record_and_words_the_end_of_bubblewrap_tells() {
        let (mut command, inside) = command();
        drop(inside.init);
        say(&inside.report, Body::Ended(Status::Signalled(9)));
        let error = failure(&mut command).await;
        let expected =
            "the command's first process ended without a record (bubblewrap was ended by signal 9)";
        assert_eq!(error.to_string(), expected);
    }

    // FI-04
    #[tokio::test]
    async fn fi_04_without_any_word_the_keeper_is_gone() {
        let (mut command, inside) = command();
        drop(inside);
        let error = failure(&mut command).await;
        assert_eq!(error.to_string(), "the session's keeper has ended");
    }

    // FI-09: a keeper that can't start one more says which step failed.
    #[tokio::test]
    async fn fi_09_a_keeper_that_could_not_start_it_is_quoted() {
        let (mut command, inside) = command();
        let failed = Failure {
            step: Step::Fork,
            errno: Errno::AGAIN.raw_os_error(),
        };
        say(&inside.report, Body::Failed(failed));
        drop(inside.init);
        let error = failure(&mut command).await;
        let expected = "the sandbox could not fork: Resource temporarily unavailable (os error 11)";
        assert_eq!(error.to_string(), expected);
    }

    // FI-25: what init may not say ends the command; nothing of it is believed.
    #[tokio::test]
    async fn fi_25_what_is_no_record_is_refused() {
        for bytes in [b"garbage".to_vec(), Message::new(0, Body::Ready).encode()] {
            let (mut command, inside) = command();
            wire::send(&inside.init, &bytes, &[]).unwrap();
            failure(&mut command).await;
            // Its lifeline has ended.
            assert!(wire::receive(&inside.init).unwrap().bytes.is_empty());
        }
        let (mut command, inside) = command();
        let record = Body::Record(Record::BadCwd(2));
        say(&inside.init, record.clone());
        say(&inside.init, record);
        assert!(matches!(command.event().await, Event::Record(_)));
        assert!(matches!(command.event().await, Event::Failed(_)));
    }

    // RUN-1: signals go as they are, and none blocks its sender.
    #[tokio::test]
    async fn run_1_signals_are_sent_and_never_block() {
        let (command, inside) = command();
        command.try_signal(15);
        let sent = Message::decode(&wire::receive(&inside.init).unwrap().bytes).unwrap();
        assert_eq!(sent.body, Body::Signal(15));
        for _ in 0..10_000 {
            command.try_signal(1);
        }
    }
}
