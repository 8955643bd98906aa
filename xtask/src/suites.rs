//! The tests: compiled once, run as root and as an ordinary user.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Outcome;
use crate::program::{cargo, is_root, output};
use crate::user::{User, check_empty};
use crate::{helper, skips};

/// Processes of a sandbox, by the names the kernel knows them by.
const OURS: [&str; 3] = ["bwrap", "sandbox-helper", "sandbox"];

/// How long what was killed may take to be gone.
const GRACE: Duration = Duration::from_secs(3);

/// How many tests passed and failed, over everything that was run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Counts a closing line of libtest; other lines count nothing.
    pub(crate) fn count(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        let number = |what: &str| -> u64 {
            let before = counts.split(what).next().unwrap_or_default();
            before
                .trim_end()
                .rsplit(' ')
                .next()
                .and_then(|number| number.parse().ok())
                .unwrap_or(0)
        };
        self.passed += number("passed;");
        self.failed += number("failed;");
    }
}

/// A compiled test binary.
#[derive(Clone, Debug)]
struct Suite {
    name: String,
    binary: PathBuf,
    folder: PathBuf,
}

/// What is compiled, with the helper that the tests need.
#[derive(Debug)]
pub(crate) struct Suites {
    suites: Vec<Suite>,
    helper: PathBuf,
}

/// Compiles every test.
pub(crate) fn compile() -> Outcome<Suites> {
    let helper = helper::build()?;
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
    Ok(Suites { suites, helper })
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
    /// Runs everything twice: first as this user, then, in random order, as an ordinary
    /// one where this is root.
    pub(crate) fn run(&self) -> Outcome<Tally> {
        let log = tempfile::tempdir().map_err(|error| error.to_string())?;
        crate::user::open_for_all(log.path())?;
        let mut tally = Tally::default();
        let own = tempfile::tempdir().map_err(|error| error.to_string())?;
        let first = log.path().join("first");
        tally.add(self.pass("first run, as the caller", &first, |suite| {
            let mut command = Command::new(&suite.binary);
            command.env("TMPDIR", own.path());
            command
        })?);
        check_empty(own.path())?;

        let second = log.path().join("second");
        fs::write(&second, "").map_err(|error| error.to_string())?;
        if is_root() {
            let user = User::new()?;
            fs::set_permissions(&second, std::os::unix::fs::PermissionsExt::from_mode(0o666))
                .map_err(|error| error.to_string())?;
            tally.add(self.pass(
                "second run, as an ordinary user, in random order",
                &second,
                |suite| shuffled(user.command(&suite.binary)),
            )?);
            user.check_clean()?;
        } else {
            tally.add(self.pass("second run, in random order", &second, |suite| {
                let mut command = Command::new(&suite.binary);
                command.env("TMPDIR", own.path());
                shuffled(command)
            })?);
            check_empty(own.path())?;
        }
        skips::check(&[first, second])?;
        Ok(tally)
    }

    fn pass(&self, title: &str, log: &Path, command: impl Fn(&Suite) -> Command) -> Outcome<Tally> {
        println!("-- {title}");
        let before = Traces::now();
        let mut tally = Tally::default();
        let mut failed = Vec::new();
        for suite in &self.suites {
            println!("-- {}", suite.name);
            let mut command = command(suite);
            command
                .current_dir(&suite.folder)
                .env("CARGO_MANIFEST_DIR", &suite.folder)
                .env("INSTA_UPDATE", "no")
                .env("INSTA_WORKSPACE_ROOT", crate::program::workspace())
                .env("RUST_BACKTRACE", "0")
                .env("SANDBOX_HELPER", &self.helper)
                .env("SANDBOX_TESTS_STRICT", "1")
                .env(skips::FILE, log);
            let (counted, ok) = tee(&mut command)?;
            tally.add(counted);
            if !ok {
                failed.push(suite.name.as_str());
            }
        }
        if !failed.is_empty() {
            return Err(format!(
                "tests failed in {} ({} passed, {} failed)",
                failed.join(", "),
                tally.passed,
                tally.failed
            ));
        }
        before.check()?;
        Ok(tally)
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

/// Shows what a test binary writes as it comes, and counts.
pub(crate) fn tee(command: &mut Command) -> Outcome<(Tally, bool)> {
    let failed = |error: std::io::Error| format!("{:?}: {error}", command.get_program());
    let mut child = Command::new(command.get_program())
        .args(command.get_args())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(command.get_current_dir().unwrap_or(Path::new(".")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut tally = Tally::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(failed)?;
            let line = String::from_utf8_lossy(&line);
            tally.count(&line);
            println!("{line}");
        }
    }
    let status = child.wait().map_err(failed)?;
    Ok((tally, status.success()))
}

/// What a run must not leave behind: mounts, and processes of a sandbox.
struct Traces {
    mounts: usize,
    processes: BTreeSet<u32>,
}

impl Traces {
    fn now() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .unwrap_or_default()
            .lines()
            .count();
        Self {
            mounts,
            processes: processes(),
        }
    }

    fn check(&self) -> Outcome {
        let started = Instant::now();
        loop {
            let now = Self::now();
            let new: Vec<String> = now
                .processes
                .difference(&self.processes)
                .map(|pid| describe(*pid))
                .collect();
            if new.is_empty() && now.mounts == self.mounts {
                return Ok(());
            }
            if started.elapsed() > GRACE {
                return Err(format!(
                    "left behind: {} more mounts, processes [{}]",
                    now.mounts.abs_diff(self.mounts),
                    new.join("; ")
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn processes() -> BTreeSet<u32> {
    let own = fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid());
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            // Another ordinary user's sandboxes are none of ours.
            let uid = entry.metadata().ok()?.uid();
            (OURS.contains(&name.trim()) && (own == 0 || uid == own)).then_some(pid)
        })
        .collect()
}

fn describe(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!(
        "{pid} {}",
        String::from_utf8_lossy(&line).replace('\0', " ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted_and_others_are_not() {
        let mut tally = Tally::default();
        for line in [
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.10s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
            "test a ... ok",
        ] {
            tally.count(line);
        }
        assert_eq!(
            tally,
            Tally {
                passed: 13,
                failed: 2
            }
        );
    }
}
