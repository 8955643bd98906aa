//! A value that is never shown.

use std::fmt;

use zeroize::Zeroizing;

use crate::error::Result;

/// A secret: `Debug` and `Display` redact it, its memory is zeroed on drop, and it does
/// not serialise.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// The bytes, for the one place that sends them.
    ///
    /// # Security
    /// Whatever this is copied into is no longer protected.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Where references of a policy are looked up, on the host.
///
/// The host passes it in: core reads neither environment nor file.
pub trait SecretSource: fmt::Debug + Send + Sync {
    /// The value of an environment variable; none where it is not set.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` where the host allows no such reference.
    fn env(&self, name: &str) -> Result<Option<Secret>>;

    /// The content of a file, absolute or relative to the file that names it, without a
    /// final line end; none where it is not there.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` where the file can't be read or the host allows no such reference.
    fn file(&self, path: &str) -> Result<Option<Secret>>;
}
