//! The program as its users run it: a process, a pipe, a file.

use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn it_counts_what_it_reads() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_word-count"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    program
        .stdin
        .take()
        .unwrap()
        .write_all(b"to be or not to be")
        .unwrap();
    let output = program.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "     2 be\n     1 not\n     1 or\n     2 to\n"
    );
}

#[test]
fn files_can_be_written_where_builds_write() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("words");
    std::fs::write(&path, "one two").unwrap();
    assert_eq!(
        word_count::count(&std::fs::read_to_string(path).unwrap()).len(),
        2
    );
}

#[test]
fn the_build_script_ran_in_the_project() {
    assert!(word_count::BUILT_IN.starts_with('/'));
}
