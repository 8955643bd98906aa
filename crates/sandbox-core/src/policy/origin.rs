//! Origins: scheme, host and port in one canonical form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

use crate::error::{ErrorCode, Result, SandboxError};
use crate::text::shown;

/// The two schemes that a policy may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Plain HTTP, port 80 unless said otherwise.
    Http,
    /// HTTP over TLS, port 443 unless said otherwise.
    Https,
}

impl Scheme {
    /// The port of a URL that names none.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// The scheme as a URL writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// An origin in canonical form (RFC 6454, WHATWG URL).
///
/// - The host is lower-case ASCII (punycode), an IPv4 address, or an IPv6 address in
///   brackets and compressed; it is never empty.
/// - The scheme's default port is not written.
///
/// ```
/// use sandbox_core::Origin;
///
/// let origin: Origin = "HTTPS://Example.COM:443/".parse()?;
/// assert_eq!(origin.to_string(), "https://example.com");
/// assert_eq!(origin.gateway_host(), "example.com");
/// assert!("https://user@example.com".parse::<Origin>().is_err());
/// # Ok::<(), sandbox_core::SandboxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    scheme: Scheme,
    host: String,
    port: u16,
}

impl Origin {
    /// Parses an absolute URL that names an origin and nothing more.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` for another scheme, a user, a password, a path other than `/`,
    /// a query, a fragment, or anything a URL parser would silently mend (SPEC POL-2).
    pub fn parse(written: &str) -> Result<Self> {
        let refuse = |why: &str| {
            SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "the origin {} is refused: {why}; accepted is `https://host` or `http://host:port`",
                    redacted(written)
                ),
            )
        };
        // A WHATWG parser drops tabs and line ends, trims spaces and reads `\` as `/`:
        // what is not what it looks like is refused before it gets there.
        if written
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || c == '\\')
        {
            return Err(refuse(
                "it holds white space, a control character or a backslash",
            ));
        }
        let rest = strip_scheme(written)
            .ok_or_else(|| refuse("it does not begin with http:// or https://"))?;
        if rest.is_empty() || rest.starts_with('/') {
            return Err(refuse("it has no host"));
        }
        if rest.contains('@') {
            return Err(refuse("it holds a user name or a password"));
        }
        let url = Url::parse(written).map_err(|error| refuse(&error.to_string()))?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(refuse("its scheme is neither http nor https")),
        };
        if url.path() != "/" {
            return Err(refuse("it holds a path"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("it holds a query or a fragment"));
        }
        let host = url
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or_else(|| refuse("it has no host"))?;
        if host.ends_with('.') {
            return Err(refuse("its host ends in a dot"));
        }
        let port = url.port().unwrap_or_else(|| scheme.default_port());
        if port == 0 {
            return Err(refuse("port 0 can't be reached"));
        }
        Ok(Self {
            scheme,
            host: host.to_owned(),
            port,
        })
    }

    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host; an IPv6 address stands in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, the scheme's own included.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What a `Host` header holds for it: host, and the port where it is not the scheme's.
    #[must_use]
    pub fn gateway_host(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.clone()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// The value as an error shows it: a URL with a user or a query may hold a password.
fn redacted(written: &str) -> String {
    if written.contains('@') {
        "(one that holds `@`, not shown)".to_owned()
    } else if let Some((before, _)) = written.split_once(['?', '#']) {
        format!("{} (query not shown)", shown(before))
    } else {
        shown(written)
    }
}

fn strip_scheme(written: &str) -> Option<&str> {
    ["http://", "https://"].into_iter().find_map(|prefix| {
        let head = written.get(..prefix.len())?;
        head.eq_ignore_ascii_case(prefix)
            .then(|| &written[prefix.len()..])
    })
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.gateway_host())
    }
}

impl FromStr for Origin {
    type Err = SandboxError;

    fn from_str(written: &str) -> Result<Self> {
        Self::parse(written)
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        Self::parse(&written).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // POL-2
    #[test]
    fn pol_2_origins_have_one_canonical_form() {
        let table = [
            ("https://example.com", "https://example.com"),
            ("https://example.com/", "https://example.com"),
            ("HTTPS://EXAMPLE.com:443", "https://example.com"),
            ("http://example.com:80/", "http://example.com"),
            ("http://example.com:443", "http://example.com:443"),
            ("https://bücher.example", "https://xn--bcher-kva.example"),
            ("http://[0:0:0:0:0:0:0:1]:8080", "http://[::1]:8080"),
            ("http://0x7f.1", "http://127.0.0.1"),
        ];
        for (written, canonical) in table {
            let origin = Origin::parse(written).unwrap();
            assert_eq!(origin.to_string(), canonical);
            assert_eq!(Origin::parse(canonical).unwrap(), origin);
        }
    }

    // POL-2
    #[test]
    fn pol_2_what_is_more_than_an_origin_is_refused() {
        for refused in [
            "",
            "example.com",
            "//example.com",
            "https:example.com",
            "https:///example.com",
            "ftp://example.com",
            "file:///etc/passwd",
            "https://",
            "https:///",
            "https://a/b",
            "https://a/?",
            "https://a?",
            "https://a#",
            "https://a/#x",
            "https://u@a",
            "https://u:p@a",
            "https://@a",
            " https://a",
            "https://a ",
            "https://a\n",
            "https://a\t.b",
            "https:\\\\a",
            "https://a\\b",
            "https://a:0",
            "https://a:65536",
            "https://a.",
            "https://[::1",
            "https://a b",
            "https://*.a.example\u{0}",
            "https://%00",
        ] {
            let error = Origin::parse(refused).expect_err(refused);
            assert_eq!(error.code(), ErrorCode::Invalid, "{refused:?}");
        }
    }

    // ERR-3: a password in a refused URL is not repeated.
    #[test]
    fn err_3_a_refused_origin_shows_no_password() {
        for written in [
            "https://me:hunter2@a",
            "https://a/?token=hunter2",
            "ftp://a#hunter2",
        ] {
            let error = Origin::parse(written).unwrap_err();
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
