//! Every system call that touches the disk, in one place.
//!
//! Nothing here follows a link in the last component, and every descriptor closes on
//! exec. In unit tests each call first asks `fault` whether it may happen.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::fs::{StatxAttributes, StatxFlags, Timespec, Timestamps};
pub(crate) use rustix::io::Errno;
use rustix::io::retry_on_intr;
use sandbox_core::{FileKind, Timestamp};

#[cfg(test)]
pub(crate) mod fault;

pub(crate) type Result<T, E = Errno> = std::result::Result<T, E>;

/// Asks the tests' plan whether this call may happen.
macro_rules! gate {
    ($name:literal) => {
        #[cfg(test)]
        fault::check($name)?;
    };
}

/// What tells two inodes apart: device and number.
pub(crate) type Inode = ((u32, u32), u64);

/// What is known of an entry, a link described itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: FileKind,
    /// All twelve bits of the mode.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) links: u32,
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    /// Whether something is mounted here.
    pub(crate) mount_root: bool,
}

impl Stat {
    /// What tells two inodes apart.
    pub(crate) fn identity(&self) -> Inode {
        (self.device, self.inode)
    }

    fn from_statx(raw: &fs::Statx) -> Self {
        let time = |at: fs::StatxTimestamp| Timestamp {
            seconds: at.tv_sec,
            nanoseconds: at.tv_nsec,
        };
        Self {
            kind: match fs::FileType::from_raw_mode(u32::from(raw.stx_mode)) {
                fs::FileType::RegularFile => FileKind::File,
                fs::FileType::Directory => FileKind::Directory,
                fs::FileType::Symlink => FileKind::Symlink,
                fs::FileType::Fifo => FileKind::Fifo,
                fs::FileType::Socket => FileKind::Socket,
                _ => FileKind::Other,
            },
            mode: u32::from(raw.stx_mode) & 0o7777,
            uid: raw.stx_uid,
            gid: raw.stx_gid,
            size: raw.stx_size,
            blocks: raw.stx_blocks,
            links: raw.stx_nlink,
            device: (raw.stx_dev_major, raw.stx_dev_minor),
            inode: raw.stx_ino,
            modified: time(raw.stx_mtime),
            changed: time(raw.stx_ctime),
            mount_root: raw.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        }
    }
}

/// How an existing entry is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Open {
    /// A folder, to list it or to work below it.
    Folder,
    /// A file for reading. Never blocks on what turns out to be a FIFO.
    Read,
    /// A file for reading and writing.
    Write,
    /// Just the place, whatever it is: for `stat` and the like.
    Place,
}

impl Open {
    fn flags(self) -> OFlags {
        let base = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
        base | match self {
            Self::Folder => OFlags::RDONLY | OFlags::DIRECTORY,
            Self::Read => OFlags::RDONLY | OFlags::NONBLOCK,
            Self::Write => OFlags::RDWR | OFlags::NONBLOCK,
            Self::Place => OFlags::PATH,
        }
    }
}

/// Opens `name` in a folder of the store.
pub(crate) fn open(folder: impl AsFd, name: impl AsRef<[u8]>, how: Open) -> Result<OwnedFd> {
    gate!("open");
    retry_on_intr(|| fs::openat(&folder, name.as_ref(), how.flags(), Mode::empty()))
}

/// Opens a path of several names below a folder that others may be changing: no link is
/// followed, and nothing leads out.
pub(crate) fn open_beneath(
    folder: impl AsFd,
    path: impl AsRef<[u8]>,
    how: Open,
    cross_mounts: bool,
) -> Result<OwnedFd> {
    gate!("openat2");
    let mut resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if !cross_mounts {
        resolve |= ResolveFlags::NO_XDEV;
    }
    // EAGAIN: a rename elsewhere made the kernel unsure that nothing led out (openat2(2)).
    let mut tries = 0;
    loop {
        let result = retry_on_intr(|| {
            fs::openat2(&folder, path.as_ref(), how.flags(), Mode::empty(), resolve)
        });
        match result {
            Err(Errno::AGAIN) if tries < MAX_RESOLVE_TRIES => tries += 1,
            result => return result,
        }
    }
}

