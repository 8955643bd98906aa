//! Looks at the host: the shape of its top level, and its network namespace.

use std::io;
use std::path::Path;

use super::Cause;
use crate::argv::{HostShape, TopLevel};

impl HostShape {
    /// The shape of the host that this process runs on.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` when its top level can't be looked at.
    pub fn of_host() -> Result<Self, sandbox_core::SandboxError> {
        let mut names = std::collections::BTreeMap::new();
        for name in Self::NAMES {
            if let Some(top) = top_level(&Path::new("/").join(name))
                .map_err(|error| Cause::Host("top-level folders", error))?
            {
                names.insert(name, top);
            }
        }
        Ok(Self { names })
    }
}

fn top_level(path: &Path) -> io::Result<Option<TopLevel>> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => {
            Ok(Some(TopLevel::Link(std::fs::read_link(path)?.into())))
        }
        Ok(metadata) if metadata.is_dir() => Ok(Some(TopLevel::Folder)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The inode of this process's network namespace, which no session may be in.
pub(super) fn network_namespace() -> Result<u64, Cause> {
    rustix::fs::stat("/proc/self/ns/net")
        .map(|stat| stat.st_ino)
        .map_err(|error| Cause::Host("network namespace", error.into()))
}
