//! `sandbox session cp`: files into a session and out of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox_bwrap::{BwrapHandle, HostFolder};
use sandbox_core::{
    ErrorCode, FileKind, FileLimits, Handle, Result, SandboxError, Session, WorkspacePath,
    WriteOptions, shown,
};
use serde_json::json;

use crate::arguments::Cp;
use crate::config::Host;
use crate::output::Output;
use crate::session::reopen;

/// What one copy may move.
const LIMITS: FileLimits = FileLimits {
    max_read_bytes: 1 << 20,
    max_write_bytes: 1 << 20,
    max_stream_bytes: 64 << 30,
    max_entries: 1_000_000,
};

/// One of the two places.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Session { id: String, path: String },
    Host(PathBuf),
}

impl Place {
    /// `ID:PATH`, where ID looks like one; else a path of the host. A host path with a
    /// colon is written `./a:b`.
    fn parse(written: &str) -> Self {
        if let Some((id, path)) = written.split_once(':')
            && id.len() >= 4
            && id
                .bytes()
                .all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit))
        {
            // As scp has it: nothing after the colon is the top folder.
            let path = if path.is_empty() { "." } else { path };
            return Self::Session {
                id: id.to_owned(),
                path: path.to_owned(),
            };
        }
        Self::Host(PathBuf::from(written))
    }
}

pub(crate) async fn run(host: &Host, arguments: Cp, output: Output) -> Result<u8> {
    let (id, copy) = match (Place::parse(&arguments.from), Place::parse(&arguments.to)) {
        (Place::Session { id, path }, Place::Host(to)) => (id, Copy::Out { from: path, to }),
        (Place::Host(from), Place::Session { id, path }) => (id, Copy::In { from, to: path }),
        _ => {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                "one of the two must be ID:PATH, the other a path of this host",
            )
            .with_hint("sandbox session cp ID:result.txt ."));
        }
    };
    let handle: Arc<BwrapHandle> = reopen(host, &id, &["cp".to_owned()]).await?;
    let session = handle.session();
    let copied = match &copy {
        Copy::Out { from, to } => out_of(&*session, from, to, arguments.force).await,
        Copy::In { from, to } => into(&*session, from, to, arguments.force).await,
    };
    let stopped = handle.stop().await;
    let place = copied?;
    stopped?;
    output.result(&json!({ "copied": place }), || format!("{place}\n"));
    Ok(0)
}

enum Copy {
    Out { from: String, to: PathBuf },
    In { from: PathBuf, to: String },
}

/// Copies out: beside its place first, then there in one step.
async fn out_of(session: &dyn Session, from: &str, to: &Path, force: bool) -> Result<String> {
    let source = session.resolve_path(from)?;
    let name = source.file_name().unwrap_or("workspace").to_owned();
    let kind = session.stat(from).await?.kind;
    // Into a folder that is there, else as the name that was given.
    let (above, name) = if to.is_dir() {
        (to.to_owned(), name)
    } else {
        split(to)?
    };
    let folder = HostFolder::open(&above)?;
    let target = WorkspacePath::parse(&name)?;
    let shown_target = above.join(&name).display().to_string();
    let is_there = exists(&folder, &target).await?;
    if is_there && !force {
        return Err(occupied(&shown_target));
    }
    match kind {
        FileKind::Directory => {
            let aside = WorkspacePath::parse(&format!(".sandbox-{}", std::process::id()))?;
            let packed = session.pack(from).await?;
            let unpacked = folder.unpack(&aside, packed, LIMITS).await;
            let placed = match unpacked {
                Ok(()) => {
                    let inner = source
                        .file_name()
                        .map_or_else(|| Ok(aside.clone()), |name| aside.join(name))?;
                    if is_there {
                        folder.remove(&target).await?;
                    }
                    folder.rename(&inner, &target).await
                }
                Err(error) => Err(error),
            };
            // What is left aside is an empty folder, or what failed.
            let removed = folder.remove(&aside).await;
            placed.and(removed)?;
        }
        FileKind::File | FileKind::Symlink => {
            let content = session.read_stream(from).await?;
            folder
                .write_stream(&target, content, LIMITS.max_stream_bytes)
                .await?;
        }
        kind => {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                format!("{} is a {kind}: files and folders are copied", shown(from)),
            ));
        }
    }
    Ok(shown_target)
}

/// Copies in.
async fn into(session: &dyn Session, from: &Path, to: &str, force: bool) -> Result<String> {
    let (above, name) = split(&from.canonicalize().map_err(|error| {
        SandboxError::new(
            ErrorCode::NotFound,
            format!(
                "{} can't be read",
                shown(from.as_os_str().as_encoded_bytes())
            ),
        )
        .with_source(error)
    })?)?;
    let folder = HostFolder::open(&above)?;
    let source = WorkspacePath::parse(&name)?;
    let mut target = session.resolve_path(to)?;
    let is_folder = target.is_root()
        || matches!(session.stat(to).await, Ok(stat) if stat.kind == FileKind::Directory);
    if is_folder {
        target = target.join(&name)?;
    }
    let inside = target.to_inside();
    if !force && session.stat(&inside).await.is_ok() {
        return Err(occupied(&inside));
    }
    match folder.stat(&source).await?.kind {
        FileKind::Directory => {
            let aside = format!(".sandbox-{}", std::process::id());
            let packed = folder.pack(&source, LIMITS).await?;
            let unpacked = session.unpack(&aside, packed).await;
            let placed = match unpacked {
                Ok(()) => {
                    session.remove(&inside).await?;
                    if let Some(above) = target.parent() {
                        session.make_dir(&above.to_inside()).await?;
                    }
                    session.rename(&format!("{aside}/{name}"), &inside).await
                }
                Err(error) => Err(error),
            };
            let removed = session.remove(&aside).await;
            placed.and(removed)?;
        }
        _ => {
            let content = folder.read_stream(&source, LIMITS.max_stream_bytes).await?;
            session
                .write_stream(&inside, content, WriteOptions::default())
                .await?;
        }
    }
    Ok(inside)
}

/// The folder of a path, and the name in it.
fn split(path: &Path) -> Result<(PathBuf, String)> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| {
            SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "{} ends in no name that can be copied",
                    shown(path.as_os_str().as_encoded_bytes())
                ),
            )
        })?;
    let above = match path.parent() {
        Some(above) if above.as_os_str().is_empty() => PathBuf::from("."),
        Some(above) => above.to_owned(),
        None => PathBuf::from("/"),
    };
    Ok((above, name.to_owned()))
}

async fn exists(folder: &HostFolder, path: &WorkspacePath) -> Result<bool> {
    match folder.stat(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn occupied(place: &str) -> SandboxError {
    SandboxError::new(
        ErrorCode::Invalid,
        format!("{} is there already", shown(place)),
    )
    .with_hint("replace it with `--force`, or name another place")
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-2
    #[test]
    fn cli_2_a_place_of_a_session_begins_with_its_id() {
        let session = |id: &str, path: &str| Place::Session {
            id: id.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(Place::parse("ab12:src/x"), session("ab12", "src/x"));
        assert_eq!(Place::parse("ab12:"), session("ab12", "."));
        for host in ["src/x", "./ab12:x", "abc:x", "AB12:x", "/ab12:x", "."] {
            assert_eq!(Place::parse(host), Place::Host(host.into()), "{host}");
        }
    }
}
