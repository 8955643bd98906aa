//! The canonical list of entries that makes a tree. `FORMAT.md` has the encoding.

use std::collections::HashMap;

use sandbox_core::{Timestamp, shown};

use crate::digest::{Digest, FieldHasher, TreeId};
use crate::error::{Cause, Result};

mod decode;
mod encode;

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Names joined by `/`, none of them empty, `.` or `..`.
    pub(crate) path: Vec<u8>,
    /// The nine permission bits; 0o777 for a link.
    pub(crate) mode: u16,
    pub(crate) modified: Timestamp,
    pub(crate) node: Node,
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    File {
        digest: Digest,
        size: u64,
        /// Files of the same number, from 1, are one file with several names; 0 is none.
        group: u32,
    },
    Symlink {
        target: Vec<u8>,
    },
}

impl Node {
    /// The kind as the encoding and the key have it.
    fn kind(&self) -> u8 {
        match self {
            Self::Directory => 1,
            Self::File { .. } => 2,
            Self::Symlink { .. } => 3,
        }
    }
}

/// Entries in byte order of their paths, each below a folder that is one of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    entries: Vec<Entry>,
}

impl Manifest {
    /// Sorts and checks the entries; one tree has exactly one manifest.
    ///
    /// Link groups may carry any numbers: they are renumbered in order of appearance, and
    /// a group of one is none.
    pub(crate) fn new(mut entries: Vec<Entry>) -> Result<Self> {
        entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        renumber_groups(&mut entries);
        let manifest = Self { entries };
        manifest.check().map_err(Cause::Invalid)?;
        Ok(manifest)
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The bytes of all files, each counted once a name.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| match entry.node {
            Node::File { size, .. } => u64::saturating_add(sum, size),
            _ => sum,
        })
    }

    /// The canonical bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }

    /// Reads canonical bytes, and nothing else.
    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Self, String> {
        let manifest = decode::decode(bytes)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The name of this exact tree, given its canonical bytes.
    pub(crate) fn tree_id(encoded: &[u8]) -> TreeId {
        TreeId::from_bytes(*Digest::of(encoded).as_bytes())
    }

    /// The hash of what a key depends on: path, kind, mode and content of each entry.
    pub(crate) fn content_root(&self) -> [u8; 32] {
        let mut hasher = FieldHasher::new(b"sbx-content-v1");
        hasher.fixed(&(self.entries.len() as u64).to_le_bytes());
        for entry in &self.entries {
            hasher.field(&entry.path);
            hasher.fixed(&[entry.node.kind()]);
            hasher.fixed(&entry.mode.to_le_bytes());
            let content = match &entry.node {
                Node::Directory => Digest::of(b""),
                Node::File { digest, .. } => *digest,
                Node::Symlink { target } => Digest::of(target),
            };
            hasher.fixed(content.as_bytes());
        }
        hasher.finish()
    }

    /// What makes the encoding the only one of its tree.
    fn check(&self) -> std::result::Result<(), String> {
        let mut folders: Vec<&[u8]> = Vec::new();
        let mut groups: HashMap<u32, (&Entry, usize)> = HashMap::new();
        let mut last: Option<&[u8]> = None;
        for entry in &self.entries {
            let path = entry.path.as_slice();
            check_path(path)?;
            if last.is_some_and(|last| last >= path) {
                return Err(format!("{} is out of order or there twice", shown(path)));
            }
            last = Some(path);
            if let Some(slash) = path.iter().rposition(|byte| *byte == b'/')
                && folders.binary_search(&&path[..slash]).is_err()
            {
                return Err(format!("{} stands in no folder of the tree", shown(path)));
            }
            check_entry(entry)?;
            match entry.node {
                // Sorted, since the paths come in order.
                Node::Directory => folders.push(path),
                Node::File { group, .. } if group > 0 => {
                    let next = u32::try_from(groups.len()).unwrap_or(u32::MAX) + 1;
                    let (first, count) = groups.entry(group).or_insert((entry, 0));
                    if *count == 0 && group != next {
                        return Err(format!("{} begins link group {group}", shown(path)));
                    }
                    if !is_one_file(first, entry) {
                        return Err(format!("{} differs from its other names", shown(path)));
                    }
                    *count += 1;
                }
                _ => {}
            }
        }
        match groups.iter().find(|(_, (_, count))| *count < 2) {
            Some((group, _)) => Err(format!("link group {group} has one name")),
            None => Ok(()),
        }
    }
}

/// Whether two entries of a group say the same of their one file.
fn is_one_file(one: &Entry, other: &Entry) -> bool {
    (one.mode, one.modified, &one.node) == (other.mode, other.modified, &other.node)
}

fn check_path(path: &[u8]) -> std::result::Result<(), String> {
    let is_name = |name: &[u8]| {
        !matches!(name, b"" | b"." | b"..") && name.len() <= 255 && !name.contains(&0)
    };
    if path.split(|byte| *byte == b'/').all(is_name) {
        Ok(())
    } else {
        Err(format!("{} is no path of a tree", shown(path)))
    }
}

