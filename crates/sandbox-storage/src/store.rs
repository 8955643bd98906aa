//! The store: one folder, opened once, worked on by descriptor.

use std::collections::HashSet;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use sandbox_core::{FileKind, TemplateKey, shown};

use crate::error::{Cause, Context as _, Result};
use crate::identity::{Entered, Identity};
use crate::layout;
use crate::open::{self, Opened};
use crate::sys::{self, Lock, Open};
use crate::{probe, reap};

/// How much a store does against power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing: for stores that are thrown away. A power loss may leave names without data.
    None,
    /// Data reaches the disk before its name does, many files at a time.
    #[default]
    Batch,
}

/// How a store is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What is done against power loss.
    pub durability: Durability,
    /// What an ingest or a new session must leave free, in bytes. 64 MiB.
    pub min_free: u64,
    /// The uid and gid that own the store, where the caller is the kernel's root and acts
    /// as a dedicated user. Without it, the caller's own.
    pub owner: Option<(u32, u32)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            min_free: 64 << 20,
            owner: None,
        }
    }
}

/// A content-addressed store of templates and the sessions made from them.
///
/// Cheap to clone; clones share one open folder. Everything after [`open`](Self::open)
/// is relative to that folder's descriptor, so that moving it away, or a link put in its
/// place, redirects nothing.
#[derive(Clone)]
pub struct Store(pub(crate) Arc<Inner>);

impl Store {
    /// Opens the store in a folder, and makes it where there is none.
    ///
    /// Folders are made with mode 0700; the path is resolved to the real one (SPEC STO-8).
    /// What crashed owners left half-made is cleaned up.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`, naming the path and what to do, where the folder or one above it
    /// belongs to or can be written by others, where it is on a network disk, where it
    /// holds files but no store, or a store of another format.
    pub fn open(root: &Path, options: &Options) -> sandbox_core::Result<Self> {
        let identity = Identity::new(options.owner);
        let inner = Inner::open(root, options, identity)?;
        let store = Self(Arc::new(inner));
        reap::reap(&store.0)?;
        Ok(store)
    }

    /// The real path of the store's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0.path
    }

    /// Makes this thread act as the store's owner until the guard is dropped: what it
    /// creates through a session's descriptors then belongs where it should.
    ///
    /// Nothing but a word where the caller is the owner (setfsuid(2) otherwise).
    ///
    /// # Errors
    /// `SANDBOX_INVALID` where this process may not act as the owner.
    pub fn act_as_owner(&self) -> sandbox_core::Result<Entered> {
        Ok(self.0.act()?)
    }

    /// The random name that the store got when it was made.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Whether files of sessions share the blocks of their blobs: tried, not guessed.
    #[must_use]
    pub fn reflinks(&self) -> bool {
        self.0.reflinks()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("root", &self.0.path)
            .finish_non_exhaustive()
    }
}

/// The descriptors and settings of an open store.
pub(crate) struct Inner {
    pub(crate) path: PathBuf,
    pub(crate) id: String,
    pub(crate) root: OwnedFd,
    pub(crate) blobs: OwnedFd,
    pub(crate) templates: OwnedFd,
    pub(crate) sessions: OwnedFd,
    pub(crate) leases: OwnedFd,
    pub(crate) refs: OwnedFd,
    pub(crate) staging: OwnedFd,
    pub(crate) trash: OwnedFd,
    pub(crate) quarantine: OwnedFd,
    pub(crate) lock: OwnedFd,
    pub(crate) identity: Identity,
    pub(crate) durability: Durability,
    pub(crate) min_free: u64,
    /// The first 8 digits of the boot id, for the names in `staging/`.
    pub(crate) boot: String,
    /// How many threads copying is worth on this disk.
    pub(crate) threads: usize,
    reflinks: OnceLock<bool>,
    /// Templates whose blobs were all found, with their lengths, since the store was opened.
    pub(crate) verified: Mutex<HashSet<TemplateKey>>,
}

