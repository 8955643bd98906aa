//! The supervisor, as a process.

use std::process::{Command, Output};

fn supervise(script: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["supervise", "/bin/sh", "-c", script])
        .output()
        .expect("xtask runs")
}

#[test]
fn what_a_program_ends_with_is_passed_on() {
    assert_eq!(supervise("exit 0").status.code(), Some(0));
    assert_eq!(supervise("exit 7").status.code(), Some(7));
    assert_eq!(supervise("kill -9 $$").status.code(), Some(137));
}

#[test]
fn an_orphan_that_ends_is_waited_for() {
    // The inner shell is orphaned at once, and ends when the outer one's pipe does.
    let output = supervise("sh -c 'sh -c \"exec sleep 0.1\" &'");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_process_that_stays_is_named_and_killed() {
    let output = supervise("sleep 4321 >/dev/null 2>&1 & echo $!");
    let said = String::from_utf8(output.stdout).unwrap();
    let (pid, said) = said.split_once('\n').unwrap();
    assert_eq!(said, format!("left behind by /bin/sh: {pid} sleep 4321 \n"));
    assert_eq!(output.status.code(), Some(120));
}
