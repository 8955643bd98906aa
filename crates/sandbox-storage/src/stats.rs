//! `stats`: what each file of a workspace was when it was made, so that those that were
//! never written to need no reading.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::materialise::Made;

/// What every such file begins with.
const MAGIC: &[u8; 16] = b"sbx-stats-v1\n\0\0\0";
const ENTRY_BYTES: usize = 8 + 8 + 4;

/// The stats of the entries of a manifest, in its order.
#[derive(Debug)]
pub(crate) struct Stats {
    /// When the stats were written: before the first command, after the last file.
    written: (i64, u32),
    made: Vec<Made>,
}

/// Writes the stats, dated now.
pub(crate) fn encode(made: &[Made]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAGIC.len() + 20 + made.len() * ENTRY_BYTES);
    bytes.extend_from_slice(MAGIC);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    bytes.extend_from_slice(&i64::try_from(now.as_secs()).unwrap_or(0).to_le_bytes());
    bytes.extend_from_slice(&now.subsec_nanos().to_le_bytes());
    bytes.extend_from_slice(&(made.len() as u64).to_le_bytes());
    for made in made {
        bytes.extend_from_slice(&made.inode.to_le_bytes());
        bytes.extend_from_slice(&made.changed.0.to_le_bytes());
        bytes.extend_from_slice(&made.changed.1.to_le_bytes());
    }
    bytes
}

impl Stats {
    /// Reads them. None where they are not those of `count` entries: everything is read then.
    pub(crate) fn decode(bytes: &[u8], count: usize) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<16>()?;
        let (seconds, rest) = rest.split_first_chunk::<8>()?;
        let (nanoseconds, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let fits = magic == MAGIC
            && u64::from_le_bytes(*length) == count as u64
            && rest.len() == count.checked_mul(ENTRY_BYTES)?;
        if !fits {
            return None;
        }
        let made = rest
            .chunks_exact(ENTRY_BYTES)
            .map(|entry| {
                let (inode, entry) = entry.split_first_chunk::<8>()?;
                let (seconds, entry) = entry.split_first_chunk::<8>()?;
                let (nanoseconds, _) = entry.split_first_chunk::<4>()?;
                Some(Made {
                    inode: u64::from_le_bytes(*inode),
                    changed: (
                        i64::from_le_bytes(*seconds),
                        u32::from_le_bytes(*nanoseconds),
                    ),
                })
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            written: (
                i64::from_le_bytes(*seconds),
                u32::from_le_bytes(*nanoseconds),
            ),
            made,
        })
    }

    /// Whether the file of this entry is sure not to have been written to.
    ///
    /// ctime(inode(7)) can't be set by whoever writes, but it counts in steps: a write in
    /// the same step as the last look would not show, so young files are read.
    pub(crate) fn is_untouched(&self, index: usize, now: Made) -> bool {
        self.made
            .get(index)
            .is_some_and(|made| *made == now && self.is_settled(made.changed))
    }

    /// Whether a change at this moment can't look like one after the stats were written.
    fn is_settled(&self, changed: (i64, u32)) -> bool {
        // Without a fraction the disk may count in whole seconds.
        let step = if changed.1 == 0 {
            COARSE_STEP
        } else {
            FINE_STEP
        };
        let nanoseconds =
            |(seconds, part): (i64, u32)| i128::from(seconds) * 1_000_000_000 + i128::from(part);
        nanoseconds(changed) + step < nanoseconds(self.written)
    }
}

/// More than a tick of the kernel's coarse clock (10 ms at most), in nanoseconds.
const FINE_STEP: i128 = 50_000_000;
/// The step of the coarsest disks, in nanoseconds.
const COARSE_STEP: i128 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn young_changed_and_foreign_entries_are_read() {
        let old = Made {
            inode: 7,
            changed: (1000, 5),
        };
        let young = Made {
            inode: 8,
            changed: (crate::template::seconds(SystemTime::now()), 0),
        };
        let bytes = encode(&[old, young]);
        let stats = Stats::decode(&bytes, 2).unwrap();
        assert!(stats.is_untouched(0, old));
        assert!(!stats.is_untouched(
            0,
            Made {
                changed: (1000, 6),
                ..old
            }
        ));
        assert!(!stats.is_untouched(0, Made { inode: 9, ..old }));
        assert!(!stats.is_untouched(1, young));
        assert!(!stats.is_untouched(2, old));
        assert!(Stats::decode(&bytes, 3).is_none());
        assert!(Stats::decode(&bytes[..bytes.len() - 1], 2).is_none());
        assert!(Stats::decode(b"", 0).is_none());
    }
}
