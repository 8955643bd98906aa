//! Where the two executables are.

use std::env;
use std::path::{Path, PathBuf};

use sandbox_core::{ErrorCode, Result, SandboxError, shown};

/// Where every distribution that packages bubblewrap puts it.
const USUAL_BUBBLEWRAP: &str = "/usr/bin/bwrap";

/// bubblewrap: the configured one, else the usual place, else the first on `PATH` (SPEC BAK-2).
///
/// What is found is still checked before it is used.
pub(crate) fn bubblewrap(configured: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = configured {
        return Ok(path.to_owned());
    }
    let usual = PathBuf::from(USUAL_BUBBLEWRAP);
    let on_path = || {
        env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("bwrap"))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            SandboxError::new(ErrorCode::Unavailable, "bubblewrap is not installed: there is no /usr/bin/bwrap and none on PATH")
                .with_hint("install the package `bubblewrap` (apt, dnf, pacman, apk and zypper all call it that)")
        })
    };
    if usual.exists() { Ok(usual) } else { on_path() }
}

/// The helper: the configured one, else beside the running program, else in
/// `../libexec/sandbox/`. Never on `PATH`, which a project can steer.
pub(crate) fn helper(configured: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = configured {
        return Ok(path.to_owned());
    }
    let program = env::current_exe().map_err(|error| {
        SandboxError::new(
            ErrorCode::Unavailable,
            "the running program's own path can't be found",
        )
        .with_source(error)
    })?;
    let places: Vec<PathBuf> = program
        .parent()
        .into_iter()
        .flat_map(|folder| {
            [
                folder.join("sandbox-helper"),
                folder.join("../libexec/sandbox/sandbox-helper"),
            ]
        })
        .collect();
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let named: Vec<String> = places.iter().map(|path| shown(path.as_os_str().as_encoded_bytes())).collect();
        SandboxError::new(ErrorCode::Unavailable, format!("the program `sandbox-helper` is not there: looked at {}", named.join(" and ")))
            .with_hint("`cargo install` brings both programs; or name it with `--helper PATH` or SANDBOX_HELPER")
    })
}
