//! The tests: compiled once, run as the caller, and again as an ordinary user.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Outcome;
use crate::program::{cargo, is_root, output, run, workspace};
use crate::supervise::supervised;
use crate::tally::Tally;
use crate::user::{User, check_empty, open_for_all};
use crate::{helper, skips};

/// A compiled test binary.
#[derive(Clone, Debug)]
struct Suite {
    name: String,
    binary: PathBuf,
    folder: PathBuf,
}

/// What is compiled, with the programs that the tests need.
#[derive(Debug)]
pub(crate) struct Suites {
    suites: Vec<Suite>,
    helper: PathBuf,
    /// Where the tests write down what they could not look at.
    skipped: tempfile::TempDir,
}

/// Compiles the helper, the program and every test.
pub(crate) fn compile() -> Outcome<Suites> {
    let helper = helper::build()?;
    run(&mut cargo(&["build", "--quiet", "--workspace", "--bins"]))?;
    let messages = output(&mut cargo(&[
        "test",
        "--workspace",
        "--no-run",
        "--message-format=json",
    ]))?;
    let suites: Vec<Suite> = messages.lines().filter_map(suite).collect();
    if suites.is_empty() {
        return Err("cargo compiled no test".to_owned());
    }
    let skipped = tempfile::tempdir().map_err(|error| error.to_string())?;
    open_for_all(skipped.path())?;
    Ok(Suites {
        suites,
        helper,
        skipped,
    })
}

fn suite(line: &str) -> Option<Suite> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["profile"]["test"] != Value::Bool(true) {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?)
        .parent()?
        .to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    Some(Suite {
        name: format!("{package}/{}", message["target"]["name"].as_str()?),
        binary: message["executable"].as_str()?.into(),
        folder,
    })
}

impl Suites {
    /// Runs everything as the caller.
    pub(crate) fn first(&self, tally: &mut Tally) -> Outcome {
        let tmp = tempfile::tempdir().map_err(|error| error.to_string())?;
        self.pass("first", tally, tmp.path(), |suite| {
            Command::new(&suite.binary)
        })
    }

    /// Runs everything once more in another order: as an ordinary user where the caller is
    /// root, else as the caller.
    pub(crate) fn again(&self, tally: &mut Tally) -> Outcome {
        if is_root() {
            let user = User::new()?;
            return self.pass("again", tally, &user.tmp(), |suite| {
                shuffled(user.command(&suite.binary))
            });
        }
        let tmp = tempfile::tempdir().map_err(|error| error.to_string())?;
        self.pass("again", tally, tmp.path(), |suite| {
            shuffled(Command::new(&suite.binary))
        })
    }

    /// The examples in the documentation.
    pub(crate) fn doc_tests(tally: &mut Tally) -> Outcome {
        let ok = tally.tee(&mut cargo(&["test", "--quiet", "--workspace", "--doc"]))?;
        ok.then_some(())
            .ok_or_else(|| "documentation tests failed".to_owned())
    }

    /// Holds what both runs skipped against what this host is known to lack.
    pub(crate) fn check_skips(&self) -> Outcome {
        let folder = fs::read_dir(self.skipped.path()).map_err(|error| error.to_string())?;
        let files: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
        skips::check(&files)
    }

    fn pass(
        &self,
        name: &str,
        tally: &mut Tally,
        tmp: &Path,
        command: impl Fn(&Suite) -> Command,
    ) -> Outcome {
        let log = self.skipped.path().join(name);
        fs::write(&log, "")
            .and_then(|()| fs::set_permissions(&log, fs::Permissions::from_mode(0o666)))
            .map_err(|error| format!("{}: {error}", log.display()))?;
        let mounts = mounts();
        let mut failed = Vec::new();
        for suite in &self.suites {
            println!("-- {}", suite.name);
            let mut command = command(suite);
            command
                .current_dir(&suite.folder)
                .env("CARGO_MANIFEST_DIR", &suite.folder)
                .env("INSTA_UPDATE", "no")
                .env("INSTA_WORKSPACE_ROOT", workspace())
                .env("RUST_BACKTRACE", "0")
                .env("SANDBOX_BIN", helper::target_folder().join("debug/sandbox"))
                .env("SANDBOX_HELPER", &self.helper)
                .env("SANDBOX_TESTS_STRICT", "1")
                .env("TMPDIR", tmp)
                .env(skips::FILE, &log);
            if !tally.tee(&mut supervised(&command))? {
                failed.push(suite.name.clone());
            }
            if let Err(why) = check_empty(tmp) {
                println!("{}: {why}", suite.name);
                failed.push(format!("{} ({why})", suite.name));
            }
        }
        if !failed.is_empty() {
            return Err(format!("tests failed in {}", failed.join(", ")));
        }
        match self::mounts().difference(&mounts).next() {
            Some(mount) => Err(format!("a mount was left behind: {mount}")),
            None => Ok(()),
        }
    }
}

/// Runs the tests of a binary in an order of their own. The switch is libtest's, behind
/// the variable that its own developers use.
fn shuffled(mut command: Command) -> Command {
    command
        .env("RUSTC_BOOTSTRAP", "1")
        .args(["-Z", "unstable-options", "--shuffle"]);
    command
}

/// The mounts of this namespace.
fn mounts() -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().map(str::to_owned).collect()
}