/// How often a resolution is tried again that renames elsewhere got in the way of.
const MAX_RESOLVE_TRIES: u32 = 100;

/// Makes a file that must not exist.
pub(crate) fn create(folder: impl AsFd, name: impl AsRef<[u8]>, mode: u32) -> Result<OwnedFd> {
    gate!("create");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    retry_on_intr(|| fs::openat(&folder, name.as_ref(), flags, Mode::from_raw_mode(mode)))
}

/// Opens a file for writing, made where it is missing and emptied where it is there.
pub(crate) fn overwrite(folder: impl AsFd, name: impl AsRef<[u8]>, mode: u32) -> Result<OwnedFd> {
    gate!("overwrite");
    let flags = OFlags::RDWR
        | OFlags::CREATE
        | OFlags::TRUNC
        | OFlags::CLOEXEC
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK;
    retry_on_intr(|| fs::openat(&folder, name.as_ref(), flags, Mode::from_raw_mode(mode)))
}

/// Opens a lock file, made where it is missing.
pub(crate) fn lock_file(folder: impl AsFd, name: impl AsRef<[u8]>, mode: u32) -> Result<OwnedFd> {
    gate!("lock_file");
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    retry_on_intr(|| fs::openat(&folder, name.as_ref(), flags, Mode::from_raw_mode(mode)))
}

pub(crate) fn mkdir(folder: impl AsFd, name: impl AsRef<[u8]>, mode: u32) -> Result<()> {
    gate!("mkdir");
    fs::mkdirat(folder, name.as_ref(), Mode::from_raw_mode(mode))
}

pub(crate) fn unlink(folder: impl AsFd, name: impl AsRef<[u8]>) -> Result<()> {
    gate!("unlink");
    fs::unlinkat(folder, name.as_ref(), AtFlags::empty())
}

pub(crate) fn rmdir(folder: impl AsFd, name: impl AsRef<[u8]>) -> Result<()> {
    gate!("rmdir");
    fs::unlinkat(folder, name.as_ref(), AtFlags::REMOVEDIR)
}

/// Gives an entry another name, which must be free.
pub(crate) fn rename_new(
    from: impl AsFd,
    name: impl AsRef<[u8]>,
    to: impl AsFd,
    new_name: impl AsRef<[u8]>,
) -> Result<()> {
    gate!("rename_new");
    fs::renameat_with(
        from,
        name.as_ref(),
        to,
        new_name.as_ref(),
        RenameFlags::NOREPLACE,
    )
}

/// Puts a finished record in the place of the old one.
pub(crate) fn rename_over(
    from: impl AsFd,
    name: impl AsRef<[u8]>,
    to: impl AsFd,
    new_name: impl AsRef<[u8]>,
) -> Result<()> {
    gate!("rename_over");
    fs::renameat(from, name.as_ref(), to, new_name.as_ref())
}

pub(crate) fn link(
    from: impl AsFd,
    name: impl AsRef<[u8]>,
    to: impl AsFd,
    new_name: impl AsRef<[u8]>,
) -> Result<()> {
    gate!("link");
    fs::linkat(from, name.as_ref(), to, new_name.as_ref(), AtFlags::empty())
}

pub(crate) fn symlink(target: &[u8], folder: impl AsFd, name: impl AsRef<[u8]>) -> Result<()> {
    gate!("symlink");
    fs::symlinkat(target, folder, name.as_ref())
}

pub(crate) fn read_link(folder: impl AsFd, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
    gate!("read_link");
    fs::readlinkat(folder, name.as_ref(), Vec::with_capacity(256))
        .map(std::ffi::CString::into_bytes)
}

pub(crate) fn stat_at(folder: impl AsFd, name: impl AsRef<[u8]>) -> Result<Stat> {
    gate!("stat_at");
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    fs::statx(folder, name.as_ref(), flags, StatxFlags::BASIC_STATS)
        .map(|raw| Stat::from_statx(&raw))
}

pub(crate) fn stat(file: impl AsFd) -> Result<Stat> {
    gate!("stat");
    fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .map(|raw| Stat::from_statx(&raw))
}

pub(crate) fn set_mode(file: impl AsFd, mode: u32) -> Result<()> {
    gate!("set_mode");
    fs::fchmod(file, Mode::from_raw_mode(mode))
}

