//! Every way a command can end, on a scripted child and paused time.

use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sandbox_core::{
    CancelToken, Command, CommandDefaults, Deadline, DriverSession, ErrorCode, Exit, OutputLimit,
    Process, Result, Signal, Stdin,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::*;

/// A child that does what the test says.
#[derive(Debug)]
struct Scripted {
    exit: Option<oneshot::Receiver<Exit>>,
    ended: Option<Exit>,
    /// What ends it when it is killed.
    dies_by: DiesBy,
    killed: Arc<Mutex<Vec<&'static str>>>,
    wake: Arc<tokio::sync::Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiesBy {
    Lifeline,
    HardKill,
    Nothing,
}

impl Child for Scripted {
    async fn ended(&mut self) -> Result<Exit> {
        loop {
            if let Some(exit) = self.ended.clone() {
                return Ok(exit);
            }
            let wake = Arc::clone(&self.wake);
            match &mut self.exit {
                Some(receiver) => tokio::select! {
                    exit = receiver => match exit {
                        Ok(exit) => self.ended = Some(exit),
                        Err(_) => self.exit = None,
                    },
                    () = wake.notified() => {}
                },
                None => wake.notified().await,
            }
        }
    }

    fn kill(&mut self) {
        self.killed.lock().unwrap().push("lifeline");
        if self.dies_by == DiesBy::Lifeline {
            self.ended.get_or_insert(Exit::Signalled(9));
        }
    }

    fn kill_hard(&mut self) {
        self.killed.lock().unwrap().push("hard");
        if self.dies_by == DiesBy::HardKill {
            self.ended.get_or_insert(Exit::Signalled(9));
        }
    }

    fn signal(&mut self, signal: Signal) {
        self.killed.lock().unwrap().push(if signal == Signal::TERM {
            "TERM"
        } else {
            "other"
        });
    }
}

/// The inside's ends and the switches of one scripted command.
struct Stage {
    running: Running,
    stdin: DuplexStream,
    stdout: DuplexStream,
    stderr: DuplexStream,
    exit: oneshot::Sender<Exit>,
    killed: Arc<Mutex<Vec<&'static str>>>,
    cancel: CancelToken,
    session: DriverSession,
}

fn stage(command: CommandBuilderFn, stdin: Stdin, dies_by: DiesBy) -> Stage {
    let command = command(Command::builder("x")).build().unwrap();
    let (session, permit) = permit();
    let (stdin_host, stdin_inside) = duplex(64);
    let (stdout, stdout_host) = duplex(64);
    let (stderr, stderr_host) = duplex(64);
    let (exit, receiver) = oneshot::channel();
    let killed = Arc::default();
    let child = Scripted {
        exit: Some(receiver),
        ended: None,
        dies_by,
        killed: Arc::clone(&killed),
        wake: Arc::default(),
    };
    let cancel = CancelToken::new();
    let terms = Terms {
        id: 1,
        bounds: CommandDefaults::default().apply(&command),
        stdin,
        permit,
        cancel: cancel.clone(),
    };
    let pipes = Pipes {
        stdin: stdin_host,
        stdout: stdout_host,
        stderr: stderr_host,
    };
    Stage {
        running: supervise(&TaskTracker::new(), child, pipes, terms),
        stdin: stdin_inside,
        stdout,
        stderr,
        exit,
        killed,
        cancel,
        session,
    }
}

type CommandBuilderFn = fn(sandbox_core::CommandBuilder) -> sandbox_core::CommandBuilder;

fn plain(builder: sandbox_core::CommandBuilder) -> sandbox_core::CommandBuilder {
    builder
}

fn endless(builder: sandbox_core::CommandBuilder) -> sandbox_core::CommandBuilder {
    builder
        .deadline(Deadline::Unlimited)
        .max_output(OutputLimit::Unlimited)
}

/// A permit as a session gives it, with the session.
fn permit() -> (DriverSession, Permit) {
    permits::take()
}

mod permits;

async fn drain(stdin: &mut DuplexStream) -> Vec<u8> {
    let mut all = Vec::new();
    stdin.read_to_end(&mut all).await.unwrap();
    all
}

// CMD-4, PROC-5: the natural end, with all that was written.
#[tokio::test(start_paused = true)]
async fn proc_5_the_result_needs_the_exit_and_both_pipes() {
    let mut stage = stage(plain, Stdin::Empty, DiesBy::Lifeline);
    stage.stdout.write_all(b"out").await.unwrap();
    stage.stderr.write_all(b"err").await.unwrap();
    stage.exit.send(Exit::Exited(3)).unwrap();
    let early = tokio::time::timeout(Duration::from_secs(5), stage.running.wait()).await;
    assert!(early.is_err(), "the pipes are open: no result yet");
    drop((stage.stdout, stage.stderr));
    let output = (&stage.running as &dyn Process).collect().await.unwrap();
    assert_eq!(output.finished.exit, Exit::Exited(3));
    assert_eq!(
        (&output.captured.stdout[..], &output.captured.stderr[..]),
        (&b"out"[..], &b"err"[..])
    );
    assert_eq!(
        stage.running.wait().await.unwrap().exit,
        Exit::Exited(3),
        "wait may be repeated"
    );
    assert!(stage.killed.lock().unwrap().is_empty());
    assert_eq!(stage.session.running(), 0, "the permit is back");
}

// PROC-3
#[tokio::test(start_paused = true)]
async fn proc_3_past_the_deadline_it_is_killed_and_keeps_its_output() {
    let mut stage = stage(plain, Stdin::Empty, DiesBy::Lifeline);
    stage.stdout.write_all(b"so far").await.unwrap();
    let started = Instant::now();
    let error = (&stage.running as &dyn Process)
        .collect()
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit);
    assert!(error.to_string().contains("30000 ms"), "{error}");
    assert_eq!(error.output().unwrap().stdout, "so far");
    assert!(started.elapsed() < Duration::from_secs(31));
    assert_eq!(*stage.killed.lock().unwrap(), ["lifeline"]);
}

// PROC-3: to the byte, over both streams.
#[tokio::test(start_paused = true)]
async fn proc_3_past_the_output_limit_it_is_killed_and_keeps_what_fits() {
    let five: CommandBuilderFn =
        |builder| builder.max_output(OutputLimit::Bytes(NonZeroU64::new(5).unwrap()));
    let mut stage = stage(five, Stdin::Empty, DiesBy::Lifeline);
    stage.stdout.write_all(b"abc").await.unwrap();
    assert_eq!(stage.running.next_output().await.unwrap().bytes, "abc");
    stage.stderr.write_all(b"defg").await.unwrap();
    let error = (&stage.running as &dyn Process)
        .collect()
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit);
    assert_eq!(error.output().unwrap().stderr, "de");
}

