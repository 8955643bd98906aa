//! Small JSON records: read with a bound, written whole.

use std::os::fd::{AsFd, OwnedFd};

use sandbox_core::{FileKind, shown};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Cause, Context as _, Result};
use crate::layout::{MAX_RECORD_BYTES, RECORD_MODE};
use crate::sys::{self, Errno, Open};

/// Reads a file that must be regular and no larger than `limit`. None where it is missing.
///
/// Whatever stands in its place (a link, a FIFO, a device) is refused without being read.
pub(crate) fn read_bounded(
    folder: impl AsFd,
    name: &str,
    label: &str,
    limit: u64,
) -> Result<Option<Vec<u8>>> {
    let file = match sys::open(&folder, name, Open::Read) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(Cause::damaged(label, "it is a symbolic link")),
        Err(Errno::NXIO) => return Err(Cause::damaged(label, "it is no regular file")),
        Err(errno) => return Err(Cause::Store(format!("opening {label}"), errno)),
    };
    read_open(&file, label, limit).map(Some)
}

/// Reads an open file that must be regular and no larger than `limit`.
pub(crate) fn read_open(file: &OwnedFd, label: &str, limit: u64) -> Result<Vec<u8>> {
    let stat = sys::stat(file).store(|| format!("looking at {label}"))?;
    if stat.kind != FileKind::File {
        return Err(Cause::damaged(label, format!("it is a {}", stat.kind)));
    }
    if stat.size > limit {
        return Err(Cause::damaged(
            label,
            format!("it has {} bytes, more than the {limit} expected", stat.size),
        ));
    }
    let size = usize::try_from(stat.size).unwrap_or(usize::MAX);
    // One byte more shows a file that grew after the look.
    let mut bytes = vec![0; size.saturating_add(1)];
    let mut filled = 0;
    while filled < bytes.len() {
        match sys::read(file, &mut bytes[filled..]).store(|| format!("reading {label}"))? {
            0 => break,
            count => filled += count,
        }
    }
    if filled != size {
        return Err(Cause::damaged(label, "it changed while it was read"));
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Reads a JSON record. None where it is missing.
pub(crate) fn read<T: DeserializeOwned>(
    folder: impl AsFd,
    name: &str,
    label: &str,
) -> Result<Option<T>> {
    let Some(bytes) = read_bounded(folder, name, label, MAX_RECORD_BYTES)? else {
        return Ok(None);
    };
    parse(&bytes, label).map(Some)
}

/// Parses a record; what does not fit is damage, named.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], label: &str) -> Result<T> {
    if bytes.is_empty() {
        return Err(Cause::damaged(label, "it is empty"));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        Cause::damaged(
            label,
            format!(
                "{error}; it begins with {}",
                shown(&bytes[..bytes.len().min(40)])
            ),
        )
    })
}

/// The bytes of a record, ending in a newline for people who look.
pub(crate) fn to_bytes<T: Serialize>(record: &T, label: &str) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(record)
        .map_err(|error| Cause::Invalid(format!("{label} can't be written: {error}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Writes a file that must not exist yet; synced where asked for.
pub(crate) fn write_new(
    folder: impl AsFd,
    name: &str,
    bytes: &[u8],
    durable: bool,
) -> Result<OwnedFd> {
    let what = || format!("writing {name}");
    let file = sys::create(&folder, name, RECORD_MODE).store(what)?;
    sys::write_all(&file, bytes).store(what)?;
    if durable {
        sys::sync_data(&file).store(what)?;
    }
    Ok(file)
}

/// Puts new bytes in the place of a record that only the caller may write: a reader sees
/// the old or the new, also after a crash.
pub(crate) fn replace(
    folder: impl AsFd,
    name: &str,
    temporary: &str,
    bytes: &[u8],
    durable: bool,
) -> Result<()> {
    let what = || format!("writing {name}");
    let file = sys::overwrite(&folder, temporary, RECORD_MODE).store(what)?;
    sys::write_all(&file, bytes).store(what)?;
    if durable {
        sys::sync_data(&file).store(what)?;
    }
    sys::rename_over(&folder, temporary, &folder, name).store(what)?;
    if durable {
        sys::sync(&folder).store(what)?;
    }
    Ok(())
}