/// Sets the mode of what an [`Open::Place`] descriptor stands for.
///
/// fchmod(2) refuses such descriptors; the link in `/proc` leads to this very inode, so
/// that no swap of names can redirect it.
pub(crate) fn set_mode_of_place(place: impl AsFd, mode: u32) -> Result<()> {
    gate!("set_mode_of_place");
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", place.as_fd().as_raw_fd());
    fs::chmodat(fs::CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())
}

pub(crate) fn set_owner(file: impl AsFd, uid: u32, gid: u32) -> Result<()> {
    gate!("set_owner");
    fs::fchown(
        file,
        Some(fs::Uid::from_raw(uid)),
        Some(fs::Gid::from_raw(gid)),
    )
}

fn times(modified: Timestamp) -> Timestamps {
    let time = Timespec {
        tv_sec: modified.seconds,
        tv_nsec: modified.nanoseconds.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

pub(crate) fn set_times(file: impl AsFd, modified: Timestamp) -> Result<()> {
    gate!("set_times");
    fs::futimens(file, &times(modified))
}

/// Makes it look used now.
pub(crate) fn touch(file: impl AsFd) -> Result<()> {
    gate!("touch");
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: fs::UTIME_NOW,
    };
    fs::futimens(
        file,
        &Timestamps {
            last_access: now,
            last_modification: now,
        },
    )
}

pub(crate) fn set_link_times(
    folder: impl AsFd,
    name: impl AsRef<[u8]>,
    modified: Timestamp,
) -> Result<()> {
    gate!("set_link_times");
    fs::utimensat(
        folder,
        name.as_ref(),
        &times(modified),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}

/// A kernel lock; it goes with the last duplicate of the descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lock {
    /// Waits to share.
    Share,
    /// Waits to be alone.
    Alone,
    /// Shares or says EWOULDBLOCK.
    TryShare,
    /// Is alone or says EWOULDBLOCK.
    TryAlone,
}

pub(crate) fn lock(file: impl AsFd, lock: Lock) -> Result<()> {
    gate!("lock");
    let operation = match lock {
        Lock::Share => FlockOperation::LockShared,
        Lock::Alone => FlockOperation::LockExclusive,
        Lock::TryShare => FlockOperation::NonBlockingLockShared,
        Lock::TryAlone => FlockOperation::NonBlockingLockExclusive,
    };
    retry_on_intr(|| fs::flock(&file, operation))
}

/// Takes a lock alone that nobody should hold for longer than a moment, or says EWOULDBLOCK.
///
/// A process that was forked and has not executed yet holds what its parent holds.
pub(crate) fn lock_alone_soon(file: impl AsFd) -> Result<()> {
    for _ in 0..LOCK_TRIES {
        match lock(&file, Lock::TryAlone) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_STEP),
            result => return result,
        }
    }
    lock(&file, Lock::TryAlone)
}

const LOCK_TRIES: u32 = 8;
const LOCK_STEP: std::time::Duration = std::time::Duration::from_millis(2);

pub(crate) fn sync(file: impl AsFd) -> Result<()> {
    gate!("fsync");
    retry_on_intr(|| fs::fsync(&file))
}

pub(crate) fn sync_data(file: impl AsFd) -> Result<()> {
    gate!("fdatasync");
    retry_on_intr(|| fs::fdatasync(&file))
}

pub(crate) fn sync_disk(folder: impl AsFd) -> Result<()> {
    gate!("syncfs");
    retry_on_intr(|| fs::syncfs(&folder))
}

/// Lets the kernel begin to write the file out, without waiting.
///
/// `POSIX_FADV_DONTNEED` starts write-back of the dirty pages (`mm/fadvise.c`); the pages
/// that it drops are the clean ones, of which a file just written has none.
pub(crate) fn begin_write_out(file: impl AsFd) {
    let _ = fs::fadvise(file, 0, None, fs::Advice::DontNeed);
}

pub(crate) fn read(file: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
    gate!("read");
    retry_on_intr(|| rustix::io::read(&file, &mut *buffer))
}

