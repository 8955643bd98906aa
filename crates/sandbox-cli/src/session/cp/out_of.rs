//! Out of a session, onto the host.

use std::path::Path;

use sandbox_bwrap::{BwrapHandle, HostFolder};
use sandbox_core::{
    EntryName, ErrorCode, FileKind, Handle, Result, SandboxError, WorkspacePath, shown,
};

use super::super::FILE_LIMITS;
use super::{Copied, aside, occupied, split, unless_interrupted};
use crate::signals::Signals;

/// Copies an entry out: whole beside its place first, then there.
///
/// What stands at the place is renamed over and never written through, so that no link
/// leads a write elsewhere.
pub(super) async fn copy(
    handle: &BwrapHandle,
    from: &str,
    to: &Path,
    force: bool,
    signals: &mut Signals,
) -> Result<Copied> {
    let session = handle.session();
    let source = session.resolve_path(from)?;
    let kind = session.stat(from).await?.kind;
    if !matches!(
        kind,
        FileKind::File | FileKind::Directory | FileKind::Symlink
    ) {
        return Err(SandboxError::new(
            ErrorCode::Invalid,
            format!("{} is a {kind}: files and folders are copied", shown(from)),
        ));
    }
    // Into a folder that is there, else as the name that was given.
    let (above, name) = if to.is_dir() {
        let name = source.file_name().unwrap_or("workspace");
        (to.to_owned(), name.to_owned())
    } else {
        split(to)?
    };
    let folder = HostFolder::open(&above)?;
    let target = WorkspacePath::parse(&name)?;
    let place = above.join(&name).display().to_string();
    let occupant = match folder.stat(&target).await {
        Ok(_) if !force => return Err(occupied(&place)),
        Ok(_) => true,
        Err(error) if error.code() == ErrorCode::NotFound => false,
        Err(error) => return Err(error),
    };
    let skipped = if kind == FileKind::Directory {
        special_files(handle, &source).await?
    } else {
        Vec::new()
    };

    let aside = WorkspacePath::parse(&aside())?;
    let (new, old) = (aside.join("new")?, aside.join("old")?);
    let placed = async {
        let packed = session.pack(from).await?;
        let unpacked = folder.unpack(&new, packed, FILE_LIMITS);
        unless_interrupted(signals, unpacked).await?;
        // The archive of the root has its entries, that of all else one entry.
        let copy = match source.file_name() {
            Some(name) => new.join(name)?,
            None => new.clone(),
        };
        if occupant {
            folder.rename(&target, &old).await?;
        }
        let placed = folder.rename(&copy, &target).await;
        if occupant && placed.is_err() {
            folder.rename(&old, &target).await?;
        }
        placed
    }
    .await;
    // What is left aside is what was replaced, or what failed.
    let removed = folder.remove(&aside).await;
    placed.and(removed)?;
    Ok(Copied { place, skipped })
}

/// What an archive of the folder leaves out. No template has such entries, so each of them
/// is a change.
async fn special_files(handle: &BwrapHandle, folder: &WorkspacePath) -> Result<Vec<String>> {
    let is_below = |path: &EntryName| {
        folder.is_root()
            || path
                .as_bytes()
                .strip_prefix(folder.relative().as_bytes())
                .is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    let changes = handle.changes().await?;
    Ok(changes
        .iter()
        .filter(|change| {
            matches!(
                change.entry,
                FileKind::Fifo | FileKind::Socket | FileKind::Other
            ) && is_below(&change.path)
        })
        .map(|change| change.path.to_string())
        .collect())
}
