//! `sandbox run` and the sessions that it leaves.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;

use crate::place::{Place, text};

// CLI-1: codes are passed through, and each outcome has its own.
#[test]
fn cli_1_exit_codes_are_told_apart() {
    let place = Place::new();
    fs::write(place.project().join("plain"), "no program").unwrap();
    let code = |arguments: &[&str]| place.run(arguments).status.code();
    assert_eq!(code(&["run", "--", "true"]), Some(0));
    assert_eq!(code(&["run", "--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["run", "--", "sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["run", "--", "no-such-program"]), Some(127));
    assert_eq!(code(&["run", "--", "./plain"]), Some(126));
    assert_eq!(code(&["run", "--cwd", "missing", "--", "true"]), Some(125));
    assert_eq!(
        code(&["run", "--timeout", "200ms", "--", "sleep", "60"]),
        Some(124)
    );
    assert_eq!(code(&["run", "--max-output", "10", "--", "yes"]), Some(125));
    assert_eq!(code(&["run", "--no-such-option", "--", "true"]), Some(125));
    assert_eq!(
        place.sessions(),
        0,
        "nothing was changed, so nothing is kept"
    );
}

// CLI-1: the child's output is untouched, ours is on stderr, the project is as it was.
#[test]
fn cli_1_changes_are_listed_and_the_project_is_untouched() {
    let place = Place::new();
    let output = place.sh("cat greeting; echo more >> greeting; echo new > made");
    assert_eq!(text(&output.stdout), "hello\n");
    let words = text(&output.stderr);
    assert!(
        words.contains("M greeting") && words.contains("A made"),
        "{words}"
    );
    assert_eq!(
        fs::read_to_string(place.project().join("greeting")).unwrap(),
        "hello\n"
    );
    assert!(!place.project().join("made").exists());
    assert_eq!(place.sessions(), 1);
}

// CLI-1: both ways of forcing.
#[test]
fn cli_1_keep_and_rm_decide() {
    let place = Place::new();
    place.run(&["run", "--rm", "--", "touch", "made"]);
    assert_eq!(place.sessions(), 0);
    place.run(&["run", "--keep", "--", "true"]);
    assert_eq!(place.sessions(), 1);
    assert_eq!(
        place
            .run(&["run", "--keep", "--rm", "--", "true"])
            .status
            .code(),
        Some(125)
    );
}

// CLI-1: standard input is passed on, whole.
#[test]
fn cli_1_stdin_is_passed_on() {
    let place = Place::new();
    let input = place.path().join("input");
    fs::write(&input, vec![b'x'; 3 << 20]).unwrap();
    let output = place
        .sandbox(&["run", "--", "wc", "-c"])
        .stdin(fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout).trim(), (3 << 20).to_string());
}

// ARG-1, H17: what looks like an option is an argument.
#[test]
fn arg_1_hostile_arguments_arrive_as_they_are() {
    let place = Place::new();
    let long = "x".repeat(100_000);
    for odd in [
        "--",
        "-rf",
        "--ro-bind",
        "a b",
        "a\nb",
        "$HOME",
        "",
        long.as_str(),
    ] {
        let output = place.run(&["run", "--", "printf", "%s", "-", odd]);
        assert_eq!(
            text(&output.stdout),
            format!("-{odd}"),
            "{:?}",
            text(&output.stderr)
        );
    }
}

// PATH-5, H08: names that are not UTF-8 go in, and are shown escaped.
#[test]
fn path_5_odd_names_go_in_and_are_shown_escaped() {
    let place = Place::new();
    let name = std::ffi::OsString::from_vec(b"odd\n\xff".to_vec());
    fs::write(place.project().join(&name), "x").unwrap();
    let output = place.sh("for f in odd*; do echo more >> \"$f\"; done");
    assert!(
        text(&output.stderr).contains(r"M odd\x0a\xff"),
        "{}",
        text(&output.stderr)
    );
}

// CLI-1, POL-1: what nothing enforces is refused, before anything is copied.
#[test]
fn pol_1_an_allow_list_is_unavailable_until_there_is_a_broker() {
    let place = Place::new();
    let policy = place.path().join("policy.toml");
    fs::write(&policy, "[[allow]]\norigin = \"https://example.com\"\n").unwrap();
    let output = place.run(&["run", "--policy", policy.to_str().unwrap(), "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    let words = text(&output.stderr);
    assert!(
        words.contains("SANDBOX_UNAVAILABLE") && words.contains("broker"),
        "{words}"
    );
    fs::write(&policy, "policy = \"deny-all\"\n").unwrap();
    assert!(
        place
            .run(&["run", "--policy", policy.to_str().unwrap(), "--", "true"])
            .status
            .success()
    );
}

// STO-5, CLI-2: a second owner is told who has the session.
#[test]
fn sto_5_a_held_session_names_its_holder() {
    let place = Place::new();
    let made = place.run(&["session", "create"]);
    let id = text(&made.stdout).trim().to_owned();
    let mut first = place
        .sandbox(&[
            "session",
            "exec",
            &id,
            "--",
            "sh",
            "-c",
            "echo ready; sleep 60",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(first.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let second = place.run(&["session", "exec", &id, "--", "true"]);
    let words = text(&second.stderr);
    assert!(
        words.contains("SANDBOX_BUSY") && words.contains(&first.id().to_string()),
        "{words}"
    );

    // FI-22: a signal ends the command, and the session is free again.
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(143));
    assert!(
        place
            .run(&["session", "exec", &id, "--", "true"])
            .status
            .success()
    );
}

// CLI-2: files and folders, both ways, and nothing replaced unasked.
#[test]
fn cli_2_cp_moves_files_and_folders_both_ways() {
    let place = Place::new();
    let id = text(&place.run(&["session", "create"]).stdout)
        .trim()
        .to_owned();
    fs::create_dir_all(place.project().join("tree/inner")).unwrap();
    fs::write(place.project().join("tree/inner/file"), "deep").unwrap();
    assert!(
        place
            .run(&["session", "cp", "tree", &format!("{id}:")])
            .status
            .success()
    );
    let output = place.run(&["session", "exec", &id, "--", "cat", "tree/inner/file"]);
    assert_eq!(text(&output.stdout), "deep");
    let back = place.run(&["session", "cp", &format!("{id}:tree"), "back"]);
    assert!(back.status.success(), "{}", text(&back.stderr));
    assert_eq!(
        fs::read_to_string(place.project().join("back/inner/file")).unwrap(),
        "deep"
    );
    let again = place.run(&["session", "cp", &format!("{id}:greeting"), "greeting"]);
    assert_eq!(again.status.code(), Some(125));
    assert!(text(&again.stderr).contains("--force"));
}
