//! The sample projects, in the sandbox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::helper;
use crate::program::{cargo, is_root, run, workspace};
use crate::supervise::supervised;
use crate::tally::Tally;
use crate::user::{User, open_for_all};

/// A built program with its helper beside it, where everybody can run both.
#[derive(Debug)]
pub(crate) struct Installed {
    folder: tempfile::TempDir,
}

impl Installed {
    /// Builds both and puts them side by side, as an installation does.
    pub(crate) fn new() -> Outcome<Self> {
        let helper = helper::build()?;
        run(&mut cargo(&[
            "build",
            "--quiet",
            "--package",
            "sandbox-cli",
            "--bin",
            "sandbox",
        ]))?;
        let folder = tempfile::Builder::new()
            .prefix("sandbox-bin-")
            .tempdir_in("/var/tmp")
            .map_err(|error| error.to_string())?;
        open_for_all(folder.path())?;
        let copy = |from: &Path, name: &str| {
            fs::copy(from, folder.path().join(name))
                .map(drop)
                .map_err(|error| format!("{}: {error}", from.display()))
        };
        copy(&helper, "sandbox-helper")?;
        copy(&helper::target_folder().join("debug/sandbox"), "sandbox")?;
        Ok(Self { folder })
    }

    /// Where both are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.folder.path().join("sandbox")
    }
}

/// What is run in each project.
const PROJECTS: [(&str, &[&str]); 2] = [
    (
        "python-project",
        &["run", "--rm", "--", "/usr/bin/python3", "-m", "unittest"],
    ),
    (
        "rust-project",
        &[
            "run",
            "--rm",
            "--toolchain",
            "rustup",
            "--",
            "cargo",
            "test",
            "--offline",
        ],
    ),
];

/// Runs the tests of every sample project in the sandbox: as the caller, and as an
/// ordinary user where that is root.
pub(crate) fn run_all(tally: &mut Tally) -> Outcome {
    let installed = Installed::new()?;
    let own = tempfile::tempdir().map_err(|error| error.to_string())?;
    for (project, arguments) in PROJECTS {
        let mut command = Command::new(installed.program());
        command
            .args(arguments)
            .current_dir(copied(project, own.path())?)
            .env("SANDBOX_STATE_DIR", own.path().join("state"));
        tested(project, tally, &command)?;
    }
    if !is_root() {
        return Ok(());
    }
    let user = User::new()?;
    for (project, arguments) in PROJECTS {
        let folder = copied(project, &user.home())?;
        user.give(&folder)?;
        let mut command = user.command(&installed.program());
        command.args(arguments).current_dir(folder);
        tested(project, tally, &command)?;
    }
    user.check_clean()
}

fn tested(project: &str, tally: &mut Tally, command: &Command) -> Outcome {
    println!("-- {project}");
    let ok = tally.tee(&mut supervised(command))?;
    ok.then_some(())
        .ok_or_else(|| format!("{project} failed in the sandbox"))
}

/// A copy of a sample project, which its own build may not have touched.
pub(crate) fn copied(project: &str, to: &Path) -> Outcome<PathBuf> {
    let source = workspace().join("examples").join(project);
    let target = to.join(project);
    if !target.exists() {
        run(Command::new("cp").arg("-r").arg(&source).arg(&target))?;
    }
    Ok(target)
}
