//! The bytes of an open file of the host, in parts.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::SystemTime;

use rustix::fs::SeekFrom;

use super::{failed, reading};
use crate::digest::{Digest, Hashing};
use crate::error::{Context as _, Result};
use crate::sys::{self, Errno, Stat};
use crate::template::seconds;

/// Whether a file was changed so lately that its time may hide another change.
pub(super) fn is_young(stat: &Stat) -> bool {
    stat.changed.seconds >= seconds(SystemTime::now()).saturating_sub(YOUNG_SECONDS)
}

const YOUNG_SECONDS: i64 = 1;

/// How much of a large file is in memory at once.
pub(super) const BUFFER_BYTES: usize = 256 * 1024;

/// The digest of a file from its beginning; none where it ended elsewhere than its size says.
pub(super) fn digest_again(
    file: &OwnedFd,
    path: &[u8],
    stat: &Stat,
    buffer: &mut Vec<u8>,
) -> Result<Option<Digest>> {
    failed(sys::seek(file, SeekFrom::Start(0)), path)?;
    buffer.resize(BUFFER_BYTES, 0);
    let mut hashing = Hashing::default();
    let whole = each_part(file, path, stat, buffer, |part| {
        hashing.update(part);
        Ok(())
    })?;
    Ok(whole.then(|| hashing.finish()))
}

/// Hands a file over in parts, up to its size; whether it ends there.
///
/// Holes are not read: what the kernel would give are zeros.
pub(super) fn each_part(
    file: &OwnedFd,
    path: &[u8],
    stat: &Stat,
    buffer: &mut [u8],
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<bool> {
    let is_sparse = stat.blocks.saturating_mul(512) < stat.size;
    let mut total: u64 = 0;
    loop {
        if is_sparse {
            let data = next_data(file, total, stat.size).source(|| reading(path))?;
            if data > total {
                buffer.fill(0);
            }
            while total < data {
                let part = usize::try_from(data - total)
                    .map_or(buffer.len(), |hole| hole.min(buffer.len()));
                each(&buffer[..part])?;
                total += part as u64;
            }
        }
        // The buffer is filled, so that runs of zeros are found whole.
        let mut filled = 0;
        while filled < buffer.len() {
            match sys::read(file.as_fd(), &mut buffer[filled..]).source(|| reading(path))? {
                0 => break,
                count => filled += count,
            }
        }
        if filled == 0 {
            return Ok(total == stat.size);
        }
        total += filled as u64;
        if total > stat.size {
            return Ok(false);
        }
        each(&buffer[..filled])?;
    }
}

/// Where the next data begins, at the earliest at `from`; the file is left standing there.
fn next_data(file: &OwnedFd, from: u64, size: u64) -> sys::Result<u64> {
    match sys::seek(file, SeekFrom::Data(from)) {
        // Nothing but a hole follows; what was appended since is read, and found too long.
        Err(Errno::NXIO) => {
            let end = size.max(from);
            sys::seek(file, SeekFrom::Start(end))
        }
        data => data,
    }
}
