//! The one public error type.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::output::Captured;
use crate::refusal::Refusal;
use crate::text::shown;

/// What every fallible operation of the sandbox returns.
pub type Result<T, E = SandboxError> = std::result::Result<T, E>;

/// The kind of a failure: what a caller matches on.
///
/// The string form (`SANDBOX_…`) is stable: it is what the program prints, what
/// JSON carries, and it is never renamed. SPEC ERR-2.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[non_exhaustive]
pub enum ErrorCode {
    /// Input does not fit its schema.
    #[serde(rename = "SANDBOX_INVALID")]
    Invalid,
    /// Not a canonical workspace path, or one that leads out of the workspace.
    #[serde(rename = "SANDBOX_PATH")]
    Path,
    /// A file, template or session is not there.
    #[serde(rename = "SANDBOX_NOT_FOUND")]
    NotFound,
    /// A deadline, an output, file, request or response size, or a resource limit.
    #[serde(rename = "SANDBOX_LIMIT")]
    Limit,
    /// An owner, a concurrency bound or a policy revision is in the way: try again.
    #[serde(rename = "SANDBOX_BUSY")]
    Busy,
    /// The network policy does not allow it.
    #[serde(rename = "SANDBOX_NETWORK_DENIED")]
    NetworkDenied,
    /// A saved identity does not match what is on disk.
    #[serde(rename = "SANDBOX_STATE_MISMATCH")]
    StateMismatch,
    /// Isolation can't be established, or a primitive of it failed.
    #[serde(rename = "SANDBOX_UNAVAILABLE")]
    Unavailable,
    /// The session was stopped or deleted.
    #[serde(rename = "SANDBOX_STOPPED")]
    Stopped,
    /// The caller cancelled.
    #[serde(rename = "SANDBOX_CANCELLED")]
    Cancelled,
    /// The state directory: disk full, permission, corrupt record.
    #[serde(rename = "SANDBOX_STORAGE")]
    Storage,
}

impl ErrorCode {
    /// Every code, in the order of the specification.
    pub const ALL: [Self; 11] = [
        Self::Invalid,
        Self::Path,
        Self::NotFound,
        Self::Limit,
        Self::Busy,
        Self::NetworkDenied,
        Self::StateMismatch,
        Self::Unavailable,
        Self::Stopped,
        Self::Cancelled,
        Self::Storage,
    ];

    /// The stable string form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "SANDBOX_INVALID",
            Self::Path => "SANDBOX_PATH",
            Self::NotFound => "SANDBOX_NOT_FOUND",
            Self::Limit => "SANDBOX_LIMIT",
            Self::Busy => "SANDBOX_BUSY",
            Self::NetworkDenied => "SANDBOX_NETWORK_DENIED",
            Self::StateMismatch => "SANDBOX_STATE_MISMATCH",
            Self::Unavailable => "SANDBOX_UNAVAILABLE",
            Self::Stopped => "SANDBOX_STOPPED",
            Self::Cancelled => "SANDBOX_CANCELLED",
            Self::Storage => "SANDBOX_STORAGE",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The one error of the sandbox's public interfaces.
///
/// `Display` is a lower-case fragment about this level only; the chain is in
/// [`source`](StdError::source). Neither ever holds a secret (SPEC ERR-3).
///
/// ```
/// use sandbox_core::{ErrorCode, WorkspacePath};
///
/// let error = WorkspacePath::parse("../etc/passwd").unwrap_err();
/// assert_eq!(error.code(), ErrorCode::Path);
/// assert_eq!(error.code().as_str(), "SANDBOX_PATH");
/// ```
#[derive(Clone)]
pub struct SandboxError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: ErrorCode,
    message: String,
    hint: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    refusal: Option<Refusal>,
    output: Option<Captured>,
}

impl SandboxError {
    /// An error of this kind with a message a person can act on.
    ///
    /// # Security
    /// `message` is shown as it is: values of callers go through
    /// [`shown`] first, and a secret never goes in.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            hint: None,
            source: None,
            refusal: None,
            output: None,
        }))
    }

    /// The same error with the cause below it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// The same error with what to do about it: a command to type, a setting to change.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The same error with its refusal record.
    #[must_use]
    pub fn with_refusal(mut self, refusal: Refusal) -> Self {
        self.0.refusal = Some(refusal);
        self
    }

    /// The same error with what a command had written before it was cut (SPEC PROC-3).
    #[must_use]
    pub fn with_output(mut self, output: Captured) -> Self {
        self.0.output = Some(output);
        self
    }

    /// The kind of the failure.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The refusal record: the given one, or one made of code, message and hint.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        self.0.refusal.clone().unwrap_or_else(|| Refusal {
            code: self.0.code,
            what: self.0.message.clone(),
            rule: None,
            revision: None,
            hint: self.0.hint.clone(),
            retryable: self.0.code == ErrorCode::Busy,
        })
    }

    /// What a command that was cut had written so far.
    #[must_use]
    pub fn output(&self) -> Option<&Captured> {
        self.0.output.as_ref()
    }

    /// An `SANDBOX_INVALID` that names field, value and what is accepted.
    pub(crate) fn invalid(field: &str, value: impl AsRef<[u8]>, accepted: &str) -> Self {
        Self::new(
            ErrorCode::Invalid,
            format!("{field} {} is refused: {accepted}", shown(value)),
        )
    }
}

impl fmt::Debug for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("SandboxError");
        debug
            .field("code", &self.0.code.as_str())
            .field("message", &self.0.message);
        if let Some(hint) = &self.0.hint {
            debug.field("hint", hint);
        }
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        if let Some(output) = &self.0.output {
            debug.field("output", output);
        }
        debug.finish()
    }
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for SandboxError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ERR-2: the strings are the contract, pinned one by one.
    #[test]
    fn err_2_codes_have_stable_strings_in_display_and_serde() {
        let strings: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(
            strings,
            [
                "SANDBOX_INVALID",
                "SANDBOX_PATH",
                "SANDBOX_NOT_FOUND",
                "SANDBOX_LIMIT",
                "SANDBOX_BUSY",
                "SANDBOX_NETWORK_DENIED",
                "SANDBOX_STATE_MISMATCH",
                "SANDBOX_UNAVAILABLE",
                "SANDBOX_STOPPED",
                "SANDBOX_CANCELLED",
                "SANDBOX_STORAGE",
            ]
        );
        for code in ErrorCode::ALL {
            let json = serde_json::to_string(&code).unwrap();
            assert_eq!(json, format!("\"{code}\""));
            assert_eq!(serde_json::from_str::<ErrorCode>(&json).unwrap(), code);
        }
    }

    // ERR-1: one error type that travels between threads and keeps its chain.
    #[test]
    fn err_1_error_is_send_sync_static_and_keeps_its_source() {
        fn check<T: StdError + Send + Sync + 'static>(_: &T) {}
        let error = SandboxError::new(ErrorCode::Storage, "the record can't be read")
            .with_source(std::io::Error::other("short"));
        check(&error);
        assert_eq!(error.to_string(), "the record can't be read");
        assert_eq!(error.source().unwrap().to_string(), "short");
        assert_eq!(error.refusal().code, ErrorCode::Storage);
        assert!(!error.refusal().retryable);
    }
}
