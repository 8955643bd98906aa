//! What the host needs: system packages, and cargo-deny in a pinned version.

use std::path::PathBuf;
use std::process::Command;

use crate::Outcome;
use crate::program::{exists, is_root, run};

/// What is needed at run time and by the tests: a program, and the package that brings it.
const NEEDED: [(&str, &str); 5] = [
    ("bwrap", "bubblewrap"),
    ("cc", "gcc"),
    ("git", "git"),
    ("python3", "python3"),
    ("setpriv", "util-linux"),
];

/// The version of cargo-deny that `deny.toml` was written for.
const DENY_VERSION: &str = "0.20.2";

/// A package manager: its program, how its lists are made fresh, how it installs.
struct Manager {
    program: &'static str,
    refresh: Option<&'static str>,
    install: &'static [&'static str],
}

const MANAGERS: [Manager; 5] = [
    Manager {
        program: "apt-get",
        refresh: Some("update"),
        install: &["install", "--yes", "--no-install-recommends"],
    },
    Manager {
        program: "dnf",
        refresh: None,
        install: &["install", "--assumeyes"],
    },
    Manager {
        program: "pacman",
        refresh: None,
        install: &["-Sy", "--noconfirm", "--needed"],
    },
    Manager {
        program: "apk",
        refresh: None,
        install: &["add"],
    },
    Manager {
        program: "zypper",
        refresh: None,
        install: &["--non-interactive", "install"],
    },
];

/// Installs what is missing, says what it does, and does nothing twice.
pub(crate) fn run_all() -> Outcome {
    run_packages()?;
    deny().map(drop)
}

/// The system packages alone: what the demo needs.
pub(crate) fn run_packages() -> Outcome {
    let missing: Vec<(&str, &str)> = NEEDED
        .into_iter()
        .filter(|(program, _)| !is_there(program))
        .collect();
    if missing.is_empty() {
        println!("set-up: every program is there");
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    println!("set-up: installing {}", packages.join(", "));
    let manager = MANAGERS
        .iter()
        .find(|manager| exists(manager.program))
        .ok_or_else(|| {
            format!(
                "no known package manager is here: install {} by hand",
                packages.join(", ")
            )
        })?;
    if let Some(refresh) = manager.refresh {
        run(as_root(manager.program)?.arg(refresh))?;
    }
    run(as_root(manager.program)?
        .args(manager.install)
        .args(&packages))?;
    match missing.iter().find(|(program, _)| !is_there(program)) {
        Some((program, package)) => Err(format!(
            "{package} was installed and there is still no {program}"
        )),
        None => Ok(()),
    }
}

/// A python3 of a person's own would not be visible inside: the system's counts.
fn is_there(program: &str) -> bool {
    match program {
        "bwrap" | "python3" => PathBuf::from("/usr/bin").join(program).exists(),
        other => exists(other),
    }
}

fn as_root(program: &str) -> Outcome<Command> {
    if is_root() {
        let mut command = Command::new(program);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        return Ok(command);
    }
    if !exists("sudo") {
        return Err(format!(
            "`{program}` needs root and there is no sudo: run `cargo xtask setup` as root once"
        ));
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    Ok(command)
}

/// cargo-deny, installed once outside the target folder.
pub(crate) fn deny() -> Outcome<PathBuf> {
    let root = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .ok_or("neither XDG_CACHE_HOME nor HOME says where tools may be kept")?
        .join("sandbox-xtask");
    let program = root.join("bin/cargo-deny");
    let version = Command::new(&program).arg("--version").output().ok();
    if version.is_some_and(|output| String::from_utf8_lossy(&output.stdout).contains(DENY_VERSION))
    {
        return Ok(program);
    }
    println!("set-up: building cargo-deny {DENY_VERSION}, once");
    let mut install = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    install
        .args([
            "install",
            "--locked",
            "--quiet",
            &format!("cargo-deny@{DENY_VERSION}"),
            "--root",
        ])
        .arg(&root);
    run(&mut install)?;
    Ok(program)
}