fn check_entry(entry: &Entry) -> std::result::Result<(), String> {
    let fine = match &entry.node {
        Node::Symlink { target } => {
            entry.mode == 0o777
                && !target.is_empty()
                && target.len() <= 4095
                && !target.contains(&0)
        }
        _ => entry.mode <= 0o777,
    };
    if fine && entry.modified.nanoseconds < 1_000_000_000 {
        Ok(())
    } else {
        Err(format!(
            "{} has an impossible mode, time or target",
            shown(&entry.path)
        ))
    }
}

fn renumber_groups(entries: &mut [Entry]) {
    let mut sizes: HashMap<u32, usize> = HashMap::new();
    for entry in entries.iter() {
        if let Node::File { group, .. } = entry.node {
            *sizes.entry(group).or_default() += 1;
        }
    }
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    for entry in entries {
        if let Node::File { group, .. } = &mut entry.node {
            *group = if *group == 0 || sizes[group] < 2 {
                0
            } else {
                let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX - 1) + 1;
                *numbers.entry(*group).or_insert(next)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Timestamp = Timestamp {
        seconds: -1,
        nanoseconds: 999_999_999,
    };

    fn entry(path: &str, node: Node) -> Entry {
        Entry {
            path: path.as_bytes().to_vec(),
            mode: if matches!(node, Node::Symlink { .. }) {
                0o777
            } else {
                0o755
            },
            modified: TIME,
            node,
        }
    }

    fn file(path: &str, group: u32) -> Entry {
        let node = Node::File {
            digest: Digest::of(b"x"),
            size: 1,
            group,
        };
        entry(path, node)
    }

    fn link(path: &str, target: &[u8]) -> Entry {
        entry(
            path,
            Node::Symlink {
                target: target.to_vec(),
            },
        )
    }

    fn folder(path: &str) -> Entry {
        entry(path, Node::Directory)
    }

    fn sample() -> Manifest {
        let entries = vec![
            file("z", 9),
            link("d/link", b"\xff"),
            folder("d"),
            file("d-x", 0),
            file("d/a", 9),
            file("lonely", 4),
        ];
        Manifest::new(entries).unwrap()
    }

    // I1: order and group numbers of the input say nothing; one tree, one encoding.
    #[test]
    fn i1_one_tree_has_one_encoding() {
        let manifest = sample();
        let paths: Vec<&[u8]> = manifest
            .entries()
            .iter()
            .map(|entry| entry.path.as_slice())
            .collect();
        assert_eq!(
            paths,
            [&b"d"[..], b"d-x", b"d/a", b"d/link", b"lonely", b"z"]
        );
        let groups: Vec<u32> = manifest
            .entries()
            .iter()
            .filter_map(|entry| match entry.node {
                Node::File { group, .. } => Some(group),
                _ => None,
            })
            .collect();
        assert_eq!(groups, [0, 1, 0, 1]);
        assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
    }

    // Whatever no writer of this format writes is refused.
    #[test]
    fn only_the_canonical_form_is_read() {
        let unchecked = |entries: Vec<Entry>| Manifest { entries }.encode();
        let with = |change: fn(&mut Entry)| {
            let mut entry = file("a", 0);
            change(&mut entry);
            vec![entry]
        };
        let refused: Vec<(&str, Vec<Entry>)> = vec![
            ("out of order", vec![file("b", 0), file("a", 0)]),
            ("twice", vec![file("a", 0), file("a", 0)]),
            ("no folder", vec![file("a/b", 0)]),
            ("no folder", vec![file("a", 0), file("a/b", 0)]),
            ("no path", vec![file("", 0)]),
            ("no path", vec![folder("a"), file("a/..", 0)]),
            ("no path", vec![file(".", 0)]),
            ("no path", vec![file("/a", 0)]),
            ("no path", vec![folder("a"), file("a/", 0)]),
            ("no path", vec![file("a\0b", 0)]),
            ("no path", vec![file(&"x".repeat(256), 0)]),
            ("impossible", with(|entry| entry.mode = 0o1755)),
            (
                "impossible",
                with(|entry| entry.modified.nanoseconds = 1_000_000_000),
            ),
            ("impossible", vec![link("a", b"")]),
            ("impossible", vec![link("a", b"x\0")]),
            (
                "impossible",
                vec![Entry {
                    mode: 0o755,
                    ..link("a", b"x")
                }],
            ),
            ("one name", vec![file("a", 1)]),
            ("begins link group", vec![file("a", 2), file("b", 2)]),
            (
                "differs",
                vec![
                    file("a", 1),
                    Entry {
                        mode: 0o644,
                        ..file("b", 1)
                    },
                ],
            ),
        ];
        for (why, entries) in refused {
            let error = Manifest::decode(&unchecked(entries)).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    // STC-46: cut short, longer, or turned over: refused, and nothing large is allocated.
    #[test]
    fn stc_46_damaged_bytes_are_refused() {
        let bytes = sample().encode();
        for length in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Manifest::decode(&[&bytes[..], b"x"].concat()).is_err());
        let mut promising = bytes.clone();
        promising[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(
            Manifest::decode(&promising)
                .unwrap_err()
                .contains("promises")
        );
        for at in 0..bytes.len() {
            let mut turned = bytes.clone();
            turned[at] ^= 0xff;
            // Refused, or another tree: never the same one.
            if let Ok(other) = Manifest::decode(&turned) {
                assert_ne!(other, sample(), "{at}");
            }
        }
    }
}
