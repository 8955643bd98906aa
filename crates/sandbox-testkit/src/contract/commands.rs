//! Commands: how they end, what they read and write, and who ends them.

use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;
use sandbox_core::{
    Backend, CancelToken, Captured, Command, Deadline, ErrorCode, Exit, OutputLimit, OutputStream,
    Process, Signal, SpawnOptions, Stdin, TerminalSize, When,
};

use super::place::{Place, code, next, once_free, within};
use super::script;

/// What kills without a word.
const SIGKILL: i32 = 9;

fn bounded(script: &str, arguments: &[&str], bytes: u64) -> Command {
    script::builder(script, arguments)
        .max_output(OutputLimit::Bytes(NonZeroU64::new(bytes).unwrap()))
        .build()
        .unwrap()
}

fn unlimited(script: &str, arguments: &[&str]) -> Command {
    script::builder(script, arguments)
        .max_output(OutputLimit::Unlimited)
        .deadline(Deadline::Unlimited)
        .build()
        .unwrap()
}

fn stdin(bytes: impl Into<Bytes>) -> SpawnOptions {
    SpawnOptions::default().stdin(Stdin::Bytes(bytes.into()))
}

/// CMD-2: the host's environment never leaks in; what is given is there.
pub async fn cmd_2_no_variable_of_the_host_leaks_in(backend: &dyn Backend) {
    assert!(
        std::env::var_os("CARGO_MANIFEST_DIR").is_some(),
        "cargo sets it for tests: without it this proves nothing"
    );
    let place = Place::new(backend).await;
    assert_eq!(place.text(script::ENVIRONMENT, &[]).await, "none none");
    let command = script::builder(script::ENVIRONMENT, &[])
        .env("GIVEN", "a = 'b'\n$HOME")
        .build()
        .unwrap();
    let output = place
        .run_with(command, SpawnOptions::default())
        .await
        .unwrap();
    assert_eq!(output.captured.stdout, "a = 'b'\n$HOME none");
    place.delete().await;
}

/// CMD-2: a command starts where it was told to.
pub async fn cmd_2_a_command_starts_in_its_folder(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    for cwd in ["sub", "/workspace/sub"] {
        let command = script::builder(script::HERE, &[]).cwd(cwd).build().unwrap();
        let output = place
            .run_with(command, SpawnOptions::default())
            .await
            .unwrap();
        assert_eq!(output.captured.stdout, "there");
    }
    place.delete().await;
}

/// CMD-1, ARG-1: arguments arrive to the byte, whatever they look like.
pub async fn cmd_1_odd_arguments_arrive_as_they_are(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    for odd in [
        "",
        "-n",
        "--",
        "a b",
        "a\nb\t",
        "$HOME *",
        "…é",
        "\u{1b}[31m",
        "%s\\n",
    ] {
        assert_eq!(place.text(script::ECHO, &[odd]).await, odd.as_bytes());
    }
    place.delete().await;
}

/// CMD-4: an exit code is told as it is.
pub async fn cmd_4_an_exit_code_is_told(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    for code in [0, 1, 126, 127, 255] {
        let output = place.run(script::EXIT, &[&code.to_string()]).await.unwrap();
        assert_eq!(output.finished.exit, Exit::Exited(code));
        assert_eq!(output.finished.denials, []);
    }
    place.delete().await;
}

/// CMD-4: a signal is told apart from an exit code.
pub async fn cmd_4_a_signal_is_told(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    for signal in [SIGKILL, 15] {
        let output = place
            .run(script::KILL_SELF, &[&signal.to_string()])
            .await
            .unwrap();
        assert_eq!(output.finished.exit, Exit::Signalled(signal));
    }
    place.delete().await;
}

/// CMD-4: both streams are captured, each for itself.
pub async fn cmd_4_both_streams_are_captured(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let output = place.run(script::BOTH, &[]).await.unwrap();
    let expected = Captured {
        stdout: "out".into(),
        stderr: "err".into(),
    };
    assert_eq!(
        (output.finished.exit, output.captured),
        (Exit::Exited(0), expected)
    );
    place.delete().await;
}

/// CMD-4: an executable of the workspace runs by its path.
pub async fn cmd_4_a_program_of_the_workspace_runs(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let command = Command::builder("./sub/run").build().unwrap();
    let output = place
        .run_with(command, SpawnOptions::default())
        .await
        .unwrap();
    assert_eq!(output.finished.exit, Exit::Exited(0));
    assert_eq!(output.captured.stdout, "ran");
    place.delete().await;
}

