//! Runs one program, and fails it for every process that outlives it.
//!
//! As the subreaper of all that the program starts, this process becomes the parent of
//! what the program leaves behind, under whatever name and as whatever user.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use crate::Outcome;

/// How long what was killed may take to be gone.
const GRACE: Duration = Duration::from_secs(3);

/// What the program would have to exit with to be taken for one that left something.
const LEFT_BEHIND: u8 = 120;

/// The command that runs another one under supervision.
pub(crate) fn supervised(command: &Command) -> Command {
    // Not by its path: compiling the workspace has replaced what stood there.
    let mut supervisor = Command::new(format!("/proc/{}/exe", std::process::id()));
    supervisor
        .arg("supervise")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => supervisor.env(name, value),
            None => supervisor.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        supervisor.current_dir(folder);
    }
    supervisor
}

/// Runs a command line to its end, and waits for all that it started.
pub(crate) fn run(line: &[&str]) -> Outcome<ExitCode> {
    let (program, arguments) = line.split_first().ok_or("supervise needs a program")?;
    let failed = |what: &str, error: Errno| format!("{what}: {error}");
    set_child_subreaper(Some(getpid())).map_err(|error| failed("becoming a subreaper", error))?;
    let child = Command::new(program)
        .args(arguments)
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let status = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_pid().unsigned_abs() == child.id() => {
                break status;
            }
            // An orphan of the program, which nobody else would reap.
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed("waiting", error)),
        }
    };
    if !all_gone().map_err(|error| failed("waiting", error))? {
        for (pid, line) in children() {
            println!("left behind by {program}: {pid} {line}");
            // Not a group and not a name: exactly what was just named.
            if let Err(error) = kill_process(pid, Signal::KILL) {
                println!("it can't be killed: {error}");
            }
        }
        return Ok(ExitCode::from(LEFT_BEHIND));
    }
    let code = status
        .exit_status()
        .or_else(|| Some(128 + status.terminating_signal()?))
        .and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Whether no child is left within the grace.
fn all_gone() -> Result<bool, Errno> {
    let started = Instant::now();
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return Ok(true),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) if started.elapsed() > GRACE => return Ok(false),
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(error),
        }
    }
}

/// The children of this process, with their command lines.
fn children() -> Vec<(Pid, String)> {
    let own = getpid().as_raw_pid();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            (parent(&entry.path())? == own).then_some(())?;
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            Some((Pid::from_raw(pid)?, line))
        })
        .collect()
}

/// The parent of a process, by its folder in `/proc`: proc_pid_stat(5).
fn parent(process: &Path) -> Option<i32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}
