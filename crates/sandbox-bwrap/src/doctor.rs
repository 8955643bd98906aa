//! What a host has, what it lacks, and how to mend that.

mod userns;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sandbox_core::{Backend, Restriction, Result, SandboxError, Standing, shown};
use serde::Serialize;

use crate::backend::BwrapBackend;
use crate::config::Config;
use crate::keeper::Executable;
use crate::{identity, locate};

/// Options without which no sandbox is built; an older bubblewrap lacks the first.
const NEEDED_OPTIONS: [&str; 8] = [
    "--disable-userns",
    "--as-pid-1",
    "--die-with-parent",
    "--json-status-fd",
    "--args",
    "--cap-drop",
    "--clearenv",
    "--size",
];

/// How long bubblewrap may take to answer.
const TRIAL_DEADLINE: Duration = Duration::from_secs(10);

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is.
    pub name: &'static str,
    /// Whether it is in order.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// In order.
    Ok,
    /// Sandboxes run; something is weaker than it could be.
    Warning,
    /// No sandbox runs until it is mended.
    Missing,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            found: found.into(),
            fix: None,
        }
    }

    fn warning(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Warning,
            found: found.into(),
            fix: Some(fix.into()),
        }
    }

    fn missing(name: &'static str, error: &SandboxError) -> Self {
        Self {
            name,
            status: Status::Missing,
            found: with_causes(error),
            fix: error.hint().map(str::to_owned),
        }
    }
}

/// Looks at everything that a sandbox with this configuration needs, in the order in which
/// it is needed, and last at a real sandbox.
///
/// # Cancel safety
/// Dropped, a sandbox that was made for the last check is removed by the next start.
pub async fn examine(config: &Config) -> Vec<Check> {
    let early = {
        let config = config.clone();
        tokio::task::spawn_blocking(move || {
            vec![
                bubblewrap(&config),
                user_namespaces(&config),
                helper(&config),
                root(&config),
            ]
        })
    };
    let mut checks = early.await.unwrap_or_default();
    checks.extend(isolation(config).await);
    checks
}

/// Whether sandboxes can run: nothing is missing.
#[must_use]
pub fn is_usable(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.status != Status::Missing)
}

fn bubblewrap(config: &Config) -> Check {
    const NAME: &str = "bubblewrap";
    let found = locate::bubblewrap(config.bubblewrap.as_deref())
        .and_then(|path| Executable::bubblewrap(&path));
    let executable = match found {
        Ok(executable) => executable,
        Err(error) => return Check::missing(NAME, &error),
    };
    let path = executable.path();
    let ask = |option: &str| Trial::run(Command::new(path).arg(option));
    match (ask("--version"), ask("--help")) {
        (Ok(version), Ok(help)) => judge_bubblewrap(path, version.output.trim(), &help.output),
        (Err(error), _) | (_, Err(error)) => Check::missing(NAME, &error),
    }
}

fn judge_bubblewrap(path: &Path, version: &str, help: &str) -> Check {
    let named = shown(path.as_os_str().as_encoded_bytes());
    let lacking: Vec<&str> = NEEDED_OPTIONS
        .into_iter()
        .filter(|option| !help.contains(option))
        .collect();
    if lacking.is_empty() {
        return Check::ok(
            "bubblewrap",
            format!(
                "{} at {named}, with every option that is needed",
                shown(version)
            ),
        );
    }
    Check {
        name: "bubblewrap",
        status: Status::Missing,
        found: format!(
            "{} at {named} is too old: it lacks {}",
            shown(version),
            lacking.join(", ")
        ),
        fix: Some("install bubblewrap 0.8 or later".to_owned()),
    }
}

/// Makes a user namespace as a sandbox would: by running bubblewrap, as whom it would run.
fn user_namespaces(config: &Config) -> Check {
    const NAME: &str = "user namespaces";
    let trial = || -> Result<Trial> {
        let path = locate::bubblewrap(config.bubblewrap.as_deref())?;
        let executable = Executable::bubblewrap(&path)?;
        let mut command = Command::new(executable.path());
        command.args([
            "--unshare-user",
            "--disable-userns",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
        ]);
        command.args([
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--",
            "/usr/bin/true",
        ]);
        if let Some(owner) = identity::owner(config.owner)? {
            use std::os::unix::process::CommandExt;
            command.uid(owner.uid).gid(owner.gid);
        }
        Trial::run(command.current_dir("/"))
    };
    match trial() {
        Ok(trial) if trial.success => Check::ok(
            NAME,
            "bubblewrap makes one, with pid, network and mount namespaces in it",
        ),
        Ok(trial) => userns::judge(NAME, &trial.output, &userns::Settings::read()),
        Err(error) => Check::missing(NAME, &error),
    }
}