// PROC-2
#[tokio::test(start_paused = true)]
async fn proc_2_stdin_is_written_then_closed() {
    let content = Bytes::from(vec![b'x'; 10_000]);
    let mut stage = stage(plain, Stdin::Bytes(content.clone()), DiesBy::Lifeline);
    assert_eq!(drain(&mut stage.stdin).await, content);
}

// PROC-2, R09
#[tokio::test(start_paused = true)]
async fn proc_2_stdin_that_nobody_reads_hangs_nothing() {
    let stage = stage(
        plain,
        Stdin::Bytes(vec![0; 1 << 20].into()),
        DiesBy::Lifeline,
    );
    stage.exit.send(Exit::Exited(0)).unwrap();
    drop((stage.stdout, stage.stderr));
    assert!(stage.running.wait().await.unwrap().exit.is_success());
}

// PROC-8
#[tokio::test(start_paused = true)]
async fn proc_8_stdin_is_fed_while_it_runs() {
    let mut stage = stage(plain, Stdin::Piped, DiesBy::Lifeline);
    let mut buffer = [0; 3];
    for piece in ["one", "two"] {
        stage.running.write_stdin(piece.into()).await.unwrap();
        stage.stdin.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, piece.as_bytes());
    }
    stage.running.close_stdin().await.unwrap();
    stage.running.close_stdin().await.unwrap();
    assert!(drain(&mut stage.stdin).await.is_empty());
    let error = stage.running.write_stdin("three".into()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid);
}

