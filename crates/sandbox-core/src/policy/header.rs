//! Names and values of the headers that a rule sets.

use std::fmt;

use crate::error::{ErrorCode, Result, SandboxError};
use crate::secret::Secret;
use crate::text::shown;

/// The longest value of a header, in bytes.
const MAX_VALUE_BYTES: usize = 16 * 1024;

/// The longest name of a header, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Those that frame a message, name its target or speak about the connection: the broker's
/// own business (RFC 9110 §7.6.1, RFC 9112 §6, RFC 9113 §8.2.2).
const REFUSED_NAMES: [&str; 13] = [
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// The name of a header that a rule may set: an RFC 9110 token in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeaderName(String);

impl HeaderName {
    /// Checks a name; case does not matter.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` for what is no token, and for names that frame a message or
    /// speak about the connection (SPEC POL-4).
    pub fn new(written: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Err(SandboxError::new(
                ErrorCode::Invalid,
                format!("the header name {} is refused: {why}", shown(written)),
            ))
        };
        if written.is_empty() || written.len() > MAX_NAME_BYTES || !written.bytes().all(is_token) {
            return refuse("an RFC 9110 token of 1 to 256 characters is accepted");
        }
        let name = written.to_ascii_lowercase();
        if name.starts_with("proxy-") || REFUSED_NAMES.contains(&name.as_str()) {
            return refuse("it is the broker's own; any other end-to-end header is accepted");
        }
        Ok(Self(name))
    }

    /// The name in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks the value of a header without ever showing it.
pub(super) fn check_value(name: &HeaderName, value: &Secret) -> Result<()> {
    let bytes = value.expose();
    let fits = !bytes.is_empty()
        && bytes.len() <= MAX_VALUE_BYTES
        && bytes
            .iter()
            .all(|&b| b == b'\t' || (b >= b' ' && b != 0x7f))
        && !bytes[0].is_ascii_whitespace()
        && !bytes[bytes.len() - 1].is_ascii_whitespace();
    if fits {
        Ok(())
    } else {
        Err(SandboxError::new(
            ErrorCode::Invalid,
            format!(
                "the value of the header {name} is refused: 1 to {MAX_VALUE_BYTES} bytes without control \
                 characters and without white space at either end are accepted"
            ),
        ))
    }
}

/// RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    // POL-4
    #[test]
    fn pol_4_names_are_tokens_and_not_the_brokers() {
        assert_eq!(HeaderName::new("X-Api-Key").unwrap().as_str(), "x-api-key");
        for refused in REFUSED_NAMES {
            assert!(HeaderName::new(refused).is_err(), "{refused}");
            assert!(
                HeaderName::new(&refused.to_uppercase()).is_err(),
                "{refused}"
            );
        }
        for refused in [
            "",
            ":authority",
            "proxy-authorization",
            "Proxy-X",
            "a b",
            "a:",
            "a\r\n",
            "é",
            "a\0",
            "(a)",
        ] {
            assert!(HeaderName::new(refused).is_err(), "{refused:?}");
        }
    }

    // POL-4, ERR-3
    #[test]
    fn pol_4_values_hold_what_a_field_may_and_are_never_shown() {
        let name = HeaderName::new("x-key").unwrap();
        for fine in [&b"Bearer abc"[..], b"a\tb", b"\xe9"] {
            check_value(&name, &Secret::new(fine)).unwrap();
        }
        for refused in [
            &b""[..],
            b"a\r\nx: y",
            b"a\nb",
            b"a\0",
            b"\x7f",
            b" a",
            b"a ",
            &[b'a'; MAX_VALUE_BYTES + 1],
        ] {
            let error = check_value(&name, &Secret::new(refused)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Invalid);
        }
        let error = check_value(&name, &Secret::new("hunter2\n")).unwrap_err();
        assert!(!format!("{error:?}{error}").contains("hunter2"));
    }
}
