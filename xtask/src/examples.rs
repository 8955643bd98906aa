//! The sample projects, in the sandbox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::helper;
use crate::program::{cargo, is_root, run, workspace};
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
        &["run", "--rm", "--", "python3", "-m", "unittest"],
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
pub(crate) fn run_all() -> Outcome {
    let installed = Installed::new()?;
    let own = tempfile::tempdir().map_err(|error| error.to_string())?;
    for (project, arguments) in PROJECTS {
        let mut command = Command::new(installed.program());
        run(command
            .args(arguments)
            .current_dir(copied(project, own.path())?)
            .env("SANDBOX_STATE_DIR", own.path().join("state")))?;
    }
    if is_root() {
        let user = User::new()?;
        for (project, arguments) in PROJECTS {
            let folder = copied(project, &user.home())?;
            run(Command::new("chown")
                .arg("-R")
                .arg("64321:64321")
                .arg(&folder))?;
            run(user
                .command(&installed.program())
                .args(arguments)
                .current_dir(folder))?;
        }
        user.check_clean()?;
    }
    Ok(())
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