// PROC-8: memory stays flat while nobody reads.
#[tokio::test(start_paused = true)]
async fn proc_8_a_slow_reader_slows_the_command() {
    let mut stage = stage(endless, Stdin::Empty, DiesBy::Lifeline);
    let block = [b'x'; 64];
    let mut written = 0;
    while tokio::time::timeout(Duration::from_secs(1), stage.stdout.write_all(&block))
        .await
        .is_ok()
    {
        written += block.len();
        assert!(written < 1 << 20, "nothing holds the writer back");
    }
    // Once it is read the writer goes on.
    assert!(stage.running.next_output().await.is_some());
    stage.stdout.write_all(&block).await.unwrap();
}

// PROC-4
#[tokio::test(start_paused = true)]
async fn proc_4_a_thrown_token_kills() {
    let stage = stage(endless, Stdin::Empty, DiesBy::Lifeline);
    stage.cancel.cancel();
    assert_eq!(
        stage.running.wait().await.unwrap_err().code(),
        ErrorCode::Cancelled
    );
    assert_eq!(*stage.killed.lock().unwrap(), ["lifeline"]);
}

// PROC-6
#[tokio::test(start_paused = true)]
async fn proc_6_stop_may_be_repeated_and_a_drop_kills() {
    let stopped = stage(endless, Stdin::Empty, DiesBy::Lifeline);
    stopped.running.stop().await.unwrap();
    stopped.running.stop().await.unwrap();
    assert_eq!(
        stopped.running.wait().await.unwrap().exit,
        Exit::Signalled(9)
    );

    let dropped = stage(endless, Stdin::Empty, DiesBy::Lifeline);
    drop(dropped.running);
    let mut gone = dropped.stdout;
    // The task lets go of its pipes when it has killed.
    while gone.write_all(b"x").await.is_ok() {}
    assert_eq!(*dropped.killed.lock().unwrap(), ["lifeline"]);
}

// OWN-2, OWN-3
#[tokio::test(start_paused = true)]
async fn own_3_a_stop_of_the_session_ends_the_command() {
    let stage = stage(endless, Stdin::Empty, DiesBy::Lifeline);
    stage.session.stop().await.unwrap();
    assert_eq!(
        stage.running.wait().await.unwrap_err().code(),
        ErrorCode::Stopped
    );
}

// FI-05: what the lifeline does not end the kernel does, half a second later.
#[tokio::test(start_paused = true)]
async fn own_3_a_kill_turns_to_harder_means() {
    let stage = stage(endless, Stdin::Empty, DiesBy::HardKill);
    let started = Instant::now();
    stage.running.stop().await.unwrap();
    assert_eq!(*stage.killed.lock().unwrap(), ["lifeline", "hard"]);
    assert!(started.elapsed() <= Duration::from_secs(1));
}

// OWN-3: what the kernel will not let go of is said, within two seconds.
#[tokio::test(start_paused = true)]
async fn own_3_what_does_not_die_is_named_in_time() {
    let stage = stage(endless, Stdin::Empty, DiesBy::Nothing);
    let started = Instant::now();
    assert_eq!(
        stage.running.stop().await.unwrap_err().code(),
        ErrorCode::Unavailable
    );
    assert!(started.elapsed() <= Duration::from_secs(2));
}

// RUN-1
#[tokio::test(start_paused = true)]
async fn run_1_signals_are_passed_on() {
    let stage = stage(endless, Stdin::Empty, DiesBy::Lifeline);
    stage.running.signal(Signal::TERM).await.unwrap();
    while stage.killed.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    stage.exit.send(Exit::Signalled(15)).unwrap();
    drop((stage.stdout, stage.stderr));
    assert_eq!(
        stage.running.wait().await.unwrap().exit,
        Exit::Signalled(15)
    );
    assert_eq!(*stage.killed.lock().unwrap(), ["TERM"]);
    stage.running.signal(Signal::TERM).await.unwrap();
}
