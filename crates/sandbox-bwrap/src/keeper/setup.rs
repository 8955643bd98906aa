//! What a session is made of, and the message that says so.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::CWD;
use rustix::mount::OpenTreeFlags;
use sandbox_helper::wire::{self, BUILD_ID, Body, Config, Message, MountSource, TmpfsSize};

use super::{Cause, Executable, etc, host};
use crate::argv::{self, HostShape};
use crate::config::{Owner, ReadOnlyMount};

/// Everything that a keeper needs to know of its session.
#[derive(Debug)]
pub struct Setup {
    /// The helper.
    pub helper: Executable,
    /// bubblewrap.
    pub bubblewrap: Executable,
    /// The session's folder, with `workspace` and `home` in it, both the owner's. `O_PATH` will
    /// do.
    pub session: OwnedFd,
    /// A duplicate of the session's lease, held for as long as anything of the session lives.
    pub lease: OwnedFd,
    /// Whom the sandbox runs as; none for a caller that is not the kernel's root.
    pub owner: Option<Owner>,
    /// The host's shape.
    pub host: HostShape,
    /// Folders and files of the host's that are visible inside.
    pub read_only: Vec<ReadOnlyMount>,
    /// The bounds of the session's `/tmp`.
    pub tmp: TmpfsSize,
    /// The size of a command's `/dev/shm`, in bytes.
    pub shm_bytes: u64,
    /// The most processes and threads of the whole session (`RLIMIT_NPROC`).
    pub processes: Option<u64>,
}

impl Setup {
    /// The keeper's first message, with the descriptors that it holds.
    pub(super) fn message(&self) -> Result<(Message, Vec<OwnedFd>), sandbox_core::SandboxError> {
        let arguments = argv::options(&argv::Input {
            host: self.host.clone(),
            read_only: self
                .read_only
                .iter()
                .map(|mount| mount.destination.clone().into())
                .collect(),
            shm_bytes: self.shm_bytes,
        })?;
        let mut mounts = Vec::new();
        let config = Config {
            owner: self
                .owner
                .map(|Owner { uid, gid }| wire::Owner { uid, gid }),
            host_network: host::network_namespace()?,
            tmp: self.tmp,
            root_size: ROOT_SIZE,
            processes: self.processes,
            root: self.host.root_entries()?,
            etc: etc::entries(etc::host_names()),
            read_only: self.mount_sources(&mut mounts)?,
            arguments,
        };
        let mut descriptors =
            vec![wire::memfd("configuration", &config.encode()).map_err(Cause::Descriptors)?];
        for descriptor in [
            self.lease.as_fd(),
            self.session.as_fd(),
            self.bubblewrap.as_fd(),
        ] {
            descriptors.push(
                descriptor
                    .try_clone_to_owned()
                    .map_err(Cause::Descriptors)?,
            );
        }
        descriptors.extend(mounts);
        let build = BUILD_ID.as_bytes().to_vec();
        Ok((Message::new(0, Body::Configure { build }), descriptors))
    }

    /// Where the keeper gets each read-only tree: by path as itself, but detached mounts from a
    /// root host, since after its change of user it may reach none of them.
    fn mount_sources(&self, mounts: &mut Vec<OwnedFd>) -> Result<Vec<MountSource>, Cause> {
        if self.read_only.len() > MAX_READ_ONLY {
            return Err(Cause::TooManyMounts(self.read_only.len(), MAX_READ_ONLY));
        }
        let mut sources = Vec::with_capacity(self.read_only.len());
        for mount in &self.read_only {
            let refused = |source: std::io::Error| Cause::ReadOnlySource {
                path: mount.source.clone(),
                source,
            };
            let path = CString::new(mount.source.as_os_str().as_bytes())
                .map_err(|error| refused(error.into()))?;
            std::fs::metadata(&mount.source).map_err(refused)?;
            sources.push(if self.owner.is_some() {
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_RECURSIVE;
                let tree = rustix::mount::open_tree(CWD, &path, flags)
                    .map_err(|error| refused(error.into()))?;
                mounts.push(tree);
                MountSource::Passed
            } else {
                MountSource::Path(path)
            });
        }
        Ok(sources)
    }
}

/// The bounds of the keeper's own root: it holds the helper and a copy of some of `/etc`.
const ROOT_SIZE: TmpfsSize = TmpfsSize {
    bytes: 64 << 20,
    inodes: 16_384,
};

/// As many detached mounts as fit in one message beside the other descriptors.
const MAX_READ_ONLY: usize = 240;
