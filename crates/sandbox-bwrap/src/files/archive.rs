//! Trees as tar archives.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use sandbox_core::{
    EntryName, ErrorCode, FileKind, FileLimits, Result, SandboxError, Stat, WorkspacePath, shown,
};
use tar::{Archive, Builder, EntryType, Header};

use super::flow::{Sink, Source};
use super::write::{Draft, io_error, is_folder};
use super::{read, resolve, write};

/// The size of one written piece.
const PIECE_BYTES: usize = 64 * 1024;

/// Packs an entry and what is below it, in byte order of the names.
///
/// Names are relative to the folder above the entry; of the root, to itself. FIFOs,
/// sockets and devices are left out; set-id bits are dropped; hard links stay links.
pub(super) fn pack(
    root: BorrowedFd<'_>,
    path: &WorkspacePath,
    limits: FileLimits,
    sink: &mut Sink,
) -> Result<()> {
    let mut out = Bounded {
        sink: io::BufWriter::with_capacity(PIECE_BYTES, sink),
        left: limits.max_stream_bytes,
    };
    let packed = pack_into(root, path, limits.max_entries, &mut out);
    packed.and_then(|()| out.sink.flush().map_err(|error| io_error(error, path)))
}

fn pack_into(
    root: BorrowedFd<'_>,
    path: &WorkspacePath,
    max_entries: usize,
    out: &mut dyn Write,
) -> Result<()> {
    let mut archive = Builder::new(out);
    let mut inodes: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    let base = path.relative().as_bytes().to_vec();
    let prefix = path
        .parent()
        .map_or(0, |above| match above.relative().len() {
            0 => 0,
            length => length + 1,
        });
    let mut waiting = vec![base];
    let mut entries = 0;
    while let Some(at) = waiting.pop() {
        entries += 1;
        if entries > max_entries {
            return Err(SandboxError::new(
                ErrorCode::Limit,
                format!(
                    "{} holds more than {max_entries} entries",
                    shown(path.to_string())
                ),
            ));
        }
        let here = Here {
            root,
            at: &at,
            name: &at[prefix..],
            path,
        };
        let kind = here.append(&mut archive, &mut inodes)?;
        if kind == Some(FileKind::Directory) {
            let folder = resolve::readable_folder(root, &at).map_err(|errno| here.error(errno))?;
            let mut names = read::names(&folder).map_err(|errno| here.error(errno))?;
            // The last one is packed first.
            names.sort_unstable_by(|one, other| other.cmp(one));
            waiting.extend(names.into_iter().map(|name| joined(&at, &name)));
        }
    }
    archive
        .into_inner()
        .map(drop)
        .map_err(|error| io_error(error, path))
}

/// One entry of the tree that is packed.
struct Here<'a> {
    root: BorrowedFd<'a>,
    /// Its path below the workspace.
    at: &'a [u8],
    /// Its path in the archive.
    name: &'a [u8],
    /// What was asked for, for messages.
    path: &'a WorkspacePath,
}

impl Here<'_> {
    /// Packs it; none where it is not there any more.
    fn append(
        &self,
        archive: &mut Builder<&mut dyn Write>,
        inodes: &mut HashMap<(u64, u64), Vec<u8>>,
    ) -> Result<Option<FileKind>> {
        let (above, last) = match self.at.iter().rposition(|&byte| byte == b'/') {
            Some(cut) => (&self.at[..cut], &self.at[cut + 1..]),
            None => (&b""[..], self.at),
        };
        let folder = match resolve::folder(self.root, above) {
            Err(Errno::NOENT) => return Ok(None),
            folder => folder.map_err(|errno| self.error(errno))?,
        };
        let last = if last.is_empty() { b"." } else { last };
        let stat = match resolve::stat_at(&folder, last) {
            Err(Errno::NOENT) => return Ok(None),
            stat => stat.map_err(|errno| self.error(errno))?,
        };
        let name = Path::new(std::ffi::OsStr::from_bytes(self.name));
        let mut header = header(&stat);
        match stat.kind {
            FileKind::Directory if self.name.is_empty() => {}
            FileKind::Directory => {
                header.set_entry_type(EntryType::Directory);
                archive
                    .append_data(&mut header, name, io::empty())
                    .map_err(|error| self.io(error))?;
            }
            FileKind::Symlink => {
                let link =
                    fs::readlinkat(&folder, last, Vec::new()).map_err(|errno| self.error(errno))?;
                header.set_entry_type(EntryType::Symlink);
                let target = Path::new(std::ffi::OsStr::from_bytes(link.as_bytes()));
                archive
                    .append_link(&mut header, name, target)
                    .map_err(|error| self.io(error))?;
            }
            FileKind::File => self.append_file(archive, inodes, name)?,
            FileKind::Fifo | FileKind::Socket | FileKind::Other => {}
        }
        Ok(Some(stat.kind))
    }

    fn append_file(
        &self,
        archive: &mut Builder<&mut dyn Write>,
        inodes: &mut HashMap<(u64, u64), Vec<u8>>,
        name: &Path,
    ) -> Result<()> {
        let file = resolve::file(self.root, self.at).map_err(|errno| self.error(errno))?;
        // What was opened is what counts: it may have been swapped since.
        let raw = fs::fstat(&file).map_err(|errno| self.error(errno))?;
        let stat = resolve::stat_of(&file).map_err(|errno| self.error(errno))?;
        if stat.kind != FileKind::File {
            return Ok(());
        }
        let mut header = header(&stat);
        if raw.st_nlink > 1 {
            if let Some(first) = inodes.get(&(raw.st_dev, raw.st_ino)) {
                header.set_entry_type(EntryType::Link);
                let target = Path::new(std::ffi::OsStr::from_bytes(first));
                return archive
                    .append_link(&mut header, name, target)
                    .map_err(|error| self.io(error));
            }
            inodes.insert((raw.st_dev, raw.st_ino), self.name.to_vec());
        }
        header.set_entry_type(EntryType::Regular);
        header.set_size(stat.size);
        let mut exact = Exact {
            file: File::from(file),
            left: stat.size,
        };
        archive
            .append_data(&mut header, name, &mut exact)
            .map_err(|error| self.io(error))
    }

    fn error(&self, errno: Errno) -> SandboxError {
        let inner = resolve::error(errno, self.path);
        SandboxError::new(
            inner.code(),
            format!("{} can't be packed", EntryName::from_bytes(self.at)),
        )
        .with_source(inner)
    }

    fn io(&self, error: io::Error) -> SandboxError {
        io_error(error, self.path)
    }
}