/// PROC-7: an executable that is missing, by name and by path, is a result.
pub async fn proc_7_a_missing_executable_is_a_result(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    for missing in ["no-such-program-anywhere", "./missing", "/no/such/program"] {
        let command = Command::builder(missing).build().unwrap();
        let output = place
            .run_with(command, SpawnOptions::default())
            .await
            .unwrap();
        assert_eq!(output.finished.exit, Exit::NotFound, "{missing}");
    }
    place.delete().await;
}

/// PROC-7: an executable that can't be run is a result that says why.
pub async fn proc_7_what_is_not_executable_is_a_result(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    for blocked in ["./greeting", "./sub"] {
        let command = Command::builder(blocked).build().unwrap();
        let output = place
            .run_with(command, SpawnOptions::default())
            .await
            .unwrap();
        let Exit::NotExecutable(why) = output.finished.exit else {
            panic!("{blocked}: {:?}", output.finished.exit);
        };
        assert!(!why.is_empty());
    }
    place.delete().await;
}

/// CMD-4, ARG-4: a working directory that can't be entered is a result that says why.
pub async fn cmd_4_a_bad_working_directory_is_a_result(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    for bad in ["missing", "greeting", "sub/here/below"] {
        let command = script::builder(script::TOUCH, &[])
            .cwd(bad)
            .build()
            .unwrap();
        let output = place
            .run_with(command, SpawnOptions::default())
            .await
            .unwrap();
        let Exit::BadCwd(why) = output.finished.exit else {
            panic!("{bad}: {:?}", output.finished.exit);
        };
        assert!(!why.is_empty());
    }
    assert!(!place.is_there("started").await);
    place.delete().await;
}

/// PROC-2: standard input is written and closed; without any it is empty.
pub async fn proc_2_standard_input_arrives_and_ends(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    assert_eq!(place.text(script::CAT, &[]).await, "");
    let bytes: Vec<u8> = (0..=255).collect();
    let output = place
        .run_with(script::command(script::CAT, &[]), stdin(bytes.clone()))
        .await
        .unwrap();
    assert_eq!(output.captured.stdout, bytes);
    place.delete().await;
}

/// PROC-2: as much goes in as comes out, and neither waits for the other for good.
pub async fn proc_2_a_mebibyte_goes_through_both_ways(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let bytes = Bytes::from(vec![7; 1 << 20]);
    let output = place
        .run_with(script::command(script::CAT, &[]), stdin(bytes.clone()))
        .await
        .unwrap();
    assert!(output.captured.stdout == bytes);
    place.delete().await;
}

/// PROC-2: a command that never reads its input is no error.
pub async fn proc_2_unread_input_is_no_error(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let output = place
        .run_with(
            script::command(script::EXIT, &["3"]),
            stdin(vec![7; 1 << 20]),
        )
        .await
        .unwrap();
    assert_eq!(output.finished.exit, Exit::Exited(3));
    place.delete().await;
}

/// PROC-2: neither is one that closes its input and lives on.
pub async fn proc_2_closed_input_is_no_error(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let process = place
        .begun_with(script::DEAF, SpawnOptions::default().stdin(Stdin::Piped))
        .await;
    for _ in 0..20 {
        let written = process.write_stdin(vec![7; 64 * 1024].into());
        within("a write to nobody", written).await.unwrap();
    }
    process.stop().await.unwrap();
    place.delete().await;
}

/// PROC-2: what takes no input says so.
pub async fn proc_2_input_that_is_not_piped_is_refused(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let process = place.begun(script::SLEEP).await;
    let written = process.write_stdin(Bytes::from_static(b"x")).await;
    assert_eq!(code(written), ErrorCode::Invalid);
    process.close_stdin().await.unwrap();
    process.stop().await.unwrap();
    place.delete().await;
}

/// PROC-3: past its deadline a command is killed; what it wrote is in the error.
pub async fn proc_3_a_deadline_kills_and_keeps_the_output(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let command = script::builder(script::SLEEP, &[])
        .deadline(Deadline::After(Duration::from_secs(2)))
        .build()
        .unwrap();
    let error = place
        .run_with(command, SpawnOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit);
    assert!(error.to_string().contains("2000 ms"), "{error}");
    assert_eq!(error.output().unwrap().stdout, "begun");
    place.delete().await;
}

