//! What the program says about itself.

use crate::place::{Place, text};

/// Every subcommand.
const HELPS: [&[&str]; 12] = [
    &[],
    &["run"],
    &["session"],
    &["session", "create"],
    &["session", "list"],
    &["session", "exec"],
    &["session", "cp"],
    &["session", "rm"],
    &["template"],
    &["template", "add"],
    &["gc"],
    &["doctor"],
];

// CLI-1 to CLI-4: the help is what a person reads first.
#[test]
fn cli_1_help() {
    let place = Place::new();
    for subcommand in HELPS {
        let output = place.run(&[subcommand, &["--help"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let name = [&["help"], subcommand].concat().join("_");
        insta::assert_snapshot!(name, text(&output.stdout));
    }
}

// CLI-1
#[test]
fn cli_1_the_version_is_told() {
    let output = Place::new().run(&["--version"]);
    let version = format!("sandbox {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&output.stdout), version);
}

// CLI-4: what a host has, and what it lacks with its fix.
#[test]
fn cli_4_doctor_names_what_is_missing() {
    let place = Place::new();
    let report = place.json(&["doctor"]);
    assert_eq!(report["usable"], true, "{report}");
    let output = place.run(&["--bubblewrap", "/nowhere/bwrap", "doctor"]);
    assert_eq!(output.status.code(), Some(125));
    let words = text(&output.stdout);
    assert!(
        words.contains("MISSING bubblewrap") && words.contains("fix: install"),
        "{words}"
    );
}
