//! The static helper, as it is released.

use std::path::PathBuf;

use crate::Outcome;
use crate::program::{cargo, output, run, workspace};

/// Builds the helper and gives its path.
pub(crate) fn build() -> Outcome<PathBuf> {
    let target = host_triple()?;
    // As a flag of every crate, static linking would break procedural macros.
    run(&mut cargo(&[
        "rustc",
        "--quiet",
        "--package",
        "sandbox-cli",
        "--bin",
        "sandbox-helper",
        "--profile",
        "helper",
        "--target",
        &target,
        "--",
        "-C",
        "target-feature=+crt-static",
    ]))?;
    Ok(target_folder().join(target).join("helper/sandbox-helper"))
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

fn host_triple() -> Outcome<String> {
    let version = output(
        std::process::Command::new("rustc")
            .args(["--version", "--verbose"])
            .current_dir(workspace()),
    )?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned)
        .ok_or_else(|| "rustc does not name its host".to_owned())
}