/// PROC-3: the output limit counts both streams, to the byte.
pub async fn proc_3_the_output_limit_counts_to_the_byte(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let zeros = |out, err| bounded(script::ZEROS, &[out, err], 100_000);
    let output = place
        .run_with(zeros("60000", "40000"), SpawnOptions::default())
        .await
        .unwrap();
    let lengths = (output.captured.stdout.len(), output.captured.stderr.len());
    assert_eq!(
        (output.finished.exit, lengths),
        (Exit::Exited(0), (60_000, 40_000))
    );
    for (out, err) in [("100001", "0"), ("0", "100001"), ("60000", "40001")] {
        let error = place
            .run_with(zeros(out, err), SpawnOptions::default())
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::Limit);
        assert!(error.to_string().contains("100000 bytes"), "{error}");
        let captured = error.output().unwrap();
        assert_eq!(captured.stdout.len() + captured.stderr.len(), 100_000);
    }
    place.delete().await;
}

/// PROC-3: a flood is cut, however fast it comes.
pub async fn proc_3_a_flood_is_cut(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let command = bounded(script::ZEROS_THEN_FILE, &["1000000000"], 10);
    let error = place
        .run_with(command, SpawnOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit);
    assert_eq!(error.output().unwrap().stdout, vec![0; 10]);
    assert!(!place.is_there("done").await);
    place.delete().await;
}

/// PROC-4: cancelled before its start, a command is not started.
pub async fn proc_4_a_cancelled_command_does_not_start(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let token = CancelToken::new();
    token.cancel();
    let spawned = place
        .spawn_with(script::TOUCH, SpawnOptions::default().cancel(token))
        .await;
    assert_eq!(code(spawned), ErrorCode::Cancelled);
    assert!(!place.is_there("started").await);
    place.delete().await;
}

/// PROC-4: cancelled while it runs, everything is killed.
pub async fn proc_4_cancelling_kills(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let token = CancelToken::new();
    let process = place
        .begun_with(script::SLEEP, SpawnOptions::default().cancel(token.clone()))
        .await;
    token.cancel();
    assert_eq!(within("the end", process.next_output()).await, None);
    assert_eq!(
        code(within("the end", process.wait()).await),
        ErrorCode::Cancelled
    );
    place.delete().await;
}

/// PROC-4: cancelled after its end, nothing changes.
pub async fn proc_4_cancelling_an_ended_command_is_nothing(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let token = CancelToken::new();
    let process = place
        .spawn_with(script::TRUE, SpawnOptions::default().cancel(token.clone()))
        .await
        .unwrap();
    let finished = within("the end", process.wait()).await.unwrap();
    token.cancel();
    assert_eq!(process.wait().await.unwrap(), finished);
    place.delete().await;
}

/// PROC-5: a child that holds a stream open does not outlive its command.
pub async fn proc_5_a_child_left_behind_does_not_outlive_its_command(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let output = place.run(script::ORPHAN, &[]).await.unwrap();
    assert_eq!(output.finished.exit, Exit::Exited(0));
    assert_eq!(output.captured.stdout, "begun");
    place.delete().await;
}

/// Who ends a command that holds the FIFO of [`script::HOLD`] open.
enum End {
    Stop,
    Drop,
    Cancel,
}

/// Starts a holder and one who sees its end, ends the holder, and waits for the other.
async fn ended_by(backend: &dyn Backend, end: End) {
    let place = Place::new(backend).await;
    place.text(script::FIFO, &["alive"]).await;
    let watcher = place.begun(script::WATCH).await;
    let token = CancelToken::new();
    let holder = place
        .begun_with(script::HOLD, SpawnOptions::default().cancel(token.clone()))
        .await;
    match end {
        End::Stop => within("a stop", holder.stop()).await.unwrap(),
        End::Drop => drop(holder),
        End::Cancel => token.cancel(),
    }
    let finished = within("somebody who holds the pipe", watcher.wait()).await;
    assert_eq!(finished.unwrap().exit, Exit::Exited(0));
    place.delete().await;
}

/// PROC-6: a stop kills the command and what it started.
pub async fn proc_6_a_stop_kills_everything(backend: &dyn Backend) {
    ended_by(backend, End::Stop).await;
}

/// PROC-6: so does dropping the process.
pub async fn proc_6_a_drop_kills_everything(backend: &dyn Backend) {
    ended_by(backend, End::Drop).await;
}

/// PROC-4: so does cancelling it.
pub async fn proc_4_cancelling_kills_everything(backend: &dyn Backend) {
    ended_by(backend, End::Cancel).await;
}