pub(crate) fn write_all(file: impl AsFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        gate!("write");
        let written = retry_on_intr(|| rustix::io::write(&file, bytes))?;
        if written == 0 {
            return Err(Errno::IO);
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

pub(crate) fn set_length(file: impl AsFd, length: u64) -> Result<()> {
    gate!("ftruncate");
    retry_on_intr(|| fs::ftruncate(&file, length))
}

pub(crate) fn seek(file: impl AsFd, to: fs::SeekFrom) -> Result<u64> {
    gate!("lseek");
    fs::seek(file, to)
}

/// Shares the blocks of `from`: EOPNOTSUPP, EXDEV or EINVAL where the disk can't.
pub(crate) fn clone_file(from: impl AsFd, to: impl AsFd) -> Result<()> {
    gate!("ficlone");
    fs::ioctl_ficlone(to, from)
}

/// Copies up to `length` bytes in the kernel; 0 at the end.
pub(crate) fn copy_range(from: impl AsFd, to: impl AsFd, length: usize) -> Result<usize> {
    gate!("copy_file_range");
    retry_on_intr(|| fs::copy_file_range(&from, None, &to, None, length))
}

/// The names in a folder, `.` and `..` left out.
///
/// Read through a descriptor of its own: a listing leaves a position behind, which
/// everyone who uses the descriptor shares.
pub(crate) fn list(folder: impl AsFd) -> Result<Vec<Vec<u8>>> {
    list_once(open(folder, ".", Open::Folder)?)
}

/// The names in a folder that was just opened and is listed this once.
pub(crate) fn list_once(folder: impl AsFd) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    each_name(folder, |name| {
        names.push(name.to_vec());
        Ok::<_, Errno>(true)
    })?;
    Ok(names)
}

/// Hands over the names in a folder that was just opened, one by one, until told to stop.
pub(crate) fn each_name<E: From<Errno>>(
    folder: impl AsFd,
    mut each: impl FnMut(&[u8]) -> std::result::Result<bool, E>,
) -> std::result::Result<(), E> {
    let mut buffer = vec![MaybeUninit::uninit(); LIST_BYTES];
    #[cfg(test)]
    fault::check("getdents")?;
    let mut entries = fs::RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if !each(name.to_bytes())? {
            break;
        }
    }
    Ok(())
}

/// Whether a folder holds nothing.
pub(crate) fn is_empty(folder: impl AsFd) -> Result<bool> {
    list(folder).map(|names| names.is_empty())
}

/// How much of a folder's listing is read at once.
const LIST_BYTES: usize = 32 * 1024;

/// The names of the extended attributes of an open file.
pub(crate) fn attribute_names(file: impl AsFd) -> Vec<Vec<u8>> {
    let mut buffer = [0_u8; 4096];
    // What can't be listed is dropped all the same: the report is the only loss.
    let length = fs::flistxattr(file, &mut buffer[..]).unwrap_or(0);
    buffer[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// Takes away an extended attribute; that it was not there is fine.
pub(crate) fn remove_attribute(file: impl AsFd, name: &str) {
    let _ = fs::fremovexattr(file, name);
}

/// What the disk under a folder is, and what is free on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    /// The `f_type` of statfs(2).
    pub(crate) kind: u64,
    pub(crate) free_bytes: u64,
    /// None where the disk does not count them.
    pub(crate) free_inodes: Option<u64>,
}

pub(crate) fn disk(folder: impl AsFd) -> Result<Disk> {
    gate!("statfs");
    let kind = fs::fstatfs(&folder)?.f_type;
    let space = fs::fstatvfs(&folder)?;
    Ok(Disk {
        // The sign is an accident of the ABI: magics are 32-bit patterns.
        kind: u64::from(u32::try_from(kind & 0xffff_ffff).unwrap_or(u32::MAX)),
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        free_inodes: (space.f_files > 0).then_some(space.f_favail),
    })
}

/// Random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += retry_on_intr(|| {
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
        })?;
    }
    Ok(bytes)
}

/// A second descriptor of the same open file; a lock on it is shared.
pub(crate) fn duplicate(file: BorrowedFd<'_>) -> Result<OwnedFd> {
    gate!("dup");
    rustix::io::fcntl_dupfd_cloexec(file, 3)
}
