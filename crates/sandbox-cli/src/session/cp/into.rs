//! Into a session, from the host.

use std::path::{Path, PathBuf};

use sandbox_bwrap::HostFolder;
use sandbox_core::{
    EntryName, ErrorCode, FileKind, Result, SandboxError, Session, WorkspacePath, shown,
};

use super::super::FILE_LIMITS;
use super::{Copied, aside, occupied, split, unless_interrupted};
use crate::signals::Signals;
use crate::thread::on_thread;

/// The most entries of a folder that are looked at for what is left out.
const MAX_LOOKED_AT: usize = 1_000_000;

/// Copies an entry in: whole beside its place first, then there.
pub(super) async fn copy(
    session: &dyn Session,
    from: &Path,
    to: &str,
    force: bool,
    signals: &mut Signals,
) -> Result<Copied> {
    // The path is the person's own: its links are followed, and its name is kept.
    let real = from.canonicalize().map_err(|error| {
        SandboxError::new(
            ErrorCode::NotFound,
            format!(
                "{} can't be read",
                shown(from.as_os_str().as_encoded_bytes())
            ),
        )
        .with_source(error)
    })?;
    let (above, real_name) = split(&real)?;
    let name = split(from).map_or_else(|_| real_name.clone(), |(_, name)| name);
    let folder = HostFolder::open(&above)?;
    let source = WorkspacePath::parse(&real_name)?;
    let kind = folder.stat(&source).await?.kind;
    if !matches!(kind, FileKind::File | FileKind::Directory) {
        return Err(SandboxError::new(
            ErrorCode::Invalid,
            format!(
                "{} is a {kind}: files and folders are copied",
                shown(from.as_os_str().as_encoded_bytes())
            ),
        ));
    }
    let target = place_of(session, to, &name).await?;
    let place = target.to_inside();
    let occupant = match session.stat(&place).await {
        Ok(_) if !force => return Err(occupied(&place)),
        Ok(_) => true,
        Err(error) if error.code() == ErrorCode::NotFound => false,
        Err(error) => return Err(error),
    };
    let skipped = if kind == FileKind::Directory {
        on_thread(move || Ok(special_files(&real))).await?
    } else {
        Vec::new()
    };

    let aside = aside();
    let copy = format!("{aside}/{real_name}");
    let placed = async {
        let packed = folder.pack(&source, FILE_LIMITS).await?;
        unless_interrupted(signals, session.unpack(&aside, packed)).await?;
        if let Some(above) = target.parent() {
            session.make_dir(&above.to_inside()).await?;
        }
        if occupant {
            session.remove(&place).await?;
        }
        session.rename(&copy, &place).await
    }
    .await;
    // What is left aside is an empty folder, or what failed.
    let removed = session.remove(&aside).await;
    placed.and(removed)?;
    Ok(Copied { place, skipped })
}

/// Into a folder that is there, else as the name that was given.
async fn place_of(session: &dyn Session, to: &str, name: &str) -> Result<WorkspacePath> {
    let target = session.resolve_path(to)?;
    let is_folder = target.is_root()
        || matches!(session.stat(to).await, Ok(stat) if stat.kind == FileKind::Directory);
    if is_folder {
        target.join(name)
    } else {
        Ok(target)
    }
}

/// What an archive of the folder leaves out, for a word about it. What can't be read is the
/// archive's to report.
fn special_files(folder: &Path) -> Vec<String> {
    use std::os::unix::fs::FileTypeExt as _;
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = vec![folder.to_owned()];
    let mut looked_at = 0;
    while let Some(at) = waiting.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > MAX_LOOKED_AT {
                return found;
            }
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_fifo()
                || kind.is_socket()
                || kind.is_char_device()
                || kind.is_block_device()
            {
                let path = entry.path();
                let inner = path.strip_prefix(folder).unwrap_or(&path);
                found.push(EntryName::from_bytes(inner.as_os_str().as_encoded_bytes()).to_string());
            }
        }
    }
    found
}
