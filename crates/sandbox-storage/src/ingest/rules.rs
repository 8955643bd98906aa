//! What is left out on purpose: the repository's own ignore rules, and the caller's patterns.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use sandbox_core::shown;

use super::{IngestOptions, failed};
use crate::error::{Cause, Result};
use crate::json;
use crate::sys::{self, Errno, Open};
use crate::tree::join;

mod index;

/// What a rule says of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    Ignored,
    Excluded,
}

/// The rules in force at one place of a walk.
pub(super) struct Rules {
    /// The caller's patterns.
    exclude: Gitignore,
    respect_ignore: bool,
    /// Those of the folders on the way, the innermost last.
    levels: Vec<Level>,
    /// The folder on the way that is ignored and was entered for what git tracks in it:
    /// nothing else below it goes in, whatever further rules say.
    ignored: Option<Vec<u8>>,
}

/// The rules that one folder brings.
struct Level {
    path: Vec<u8>,
    /// Of its `.gitignore`.
    own: Option<Gitignore>,
    /// Where it is the root of a repository.
    repository: Option<Repository>,
}

/// What a repository adds: rules of less weight, and paths that no rule can ignore.
struct Repository {
    exclude: Option<Gitignore>,
    tracked: index::Tracked,
}

/// The largest file of rules that is read.
const MAX_RULES_BYTES: u64 = 1 << 20;

impl Rules {
    pub(super) fn new(options: &IngestOptions) -> Result<Self> {
        let mut builder = GitignoreBuilder::new("");
        for pattern in &options.exclude {
            let refuse = |why: String| {
                Cause::Invalid(format!("the pattern {} is refused: {why}", shown(pattern)))
            };
            if pattern.trim().is_empty() {
                return Err(refuse(
                    "it is empty, a pattern of gitignore(5) is accepted".into(),
                ));
            }
            builder
                .add_line(None, pattern)
                .map_err(|error| refuse(error.to_string()))?;
        }
        Ok(Self {
            exclude: builder
                .build()
                .map_err(|error| Cause::Invalid(format!("the patterns are refused: {error}")))?,
            respect_ignore: options.respect_ignore,
            levels: Vec::new(),
            ignored: None,
        })
    }

    /// Comes into a folder and reads the rules that it brings.
    pub(super) fn enter(&mut self, path: &[u8], folder: BorrowedFd<'_>) -> Result<()> {
        if !self.respect_ignore {
            return Ok(());
        }
        while let Some(level) = self.levels.last() {
            if is_above(&level.path, path) {
                break;
            }
            self.levels.pop();
        }
        if self
            .ignored
            .as_ref()
            .is_some_and(|ignored| !is_above(ignored, path))
        {
            self.ignored = None;
        }
        if self.ignored.is_none() && !path.is_empty() && self.says_ignored(path, true) {
            self.ignored = Some(path.to_vec());
        }
        let own = read_rules(folder, ".gitignore", path)?;
        let repository = read_repository(folder, path)?;
        if own.is_some() || repository.is_some() {
            self.levels.push(Level {
                path: path.to_vec(),
                own,
                repository,
            });
        }
        Ok(())
    }

    /// What the rules say of an entry of the folder entered last.
    pub(super) fn judge(&self, path: &[u8], is_folder: bool) -> Verdict {
        if matched(&self.exclude, path, is_folder) == Some(true) {
            Verdict::Excluded
        } else if self.is_ignored(path, is_folder) {
            Verdict::Ignored
        } else {
            Verdict::Keep
        }
    }

    /// What git would not take: ignored by rules, itself or a folder above it, and not tracked.
    fn is_ignored(&self, path: &[u8], is_folder: bool) -> bool {
        if !self.respect_ignore || crate::tree::split(path).1 == b".git" {
            return false;
        }
        (self.ignored.is_some() || self.says_ignored(path, is_folder)) && !self.is_tracked(path)
    }

