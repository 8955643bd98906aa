//! What goes wrong here, and which code of the product each becomes.

use rustix::io::Errno;
use sandbox_core::{ErrorCode, SandboxError};

/// What every internal operation returns; the public ones turn it into a [`SandboxError`].
pub(crate) type Result<T, E = Cause> = std::result::Result<T, E>;

/// Why something failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// A system call on the store failed.
    #[error("{0} failed")]
    Store(String, #[source] Errno),
    /// A system call on a folder of the host failed.
    #[error("{0} failed")]
    Source(String, #[source] Errno),
    /// What was read is not what was written.
    #[error("{what} is damaged: {why}")]
    Damaged { what: String, why: String },
    /// The folder can't be, or can't become, a store.
    #[error("the state directory {path} is refused: {why}")]
    Refused {
        path: String,
        why: String,
        fix: String,
    },
    /// Less would be left free than the floor.
    #[error("{0}")]
    NoSpace(String),
    /// A bound on what an ingest may read.
    #[error("{0}")]
    Limit(String),
    /// What was named is not there.
    #[error("{0}")]
    NotFound(String),
    /// Someone else holds it, or it never kept still.
    #[error("{message}")]
    Busy {
        message: String,
        hint: Option<String>,
    },
    /// A saved identity differs from the one on disk.
    #[error("the saved state names the {field} {saved}, the {other} {actual}: nothing was changed")]
    Mismatch {
        field: &'static str,
        saved: String,
        other: &'static str,
        actual: String,
    },
    /// An argument that no store could take.
    #[error("{0}")]
    Invalid(String),
    /// The caller asked to stop.
    #[error("{0}")]
    Cancelled(String),
}

impl Cause {
    pub(crate) fn damaged(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged {
            what: what.into(),
            why: why.into(),
        }
    }
}

/// Says what was being done when a call failed.
pub(crate) trait Context<T> {
    /// For calls on the store itself.
    fn store(self, what: impl FnOnce() -> String) -> Result<T>;
    /// For calls on a folder of the host.
    fn source(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for std::result::Result<T, Errno> {
    fn store(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|errno| Cause::Store(what(), errno))
    }

    fn source(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|errno| Cause::Source(what(), errno))
    }
}

impl From<Cause> for SandboxError {
    fn from(cause: Cause) -> Self {
        let (code, hint) = match &cause {
            Cause::Store(_, errno) => (ErrorCode::Storage, hint_for(*errno).map(str::to_owned)),
            Cause::Source(..) => (ErrorCode::Storage, None),
            Cause::Damaged { .. } => (ErrorCode::Storage, None),
            Cause::Refused { fix, .. } => (ErrorCode::Storage, Some(fix.clone())),
            Cause::NoSpace(_) => (ErrorCode::Storage, Some(FREE_SPACE.to_owned())),
            Cause::Limit(_) => (ErrorCode::Limit, None),
            Cause::NotFound(_) => (ErrorCode::NotFound, None),
            Cause::Busy { hint, .. } => (ErrorCode::Busy, hint.clone()),
            Cause::Mismatch { .. } => (ErrorCode::StateMismatch, None),
            Cause::Invalid(_) => (ErrorCode::Invalid, None),
            Cause::Cancelled(_) => (ErrorCode::Cancelled, None),
        };
        let message = match &cause {
            Cause::Store(what, errno) | Cause::Source(what, errno) => {
                format!("{what} failed: {errno}")
            }
            other => other.to_string(),
        };
        let error = Self::new(code, message).with_source(cause);
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

const FREE_SPACE: &str = "free space on the disk that holds the state directory, for example by `sandbox gc`; nothing half-made is left and a retry is safe";

/// What helps against the errors that a person can do something about.
fn hint_for(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Some(FREE_SPACE),
        Errno::ROFS => Some("the disk is mounted read-only: put the state directory elsewhere"),
        Errno::MFILE | Errno::NFILE => Some("raise the limit of open files (`ulimit -n`)"),
        Errno::NOSYS => Some("the kernel must offer openat2 (Linux 5.6)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ERR-2 for storage: which cause becomes which code, and what helps.
    #[test]
    fn err_2_a_full_disk_is_a_storage_error_that_says_what_helps() {
        let error = SandboxError::from(Cause::Store("writing a blob".into(), Errno::NOSPC));
        assert_eq!(error.code(), ErrorCode::Storage);
        assert!(error.to_string().starts_with("writing a blob failed: "));
        assert!(error.hint().unwrap().contains("sandbox gc"));
    }
}
