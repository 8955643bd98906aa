//! `--json`.

use serde_json::{Value, json};

use crate::place::{Place, lines, text};

// CLI-1: a line for each event, and one result as the last.
#[test]
fn cli_1_a_run_is_lines_of_json() {
    let place = Place::new();
    let script = "echo out; echo new > made; rm greeting; exec >&2; printf '\\377'; exit 3";
    let output = place.run(&["run", "--json", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr), "", "all words are in the events");
    let mut events = lines(&output);
    let mut result = events.pop().unwrap();
    let id = events[0]["id"].clone();
    assert_eq!(
        (&events[0]["event"], &events[0]["copied"]["files"]),
        (&json!("session"), &json!(1))
    );
    assert!(events[1..].contains(&json!({ "event": "stdout", "utf8": "out\n" })));
    assert!(events[1..].contains(&json!({ "event": "stderr", "base64": "/w==" })));
    assert_eq!(events.len(), 3);
    assert!(result["wall_ms"].take().is_u64());
    assert_eq!(
        result,
        json!({
            "event": "result",
            "exit": { "kind": "exited", "code": 3 },
            "wall_ms": null,
            "denials": [],
            "session": id,
            "kept": true,
            "changes": [
                { "path": "greeting", "kind": "removed", "entry": "file" },
                { "path": "made", "kind": "added", "entry": "file" }
            ],
            "changes_total": 2
        })
    );
}

// CLI-1: a run that a bound ended has a result like every other.
#[test]
fn cli_1_a_deadline_is_a_result() {
    let place = Place::new();
    let arguments = ["run", "--json", "--timeout", "200ms", "--", "sleep", "60"];
    let output = place.run(&arguments);
    assert_eq!(output.status.code(), Some(124));
    let result = lines(&output).pop().unwrap();
    assert_eq!(
        (
            &result["event"],
            &result["error"]["code"],
            &result["error"]["rule"]
        ),
        (
            &json!("result"),
            &json!("SANDBOX_LIMIT"),
            &json!("deadline")
        )
    );
    assert_eq!(result["kept"], false);
}

// CLI-3, CLI-4: a failure before anything has begun is the one result.
#[test]
fn cli_3_an_early_failure_is_a_result_too() {
    let place = Place::new();
    let error_of = |arguments: &[&str]| -> (Option<i32>, Vec<Value>) {
        let output = place.run(arguments);
        (output.status.code(), lines(&output))
    };
    let missing = ["--bubblewrap", "/nowhere/bwrap", "--json"];
    let (code, events) = error_of(&[&missing[..], &["run", "--", "true"]].concat());
    assert_eq!((code, events.len()), (Some(125), 1));
    assert_eq!(events[0]["event"], "result");
    assert_eq!(events[0]["error"]["code"], "SANDBOX_UNAVAILABLE");
    let (code, events) = error_of(&[&missing[..], &["session", "list"]].concat());
    assert_eq!((code, events.len()), (Some(125), 1));
    assert_eq!(events[0]["error"]["code"], "SANDBOX_UNAVAILABLE");
    assert_eq!(events[0]["event"], Value::Null);
}

// CLI-3: what a program gets of everything else.
#[test]
fn cli_3_every_subcommand_has_its_value() {
    let place = Place::new();
    let added = place.json(&["template", "add", "base"]);
    let key = added["template_key"].clone();
    assert_eq!(
        (&added["name"], &added["files"]),
        (&json!("base"), &json!(1))
    );
    let templates = place.json(&["template", "list"]);
    assert_eq!(
        (&templates[0]["names"], &templates[0]["template_key"]),
        (&json!(["base"]), &key)
    );
    let made = place.json(&["session", "create", "--template", "base"]);
    let id = made["session"].clone();
    assert_eq!(made["template_key"], key);
    let sessions = place.json(&["session", "list"]);
    let session = &sessions[0];
    assert_eq!(
        (&session["session"], &session["held"], &session["dirty"]),
        (&id, &json!(false), &json!(false))
    );
    let (created, expires) = (&session["created"], &session["expires"]);
    assert_eq!(
        expires.as_i64().unwrap() - created.as_i64().unwrap(),
        7 * 24 * 60 * 60
    );
    let digits = id.as_str().unwrap();
    let copied = place.json(&["session", "cp", &format!("{digits}:greeting"), "../out"]);
    assert_eq!(copied, json!({ "copied": "../out", "skipped": [] }));
    let removed = place.json(&["session", "rm", &digits[..8]]);
    assert_eq!(removed, json!({ "removed": [id], "failed": [] }));
    let collected = place.json(&["gc"]);
    assert_eq!(
        collected,
        json!({
            "sessions": [], "refs": [], "templates": [], "blobs": 0, "bytes": 0, "leftovers": 0
        })
    );
}
