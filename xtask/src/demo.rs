//! The sandbox at work, from nothing but Rust.

use std::process::Command;

use crate::Outcome;
use crate::examples::{Installed, copied};
use crate::program::run;
use crate::setup;

/// Sets the host up, builds, and runs a sample project's tests in the sandbox.
pub(crate) fn run_all() -> Outcome {
    setup::run_packages()?;
    let installed = Installed::new()?;
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let project = copied("python-project", place.path())?;
    let sandbox = |arguments: &[&str]| {
        let mut command = Command::new(installed.program());
        command
            .args(arguments)
            .current_dir(&project)
            .env("SANDBOX_STATE_DIR", place.path().join("state"));
        run(&mut command)
    };
    println!("\n== what this host has");
    sandbox(&["doctor"])?;
    println!("\n== a project's tests, in a private copy, without network");
    sandbox(&["run", "--", "python3", "-m", "unittest"])?;
    println!(
        "\n== a command that changes something: the project is untouched, the change is listed"
    );
    sandbox(&[
        "run",
        "--",
        "sh",
        "-c",
        "echo changed >> README.md; echo new > made-inside.txt; rm -r greeting",
    ])?;
    println!("\n== sessions that were kept");
    sandbox(&["session", "list"])?;
    println!("\nThe demo's sessions are gone with its temporary folder.");
    println!("To use the program: cargo install --path crates/sandbox-cli");
    Ok(())
}
