//! What the backend is told.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;

use sandbox_core::BackendName;

/// Configuration of the bubblewrap backend. SPEC BAK-2.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The state directory: made with mode 0700 where it is missing.
    pub state_dir: PathBuf,
    /// The backend's name; a part of every key and record. `bubblewrap`.
    pub name: BackendName,
    /// bubblewrap's executable. `/usr/bin/bwrap`, else the first on `PATH`.
    pub bubblewrap: Option<PathBuf>,
    /// The helper's executable. Beside the running program, else `../libexec/sandbox/`;
    /// never on `PATH`, which a project can steer.
    pub helper: Option<PathBuf>,
    /// Whom the sandbox runs as where the caller is the kernel's root; chosen where none is named: the user `sandbox`, else a free id from 58700 on.
    pub owner: Option<Owner>,
    /// Whether sessions survive a power loss from the moment they are made. True.
    pub durable: bool,
    /// Folders and files of the host that are visible inside, read-only, at their own path.
    pub mounts: Vec<ReadOnlyMount>,
    /// What stands in front of `PATH` inside.
    pub path_prefix: Vec<String>,
    /// Variables that every command gets; one of its own wins.
    pub environment: BTreeMap<String, String>,
    /// Bounds that the kernel holds a command to.
    pub bounds: KernelBounds,
}

impl Config {
    /// The defaults, with the state kept in this folder.
    #[must_use]
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            name: BackendName::new("bubblewrap").expect("the constant is a name"),
            bubblewrap: None,
            helper: None,
            owner: None,
            durable: true,
            mounts: Vec::new(),
            path_prefix: Vec::new(),
            environment: BTreeMap::new(),
            bounds: KernelBounds::default(),
        }
    }
}

/// A uid and a gid as the kernel knows them; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The uid.
    pub uid: u32,
    /// The gid.
    pub gid: u32,
}

/// A part of the host that is visible inside and can't be written there (SPEC CON-5).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReadOnlyMount {
    /// Where it stands on the host, links resolved.
    pub source: PathBuf,
    /// Where it stands inside.
    pub destination: String,
}

/// Bounds that the kernel holds a command to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelBounds {
    /// Processes and threads of one command (`RLIMIT_NPROC` in its user namespace). 512.
    pub processes: u64,
    /// Open files of one process (`RLIMIT_NOFILE`). 4096.
    pub open_files: u64,
    /// The size of one file in bytes (`RLIMIT_FSIZE`). 8 GiB.
    pub file_bytes: u64,
    /// The session's `/tmp`, in bytes. 1 GiB.
    pub tmp_bytes: NonZeroU64,
    /// The session's `/tmp`, in entries. 100 000.
    pub tmp_entries: NonZeroU64,
    /// A command's `/dev/shm`, in bytes. 256 MiB.
    pub shm_bytes: NonZeroU64,
}

impl Default for KernelBounds {
    fn default() -> Self {
        Self {
            processes: 512,
            open_files: 4096,
            file_bytes: 8 << 30,
            tmp_bytes: const_nonzero(1 << 30),
            tmp_entries: const_nonzero(100_000),
            shm_bytes: const_nonzero(256 << 20),
        }
    }
}

const fn const_nonzero(value: u64) -> NonZeroU64 {
    match NonZeroU64::new(value) {
        Some(value) => value,
        None => NonZeroU64::MIN,
    }
}
