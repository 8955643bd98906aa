//! Reading the canonical bytes; what another writer would have written differently is refused.

use sandbox_core::Timestamp;

use super::encode::MAGIC;
use super::{Entry, Manifest, Node};
use crate::digest::Digest;

type Result<T> = std::result::Result<T, String>;

pub(super) fn decode(bytes: &[u8]) -> Result<Manifest> {
    let mut rest = Rest(bytes);
    if rest.take(MAGIC.len())? != MAGIC {
        return Err("it does not begin as a manifest of this version".to_owned());
    }
    let count = u64::from_le_bytes(rest.array()?);
    // The smallest entry bounds how many there can be, before anything is allocated.
    let most = rest.0.len() / MIN_ENTRY_BYTES;
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= most)
        .ok_or_else(|| format!("it promises {count} entries, more than its bytes hold"))?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(entry(&mut rest)?);
    }
    if rest.0.is_empty() {
        Ok(Manifest { entries })
    } else {
        Err(format!("{} bytes follow its last entry", rest.0.len()))
    }
}

/// A length, a path of one byte, kind, mode, and a time.
const MIN_ENTRY_BYTES: usize = 8 + 1 + 1 + 2 + 8 + 4;

fn entry(rest: &mut Rest<'_>) -> Result<Entry> {
    let path = rest.field()?.to_vec();
    let [kind] = rest.array()?;
    let mode = u16::from_le_bytes(rest.array()?);
    let modified = Timestamp {
        seconds: i64::from_le_bytes(rest.array()?),
        nanoseconds: u32::from_le_bytes(rest.array()?),
    };
    let node = match kind {
        1 => Node::Directory,
        2 => Node::File {
            size: u64::from_le_bytes(rest.array()?),
            digest: Digest::from_bytes(rest.array()?),
            group: u32::from_le_bytes(rest.array()?),
        },
        3 => Node::Symlink {
            target: rest.field()?.to_vec(),
        },
        other => return Err(format!("it holds an entry of the unknown kind {other}")),
    };
    Ok(Entry {
        path,
        mode,
        modified,
        node,
    })
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| "it ends in the middle of an entry".to_owned())?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn field(&mut self) -> Result<&'a [u8]> {
        let length = u64::from_le_bytes(self.array()?);
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }
}
