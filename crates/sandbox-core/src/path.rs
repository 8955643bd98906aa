//! Workspace paths: parsed once, used everywhere.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{ErrorCode, Result, SandboxError};
use crate::text::shown;

/// Where the workspace stands inside.
pub const WORKSPACE_ROOT: &str = "/workspace";

/// The longest path a caller may write, in bytes (`PATH_MAX` less its NUL, and the root).
const MAX_PATH_BYTES: usize = 4095 - WORKSPACE_ROOT.len() - 1;

/// The longest name of one component, in bytes (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// A path in the workspace, in its one canonical form.
///
/// - It names the root, or one or more components joined by `/`.
/// - No component is empty, `.` or `..`, is longer than 255 bytes, or holds a NUL or a backslash.
/// - `/workspace/x` and `x` are the same path; so are `/workspace` and `.`.
///
/// These rules are for paths that callers write; trees may hold any name that Linux
/// allows, and listings carry those as bytes (SPEC PATH-5). A path that parses is not
/// contained yet: each access resolves beneath the workspace as well (SPEC PATH-4).
///
/// ```
/// use sandbox_core::WorkspacePath;
///
/// let path = WorkspacePath::parse("src/main.rs")?;
/// assert_eq!(path, WorkspacePath::parse("/workspace/src/main.rs")?);
/// assert_eq!(path.to_string(), "/workspace/src/main.rs");
/// assert_eq!(path.relative(), "src/main.rs");
/// assert!(WorkspacePath::parse(".")?.is_root());
///
/// for refused in ["", "/etc", "a//b", "a/", "./a", "../a", "/workspace/", "a\\b", "a\0"] {
///     assert!(WorkspacePath::parse(refused).is_err(), "{refused:?}");
/// }
/// # Ok::<(), sandbox_core::SandboxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspacePath(String);

impl WorkspacePath {
    /// The root of the workspace.
    #[must_use]
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// Parses what a caller wrote.
    ///
    /// # Errors
    /// `SANDBOX_PATH` for anything that SPEC PATH-2 refuses.
    pub fn parse(written: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Err(SandboxError::new(
                ErrorCode::Path,
                format!(
                    "the path {} is refused: {why}; accepted are `.`, `/workspace`, `a/b` and `/workspace/a/b`",
                    shown(written)
                ),
            ))
        };
        let relative = match written.strip_prefix(WORKSPACE_ROOT) {
            Some("") => return Ok(Self::root()),
            Some(rest) if rest.starts_with('/') => &rest[1..],
            _ if written.starts_with('/') => return refuse("it is absolute and not in /workspace"),
            _ if written == "." => return Ok(Self::root()),
            _ => written,
        };
        if relative.is_empty() {
            return refuse("it is empty or ends in a slash");
        }
        if relative.len() > MAX_PATH_BYTES {
            return refuse("it is longer than 4 KiB");
        }
        for name in relative.split('/') {
            match name {
                "" => return refuse("it has an empty segment"),
                "." | ".." => return refuse("it has a segment `.` or `..`"),
                _ if name.contains('\0') => return refuse("it holds a NUL"),
                _ if name.contains('\\') => return refuse("it holds a backslash"),
                _ if name.len() > MAX_NAME_BYTES => {
                    return refuse("a name is longer than 255 bytes");
                }
                _ => {}
            }
        }
        Ok(Self(relative.to_owned()))
    }

    /// Whether this is the workspace itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The part below the root; empty for the root.
    #[must_use]
    pub fn relative(&self) -> &str {
        &self.0
    }

    /// The path as a command inside sees it.
    #[must_use]
    pub fn to_inside(&self) -> String {
        self.to_string()
    }

    /// The names from the root down.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// The last name; none for the root.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.components().next_back()
    }

    /// The folder above; none for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let above = self.0.rsplit_once('/').map_or("", |(above, _)| above);
        Some(Self(above.to_owned()))
    }

    /// The path of `name` below this one.
    ///
    /// # Errors
    /// `SANDBOX_PATH` where `name` is not one canonical segment.
    pub fn join(&self, name: &str) -> Result<Self> {
        if self.is_root() {
            Self::parse(name)
        } else {
            Self::parse(&format!("{}/{name}", self.0))
        }
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORKSPACE_ROOT)?;
        if !self.is_root() {
            write!(f, "/{}", self.0)?;
        }
        Ok(())
    }
}

impl FromStr for WorkspacePath {
    type Err = SandboxError;

    fn from_str(written: &str) -> Result<Self> {
        Self::parse(written)
    }
}

impl Serialize for WorkspacePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WorkspacePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        Self::parse(&written).map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for WorkspacePath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WorkspacePath".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "minLength": 1,
            "description": "A path in the workspace: `.`, `/workspace`, `a/b` or `/workspace/a/b`. No empty, `.` or `..` segment, no backslash, no NUL."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(written: &str) -> Option<String> {
        WorkspacePath::parse(written)
            .ok()
            .map(|path| path.relative().to_owned())
    }

    // PATH-1
    #[test]
    fn path_1_both_spellings_name_the_same_place() {
        for root in [".", "/workspace"] {
            assert_eq!(parse(root).as_deref(), Some(""));
        }
        for same in ["x", "/workspace/x"] {
            assert_eq!(parse(same).as_deref(), Some("x"));
        }
        // A name that only begins like the root is a name.
        assert_eq!(parse("workspace").as_deref(), Some("workspace"));
        assert_eq!(parse("/workspacex"), None);
    }

    // PATH-2
    #[test]
    fn path_2_refuses_what_is_not_canonical() {
        for refused in [
            "",
            "/",
            "//",
            "/etc/passwd",
            "/workspace/",
            "/workspace//a",
            "/workspace/.",
            "/workspace/..",
            "..",
            "../a",
            "a/..",
            "a/../b",
            "./a",
            "a/.",
            "a//b",
            "a/",
            "/a",
            "a\\b",
            "\\",
            "a\0b",
            "\0",
            "/workspace/../etc",
            "./",
            "/workspace/a/",
        ] {
            let error = WorkspacePath::parse(refused).expect_err(refused);
            assert_eq!(error.code(), ErrorCode::Path, "{refused:?}");
        }
        assert_eq!(parse(&"a".repeat(256)), None);
        assert_eq!(parse(&"a/".repeat(3000)), None);
    }

    // PATH-3
    #[test]
    fn path_3_display_parses_back() {
        for written in [".", "a", "a/b", "-rf", " ", "a\nb", "…", "a.b/..c"] {
            let path = WorkspacePath::parse(written).unwrap();
            assert_eq!(WorkspacePath::parse(&path.to_string()).unwrap(), path);
        }
    }

    #[test]
    fn parents_and_names() {
        let path = WorkspacePath::parse("a/b").unwrap();
        assert_eq!(path.file_name(), Some("b"));
        assert_eq!(path.parent().unwrap().relative(), "a");
        assert!(path.parent().unwrap().parent().unwrap().is_root());
        assert_eq!(WorkspacePath::root().parent(), None);
        assert_eq!(WorkspacePath::root().join("a").unwrap().relative(), "a");
        assert!(path.join("..").is_err());
    }
}