fn helper(config: &Config) -> Check {
    const NAME: &str = "helper";
    match locate::helper(config.helper.as_deref()).and_then(|path| Executable::helper(&path)) {
        Ok(executable) => Check::ok(
            NAME,
            format!(
                "{}, in nobody else's hands; this program's build is {}",
                shown(executable.path().as_os_str().as_encoded_bytes()),
                sandbox_helper::wire::BUILD_ID
            ),
        ),
        Err(error) => Check::missing(NAME, &error),
    }
}

fn root(config: &Config) -> Check {
    const NAME: &str = "user";
    match identity::owner(config.owner) {
        Ok(Some(owner)) => Check::ok(
            NAME,
            format!(
                "the kernel's root: sandboxes run as uid {} and gid {}, never as root",
                owner.uid, owner.gid
            ),
        ),
        Ok(None) => Check::ok(
            NAME,
            format!(
                "uid {}: sandboxes run as it",
                rustix::process::geteuid().as_raw()
            ),
        ),
        Err(error) => Check::missing(NAME, &error),
    }
}

/// The state folder, and what a real sandbox measures about itself.
async fn isolation(config: &Config) -> Vec<Check> {
    let opened = {
        let config = config.clone();
        crate::handle::blocking(move || BwrapBackend::new(config)).await
    };
    let backend = match opened {
        Ok(backend) => backend,
        Err(error) => return vec![Check::missing("state folder", &error)],
    };
    let store = backend.store();
    let root = shown(store.root().as_os_str().as_encoded_bytes());
    let copies = if store.reflinks() {
        "workspaces share blocks with their template"
    } else {
        "workspaces are full copies"
    };
    let mut checks = vec![Check::ok("state folder", format!("{root}; {copies}"))];
    match backend.posture().await {
        Err(error) => checks.push(Check::missing("isolation", &error)),
        Ok(posture) => {
            checks.push(Check::ok(
                "isolation",
                format!("measured in a sandbox: grade {}", posture.grade()),
            ));
            checks.extend(posture.findings().iter().map(finding));
        }
    }
    checks
}

fn finding(finding: &sandbox_core::Finding) -> Check {
    let name = finding.restriction.as_str();
    match (finding.standing, finding.restriction) {
        (Standing::Ok, _) => Check::ok(name, finding.evidence.clone()),
        (_, Restriction::ResourcesBounded) => Check::warning(
            name,
            finding.evidence.clone(),
            "bound memory and CPU from outside: run the program in a systemd scope or a container with limits",
        ),
        _ => Check {
            name,
            status: Status::Missing,
            found: finding.evidence.clone(),
            fix: Some("don't run code here that you don't trust, and report this host".to_owned()),
        },
    }
}

fn with_causes(error: &SandboxError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// A short program that was run to its end.
struct Trial {
    success: bool,
    output: String,
}

impl Trial {
    fn run(command: &mut Command) -> Result<Self> {
        let failed = |error| {
            SandboxError::new(
                sandbox_core::ErrorCode::Unavailable,
                "bubblewrap can't be started",
            )
            .with_source(error)
        };
        command
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let started = Instant::now();
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None if started.elapsed() > TRIAL_DEADLINE => {
                    // It was asked for nothing: whether the kill works changes nothing.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(SandboxError::new(
                        sandbox_core::ErrorCode::Unavailable,
                        "bubblewrap did not answer within 10 seconds",
                    ));
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let mut output = String::new();
        // Its words are for a person: what can't be read is not there.
        if let Some(stdout) = child.stdout.take() {
            let _ = stdout.take(MAX_WORDS_BYTES).read_to_string(&mut output);
        }
        if let Some(stderr) = child.stderr.take() {
            let _ = stderr.take(MAX_WORDS_BYTES).read_to_string(&mut output);
        }
        Ok(Self {
            success: status.success(),
            output,
        })
    }
}

/// As much of bubblewrap's words as is read: `--help` has about 5 KiB and must fit in a pipe.
const MAX_WORDS_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    // H25: by what it can do, not by its number.
    #[test]
    fn h25_an_old_bubblewrap_is_named_by_what_it_lacks() {
        let path = Path::new("/usr/bin/bwrap");
        let help = NEEDED_OPTIONS.join("\n");
        assert_eq!(
            judge_bubblewrap(path, "bubblewrap 0.8.0", &help).status,
            Status::Ok
        );
        let old = judge_bubblewrap(
            path,
            "bubblewrap 0.4.0",
            &help.replace("--disable-userns", ""),
        );
        assert_eq!(old.status, Status::Missing);
        assert!(old.found.contains("--disable-userns"), "{old:?}");
    }
}
