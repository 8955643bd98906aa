//! What stands in a workspace.

use std::fmt;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::str::FromStr;

use bytes::Bytes;
use futures_core::Stream;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Result, SandboxError};

/// Bytes as they come: of a file, or of a tar archive.
///
/// It ends after its first error.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// What an entry is.
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
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A device, or anything else.
    Other,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Fifo => "FIFO",
            Self::Socket => "socket",
            Self::Other => "device",
        })
    }
}

/// A moment, in seconds and nanoseconds since 1970 (UTC); seconds may be negative.
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
#[serde(deny_unknown_fields)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds after them, below 10⁹.
    pub nanoseconds: u32,
}

/// What is known of an entry. A link is described itself, not what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Its size in bytes.
    pub size: u64,
    /// Its mode bits: `mode & 0o7777`.
    pub mode: u32,
    /// When it was last changed.
    pub modified: Timestamp,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name.
    pub name: EntryName,
    /// What is known of it.
    pub stat: Stat,
}

/// A name as Linux has it: any bytes but `/` and NUL.
///
/// Its text form is lossless: a backslash is `\\`, and every byte that is not part of
/// printable UTF-8 is `\xNN`. It decodes to the name and is no [`WorkspacePath`](crate::WorkspacePath)
/// (SPEC PATH-5). Paths of several names, joined by `/`, have the same form.
///
/// ```
/// use sandbox_core::EntryName;
///
/// let name = EntryName::from_bytes(b"a\n\xff".to_vec());
/// assert_eq!(name.to_string(), r"a\x0a\xff");
/// assert_eq!(r"a\x0a\xff".parse::<EntryName>()?, name);
/// # Ok::<(), sandbox_core::SandboxError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryName(Vec<u8>);

impl EntryName {
    /// Takes the bytes of a name.
    #[must_use]
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character == '\\' {
                    f.write_str("\\\\")?;
                } else if is_printable(character) {
                    write!(f, "{character}")?;
                } else {
                    for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// What `Debug` of a character leaves as it is, quotes included.
fn is_printable(character: char) -> bool {
    matches!(character, '"' | '\'') || character.escape_debug().count() == 1
}

impl fmt::Debug for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntryName({self})")
    }
}

impl FromStr for EntryName {
    type Err = SandboxError;

    fn from_str(escaped: &str) -> Result<Self> {
        let refuse = || {
            SandboxError::invalid(
                "the escaped name",
                escaped,
                r"`\\` and `\xNN` are the only escapes",
            )
        };
        let mut bytes = Vec::with_capacity(escaped.len());
        let mut rest = escaped.bytes();
        while let Some(byte) = rest.next() {
            if byte != b'\\' {
                bytes.push(byte);
                continue;
            }
            match rest.next() {
                Some(b'\\') => bytes.push(b'\\'),
                Some(b'x') => {
                    let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                    let (high, low) = (digit().ok_or_else(refuse)?, digit().ok_or_else(refuse)?);
                    bytes.push(u8::try_from(high * 16 + low).map_err(|_| refuse())?);
                }
                _ => return Err(refuse()),
            }
        }
        Ok(Self(bytes))
    }
}

impl Serialize for EntryName {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntryName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let escaped = String::deserialize(deserializer)?;
        escaped.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for EntryName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EntryName".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A name; a backslash is `\\\\` and a byte that does not print is `\\xNN`."
        })
    }
}

/// Which part of a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// Where to begin, in bytes.
    pub offset: u64,
    /// How many bytes at most; without it the whole rest, which must fit the read limit.
    pub length: Option<NonZeroU64>,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Whether file and folder are synced, so that a power loss can't take it back.
    pub durable: bool,
}

/// What file operations of a session are bounded by. SPEC SES-4, SES-5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    /// The largest read into one buffer, in bytes. 1 MiB.
    pub max_read_bytes: u64,
    /// The largest write from one buffer, in bytes. 1 MiB.
    pub max_write_bytes: u64,
    /// The largest stream, archive or streamed file, in bytes. 8 GiB.
    pub max_stream_bytes: u64,
    /// The most entries of one listing. 100 000.
    pub max_entries: usize,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self {
            max_read_bytes: 1024 * 1024,
            max_write_bytes: 1024 * 1024,
            max_stream_bytes: 8 * 1024 * 1024 * 1024,
            max_entries: 100_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // PATH-5, H08
    #[test]
    fn path_5_names_are_lossless_as_text() {
        let table: [(&[u8], &str); 6] = [
            (b"plain", "plain"),
            (b"with 'quotes\"", "with 'quotes\""),
            (b"a\\b", r"a\\b"),
            (b"\x1b[31m", r"\x1b[31m"),
            ("é\u{202e}".as_bytes(), r"é\xe2\x80\xae"),
            (b"\xff\xfe\n", r"\xff\xfe\x0a"),
        ];
        for (bytes, text) in table {
            let name = EntryName::from_bytes(bytes);
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse::<EntryName>().unwrap(), name);
        }
        for refused in [r"\", r"\n", r"\x", r"\x1", r"\xg0"] {
            assert!(refused.parse::<EntryName>().is_err(), "{refused}");
        }
    }
}
