//! Writes the session's `/etc` into the keeper's tmpfs.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use crate::wire::EtcEntry;

/// Writes all entries, the working directory being the new root.
///
/// The tmpfs bounds what a large folder of the host's can take.
pub(super) fn write(entries: &[EtcEntry]) -> io::Result<()> {
    for entry in entries {
        match entry {
            EtcEntry::File { path, bytes } => {
                let target = target(path.as_bytes())?;
                fs::write(&target, bytes)?;
                fs::set_permissions(&target, fs::Permissions::from_mode(0o644))?;
            }
            EtcEntry::Copy { path } => {
                let source = Path::new("/etc").join(OsStr::from_bytes(path.as_bytes()));
                copy(&source, &target(path.as_bytes())?, 0)?;
            }
        }
    }
    Ok(())
}

/// The place of an entry, its parents made; a path that could leave `/etc` is refused.
fn target(path: &[u8]) -> io::Result<PathBuf> {
    let path = Path::new(OsStr::from_bytes(path));
    let plain = path
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    if !plain || path.as_os_str().is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let target = Path::new("k/etc").join(path);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(target)
}

/// Copies what everybody may read; what is not there, or not for everybody, is left out.
fn copy(source: &Path, target: &Path, depth: usize) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(source) else {
        return Ok(());
    };
    let mode = metadata.permissions().mode();
    if metadata.is_symlink() {
        symlink(fs::read_link(source)?, target)
    } else if metadata.is_dir() && mode & 0o005 == 0o005 && depth < MAX_DEPTH {
        fs::create_dir_all(target)?;
        let names: io::Result<Vec<OsString>> = fs::read_dir(source)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect();
        names?
            .iter()
            .try_for_each(|name| copy(&source.join(name), &target.join(name), depth + 1))
    } else if metadata.is_file() && mode & 0o004 != 0 {
        io::copy(&mut File::open(source)?, &mut File::create_new(target)?)?;
        fs::set_permissions(target, fs::Permissions::from_mode(0o444 | mode & 0o111))
    } else {
        Ok(())
    }
}

/// Deeper than any distribution's configuration.
const MAX_DEPTH: usize = 12;