fn joined(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() {
        name.to_vec()
    } else {
        [above, b"/", name].concat()
    }
}

fn header(stat: &Stat) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(stat.mode & 0o777);
    header.set_mtime(u64::try_from(stat.modified.seconds).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// A file of exactly the length that its header says, however it grows or shrinks.
struct Exact {
    file: File,
    left: u64,
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let length = self.file.read(&mut buffer[..most])?;
        if length == 0 && most > 0 {
            return Err(io::Error::other(SandboxError::new(
                ErrorCode::Busy,
                "a file became shorter while it was packed",
            )));
        }
        self.left -= length as u64;
        Ok(length)
    }
}

/// Ends an archive that becomes too long.
struct Bounded<'a> {
    sink: io::BufWriter<&'a mut Sink>,
    left: u64,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
            io::Error::other(SandboxError::new(
                ErrorCode::Limit,
                "the archive is longer than the limit of a stream",
            ))
        })?;
        self.sink.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Unpacks an archive below a folder, which is made where it is missing.
///
/// Every name is resolved beneath that folder, so that neither a name nor a link, of the
/// archive or of a command, leads anything out of it.
pub(super) fn unpack(
    root: BorrowedFd<'_>,
    path: &WorkspacePath,
    source: &mut Source,
    limits: FileLimits,
) -> Result<()> {
    write::make_dir(root, path)?;
    let base = resolve::readable_folder(root, resolve::bytes(path))
        .map_err(|errno| resolve::error(errno, path))?;
    let bounded = source.take(limits.max_stream_bytes.saturating_add(1));
    let mut archive = Archive::new(bounded);
    let damaged = |error: io::Error| match error.downcast::<SandboxError>() {
        Ok(error) => error,
        Err(error) => {
            SandboxError::new(ErrorCode::Invalid, "the tar archive is damaged").with_source(error)
        }
    };
    let mut entries = 0;
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        entries += 1;
        if entries > limits.max_entries {
            return Err(SandboxError::new(
                ErrorCode::Limit,
                format!("the archive holds more than {} entries", limits.max_entries),
            ));
        }
        let name = inner_path(&entry.path_bytes())?;
        if !name.is_empty() {
            Unpacked {
                base: base.as_fd(),
                name: &name,
                path,
            }
            .write(&mut entry)?;
        }
    }
    let mut bounded = archive.into_inner();
    // What follows the archive's end is read and dropped, so that its sender can end well.
    io::copy(&mut bounded, &mut io::sink()).map_err(damaged)?;
    if bounded.limit() == 0 {
        return Err(SandboxError::new(
            ErrorCode::Limit,
            "the archive is longer than the limit of a stream",
        ));
    }
    Ok(())
}

/// An entry of an archive that is unpacked.
struct Unpacked<'a> {
    base: BorrowedFd<'a>,
    name: &'a [u8],
    path: &'a WorkspacePath,
}

