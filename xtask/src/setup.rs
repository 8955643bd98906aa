//! What the host needs: system packages, and cargo-deny in a pinned version.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::program::{exists, is_root, run};

/// Something that is needed at run time or by the tests.
struct Need {
    name: &'static str,
    is_there: fn() -> bool,
}

const NEEDED: [Need; 6] = [
    // Where the system keeps them: one of a person's own, first on PATH, is not visible inside.
    Need {
        name: "bubblewrap",
        is_there: || is_file("/usr/bin/bwrap"),
    },
    Need {
        name: "python3",
        is_there: || is_file("/usr/bin/python3"),
    },
    Need {
        name: "git",
        is_there: || exists("git"),
    },
    Need {
        name: "setpriv and unshare",
        is_there: || exists("setpriv") && exists("unshare"),
    },
    Need {
        name: "a C compiler, which links",
        is_there: || exists("cc"),
    },
    Need {
        name: "a static C library",
        is_there: has_static_libc,
    },
];

/// The version of cargo-deny that `deny.toml` was written for.
const DENY_VERSION: &str = "0.20.2";

/// A package manager: its program, how its lists are made fresh, how it installs, and the
/// packages that bring what is needed, in that order.
struct Manager {
    program: &'static str,
    refresh: Option<&'static str>,
    install: &'static [&'static str],
    packages: [&'static str; NEEDED.len()],
}

const MANAGERS: [Manager; 5] = [
    Manager {
        program: "apt-get",
        refresh: Some("update"),
        install: &["install", "--yes", "--no-install-recommends"],
        packages: [
            "bubblewrap",
            "python3",
            "git",
            "util-linux",
            "gcc",
            "libc6-dev",
        ],
    },
    Manager {
        program: "dnf",
        refresh: None,
        install: &["install", "--assumeyes"],
        packages: [
            "bubblewrap",
            "python3",
            "git",
            "util-linux",
            "gcc",
            "glibc-static",
        ],
    },
    Manager {
        program: "pacman",
        refresh: None,
        install: &["-Sy", "--noconfirm", "--needed"],
        packages: ["bubblewrap", "python", "git", "util-linux", "gcc", "glibc"],
    },
    Manager {
        program: "apk",
        refresh: None,
        install: &["add"],
        packages: [
            "bubblewrap",
            "python3",
            "git",
            "util-linux",
            "gcc",
            "musl-dev",
        ],
    },
    Manager {
        program: "zypper",
        refresh: None,
        install: &["--non-interactive", "install"],
        packages: [
            "bubblewrap",
            "python3",
            "git",
            "util-linux",
            "gcc",
            "glibc-devel-static",
        ],
    },
];

/// Installs what is missing, says what it does, and does nothing twice.
pub(crate) fn run_all() -> Outcome {
    run_packages()?;
    deny().map(drop)
}

/// The system packages alone: what the demo needs.
pub(crate) fn run_packages() -> Outcome {
    let missing = missing();
    if missing.is_empty() {
        println!("set-up: every program is there");
        return Ok(());
    }
    let names = |of: &[usize]| {
        let names = of.iter().map(|&index| NEEDED[index].name);
        names.collect::<Vec<_>>().join(", ")
    };
    let Some(manager) = MANAGERS.iter().find(|manager| exists(manager.program)) else {
        return Err(format!(
            "missing: {}; no known package manager is here, so install them by hand",
            names(&missing)
        ));
    };
    let packages: Vec<&str> = missing
        .iter()
        .map(|&index| manager.packages[index])
        .collect();
    println!(
        "set-up: missing are {}: installing {}",
        names(&missing),
        packages.join(", ")
    );
    if let Some(refresh) = manager.refresh {
        run(as_root(manager.program)?.arg(refresh))?;
    }
    run(as_root(manager.program)?
        .args(manager.install)
        .args(&packages))?;
    let still = self::missing();
    if still.is_empty() {
        Ok(())
    } else {
        Err(format!("still missing once installed: {}", names(&still)))
    }
}

/// The places in [`NEEDED`] of what is not there.
fn missing() -> Vec<usize> {
    let found = NEEDED.iter().enumerate();
    found
        .filter(|(_, need)| !(need.is_there)())
        .map(|(index, _)| index)
        .collect()
}

fn is_file(path: &str) -> bool {
    Path::new(path).is_file()
}

/// The helper is linked statically: the compiler knows where the library for that would be.
fn has_static_libc() -> bool {
    let asked = Command::new("cc")
        .arg("-print-file-name=libc.a")
        .stderr(Stdio::null())
        .output();
    // Without one it repeats the bare name.
    asked.is_ok_and(|output| output.stdout.starts_with(b"/"))
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
