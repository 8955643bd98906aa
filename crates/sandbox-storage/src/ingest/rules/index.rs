//! The paths that a repository tracks, read from its index (gitformat-index(5)).

use std::collections::HashSet;

/// Tracked files, and the folders that hold one.
#[derive(Debug, Default)]
pub(super) struct Tracked(HashSet<Vec<u8>>);

impl Tracked {
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.0.contains(path)
    }

    /// Reads an index of version 2, 3 or 4. None for anything else.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(b"DIRC")?;
        let version = u32::from_be_bytes(*take(&mut rest)?);
        let count = u32::from_be_bytes(*take(&mut rest)?);
        if !(2..=4).contains(&version) {
            return None;
        }
        let mut tracked = HashSet::new();
        let mut path = Vec::new();
        for _ in 0..count {
            let entry = rest;
            // Times, device, inode, mode, owner, size, and the object's SHA-1.
            let _: &[u8; 60] = take(&mut rest)?;
            let flags = u16::from_be_bytes(*take(&mut rest)?);
            if version >= 3 && flags & EXTENDED != 0 {
                let _: &[u8; 2] = take(&mut rest)?;
            }
            if version == 4 {
                let strip = offset(&mut rest)?;
                path.truncate(path.len().checked_sub(strip)?);
            } else {
                path.clear();
            }
            let end = rest.iter().position(|byte| *byte == 0)?;
            path.extend_from_slice(&rest[..end]);
            rest = if version == 4 {
                &rest[end + 1..]
            } else {
                // 1 to 8 NULs, so that entries are multiples of eight bytes long.
                let used = entry.len() - rest.len() + end;
                entry.get((used + 8) & !7..)?
            };
            insert(&mut tracked, &path);
        }
        Some(Self(tracked))
    }
}

/// The flag of an entry with two bytes more.
const EXTENDED: u16 = 0x4000;

/// A path and the folders above it.
fn insert(tracked: &mut HashSet<Vec<u8>>, path: &[u8]) {
    let mut end = path.len();
    // A sparse index names folders, by a slash at the end.
    let mut path = path.strip_suffix(b"/").unwrap_or(path);
    while end > 0 && tracked.insert(path.to_vec()) {
        end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        path = &path[..end];
    }
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(taken)
}

/// A number of git's "offset" encoding: seven bits a byte, each continuation adding one.
fn offset(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    loop {
        let [byte] = *take::<1>(rest)?;
        value = value
            .checked_mul(128)?
            .checked_add(usize::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(version: u32, entries: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
        for (prefix, name) in entries {
            let begin = bytes.len();
            bytes.extend([0; 62]);
            bytes.extend(*prefix);
            bytes.extend(*name);
            bytes.push(0);
            while version < 4 && !(bytes.len() - begin).is_multiple_of(8) {
                bytes.push(0);
            }
        }
        bytes
    }

    #[test]
    fn tracked_paths_and_their_folders_are_known() {
        let second = index(2, &[(b"", b"a/b/c"), (b"", b"a/bd"), (b"", b"x1234567")]);
        // Version 4 names how much of the last path falls away.
        let fourth = index(
            4,
            &[(b"\0", b"a/b/c"), (b"\x03", b"bd"), (b"\x04", b"x1234567")],
        );
        for bytes in [second, fourth] {
            let tracked = Tracked::parse(&bytes).unwrap();
            for path in ["a", "a/b", "a/b/c", "a/bd", "x1234567"] {
                assert!(tracked.has(path.as_bytes()), "{path}");
            }
            assert!(!tracked.has(b"a/b/d"));
        }
    }

    #[test]
    fn what_is_no_index_is_refused() {
        for bytes in [
            &b""[..],
            b"DIRC",
            b"DIRC\0\0\0\x05\0\0\0\0",
            b"DIRC\0\0\0\x02\0\0\0\x01ab",
        ] {
            assert!(Tracked::parse(bytes).is_none());
        }
    }
}
