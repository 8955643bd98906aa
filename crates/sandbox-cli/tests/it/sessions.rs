//! Sessions and templates that stay.

use std::fs;

use serde_json::Value;

use crate::place::{Place, Running, text};

// CLI-2: files and home stay from one command to the next, processes and `/tmp` don't.
#[test]
fn cli_2_what_stays_of_a_session() {
    let place = Place::new();
    let id = place.session();
    let exec = |script: &str| place.run(&["session", "exec", &id[..6], "--", "sh", "-c", script]);
    let first = exec("echo a > kept; echo b > ~/kept; echo c > /tmp/gone; sleep 60 & exit 4");
    assert_eq!(first.status.code(), Some(4), "{}", text(&first.stderr));
    let second = exec("cat kept ~/kept; ls /tmp; ls /proc | grep -c '^[0-9]'");
    let words = text(&second.stdout);
    assert!(words.starts_with("a\nb\n"), "{words}");
    assert!(!words.contains("gone"), "{words}");
}

// CLI-2: a list needs no lease.
#[test]
fn cli_2_a_session_in_use_is_listed_as_that() {
    let place = Place::new();
    let id = place.session();
    let script = "echo ready; read line";
    let mut command = place.sandbox(&["session", "exec", &id, "--", "sh", "-c", script]);
    let mut running = Running::start(command.stdin(std::process::Stdio::piped()));
    running.expect("ready\n");
    let sessions = place.json(&["session", "list"]);
    assert_eq!(sessions[0]["held"], true);
    let refused = place.run(&["session", "rm", &id]);
    assert_eq!(refused.status.code(), Some(125));
    let words = text(&refused.stderr);
    assert!(
        words.contains("SANDBOX_BUSY") && words.contains(&running.id().to_string()),
        "{words}"
    );
    drop(running.child().stdin.take());
    running.end();
    assert!(place.run(&["session", "rm", &id]).status.success());
    assert_eq!(place.sessions(), 0);
}

// CLI-2: all names are understood before anything is removed.
#[test]
fn cli_2_rm_understands_first() {
    let place = Place::new();
    let id = place.session();
    let refused = place.run(&["session", "rm", &id, "0123456789abcdef"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("SANDBOX_NOT_FOUND"));
    assert_eq!(place.sessions(), 1);
}

// STO-2, CLI-2: a template by name, and runs that replace their own.
#[test]
fn sto_2_templates_have_names() {
    let place = Place::new();
    place.json(&["template", "add", "base"]);
    fs::write(place.project().join("greeting"), "changed\n").unwrap();
    let id = text(
        &place
            .run(&["session", "create", "--template", "base"])
            .stdout,
    );
    let output = place.run(&["session", "exec", id.trim(), "--", "cat", "greeting"]);
    assert_eq!(text(&output.stdout), "hello\n");
    place.sh("true");
    fs::write(place.project().join("greeting"), "again\n").unwrap();
    place.sh("true");
    let named: Vec<Value> = place
        .json(&["template", "list"])
        .as_array()
        .unwrap()
        .iter()
        .filter(|template| template["names"] != Value::Array(Vec::new()))
        .cloned()
        .collect();
    assert_eq!(named.len(), 2, "one of the person's, one of the last run");
    for (name, code) in [
        ("nothing", "SANDBOX_NOT_FOUND"),
        ("../up", "SANDBOX_INVALID"),
    ] {
        let output = place.run(&["session", "create", "--template", name]);
        assert!(text(&output.stderr).contains(code));
    }
    let reserved = place.run(&["template", "add", "run-mine"]);
    assert_eq!(reserved.status.code(), Some(125));
}

// CLI-1, GC-1: a run takes what is expired with it.
#[test]
fn cli_1_a_run_collects_what_is_expired() {
    let place = Place::new();
    let id = place.session();
    let record = place.state().join(format!("sessions/{id}/state.json"));
    let mut state: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    state["expires"] = 1.into();
    fs::write(&record, serde_json::to_vec(&state).unwrap()).unwrap();
    assert!(text(&place.run(&["session", "list"]).stdout).contains("expired"));
    place.sh("true");
    assert_eq!(place.sessions(), 0);
}

// CLI-1, STO-2: what runs left behind is collected by a later one, once it has been of no use
// for a while.
#[test]
fn cli_1_a_run_collects_what_runs_left() {
    let place = Place::new();
    let keys = || -> Vec<String> {
        let templates = place.json(&["template", "list"]);
        let keys = templates.as_array().unwrap().iter();
        keys.map(|template| template["template_key"].as_str().unwrap().to_owned())
            .collect()
    };
    place.sh("true");
    let first = keys().pop().unwrap();
    fs::write(place.project().join("greeting"), "changed\n").unwrap();
    place.sh("true");
    assert_eq!(keys().len(), 2, "the first may be in use by now");

    let folder = place.state().join("templates").join(&first);
    let meta = folder.join("meta.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&meta).unwrap()).unwrap();
    record["created"] = 1.into();
    fs::write(&meta, serde_json::to_vec(&record).unwrap()).unwrap();
    for entry in fs::read_dir(&folder).unwrap() {
        let file = fs::File::open(entry.unwrap().path()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    place.sh("true");
    assert_eq!(keys().len(), 1);
    assert!(!keys().contains(&first));
}

// CLI-4: the next command works as it is shown.
#[test]
fn cli_4_the_next_command_works() {
    let place = Place::new();
    let state = place.path().join("state of mine");
    let mut command = place.sandbox(&["run", "--state-dir"]);
    command.arg(&state).args(["--", "touch", "made"]);
    let words = text(&command.output().unwrap().stderr);
    let shown = |after: &str| {
        let line = words.lines().find_map(|line| line.split_once(after));
        line.unwrap_or_else(|| panic!("no {after} in {words}"))
            .1
            .trim()
            .to_owned()
    };
    let program = env!("CARGO_BIN_EXE_sandbox");
    for after in ["to take it over:", "to throw it away:"] {
        let script = shown(after).replacen("sandbox", program, 1);
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &script])
            .current_dir(place.project())
            .env("SANDBOX_HELPER", sandbox_testkit::helper::path());
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert!(place.project().join("made").exists());
}
