//! What is refused, and what goes in.

use std::fs;
use std::process::Command;

use crate::place::{Place, text};

// CLI-4, BAK-2: cause and remedy are named, and nothing is made.
#[test]
fn cli_4_a_missing_bubblewrap_is_named_with_its_remedy() {
    let place = Place::new();
    let mut command = place.sandbox(&["run", "--", "true"]);
    let output = command
        .env("SANDBOX_BWRAP", "/nowhere/bwrap")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let words = text(&output.stderr);
    assert!(
        words.starts_with("sandbox: SANDBOX_UNAVAILABLE: ") && words.contains("\n  try: "),
        "{words}"
    );
    assert!(!place.state().exists());
}

// POL-1, POL-5: a policy file is understood whole, and refused before anything is made.
#[test]
fn pol_1_policies_are_refused_before_anything_is_made() {
    let place = Place::new();
    let fifo = place.path().join("fifo.toml");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let table = [
        ("all.json", "\"allow-all\"", "broker"),
        (
            "list.json",
            r#"{"allow":[{"origin":"https://a.test"}]}"#,
            "broker",
        ),
        ("bad.json", "{", "SANDBOX_INVALID"),
        ("bad.toml", "policy = 3", "SANDBOX_INVALID"),
        ("unknown.toml", "alow = []", "SANDBOX_INVALID"),
        (
            "unset.json",
            r#"{"allow":[{"origin":"https://a.test","headers":{"a":{"env":"SURELY_NOT_SET"}}}]}"#,
            "SURELY_NOT_SET",
        ),
        ("fifo.toml", "", "no regular file"),
        ("missing.toml", "", "SANDBOX_NOT_FOUND"),
    ];
    for (name, content, wanted) in table {
        let path = place.path().join(name);
        if !content.is_empty() {
            fs::write(&path, content).unwrap();
        }
        let output = place.run(&["run", "--policy", path.to_str().unwrap(), "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{name}");
        let words = text(&output.stderr);
        assert!(words.contains(wanted), "{name}: {words}");
    }
    assert!(!place.state().exists());
}

// CLI-1: only what was named is passed on, and never by its value.
#[test]
fn cli_1_variables_are_passed_on_by_name() {
    let place = Place::new();
    let run = |arguments: &[&str]| {
        let line = [
            &["run"],
            arguments,
            &["--", "sh", "-c", "echo $TOKEN-$OTHER"],
        ]
        .concat();
        let mut command = place.sandbox(&line);
        command.env("TOKEN", "hunter2").env("OTHER", "other");
        command.output().unwrap()
    };
    assert_eq!(text(&run(&["--env", "TOKEN"]).stdout), "hunter2-\n");
    assert_eq!(text(&run(&[]).stdout), "-\n");
    let refused = run(&["--env", "TOKEN=hunter3"]);
    assert_eq!(refused.status.code(), Some(125));
    let words = text(&refused.stderr);
    assert!(
        words.contains("--env TOKEN") && !words.contains("hunter3"),
        "{words}"
    );
    assert_eq!(run(&["--env", "SURELY_NOT_SET"]).status.code(), Some(125));
}

// CLI-1: all goes in unless narrowed, and what looks like a credential is named.
#[test]
fn cli_1_all_of_the_folder_goes_in() {
    let place = Place::new();
    fs::create_dir(place.project().join(".git")).unwrap();
    for (name, content) in [
        (".gitignore", "ignored\n"),
        ("ignored", ""),
        (".env", "KEY=1"),
        ("a.log", ""),
    ] {
        fs::write(place.project().join(name), content).unwrap();
    }
    let list = |arguments: &[&str]| {
        let output = place.run(&[&["run"], arguments, &["--", "ls", "-A"]].concat());
        (text(&output.stdout), text(&output.stderr))
    };
    let (all, words) = list(&[]);
    assert_eq!(all, ".env\n.git\n.gitignore\na.log\ngreeting\nignored\n");
    assert!(
        words.contains("look like credentials") && words.contains(".env"),
        "{words}"
    );
    let (narrowed, words) = list(&[
        "--respect-ignore",
        "--exclude",
        "*.log",
        "--exclude",
        ".env",
    ]);
    assert_eq!(narrowed, ".git\n.gitignore\ngreeting\n");
    assert!(!words.contains(".env"), "{words}");
}

// CON-5, CLI-2: a part of the host is visible and can't be written, later, too.
#[test]
fn con_5_a_read_only_path_is_visible() {
    let place = Place::new();
    // There on every host, readable for everybody, and no place of the sandbox's own.
    let path = "/var/lib";
    let script = format!("ls -A {path} && ! touch {path}/x 2>/dev/null");
    let hidden = place.sh(&script);
    assert_eq!(hidden.status.code(), Some(2), "{}", text(&hidden.stdout));
    let id = place.json(&["session", "create", "--ro", path]);
    let id = id["session"].as_str().unwrap();
    let output = place.run(&["session", "exec", id, "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let listed = Command::new("ls").args(["-A", path]).output().unwrap();
    assert_eq!(text(&output.stdout), text(&listed.stdout));
    let missing = place.run(&["run", "--ro", "/nowhere/at/all", "--", "true"]);
    assert_eq!(missing.status.code(), Some(125));
    assert!(text(&missing.stderr).contains("SANDBOX_NOT_FOUND"));
}

// CLI-1: a folder that is not there, and one that is named.
#[test]
fn cli_1_the_folder_can_be_named() {
    let place = Place::new();
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("there"), "").unwrap();
    let output = place.run(&["run", "--dir", "../other", "--", "ls"]);
    assert_eq!(text(&output.stdout), "there\n");
    let output = place.run(&["run", "--dir", "../missing", "--", "ls"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("SANDBOX_NOT_FOUND"));
}

// ARG-1: what stands before `--` is ours, and nothing of it is guessed.
#[test]
fn arg_1_a_command_stands_after_two_dashes() {
    let place = Place::new();
    for arguments in [
        &["run", "ls"][..],
        &["run", "--"],
        &["run"],
        &["run", "--timeout", "5", "--", "ls"],
        &["run", "--max-output", "0", "--", "ls"],
        &["session", "create", "--template", "a", "--exclude", "b"],
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
