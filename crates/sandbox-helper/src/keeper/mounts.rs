//! The keeper's own small root, and what bubblewrap binds from it.
//!
//! ```text
//! /usr /proc /dev, /bin /lib …   of the host
//! /tmp                           empty: bubblewrap builds its root there
//! /k/h                           a copy of the helper, which shows no install path inside
//! /k/etc                         the session's /etc
//! /k/t                           the session's /tmp, bounded
//! /k/s                           the session's folder: `workspace` and `home` below it
//! /k/r/0 /k/r/1 …                read-only trees
//! ```

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::{at, etc};
use crate::Step;
use crate::init::failure;
use crate::wire::{Config, Failure, MountSource, RootEntry, TmpfsSize};

/// Detached copies of what comes from the host.
#[derive(Debug)]
pub(super) struct Sources {
    session: OwnedFd,
    read_only: Vec<OwnedFd>,
}

/// Opens everything that comes from the host: now, before anything is mounted over it.
///
/// The session's folder is the working directory.
pub(super) fn open(sources: &[MountSource], passed: &[OwnedFd]) -> Result<Sources, Failure> {
    let session = open_tree(c".").map_err(at(Step::OpenSession))?;
    let mut passed = passed.iter();
    let mut read_only = Vec::with_capacity(sources.len());
    for source in sources {
        let tree = match source {
            MountSource::Path(path) => open_tree(path),
            MountSource::Passed => passed
                .next()
                .ok_or(Errno::BADF)
                .and_then(|mount| rustix::io::fcntl_dupfd_cloexec(mount, 3)),
        };
        read_only.push(tree.map_err(at(Step::OpenReadOnly))?);
    }
    Ok(Sources { session, read_only })
}

/// A detached copy of a tree. Recursive, or the kernel refuses one with a mount below it.
fn open_tree(path: &CStr) -> Result<OwnedFd, Errno> {
    rustix::mount::open_tree(
        CWD,
        path,
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE,
    )
}

/// Mounts and fills the new root, at `/tmp`: the one folder that bubblewrap itself needs, so
/// that it always exists.
pub(super) fn build(config: &Config, sources: &Sources, helper: &OwnedFd) -> Result<(), Failure> {
    mount_tmpfs(c"/tmp", "0755", config.root_size).map_err(at(Step::KeeperRoot))?;
    rustix::process::chdir(c"/tmp").map_err(at(Step::KeeperRoot))?;
    for folder in [c"k", c"k/s", c"k/t", c"k/etc", c"k/r", c"tmp"] {
        make_dir(folder).map_err(at(Step::KeeperRoot))?;
    }
    attach(&sources.session, c"k/s").map_err(at(Step::AttachSession))?;
    for (number, tree) in sources.read_only.iter().enumerate() {
        attach_read_only(number, tree).map_err(at(Step::AttachReadOnly))?;
    }
    copy_helper(helper).map_err(failure(Step::CopyHelper))?;
    mount_tmpfs(c"k/t", "1777", config.tmp).map_err(at(Step::MountTmp))?;
    etc::write(&config.etc).map_err(failure(Step::WriteEtc))
}

fn mount_tmpfs(target: &CStr, mode: &str, size: TmpfsSize) -> Result<(), Errno> {
    let TmpfsSize { bytes, inodes } = size;
    let options = CString::new(format!("mode={mode},size={bytes},nr_inodes={inodes}"))
        .map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(
        c"tmpfs",
        target,
        c"tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options.as_c_str(),
    )
}

fn make_dir(path: &CStr) -> Result<(), Errno> {
    rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))
}

/// Attaches a detached mount and makes it private at once: it is a peer of the host's, and what
/// is mounted below it would appear there and stay.
fn attach(tree: &OwnedFd, target: &CStr) -> Result<(), Errno> {
    rustix::mount::move_mount(
        tree,
        c"",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    rustix::mount::mount_change(
        target,
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
}

fn attach_read_only(number: usize, tree: &OwnedFd) -> Result<(), Errno> {
    let target = CString::new(format!("k/r/{number}")).map_err(|_| Errno::INVAL)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode);
    if kind == FileType::Directory {
        make_dir(&target)?;
    } else {
        create(&target, 0o644)?;
    }
    attach(tree, &target)
}

fn create(path: &CStr, mode: u32) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        path,
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
        Mode::from_raw_mode(mode),
    )
}

fn copy_helper(helper: &OwnedFd) -> std::io::Result<()> {
    let mut source = File::from(rustix::io::fcntl_dupfd_cloexec(helper, 3)?);
    let mut copy = File::from(create(c"k/h", 0o755)?);
    std::io::copy(&mut source, &mut copy)?;
    // Whatever the umask was: the command's user executes it as another one.
    rustix::fs::fchmod(&copy, Mode::from_raw_mode(0o555))?;
    Ok(())
}

/// Makes what was built the root, with nothing else of the host in sight.
///
/// The working directory is the new root.
pub(super) fn pivot(entries: &[RootEntry]) -> Result<(), Failure> {
    for name in [c"usr", c"proc", c"dev"] {
        bind(name).map_err(at(Step::BindSystem))?;
    }
    for entry in entries {
        match entry {
            RootEntry::Bind { name } => bind(name),
            RootEntry::Link { name, target } => rustix::fs::symlink(target, name),
        }
        .map_err(at(Step::BindSystem))?;
    }
    rustix::process::pivot_root(c".", c".").map_err(at(Step::PivotRoot))?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH).map_err(at(Step::PivotRoot))?;
    rustix::process::chdir(c"/").map_err(at(Step::PivotRoot))
}

fn bind(name: &CStr) -> Result<(), Errno> {
    let mut source = vec![b'/'];
    source.extend(name.to_bytes());
    make_dir(name)?;
    rustix::mount::mount_bind_recursive(source, name)
}
