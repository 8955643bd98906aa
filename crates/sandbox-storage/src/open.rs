//! Opening a store: made where it is missing, refused where it can't be trusted.

use std::fs::DirBuilder;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use sandbox_core::{FileKind, shown};

use crate::error::{Cause, Context as _, Result};
use crate::format::Format;
use crate::identity::Identity;
use crate::layout::{self, FOLDER_MODE, FOLDERS};
use crate::sys::{self, Errno, Lock, Open};
use crate::trust;

/// A store's root, checked, and what its disk is.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) root: OwnedFd,
    pub(crate) format: Format,
    /// The `f_type` of statfs(2).
    pub(crate) disk: u64,
}

/// Opens the folder as a store, and makes what is missing of it.
pub(crate) fn open(path: &Path, identity: Identity) -> Result<Opened> {
    let given = std::path::absolute(path)
        .map_err(|error| refused(path, format!("it is no path: {error}"), "name a folder"))?;
    let made = make_missing(&given)?;
    let real = given.canonicalize().map_err(|error| {
        refused(
            path,
            format!("it can't be resolved: {error}"),
            "name a folder that is there or can be made",
        )
    })?;
    trust::check_above(&given, identity)?;
    trust::check_above(&real, identity)?;
    let root = sys::open(
        rustix::fs::CWD,
        real.as_os_str().as_encoded_bytes(),
        Open::Folder,
    )
    .map_err(|errno| {
        refused(
            path,
            format!("it can't be opened as a folder: {errno}"),
            "name a folder that this user may read and write",
        )
    })?;
    let label = shown(real.as_os_str().as_encoded_bytes());
    claim(&root, &label, identity, made)?;
    let _acting = identity.enter()?;
    check_owner(&root, &label, identity)?;
    let disk = check_disk(&root, &label)?;
    let format = match Format::read(&root, &label)? {
        Some(format) => format,
        None => make(&root, &label)?,
    };
    Ok(Opened {
        path: real,
        root,
        format,
        disk,
    })
}

fn refused(path: &Path, why: impl Into<String>, fix: impl Into<String>) -> Cause {
    Cause::Refused {
        path: shown(path.as_os_str().as_encoded_bytes()),
        why: why.into(),
        fix: fix.into(),
    }
}

/// Makes the folder and those above it; whether the last one is new.
fn make_missing(path: &Path) -> Result<bool> {
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    let failed = |error: std::io::Error| {
        refused(
            path,
            format!("it can't be made: {error}"),
            "name a folder that this user may make",
        )
    };
    let mut builder = DirBuilder::new();
    builder.mode(FOLDER_MODE);
    if let Some(parent) = path.parent() {
        builder.recursive(true).create(parent).map_err(failed)?;
    }
    match builder.recursive(false).create(path) {
        Ok(()) => Ok(true),
        // Someone else was making it at the same moment.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Gives a new or empty folder of the caller's to the identity that the store acts as.
fn claim(root: &OwnedFd, label: &str, identity: Identity, made: bool) -> Result<()> {
    let what = || format!("taking {label} over");
    let stat = sys::stat(root).store(what)?;
    let is_callers = stat.uid == rustix::process::geteuid().as_raw();
    let foreign = (stat.uid, stat.gid) != (identity.uid, identity.gid);
    if is_callers && foreign && (made || sys::is_empty(root).store(what)?) {
        sys::set_owner(root, identity.uid, identity.gid).store(what)?;
    }
    Ok(())
}

/// Refuses a folder that others own or can write to; closes one that they can only read.
fn check_owner(root: &OwnedFd, label: &str, identity: Identity) -> Result<()> {
    let what = || format!("looking at {label}");
    let stat = sys::stat(root).store(what)?;
    let refuse = |why: String, fix: String| {
        Err(Cause::Refused {
            path: label.to_owned(),
            why,
            fix,
        })
    };
    if stat.uid != identity.uid {
        return refuse(
            format!("it belongs to uid {}, not to {}", stat.uid, identity.uid),
            format!(
                "chown -R {}:{} {label}, or name another folder",
                identity.uid, identity.gid
            ),
        );
    }
    if stat.mode & 0o022 != 0 {
        return refuse(
            format!("others can write to it (mode {:04o})", stat.mode),
            format!("see that nothing in it is foreign, then chmod 700 {label}"),
        );
    }
    if stat.mode != FOLDER_MODE {
        // A set-gid bit would give everything below a foreign group.
        sys::set_mode(root, FOLDER_MODE).store(what)?;
    }
    for list in ["system.posix_acl_access", "system.posix_acl_default"] {
        sys::remove_attribute(root, list);
    }
    Ok(())
}

/// Refuses disks whose locks or renames mean something else.
fn check_disk(root: &OwnedFd, label: &str) -> Result<u64> {
    let disk = sys::disk(root)
        .store(|| format!("asking about the disk of {label}"))?
        .kind;
    if let Some((_, name)) = NETWORK_DISKS.iter().find(|(kind, _)| *kind == disk) {
        return Err(Cause::Refused {
            path: label.to_owned(),
            why: format!("it is on {name}, whose locks and renames can't be relied on"),
            fix: "name a folder on a disk of this machine".to_owned(),
        });
    }
    Ok(disk)
}

/// The magics of statfs(2) that are refused.
const NETWORK_DISKS: [(u64, &str); 7] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x7375_7245, "Coda"),
];

/// Makes the folders of a store; `FORMAT` comes last, so that a crash leaves nothing that
/// counts as one.
fn make(root: &OwnedFd, label: &str) -> Result<Format> {
    let what = || format!("making the store {label}");
    // Two programs may be making the same store: the second finds it made.
    let alone = sys::open(root, ".", Open::Folder).store(what)?;
    sys::lock(&alone, Lock::Alone).store(what)?;
    if let Some(format) = Format::read(root, label)? {
        return Ok(format);
    }
    if !is_unfinished(root).store(what)? {
        return Err(Cause::Refused {
            path: label.to_owned(),
            why: "it holds files but no FORMAT, so it is no store".to_owned(),
            fix: "name an empty folder, or restore the file FORMAT".to_owned(),
        });
    }
    for folder in FOLDERS {
        match sys::mkdir(root, folder, FOLDER_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Cause::Store(what(), errno)),
        }
    }
    let lock = sys::open(root, layout::LOCK, Open::Folder).store(what)?;
    for name in [layout::LOCK_STORE, layout::LOCK_GC] {
        sys::lock_file(&lock, name, layout::RECORD_MODE).store(what)?;
    }
    sys::sync(&lock).store(what)?;
    let format = Format::new()?;
    format.write(root)?;
    Ok(format)
}

/// Whether a folder holds nothing but what an interrupted [`make`] leaves.
fn is_unfinished(root: &OwnedFd) -> sys::Result<bool> {
    for name in sys::list(root)? {
        if name == layout::FORMAT_NEW.as_bytes() {
            continue;
        }
        let Some(folder) = FOLDERS.iter().find(|folder| folder.as_bytes() == name) else {
            return Ok(false);
        };
        if sys::stat_at(root, folder)?.kind != FileKind::Directory {
            return Ok(false);
        }
        let below = sys::open(root, *folder, Open::Folder)?;
        let only_locks = |name: &[u8]| {
            *folder == layout::LOCK
                && [layout::LOCK_STORE, layout::LOCK_GC]
                    .iter()
                    .any(|lock| lock.as_bytes() == name)
        };
        if !sys::list(below.as_fd())?
            .iter()
            .all(|name| only_locks(name))
        {
            return Ok(false);
        }
    }
    Ok(true)
}