impl Inner {
    fn open(root: &Path, options: &Options, identity: Identity) -> Result<Self> {
        let Opened {
            path,
            root,
            format,
            disk,
        } = open::open(root, identity)?;
        let _acting = identity.enter()?;
        let folder = |name: &str| open_folder(&root, name, identity);
        let inner = Self {
            id: format.store_id,
            blobs: folder(layout::BLOBS)?,
            templates: folder(layout::TEMPLATES)?,
            sessions: folder(layout::SESSIONS)?,
            leases: folder(layout::LEASES)?,
            refs: folder(layout::REFS)?,
            staging: folder(layout::STAGING)?,
            trash: folder(layout::TRASH)?,
            quarantine: folder(layout::QUARANTINE)?,
            lock: folder(layout::LOCK)?,
            path,
            root,
            identity,
            durability: options.durability,
            min_free: options.min_free,
            boot: boot_digits(),
            threads: threads_for(disk),
            reflinks: OnceLock::new(),
            verified: Mutex::default(),
        };
        if probe::NEEDS_TRIAL.contains(&disk) {
            probe::try_disk(&inner)?;
        }
        Ok(inner)
    }

    /// Acts as the store's owner on this thread.
    pub(crate) fn act(&self) -> Result<Entered> {
        self.identity.enter()
    }

    /// Whether data is synced before names appear.
    pub(crate) fn is_durable(&self) -> bool {
        self.durability == Durability::Batch
    }

    /// Whether FICLONE works between two files of the store.
    pub(crate) fn reflinks(&self) -> bool {
        *self
            .reflinks
            .get_or_init(|| probe::try_reflink(self).unwrap_or(false))
    }

    /// Takes a lock in `lock/`; it goes when the descriptor is dropped.
    pub(crate) fn take_lock(&self, name: &str, lock: Lock) -> Result<OwnedFd> {
        let what = || format!("taking the lock {name}");
        let file = sys::lock_file(&self.lock, name, layout::RECORD_MODE).store(what)?;
        sys::lock(&file, lock).store(what)?;
        Ok(file)
    }

    /// Refuses work that would leave less free than the floor.
    pub(crate) fn check_space(&self, bytes: u64, entries: u64) -> Result<()> {
        let disk = sys::disk(&self.root).store(|| "asking for free space".to_owned())?;
        if disk.free_bytes < bytes.saturating_add(self.min_free) {
            return Err(Cause::NoSpace(format!(
                "{bytes} bytes are needed and {} must stay free, but the disk of {} has {}",
                self.min_free,
                self.label(),
                disk.free_bytes
            )));
        }
        match disk.free_inodes {
            Some(free) if free < entries => Err(Cause::NoSpace(format!(
                "{entries} entries are needed, but the disk of {} has {free} inodes free",
                self.label()
            ))),
            _ => Ok(()),
        }
    }

    /// The store's path for messages.
    pub(crate) fn label(&self) -> String {
        shown(self.path.as_os_str().as_encoded_bytes())
    }
}

/// A name that nothing else has.
pub(crate) fn random_name() -> Result<String> {
    let bytes = sys::random::<16>().store(|| "asking for random bytes".to_owned())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Opens one of the store's own folders, which nobody else may own or write to.
fn open_folder(root: &OwnedFd, name: &str, identity: Identity) -> Result<OwnedFd> {
    let label = format!("{name}/ of the store");
    let folder = match sys::open(root, name, Open::Folder) {
        Ok(folder) => folder,
        Err(sys::Errno::NOENT) => return Err(Cause::damaged(label, "it is missing")),
        Err(sys::Errno::NOTDIR | sys::Errno::LOOP) => {
            return Err(Cause::damaged(label, "it is no folder"));
        }
        Err(errno) => return Err(Cause::Store(format!("opening {label}"), errno)),
    };
    let stat = sys::stat(&folder).store(|| format!("looking at {label}"))?;
    if stat.uid != identity.uid || stat.mode & 0o022 != 0 {
        return Err(Cause::Refused {
            path: label,
            why: format!(
                "it belongs to uid {} with mode {:04o}, so others can change what it holds",
                stat.uid, stat.mode
            ),
            fix: format!("chown it to {} and chmod 700", identity.uid),
        });
    }
    Ok(folder)
}

/// Two threads help on ext4 and tmpfs, more or elsewhere they don't.
fn threads_for(disk: u64) -> usize {
    const EXT4: u64 = 0xef53;
    const TMPFS: u64 = 0x0102_1994;
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    if matches!(disk, EXT4 | TMPFS) {
        available.min(2)
    } else {
        1
    }
}

fn boot_digits() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    format!("{digits:0<8}")
}

/// Opens an entry and says what kind of thing else stands there.
pub(crate) fn is_folder(folder: BorrowedFd<'_>, name: &str) -> sys::Result<bool> {
    match sys::stat_at(folder.as_fd(), name) {
        Ok(stat) => Ok(stat.kind == FileKind::Directory),
        Err(sys::Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}