    /// As git has it: the innermost file of rules that says anything decides, then the
    /// repository's `info/exclude`; rules of an outer repository end at an inner one.
    fn says_ignored(&self, path: &[u8], is_folder: bool) -> bool {
        let levels = self.repository();
        let says = levels
            .iter()
            .rev()
            .find_map(|level| matched(level.own.as_ref()?, below(&level.path, path), is_folder))
            .or_else(|| {
                let level = levels.first()?;
                let exclude = level.repository.as_ref()?.exclude.as_ref()?;
                matched(exclude, below(&level.path, path), is_folder)
            });
        says == Some(true)
    }

    /// Whether the index names it: what git tracks it keeps, whatever the rules say.
    fn is_tracked(&self, path: &[u8]) -> bool {
        self.repository().first().is_some_and(|level| {
            let path = below(&level.path, path);
            level
                .repository
                .as_ref()
                .is_some_and(|repository| repository.tracked.has(path))
        })
    }

    /// The levels from the root of the innermost repository on; all where there is none.
    fn repository(&self) -> &[Level] {
        let root = self
            .levels
            .iter()
            .rposition(|level| level.repository.is_some());
        &self.levels[root.unwrap_or(0)..]
    }
}

/// Whether rules ignore a path (true), keep it by name (false), or say nothing.
fn matched(rules: &Gitignore, path: &[u8], is_folder: bool) -> Option<bool> {
    match rules.matched(Path::new(OsStr::from_bytes(path)), is_folder) {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

fn is_above(level: &[u8], path: &[u8]) -> bool {
    level.is_empty() || (path.starts_with(level) && path.get(level.len()) == Some(&b'/'))
}

/// The part of a path below a level.
fn below<'p>(level: &[u8], path: &'p [u8]) -> &'p [u8] {
    if level.is_empty() {
        path
    } else {
        path.get(level.len() + 1..).unwrap_or_default()
    }
}

/// Reads a file of rules. None where there is none; git follows no link to one either.
fn read_rules(folder: BorrowedFd<'_>, name: &str, at: &[u8]) -> Result<Option<Gitignore>> {
    let Some(bytes) = read_small(folder, name, at, MAX_RULES_BYTES)? else {
        return Ok(None);
    };
    let mut builder = GitignoreBuilder::new("");
    let text = String::from_utf8_lossy(&bytes);
    for line in text.trim_start_matches('\u{feff}').lines() {
        // A line that is no pattern ignores nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    Ok(builder.build().ok())
}

/// What the repository at this folder adds, where it is the root of one.
///
/// A `.git` that is a file (a worktree, a submodule) makes it one, too; what the file
/// points to is not followed.
fn read_repository(folder: BorrowedFd<'_>, at: &[u8]) -> Result<Option<Repository>> {
    match sys::stat_at(folder, ".git") {
        Ok(_) => {}
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return failed(Err(errno), &join(at, b".git")),
    }
    let mut repository = Repository {
        exclude: None,
        tracked: index::Tracked::default(),
    };
    if let Ok(git) = sys::open_beneath(folder, ".git", Open::Folder, false) {
        use std::os::fd::AsFd as _;
        let at = join(at, b".git");
        if let Ok(info) = sys::open_beneath(&git, "info", Open::Folder, false) {
            repository.exclude = read_rules(info.as_fd(), "exclude", &join(&at, b"info"))?;
        }
        if let Some(bytes) = read_small(git.as_fd(), "index", &at, MAX_INDEX_BYTES)? {
            // An index of a version to come: the rules alone decide then.
            repository.tracked = index::Tracked::parse(&bytes).unwrap_or_default();
        }
    }
    Ok(Some(repository))
}

/// The largest index that is read: about two million files.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// Reads a small regular file of the host. None where it is missing, or is something else.
fn read_small(
    folder: BorrowedFd<'_>,
    name: &str,
    at: &[u8],
    limit: u64,
) -> Result<Option<Vec<u8>>> {
    let file = match sys::open_beneath(folder, name, Open::Read, false) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::XDEV | Errno::ACCESS) => {
            return Ok(None);
        }
        Err(errno) => return failed(Err(errno), &join(at, name.as_bytes())),
    };
    match json::read_open(&file, name, limit) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Cause::Damaged { .. }) => Ok(None),
        Err(cause) => Err(cause),
    }
}