impl Unpacked<'_> {
    fn write<R: Read>(&self, entry: &mut tar::Entry<'_, R>) -> Result<()> {
        let (above, last) = match self.name.iter().rposition(|&byte| byte == b'/') {
            Some(cut) => (&self.name[..cut], &self.name[cut + 1..]),
            None => (&b""[..], self.name),
        };
        let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
        match entry.header().entry_type() {
            EntryType::Directory => {
                self.make_folders(self.name)?;
                let folder =
                    resolve::folder(self.base, self.name).map_err(|errno| self.error(errno))?;
                fs::chmodat(
                    &folder,
                    ".",
                    Mode::from_raw_mode(mode | 0o700),
                    AtFlags::empty(),
                )
                .map_err(|errno| self.error(errno))
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.make_folders(above)?;
                let folder =
                    resolve::folder(self.base, above).map_err(|errno| self.error(errno))?;
                if is_folder(&folder, last) {
                    return Err(self.error(Errno::ISDIR));
                }
                let mut draft = Draft::new(folder, self.path)?;
                io::copy(entry, &mut draft.file).map_err(|error| io_error(error, self.path))?;
                let modified = Timespec {
                    tv_sec: i64::try_from(entry.header().mtime().unwrap_or(0)).unwrap_or(0),
                    tv_nsec: 0,
                };
                let times = Timestamps {
                    last_access: modified,
                    last_modification: modified,
                };
                fs::futimens(&draft.file, &times).map_err(|errno| self.error(errno))?;
                draft.publish(last, mode, false, self.path)
            }
            EntryType::Symlink => {
                let target = entry
                    .link_name_bytes()
                    .ok_or_else(|| self.refused("a link without a target"))?;
                if !stays_inside(above, &target) {
                    return Err(self.refused("a link that leads out of the folder"));
                }
                self.make_folders(above)?;
                self.replace(above, last, |folder| fs::symlinkat(&*target, folder, last))
            }
            EntryType::Link => {
                let target = entry
                    .link_name_bytes()
                    .ok_or_else(|| self.refused("a hard link without a target"))?;
                let target = inner_path(&target)?;
                let (from, from_name) = match target.iter().rposition(|&byte| byte == b'/') {
                    Some(cut) => (&target[..cut], &target[cut + 1..]),
                    None => (&b""[..], &target[..]),
                };
                let source = resolve::folder(self.base, from).map_err(|errno| self.error(errno))?;
                self.make_folders(above)?;
                self.replace(above, last, |folder| {
                    fs::linkat(&source, from_name, folder, last, AtFlags::empty())
                })
            }
            EntryType::XGlobalHeader => Ok(()),
            _ => Err(self.refused("a device, a FIFO or an unknown kind of entry")),
        }
    }

    /// Makes a name that can't be replaced in one step, in place of a file or link.
    fn replace(
        &self,
        above: &[u8],
        last: &[u8],
        make: impl Fn(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<()> {
        let folder = resolve::folder(self.base, above).map_err(|errno| self.error(errno))?;
        match make(folder.as_fd()) {
            Err(Errno::EXIST) => {
                fs::unlinkat(&folder, last, AtFlags::empty()).map_err(|errno| self.error(errno))?;
                make(folder.as_fd()).map_err(|errno| self.error(errno))
            }
            made => made.map_err(|errno| self.error(errno)),
        }
    }

    fn make_folders(&self, path: &[u8]) -> Result<()> {
        for end in path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at)
            .chain([path.len()])
        {
            let (above, name) = match path[..end].iter().rposition(|&byte| byte == b'/') {
                Some(cut) => (&path[..cut], &path[cut + 1..end]),
                None => (&b""[..], &path[..end]),
            };
            if name.is_empty() {
                continue;
            }
            let folder = resolve::folder(self.base, above).map_err(|errno| self.error(errno))?;
            match fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.error(errno)),
            }
        }
        Ok(())
    }

    fn refused(&self, what: &str) -> SandboxError {
        SandboxError::new(
            ErrorCode::Path,
            format!(
                "the archive's entry {} is refused: it is {what}",
                EntryName::from_bytes(self.name)
            ),
        )
    }

    fn error(&self, errno: Errno) -> SandboxError {
        let inner = resolve::error(errno, self.path);
        SandboxError::new(
            inner.code(),
            format!(
                "the archive's entry {} can't be unpacked",
                EntryName::from_bytes(self.name)
            ),
        )
        .with_source(inner)
    }
}

/// A name of an archive as a path below the folder it is unpacked to; empty for the
/// folder itself.
fn inner_path(name: &[u8]) -> Result<Vec<u8>> {
    let refused = |why: &str| {
        Err(SandboxError::new(
            ErrorCode::Path,
            format!("the archive's entry {} is refused: {why}", shown(name)),
        ))
    };
    if name.first() == Some(&b'/') {
        return refused("its name is absolute");
    }
    if name.contains(&0) {
        return refused("its name holds a NUL");
    }
    let mut parts = Vec::new();
    for part in name.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return refused("its name holds `..`"),
            part => parts.push(part),
        }
    }
    Ok(parts.join(&b'/'))
}

/// Whether a link's target, read by its letters alone, stays below the folder that is
/// unpacked to. What it leads to later is the kernel's to check, at every use.
fn stays_inside(folder: &[u8], target: &[u8]) -> bool {
    if target.is_empty() || target.first() == Some(&b'/') || target.contains(&0) {
        return false;
    }
    let mut depth = folder
        .split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty())
        .count();
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if depth == 0 => return false,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}
