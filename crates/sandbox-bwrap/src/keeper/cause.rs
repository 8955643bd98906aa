//! Why a session or a command could not be set up, and what its user can do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use sandbox_core::{ErrorCode, SandboxError, shown};
use sandbox_helper::Step;
use sandbox_helper::wire::{Error as WireError, Failure, Status};

/// What went wrong at the keeper or at a command of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    #[error("the {what} {} is refused: {why}", shown_path(path))]
    Executable {
        what: &'static str,
        path: PathBuf,
        why: String,
    },
    #[error(
        "the read-only mount of {} is refused: it can't be opened",
        shown_path(path)
    )]
    ReadOnlySource { path: PathBuf, source: io::Error },
    #[error("the read-only mounts are refused: {0} of them are asked for, and {1} is the most")]
    TooManyMounts(usize, usize),
    #[error("the helper {} can't be started", shown_path(helper))]
    HelperNotStarted { helper: PathBuf, source: io::Error },
    #[error("the host's own {0} can't be read")]
    Host(&'static str, #[source] io::Error),
    #[error("a descriptor for the sandbox can't be made or passed")]
    Descriptors(#[source] io::Error),
    #[error("the sandbox could not {}: {}", .0.step, errno(*.0))]
    SetUp(Failure),
    #[error(
        "the helper is of another build: this program has protocol {} and build {}, the helper protocol {} and build {}",
        ours.0, ours.1, theirs.0, shown(&theirs.1)
    )]
    Mismatch {
        ours: (u16, &'static str),
        theirs: (u16, Vec<u8>),
    },
    #[error("the helper ended without an answer")]
    Silent,
    #[error("the helper gave no answer within {0:?}")]
    NotReady(Duration),
    #[error("the keeper took no request within {0:?}")]
    Stuck(Duration),
    #[error("the keeper's answer is refused: {0}")]
    Unexpected(&'static str),
    #[error("a message of the helper is refused")]
    Wire(#[source] WireError),
    #[error("a socket of the helper can't be read")]
    Socket(#[source] io::Error),
    #[error("the session's keeper has ended{}", said(.0))]
    KeeperGone(Option<Failure>),
    #[error("bubblewrap could not set the sandbox up: {}", shown(words))]
    Bubblewrap { words: Vec<u8> },
    #[error("the command's first process ended without a record{}", status(.0))]
    InitLost(Option<Status>),
    #[error(
        "{0} are still there two seconds after they were killed: the kernel has not let go of them"
    )]
    Unreaped(&'static str),
}

impl From<Cause> for SandboxError {
    fn from(cause: Cause) -> Self {
        let code = match &cause {
            Cause::ReadOnlySource { .. } => ErrorCode::Invalid,
            Cause::TooManyMounts(..) => ErrorCode::Limit,
            Cause::Descriptors(error) | Cause::HelperNotStarted { source: error, .. } => {
                code_of(error)
            }
            _ => ErrorCode::Unavailable,
        };
        let hint = hint(&cause);
        let error = Self::new(code, cause.to_string());
        let error = match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
        match cause {
            Cause::ReadOnlySource { source, .. }
            | Cause::HelperNotStarted { source, .. }
            | Cause::Host(_, source)
            | Cause::Descriptors(source)
            | Cause::Socket(source) => error.with_source(source),
            Cause::Wire(source) => error.with_source(source),
            _ => error,
        }
    }
}

/// Bounds of this process are told apart from a host that can't isolate.
fn code_of(error: &io::Error) -> ErrorCode {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => ErrorCode::Limit,
        Some(Errno::TOOMANYREFS | Errno::AGAIN) => ErrorCode::Busy,
        _ => ErrorCode::Unavailable,
    }
}

fn hint(cause: &Cause) -> Option<String> {
    let text = match cause {
        Cause::SetUp(failure) => return step_hint(*failure),
        Cause::Bubblewrap { words } => return words_hint(words),
        Cause::Executable { what, .. } if *what == "bubblewrap" => {
            "install the package `bubblewrap`, or name an executable that only root can change"
        }
        Cause::Executable { .. } => {
            "name the helper that was built with this program, where only you and root can change it"
        }
        Cause::Mismatch { .. } => {
            "install the program and its helper from the same build: `cargo install` brings both"
        }
        Cause::Silent | Cause::NotReady(_) => {
            "check that the configured helper is `sandbox-helper` of this build"
        }
        Cause::Descriptors(error) if code_of(error) == ErrorCode::Limit => {
            "raise the limit of open files (`ulimit -n`)"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// What usually stands in the way of a step.
fn step_hint(failure: Failure) -> Option<String> {
    let text = match failure.step {
        Step::UserNamespace | Step::IdMaps => {
            if failure.errno == Errno::NOSPC.raw_os_error() {
                "user namespaces are used up or switched off: raise `sysctl user.max_user_namespaces`"
            } else {
                "this host does not let you make user namespaces: look at `sysctl kernel.unprivileged_userns_clone`, `kernel.apparmor_restrict_unprivileged_userns`, and the container's seccomp profile"
            }
        }
        Step::MountProc => {
            "the container hides a part of /proc, so that no fresh one can be mounted: run it with an unmasked /proc (`--security-opt unmask=ALL`)"
        }
        Step::Owner => {
            "as root the sandbox runs as a user of its own: configure a uid and gid that this container maps"
        }
        Step::OpenSession | Step::OpenWorkspace => {
            "the session's folder must belong to the user that the sandbox runs as"
        }
        Step::OpenReadOnly => "the user that the sandbox runs as must be able to open the folder",
        Step::NetworkNamespace => {
            "network namespaces are used up or switched off: raise `sysctl user.max_net_namespaces`"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// What bubblewrap's own words point at.
fn words_hint(words: &[u8]) -> Option<String> {
    let words = String::from_utf8_lossy(words);
    let has = |part: &str| words.contains(part);
    let text = if has("Unknown option") {
        "bubblewrap 0.8 or newer is needed: install the package `bubblewrap` of a newer release"
    } else if has("Can't mount proc") {
        "the container hides a part of /proc, so that no fresh one can be mounted: run it with an unmasked /proc (`--security-opt unmask=ALL`)"
    } else if has("user namespace") || has("uid map") || has("No space left") {
        "look at `sysctl user.max_user_namespaces` and at AppArmor's profile of bubblewrap (`bwrap-userns-restrict`)"
    } else {
        return None;
    };
    Some(text.to_owned())
}

fn errno(failure: Failure) -> String {
    match failure.errno {
        0 => "no cause was given".to_owned(),
        errno => io::Error::from_raw_os_error(errno).to_string(),
    }
}

fn said(failure: &Option<Failure>) -> String {
    failure.map_or_else(String::new, |failure| {
        format!(": it could not {}: {}", failure.step, errno(failure))
    })
}

fn status(status: &Option<Status>) -> String {
    match status {
        Some(Status::Exited(code)) => format!(" (bubblewrap exited with {code})"),
        Some(Status::Signalled(signal)) => format!(" (bubblewrap was ended by signal {signal})"),
        None => String::new(),
    }
}

fn shown_path(path: &std::path::Path) -> String {
    shown(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // BAK-3, FI-24: a failed step is unavailable, names the step and the error, and says what
    // to do where that is known.
    #[test]
    fn fi_24_every_step_is_unavailable_and_named() {
        for step in Step::ALL {
            let failure = Failure {
                step: *step,
                errno: Errno::NOSPC.raw_os_error(),
            };
            let error = SandboxError::from(Cause::SetUp(failure));
            assert_eq!(error.code(), ErrorCode::Unavailable);
            let expected =
                format!("the sandbox could not {step}: No space left on device (os error 28)");
            assert_eq!(error.to_string(), expected);
        }
        let userns = Failure {
            step: Step::UserNamespace,
            errno: Errno::NOSPC.raw_os_error(),
        };
        let hint = SandboxError::from(Cause::SetUp(userns));
        assert!(hint.hint().unwrap().contains("user.max_user_namespaces"));
    }

    // FI-09: bounds of this process, and what is worth a retry, have their own codes.
    #[test]
    fn fi_09_errors_of_descriptors_are_told_apart() {
        let code = |errno: Errno| SandboxError::from(Cause::Descriptors(errno.into())).code();
        assert_eq!(code(Errno::MFILE), ErrorCode::Limit);
        assert_eq!(code(Errno::TOOMANYREFS), ErrorCode::Busy);
        assert_eq!(code(Errno::NOMEM), ErrorCode::Unavailable);
    }

    // BAK-3, ERR-3: bubblewrap's own words are shown, escaped.
    #[test]
    fn bak_3_bubblewraps_words_are_shown_escaped() {
        let words = b"bwrap: Unknown option --disable-userns\x1b[2J\n".to_vec();
        let error = SandboxError::from(Cause::Bubblewrap { words });
        assert_eq!(
            error.to_string(),
            r#"bubblewrap could not set the sandbox up: "bwrap: Unknown option --disable-userns\u{1b}[2J\n""#
        );
        assert!(error.hint().unwrap().contains("bubblewrap 0.8"));
    }

    // FI-19
    #[test]
    fn fi_19_two_builds_are_both_named() {
        let cause = Cause::Mismatch {
            ours: (1, "0.1.0-aa"),
            theirs: (2, b"0.2.0-bb".to_vec()),
        };
        assert_eq!(
            cause.to_string(),
            "the helper is of another build: this program has protocol 1 and build 0.1.0-aa, the helper protocol 2 and build \"0.2.0-bb\""
        );
    }
}
