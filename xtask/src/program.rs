//! Running programs, and saying which.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Outcome;

/// Runs a program to its end; its failure is the step's.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command
        .status()
        .map_err(|error| format!("{shown}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{shown}: {status}"))
    }
}

/// Runs a program quietly and gives what it wrote to standard output.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let shown = shown(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{shown}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{shown}: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{shown}: {error}"))
}

/// Whether a program of this name can be run.
pub(crate) fn exists(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .any(|folder| folder.join(name).is_file())
}

/// cargo, in the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()).args(arguments);
    command
}

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}

/// Whether this is root.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    if line.len() > 200 {
        format!("{}…", line.chars().take(200).collect::<String>())
    } else {
        line
    }
}
