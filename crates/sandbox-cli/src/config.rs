//! Where things are on this host.

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use sandbox_bwrap::toolchain::{Rustup, read_only};
use sandbox_bwrap::{BwrapBackend, Config};
use sandbox_core::{ErrorCode, Result, SandboxError};

use crate::arguments::{Global, Toolchain};
use crate::record::Record;

/// The state folder of root: its sandboxes run as another user, which has no home.
const STATE_OF_ROOT: &str = "/var/lib/sandbox";

/// What the arguments and the environment say about this host.
#[derive(Debug)]
pub(crate) struct Host {
    base: Config,
    /// The program, with what it must be told again to find the same sessions.
    program: String,
}

impl Host {
    pub(crate) fn new(global: &Global) -> Result<Self> {
        let given = |argument: &Option<PathBuf>, variable: &str| {
            argument.clone().or_else(|| {
                std::env::var_os(variable)
                    .filter(|value| !value.is_empty())
                    .map(PathBuf::from)
            })
        };
        let state = match given(&global.state_dir, "SANDBOX_STATE_DIR") {
            Some(path) => std::path::absolute(&path).map_err(|error| {
                SandboxError::new(ErrorCode::Invalid, "the state folder's path can't be used")
                    .with_source(error)
            })?,
            None if sandbox_bwrap::is_kernel_root() => PathBuf::from(STATE_OF_ROOT),
            None => user_state()?,
        };
        let mut base = Config::new(state);
        base.helper = given(&global.helper, "SANDBOX_HELPER");
        base.bubblewrap = given(&global.bubblewrap, "SANDBOX_BWRAP");
        let program = match &global.state_dir {
            Some(_) => format!(
                "sandbox --state-dir {}",
                quoted(&base.state_dir.to_string_lossy())
            ),
            None => "sandbox".to_owned(),
        };
        Ok(Self { base, program })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.base
    }

    /// How the program is called in a command that a person is to type.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// A backend without anything of the host's but the system.
    pub(crate) fn backend(&self) -> Result<BwrapBackend> {
        made(BwrapBackend::new(self.base.clone()))
    }

    /// A backend whose sessions see what the record names.
    pub(crate) fn backend_for(&self, record: &Record) -> Result<BwrapBackend> {
        let mut config = self.base.clone();
        for path in &record.read_only {
            config.mounts.push(read_only(Path::new(path))?);
        }
        for toolchain in &record.toolchains {
            match toolchain {
                Toolchain::Rustup => rustup()?
                    .toolchain(Path::new(&record.project))?
                    .add_to(&mut config),
            }
        }
        made(BwrapBackend::new(config))
    }
}

/// What fails before there is a session has a next command in any case (CLI-4).
fn made(backend: Result<BwrapBackend>) -> Result<BwrapBackend> {
    backend.map_err(|error| match error.hint() {
        Some(_) => error,
        None => error.with_hint("`sandbox doctor` shows what this host lacks, and how to mend it"),
    })
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/+@:".contains(&byte);
    if word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn user_state() -> Result<PathBuf> {
    let strategy = etcetera::base_strategy::Xdg::new().map_err(|error| {
        SandboxError::new(
            ErrorCode::Storage,
            "your home folder is not known, so there is no place for the state",
        )
        .with_source(error)
        .with_hint("name one: `--state-dir PATH` or SANDBOX_STATE_DIR")
    })?;
    let state = strategy
        .state_dir()
        .unwrap_or_else(|| strategy.home_dir().join(".local/state"));
    Ok(state.join("sandbox"))
}

fn rustup() -> Result<Rustup> {
    let home = match std::env::var_os("RUSTUP_HOME") {
        Some(home) => PathBuf::from(home),
        None => etcetera::home_dir()
            .map_err(|error| {
                SandboxError::new(
                    ErrorCode::NotFound,
                    "your home folder is not known, and RUSTUP_HOME is not set",
                )
                .with_source(error)
            })?
            .join(".rustup"),
    };
    // Set by rustup's own proxies for what they start: cargo's choice, when cargo runs us.
    let toolchain = std::env::var("RUSTUP_TOOLCHAIN")
        .ok()
        .filter(|name| !name.is_empty());
    Ok(Rustup { home, toolchain })
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-4: the next command can be typed as it stands.
    #[test]
    fn cli_4_a_path_is_quoted_for_a_shell() {
        assert_eq!(quoted("/var/lib/sandbox"), "/var/lib/sandbox");
        assert_eq!(quoted("/tmp/a b's"), r"'/tmp/a b'\''s'");
    }
}
