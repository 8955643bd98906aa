//! The helper that tests of real isolation use: built once a run, never searched.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program `sandbox-helper` of this working copy.
///
/// `SANDBOX_HELPER` names one that was built before; else cargo builds it, statically linked,
/// as it is released.
///
/// # Panics
/// Where it can't be built: no test of real isolation means anything then.
#[must_use]
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("SANDBOX_HELPER") {
        Some(path) => path.into(),
        None => build(),
    })
}

#[expect(
    clippy::unwrap_used,
    reason = "what can't be built ends the test that needs it"
)]
fn build() -> PathBuf {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(["rustc", "--quiet", "--message-format=json"])
        .args(["--package", "sandbox-cli", "--bin", "sandbox-helper"])
        .args(["--profile", "helper", "--target", &target])
        // As a flag of all crates it would break procedural macros.
        .args(["--", "-C", "target-feature=+crt-static"])
        .output()
        .unwrap();
    let messages = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "the helper can't be built: {messages}"
    );
    let (_, rest) = messages.rsplit_once("\"executable\":\"").unwrap();
    rest.split_once('"').unwrap().0.into()
}
