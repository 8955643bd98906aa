//! What a workspace starts from.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorCode, Result, SandboxError};
use crate::id::TemplateKey;
use crate::name::name_type;
use crate::path::WorkspacePath;
use crate::text::shown;

name_type! {
    /// What the caller calls a template; a part of its key.
    pub struct TemplateId, "template id"
}

name_type! {
    /// What a backend is called; a part of every key and record it makes.
    pub struct BackendName, "backend name"
}

/// The permission bits of an entry of a template: `mode & 0o777`.
///
/// Set-id and sticky bits don't exist here, so that no template can carry them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mode(u16);

impl Mode {
    /// `rw-r--r--`: a file's default.
    pub const FILE: Self = Self(0o644);
    /// `rwxr-xr-x`: an executable's, and a folder's default.
    pub const EXECUTABLE: Self = Self(0o755);
    /// `rwxrwxrwx`: a symbolic link's only mode.
    pub const SYMLINK: Self = Self(0o777);

    /// Keeps the nine permission bits of `bits` and drops the rest.
    #[must_use]
    pub const fn from_bits_truncate(bits: u32) -> Self {
        Self((bits & 0o777) as u16)
    }

    /// The nine bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#05o}", self.0)
    }
}

/// What stands at a path of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file with these bytes.
    File(Bytes),
    /// A folder.
    Directory,
    /// A symbolic link with this target, verbatim; it is never followed.
    Symlink(Bytes),
}

/// One entry of a template given as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFile {
    /// Where it stands.
    pub path: WorkspacePath,
    /// What it is.
    pub node: Node,
    /// Its permission bits.
    pub mode: Mode,
}

impl TemplateFile {
    /// A plain file of mode 0644.
    #[must_use]
    pub fn file(path: WorkspacePath, content: impl Into<Bytes>) -> Self {
        Self {
            path,
            node: Node::File(content.into()),
            mode: Mode::FILE,
        }
    }

    /// A file of mode 0755.
    #[must_use]
    pub fn executable(path: WorkspacePath, content: impl Into<Bytes>) -> Self {
        Self {
            path,
            node: Node::File(content.into()),
            mode: Mode::EXECUTABLE,
        }
    }

    /// A folder of mode 0755.
    #[must_use]
    pub fn directory(path: WorkspacePath) -> Self {
        Self {
            path,
            node: Node::Directory,
            mode: Mode::EXECUTABLE,
        }
    }

    /// A symbolic link.
    #[must_use]
    pub fn symlink(path: WorkspacePath, target: impl Into<Bytes>) -> Self {
        Self {
            path,
            node: Node::Symlink(target.into()),
            mode: Mode::SYMLINK,
        }
    }
}

/// The entries of a template, checked and in byte order of their paths.
///
/// - None is the root, and no two share a path.
/// - No file or link is the parent of another entry.
/// - A link's target is not empty and holds no NUL.
/// - Parents that were left out are not added here: the store adds them with mode 0755.
///
/// ```
/// use sandbox_core::{TemplateFile, TemplateFiles, WorkspacePath};
///
/// let path = |written| WorkspacePath::parse(written).unwrap();
/// let files = TemplateFiles::new(vec![TemplateFile::file(path("a"), "one")])?;
/// assert_eq!(files.len(), 1);
///
/// let clash = vec![TemplateFile::file(path("a"), ""), TemplateFile::file(path("a/b"), "")];
/// assert!(TemplateFiles::new(clash).is_err());
/// # Ok::<(), sandbox_core::SandboxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TemplateFiles(BTreeMap<WorkspacePath, TemplateFile>);

impl TemplateFiles {
    /// Checks the entries.
    ///
    /// # Errors
    /// `SANDBOX_PATH` where one is the root; `SANDBOX_INVALID` for a path that is there
    /// twice, for a file that is also a folder of another entry, and for a link with no
    /// usable target (SPEC STO-2).
    pub fn new(entries: Vec<TemplateFile>) -> Result<Self> {
        let mut files = BTreeMap::new();
        for entry in entries {
            if entry.path.is_root() {
                return Err(SandboxError::new(
                    ErrorCode::Path,
                    "a template can't replace /workspace itself: name a file or folder below it",
                ));
            }
            if let Node::Symlink(target) = &entry.node
                && (target.is_empty() || target.contains(&0) || target.len() > 4095)
            {
                return Err(SandboxError::new(
                    ErrorCode::Invalid,
                    format!(
                        "the link {} has the target {}: 1 to 4095 bytes without NUL are accepted",
                        entry.path,
                        shown(target)
                    ),
                ));
            }
            if let Some(earlier) = files.insert(entry.path.clone(), entry) {
                return Err(SandboxError::new(
                    ErrorCode::Invalid,
                    format!("the template names {} twice", earlier.path),
                ));
            }
        }
        for path in files.keys() {
            let mut above = path.parent();
            while let Some(parent) = above {
                if files
                    .get(&parent)
                    .is_some_and(|entry| entry.node != Node::Directory)
                {
                    return Err(SandboxError::new(
                        ErrorCode::Invalid,
                        format!(
                            "the template has {parent} both as a file and as the folder of {path}"
                        ),
                    ));
                }
                above = parent.parent();
            }
        }
        Ok(Self(files))
    }

    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &TemplateFile> {
        self.0.values()
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the template is an empty folder.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl IntoIterator for TemplateFiles {
    type Item = TemplateFile;
    type IntoIter = std::collections::btree_map::IntoValues<WorkspacePath, TemplateFile>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_values()
    }
}

/// What a template is made from.
///
/// Host folders are not here: no path of the host crosses this interface. A backend on
/// the host's own machine offers that as a method of its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TemplateSource {
    /// Entries given as bytes.
    Files(TemplateFiles),
}

/// What a prewarm gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Prewarmed {
    /// The template's name by content.
    pub template_key: TemplateKey,
    /// Whether it was there already, whole.
    pub reused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(written: &str) -> WorkspacePath {
        WorkspacePath::parse(written).unwrap()
    }

    // STO-2, STC-04: refused before anything is written, since nothing is written here.
    #[test]
    fn sto_2_root_duplicates_and_parents_are_refused() {
        let cases = [
            (vec![TemplateFile::directory(path("."))], ErrorCode::Path),
            (
                vec![
                    TemplateFile::file(path("/workspace/a"), ""),
                    TemplateFile::file(path("a"), ""),
                ],
                ErrorCode::Invalid,
            ),
            (
                vec![
                    TemplateFile::file(path("a/b/c"), ""),
                    TemplateFile::file(path("a"), ""),
                ],
                ErrorCode::Invalid,
            ),
            (
                vec![
                    TemplateFile::symlink(path("a"), "x"),
                    TemplateFile::file(path("a/b"), ""),
                ],
                ErrorCode::Invalid,
            ),
            (
                vec![TemplateFile::symlink(path("a"), "")],
                ErrorCode::Invalid,
            ),
        ];
        for (entries, code) in cases {
            let error = TemplateFiles::new(entries.clone()).unwrap_err();
            assert_eq!(error.code(), code, "{entries:?}");
        }
        let fine = vec![
            TemplateFile::directory(path("a")),
            TemplateFile::file(path("a/b"), ""),
            TemplateFile::file(path("a-b"), ""),
        ];
        assert_eq!(TemplateFiles::new(fine).unwrap().len(), 3);
    }
}
