//! Signals, as a terminal and a service manager send them.

use std::io::{BufRead, BufReader, Read};
use std::process::ChildStdout;

use rustix::process::Signal;

use crate::place::{Place, Running, lines, text, until};

/// Starts a script and waits until it says that it is ready.
fn ready(place: &Place, arguments: &[&str], script: &str) -> Running {
    let line = [arguments, &["--", "sh", "-c", script]].concat();
    let mut running = Running::start(&mut place.sandbox(&line));
    running.expect("ready\n");
    running
}

/// Reads standard output up to a line that holds this, and gives what reads the rest.
fn read_until(running: &mut Running, wanted: &str) -> BufReader<ChildStdout> {
    let mut stdout = BufReader::new(running.child().stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        let length = stdout.read_line(&mut line).unwrap();
        assert!(length > 0, "no line holds {wanted}");
    }
    stdout
}

/// Waits until nothing more fits in a pipe. How much that is depends on how its pages were
/// filled (pipe(7)); an endless writer shows it by standing still.
fn until_full(pipe: &ChildStdout) {
    let (mut last, mut unchanged) = (0, 0);
    until(|| {
        let now = rustix::io::ioctl_fionread(pipe).unwrap();
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
        now >= 32 * 1024 && unchanged > 50
    });
}

// CLI-1, FI-22: each of them ends the command and then the run, in good order.
#[test]
fn cli_1_a_signal_ends_command_and_run() {
    let place = Place::new();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let running = ready(&place, &["run"], "echo ready; exec sleep 60");
        running.signal(signal);
        let output = running.end();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    }
    assert_eq!(place.sessions(), 0);
}

// CLI-1: what the command changed until then is kept, and the session is free.
#[test]
fn cli_1_a_signal_loses_no_change() {
    let place = Place::new();
    let script = "echo new > made; echo ready; exec sleep 60";
    let running = ready(&place, &["run"], script);
    running.signal(Signal::INT);
    let output = running.end();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("A made"));
    let sessions = place.json(&["session", "list"]);
    assert_eq!(
        (&sessions[0]["held"], &sessions[0]["dirty"]),
        (&false.into(), &false.into())
    );
    let id = sessions[0]["session"].as_str().unwrap();
    let output = place.run(&["session", "exec", id, "--", "cat", "made"]);
    assert_eq!(text(&output.stdout), "new\n");
}

// CLI-1: a command that answers a signal has the last word.
#[test]
fn cli_1_a_command_may_answer_a_signal() {
    let place = Place::new();
    let script = "trap 'echo bye; exit 9' TERM; echo ready; sleep 60 & wait";
    let running = ready(&place, &["run"], script);
    running.signal(Signal::TERM);
    let output = running.end();
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(9), "bye\n".to_owned())
    );
}

// CLI-1: a second signal ends what does not answer.
#[test]
fn cli_1_a_second_signal_is_not_to_be_ignored() {
    let place = Place::new();
    let script = "trap 'echo no' INT; echo ready; while :; do sleep 60 & wait; done";
    let mut running = ready(&place, &["run"], script);
    running.signal(Signal::INT);
    running.expect("no\n");
    running.signal(Signal::INT);
    assert_eq!(running.end().status.code(), Some(130));
}

// CLI-1: one alone is enough, after a while.
#[test]
fn cli_1_a_signal_that_is_ignored_is_a_kill_in_the_end() {
    let place = Place::new();
    let script = "trap '' INT TERM; echo ready; sleep 60";
    let running = ready(&place, &["run"], script);
    running.signal(Signal::TERM);
    assert_eq!(running.end().status.code(), Some(143));
    assert_eq!(place.sessions(), 0);
}

// PROC-8, CLI-1: a run whose output nobody takes can still be ended, though its own last word
// would have to wait there, too.
#[test]
fn proc_8_a_signal_ends_a_run_that_nobody_reads() {
    let place = Place::new();
    for arguments in [&["run", "--", "yes"][..], &["run", "--json", "--", "yes"]] {
        let mut running = Running::start(&mut place.sandbox(arguments));
        let stdout = running.child().stdout.take().unwrap();
        until_full(&stdout);
        running.signal(Signal::TERM);
        assert_eq!(running.end().status.code(), Some(143));
        drop(stdout);
    }
    assert_eq!(place.sessions(), 0);
}

// CLI-1: nothing has begun yet, and nothing is left.
#[test]
fn cli_1_a_signal_ends_the_copying_of_the_folder() {
    let place = Place::new();
    let large = std::fs::File::create(place.project().join("large")).unwrap();
    // It takes seconds to read.
    large.set_len(3 << 30).unwrap();
    let running = Running::start(&mut place.sandbox(&["run", "--", "sleep", "60"]));
    until(|| place.state().join("staging").exists());
    running.signal(Signal::INT);
    let output = running.end();
    assert_eq!(output.status.code(), Some(130));
    let words = text(&output.stderr);
    assert!(words.contains("SANDBOX_CANCELLED"), "{words}");
    assert_eq!(place.sessions(), 0);
    assert_eq!(place.json(&["template", "list"]), serde_json::json!([]));
}

// CLI-1: a program is told of the signal, too.
#[test]
fn cli_1_a_signal_is_in_the_result() {
    let place = Place::new();
    let arguments = [
        "run",
        "--json",
        "--",
        "sh",
        "-c",
        "echo ready; exec sleep 60",
    ];
    let mut running = Running::start(&mut place.sandbox(&arguments));
    let mut stdout = read_until(&mut running, "ready");
    running.signal(Signal::INT);
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    let mut output = running.end();
    output.stdout = rest;
    let result = lines(&output).pop().unwrap();
    assert_eq!(result["event"], "result");
    assert_eq!(result["interrupted_by"], 2);
    assert_eq!(result["exit"]["kind"], "signalled");
}
