//! Making and replacing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use sandbox_core::{ErrorCode, FileKind, Result, SandboxError, WorkspacePath, WriteOptions, shown};

use super::resolve;

/// A new file's mode, and a new folder's.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

pub(super) fn write(
    root: BorrowedFd<'_>,
    path: &WorkspacePath,
    content: &[u8],
    options: WriteOptions,
) -> Result<()> {
    write_from(root, path, &mut &content[..], options, content.len() as u64)
}

/// Writes a file beside its place and puts it there whole (SPEC SES-4).
pub(super) fn write_from(
    root: BorrowedFd<'_>,
    path: &WorkspacePath,
    source: &mut dyn Read,
    options: WriteOptions,
    max_bytes: u64,
) -> Result<()> {
    if let Some(above) = path.parent() {
        make_dir(root, &above)?;
    }
    let (folder, name) = resolve::target(root, path)?;
    let mode = replaced_mode(&folder, &name, path)?.unwrap_or(FILE_MODE);
    let mut draft = Draft::new(folder, path)?;
    let copied = io::copy(
        &mut source.take(max_bytes.saturating_add(1)),
        &mut draft.file,
    )
    .map_err(|error| io_error(error, path))?;
    if copied > max_bytes {
        return Err(SandboxError::new(
            ErrorCode::Limit,
            format!(
                "the stream for {} is longer than the limit of {max_bytes} bytes",
                shown(path.to_string())
            ),
        ));
    }
    draft.publish(&name, mode, options.durable, path)
}

/// The permission bits of the file that is replaced; none where there is none.
fn replaced_mode(folder: &OwnedFd, name: &[u8], path: &WorkspacePath) -> Result<Option<u32>> {
    match resolve::stat_at(folder, name) {
        Ok(stat) => {
            resolve::only_files(stat.kind, path)?;
            Ok(Some(stat.mode & 0o777))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(resolve::error(errno, path)),
    }
}

/// A file that has no name of its own yet; dropped, it was never there.
pub(super) struct Draft {
    folder: OwnedFd,
    name: String,
    pub(super) file: File,
    published: bool,
}

impl Draft {
    pub(super) fn new(folder: OwnedFd, path: &WorkspacePath) -> Result<Self> {
        let name = format!(".sandbox-{}", random_hex());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::openat(&folder, name.as_str(), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| resolve::error(errno, path))?;
        Ok(Self {
            folder,
            name,
            file: file.into(),
            published: false,
        })
    }

    /// Gives it its mode and its name, replacing what is there.
    pub(super) fn publish(
        mut self,
        name: &[u8],
        mode: u32,
        durable: bool,
        path: &WorkspacePath,
    ) -> Result<()> {
        let failed = |errno| resolve::error(errno, path);
        self.file.flush().map_err(|error| io_error(error, path))?;
        fs::fchmod(&self.file, Mode::from_raw_mode(mode)).map_err(failed)?;
        if durable {
            fs::fsync(&self.file).map_err(failed)?;
        }
        fs::renameat(&self.folder, self.name.as_str(), &self.folder, name).map_err(failed)?;
        self.published = true;
        if durable {
            let readable = resolve::readable_folder(self.folder.as_fd(), b"").map_err(failed)?;
            fs::fsync(readable).map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published {
            // The first failure is the caller's; this one leaves a file that says what it is.
            let _ = fs::unlinkat(&self.folder, self.name.as_str(), fs::AtFlags::empty());
        }
    }
}

/// Makes a folder with its parents, each only after the one above it was resolved.
pub(super) fn make_dir(root: BorrowedFd<'_>, path: &WorkspacePath) -> Result<()> {
    let missing = |error: &SandboxError| error.code() == ErrorCode::NotFound;
    match resolve::open_folder(root, path) {
        Err(error) if missing(&error) => {}
        Err(error) if error.code() == ErrorCode::Invalid => {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "something that is no folder stands at {} or above it",
                    shown(path.to_string())
                ),
            ));
        }
        opened => return opened.map(drop),
    }
    let mut at = WorkspacePath::root();
    for name in path.components() {
        let above = resolve::open_folder(root, &at)?;
        at = at.join(name)?;
        match fs::mkdirat(&above, name, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(resolve::error(errno, &at)),
        }
    }
    // A dangling link stands there, or a command has been faster.
    resolve::open_folder(root, path).map(drop)
}

pub(super) fn rename(root: BorrowedFd<'_>, from: &WorkspacePath, to: &WorkspacePath) -> Result<()> {
    let (from_folder, from_name) = resolve::parent(root, from)?;
    let (to_folder, to_name) = resolve::parent(root, to)?;
    fs::renameat(&from_folder, from_name, &to_folder, to_name).map_err(|errno| match errno {
        Errno::NOENT => resolve::error(errno, from),
        Errno::INVAL => SandboxError::new(
            ErrorCode::Invalid,
            format!("{} can't be moved below itself", shown(from.to_string())),
        ),
        Errno::ISDIR | Errno::NOTDIR => SandboxError::new(
            ErrorCode::Invalid,
            format!(
                "{} and {} are not of one kind: a file replaces a file, a folder an empty folder",
                shown(from.to_string()),
                shown(to.to_string())
            ),
        ),
        errno => resolve::error(errno, to),
    })
}

/// The error below an `io::Error`, where it is one of the kernel's.
pub(super) fn io_error(error: io::Error, path: &WorkspacePath) -> SandboxError {
    match Errno::from_io_error(&error) {
        Some(errno) => resolve::error(errno, path),
        None => match error.downcast::<SandboxError>() {
            Ok(error) => error,
            Err(error) => SandboxError::new(
                ErrorCode::Invalid,
                format!("{} can't be written", shown(path.to_string())),
            )
            .with_source(error),
        },
    }
}

/// Whether a name is taken by a folder.
pub(super) fn is_folder(folder: &OwnedFd, name: &[u8]) -> bool {
    resolve::stat_at(folder, name).is_ok_and(|stat| stat.kind == FileKind::Directory)
}

/// A name that nothing else has.
pub(super) fn random_hex() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
