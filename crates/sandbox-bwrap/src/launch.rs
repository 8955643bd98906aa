//! From an admitted command to a supervised one.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use sandbox_core::{Command, ErrorCode, Result, SandboxError, Start, shown};
use sandbox_helper::wire::{Limits, Request};
use tokio::net::unix::pipe;
use tokio_util::task::TaskTracker;

use crate::config::{Config, KernelBounds};
use crate::keeper::Keeper;
use crate::supervise::{Pipes, Running, Terms, supervise};

/// Where programs are looked for inside, after what a toolchain puts in front.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What every command of a session gets, whatever it is.
#[derive(Debug)]
pub(crate) struct Launcher {
    environment: BTreeMap<String, String>,
    limits: Limits,
    next: AtomicU64,
    /// The tasks that own running commands.
    tasks: TaskTracker,
}

impl Launcher {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            environment: base_environment(config),
            limits: limits(&config.bounds),
            next: AtomicU64::new(1),
            tasks: TaskTracker::new(),
        }
    }

    /// Starts a command in these namespaces.
    ///
    /// It returns once the keeper was asked; whether the set-up succeeds comes out of the
    /// process, like every other ending.
    pub(crate) async fn start(&self, keeper: &Keeper, start: Start) -> Result<Running> {
        let Start {
            command,
            bounds,
            stdin,
            permit,
            cancel,
            ..
        } = start;
        let request = self.request(&command)?;
        let (stdin_host, stdin_inside) = pipe::pipe().map_err(no_pipe)?;
        let (stdout_inside, stdout_host) = pipe::pipe().map_err(no_pipe)?;
        let (stderr_inside, stderr_host) = pipe::pipe().map_err(no_pipe)?;
        let stdio: [OwnedFd; 3] = [
            stdin_inside.into_blocking_fd().map_err(no_pipe)?,
            stdout_inside.into_blocking_fd().map_err(no_pipe)?,
            stderr_inside.into_blocking_fd().map_err(no_pipe)?,
        ];
        let child = keeper.spawn(&request, stdio).await?;
        let terms = Terms {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            bounds,
            stdin,
            permit,
            cancel,
        };
        let pipes = Pipes {
            stdin: stdin_host,
            stdout: stdout_host,
            stderr: stderr_host,
        };
        Ok(supervise(&self.tasks, child, pipes, terms))
    }

    /// Waits until every task of a command has ended; none is started afterwards.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The names of the variables that every command gets.
    pub(crate) fn environment_names(&self) -> Vec<String> {
        self.environment.keys().cloned().collect()
    }

    /// A request for what is no caller's command: the session's environment and limits.
    pub(crate) fn bare_request(&self) -> Result<Request> {
        Ok(Request {
            executable: CString::default(),
            arguments: Vec::new(),
            environment: variables(&self.environment)?,
            cwd: CString::default(),
            limits: self.limits,
            filter: Vec::new(),
        })
    }

    fn request(&self, command: &Command) -> Result<Request> {
        let mut environment = self.environment.clone();
        for (name, value) in command.environment() {
            environment.insert(name.clone(), value.clone());
        }
        Ok(Request {
            executable: c_string(command.executable())?,
            arguments: std::iter::once(command.executable())
                .chain(command.args().iter().map(String::as_str))
                .map(c_string)
                .collect::<Result<_>>()?,
            environment: variables(&environment)?,
            cwd: c_string(command.cwd().relative())?,
            ..self.bare_request()?
        })
    }
}

fn variables(environment: &BTreeMap<String, String>) -> Result<Vec<CString>> {
    environment
        .iter()
        .map(|(name, value)| c_string(&format!("{name}={value}")))
        .collect()
}

/// The variables of SPEC CMD-2, and what the configuration adds. Nothing of the host's.
fn base_environment(config: &Config) -> BTreeMap<String, String> {
    let path: Vec<&str> = config
        .path_prefix
        .iter()
        .map(String::as_str)
        .chain([PATH])
        .collect();
    let mut environment = BTreeMap::from([
        ("HOME".to_owned(), "/home/agent".to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        ("PATH".to_owned(), path.join(":")),
    ]);
    environment.extend(config.environment.clone());
    environment
}

fn limits(bounds: &KernelBounds) -> Limits {
    Limits {
        processes: Some(bounds.processes),
        open_files: Some(bounds.open_files),
        file_bytes: Some(bounds.file_bytes),
        locked_bytes: Some(MAX_LOCKED_BYTES),
        message_queue_bytes: Some(0),
    }
}

/// What one user may lock by default on most distributions: enough for keys in memory.
const MAX_LOCKED_BYTES: u64 = 64 * 1024;

fn c_string(value: &str) -> Result<CString> {
    CString::new(value)
        .map_err(|_| SandboxError::new(ErrorCode::Invalid, format!("{} holds a NUL", shown(value))))
}

pub(crate) fn no_pipe(error: std::io::Error) -> SandboxError {
    SandboxError::new(
        ErrorCode::Limit,
        "no pipe can be made for the command's streams",
    )
    .with_source(error)
    .with_hint("raise the limit of open files (`ulimit -n`) or run fewer commands at once")
}

#[cfg(test)]
mod tests {
    use super::*;

    // CMD-2, S05: what a command gets, and nothing of the host's.
    #[test]
    fn cmd_2_the_environment_is_declared_in_full() {
        let mut config = Config::new("/nowhere");
        config.path_prefix = vec!["/opt/tool/bin".into()];
        config
            .environment
            .insert("CARGO_HOME".into(), "/home/agent/.cargo".into());
        let launcher = Launcher::new(&config);
        let command = Command::builder("x")
            .env("LANG", "C")
            .env("A", "b=c")
            .build()
            .unwrap();
        let request = launcher.request(&command).unwrap();
        let environment: Vec<&str> = request
            .environment
            .iter()
            .map(|entry| entry.to_str().unwrap())
            .collect();
        assert_eq!(
            environment,
            [
                "A=b=c",
                "CARGO_HOME=/home/agent/.cargo",
                "HOME=/home/agent",
                "LANG=C",
                "PATH=/opt/tool/bin:/usr/local/bin:/usr/bin:/bin",
            ]
        );
    }
}