/// PROC-6: a stop may be repeated, and called after the end.
pub async fn proc_6_a_stop_may_be_repeated(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let process = place.begun(script::SLEEP).await;
    for _ in 0..2 {
        within("a stop", process.stop()).await.unwrap();
    }
    assert_eq!(process.wait().await.unwrap().exit, Exit::Signalled(SIGKILL));
    let process = place.spawn(script::TRUE).await.unwrap();
    let finished = within("the end", process.wait()).await.unwrap();
    within("a stop", process.stop()).await.unwrap();
    assert_eq!(process.wait().await.unwrap(), finished);
    place.delete().await;
}

/// PROC-6: a wait may be repeated, by several at once, and gives the same each time.
pub async fn proc_6_a_wait_may_be_repeated(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let process = place.spawn(script::BOTH).await.unwrap();
    let waits = async { tokio::join!(process.wait(), process.wait()) };
    let (one, other) = within("the end", waits).await;
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(
        process.collect().await.unwrap().captured.stdout,
        "out",
        "output is there after the end"
    );
    assert_eq!(process.next_output().await, None);
    place.delete().await;
}

/// PROC-6: a dropped wait or read loses nothing.
pub async fn proc_6_a_dropped_wait_loses_nothing(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let process = place
        .spawn_with(script::LINES, SpawnOptions::default().stdin(Stdin::Piped))
        .await
        .unwrap();
    for _ in 0..5 {
        // Polled once, then dropped: the other branch is ready at once.
        tokio::select! {
            biased;
            chunk = process.next_output() => panic!("{chunk:?}"),
            finished = process.wait() => panic!("{finished:?}"),
            () = std::future::ready(()) => {}
        }
    }
    process.write_stdin("whole\n".into()).await.unwrap();
    process.close_stdin().await.unwrap();
    let output = within("the end", process.collect()).await.unwrap();
    assert_eq!(output.captured.stdout, "whole\n");
    place.delete().await;
}

/// PROC-8: output comes while the command runs, and input goes in.
pub async fn proc_8_a_dialogue_is_possible(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let process = place
        .spawn_with(script::LINES, SpawnOptions::default().stdin(Stdin::Piped))
        .await
        .unwrap();
    for line in ["one\n", "two\n", "three\n"] {
        process.write_stdin(line.into()).await.unwrap();
        assert_eq!(next(&*process, line.len()).await, line);
    }
    for _ in 0..2 {
        process.close_stdin().await.unwrap();
    }
    let written = process.write_stdin("late\n".into()).await;
    assert_eq!(code(written), ErrorCode::Invalid);
    let output = within("the end", process.collect()).await.unwrap();
    assert_eq!(output.captured, Captured::default());
    assert_eq!(output.finished.exit, Exit::Exited(0));
    place.delete().await;
}

/// PROC-8: who does not read slows the command down, and loses nothing by it.
pub async fn proc_8_a_slow_reader_slows_the_command(backend: &dyn Backend) {
    const LENGTH: usize = 16 << 20;
    let place = Place::new(backend).await;
    let command = unlimited(script::ZEROS_THEN_FILE, &[&LENGTH.to_string()]);
    let process = place
        .session
        .spawn(command, SpawnOptions::default())
        .await
        .unwrap();
    let mut read = next(&*process, 1).await.len();
    // Long enough for all of it, were somebody taking it.
    place.text(script::PAUSE, &[]).await;
    assert!(!place.is_there("done").await, "the command did not wait");
    while let Some(chunk) = within("output", process.next_output()).await {
        assert_eq!(chunk.stream, OutputStream::Stdout);
        read += chunk.bytes.len();
    }
    assert_eq!(read, LENGTH);
    let finished = within("the end", process.wait()).await.unwrap();
    assert_eq!(finished.exit, Exit::Exited(0));
    assert!(place.is_there("done").await);
    place.delete().await;
}

/// PROC-8: a signal reaches the command, and one that comes too late is no error.
pub async fn proc_8_a_signal_reaches_the_command(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let process = place.begun(script::TRAP).await;
    process.signal(Signal::TERM).await.unwrap();
    let output = within("the end", process.collect()).await.unwrap();
    assert_eq!(output.finished.exit, Exit::Exited(3));
    assert_eq!(output.captured.stdout, "caught");
    process.signal(Signal::TERM).await.unwrap();
    let size = TerminalSize {
        rows: 24,
        columns: 80,
    };
    assert_eq!(code(process.resize(size).await), ErrorCode::Invalid);
    place.delete().await;
}

