//! The command's three streams.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::process::Stdio;

use crate::place::{Place, Running, text};

/// Bytes that no two neighbouring pieces have alike.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

// CLI-1, PROC-8: much more than any pipe holds goes through whole.
#[test]
fn cli_1_ten_mebibytes_go_through() {
    let place = Place::new();
    let sent = noise(10 << 20);
    let mut command = place.sandbox(&["run", "--", "cat"]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = running.child().stdin.take().unwrap();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            stdin.write_all(&sent).unwrap();
            drop(stdin);
        });
        running.end()
    });
    assert_eq!(
        received.status.code(),
        Some(0),
        "{}",
        text(&received.stderr)
    );
    assert!(received.stdout == sent, "{} bytes", received.stdout.len());
}

// PROC-2: an input that never ends does not hold up the end, nor does one that nobody reads.
#[test]
fn proc_2_an_open_input_holds_nothing_up() {
    let place = Place::new();
    let mut command = place.sandbox(&["run", "--", "head", "-c", "1"]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = running.child().stdin.take().unwrap();
    stdin.write_all(b"ab").unwrap();
    let output = running.end();
    drop(stdin);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(0), "a".to_owned())
    );
}

// CLI-1: as in a pipeline, a reader that goes ends the command, without a word.
#[test]
fn cli_1_a_reader_that_goes_ends_the_command() {
    let place = Place::new();
    let mut running = Running::start(&mut place.sandbox(&["run", "--", "yes"]));
    running.expect("y\ny\n");
    drop(running.child().stdout.take());
    let output = running.end();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(text(&output.stderr), "sandbox: nothing changed\n");
}

// CLI-1: output that can't be written is our failure, not the command's success.
#[test]
fn cli_1_a_full_disk_is_a_failure() {
    let place = Place::new();
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [&["run", "--", "echo", "x"][..], &["session", "list"]] {
        let mut command = place.sandbox(arguments);
        let output = command
            .stdout(full())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        let words = text(&output.stderr);
        assert!(words.contains("SANDBOX_STORAGE"), "{words}");
    }
}

// CLI-1: output comes as it is written, on the stream it was written to.
#[test]
fn cli_1_output_comes_as_it_is_written() {
    let place = Place::new();
    let script = "echo first; read line; echo \"$line\" >&2";
    let mut command = place.sandbox(&["run", "--", "sh", "-c", script]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    running.expect("first\n");
    running
        .child()
        .stdin
        .take()
        .unwrap()
        .write_all(b"second\n")
        .unwrap();
    let mut stderr = [0; 7];
    running
        .child()
        .stderr
        .as_mut()
        .unwrap()
        .read_exact(&mut stderr)
        .unwrap();
    assert_eq!(text(&stderr), "second\n");
    assert_eq!(running.end().status.code(), Some(0));
}