/// PROC-1: no two commands of a session have one number.
pub async fn proc_1_every_command_has_a_number_of_its_own(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let process = place.spawn(script::TRUE).await.unwrap();
        numbers.push(process.id());
        within("the end", process.wait()).await.unwrap();
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
    place.delete().await;
}

/// OWN-1: one more than the bound is refused and starts nothing; an ended one makes room.
pub async fn own_1_one_too_many_is_busy(backend: &dyn Backend) {
    let place = Place::running(backend, 2).await;
    let (one, _other) = (
        place.begun(script::SLEEP).await,
        place.begun(script::SLEEP).await,
    );
    assert_eq!(code(place.spawn(script::TOUCH).await), ErrorCode::Busy);
    assert!(!place.is_there("started").await);
    within("a stop", one.stop()).await.unwrap();
    place.text(script::TOUCH, &[]).await;
    place.delete().await;
}

/// OWN-1: of many at once exactly as many are admitted as may run.
pub async fn own_1_a_race_admits_none_too_many(backend: &dyn Backend) {
    const MAX: usize = 3;
    let place = Place::running(backend, MAX).await;
    let attempts: Vec<_> = (0..4 * MAX)
        .map(|_| {
            let session = place.session.clone();
            tokio::spawn(async move {
                let command = script::command(script::SLEEP, &[]);
                session.spawn(command, SpawnOptions::default()).await
            })
        })
        .collect();
    let mut running: Vec<Box<dyn Process>> = Vec::new();
    for attempt in attempts {
        match within("a spawn", attempt).await.unwrap() {
            Ok(process) => running.push(process),
            Err(error) => assert_eq!(error.code(), ErrorCode::Busy, "{error}"),
        }
    }
    assert_eq!(running.len(), MAX);
    place.delete().await;
}

/// OWN-2, OWN-3: a stop of the session kills every command and says why.
pub async fn own_3_a_stop_of_the_session_kills_commands(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let processes = [
        place.begun(script::SLEEP).await,
        place.begun(script::TRAP).await,
        place.begun(script::DEAF).await,
    ];
    within("a stop", place.handle.stop()).await.unwrap();
    for process in &processes {
        let ended = within("the end", process.wait()).await;
        assert_eq!(code(ended), ErrorCode::Stopped);
        within("a stop", process.stop()).await.unwrap();
    }
    place.delete().await;
}

/// OWN-2: what is started while the session stops is refused or killed.
pub async fn own_2_a_start_that_races_a_stop_does_not_survive(backend: &dyn Backend) {
    let place = Place::running(backend, 64).await;
    let attempts: Vec<_> = (0..24)
        .map(|_| {
            let session = place.session.clone();
            tokio::spawn(async move {
                let command = script::command(script::SLEEP, &[]);
                session.run_with(command, SpawnOptions::default()).await
            })
        })
        .collect();
    tokio::task::yield_now().await;
    within("a stop", place.handle.stop()).await.unwrap();
    for attempt in attempts {
        let ended = within("a command", attempt).await.unwrap();
        assert_eq!(code(ended), ErrorCode::Stopped);
    }
    place.delete().await;
}

/// FI-26: a start or run whose future is dropped, at whatever moment, leaves nothing running.
pub async fn fi_26_a_dropped_start_leaves_nothing_running(backend: &dyn Backend) {
    let place = Place::running(backend, 1).await;
    for polls in [0, 1, 2, 3, 5, 8, 13, 21] {
        let session = place.session.clone();
        let attempt = async {
            let command = script::command(script::SLEEP, &[]);
            session.run_with(command, SpawnOptions::default()).await
        };
        tokio::select! {
            biased;
            ended = attempt => panic!("{ended:?}"),
            () = yields(polls) => {}
        }
        // Its place is free once it is gone, and so is the policy.
        let next = once_free("the place of a dropped command", || {
            place.session.run(script::command(script::TRUE, &[]))
        });
        assert_eq!(next.await.unwrap().finished.exit, Exit::Exited(0));
    }
    let idle = once_free("a session without commands", || {
        place
            .session
            .set_network_policy(sandbox_core::Policy::DenyAll, When::Idle)
    });
    idle.await.unwrap();
    place.delete().await;
}

async fn yields(polls: usize) {
    for _ in 0..polls {
        tokio::task::yield_now().await;
    }
}
