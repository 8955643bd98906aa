//! Writing the canonical bytes.

use super::{Entry, Manifest, Node};

/// What every manifest begins with: the domain of its hash, and the version.
pub(super) const MAGIC: &[u8; 16] = b"sbx-manifest-v1\n";

pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAGIC.len() + 8 + manifest.entries.len() * 96);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(manifest.entries.len() as u64).to_le_bytes());
    for entry in &manifest.entries {
        push_entry(&mut bytes, entry);
    }
    bytes
}

fn push_entry(bytes: &mut Vec<u8>, entry: &Entry) {
    push_field(bytes, &entry.path);
    bytes.push(entry.node.kind());
    bytes.extend_from_slice(&entry.mode.to_le_bytes());
    bytes.extend_from_slice(&entry.modified.seconds.to_le_bytes());
    bytes.extend_from_slice(&entry.modified.nanoseconds.to_le_bytes());
    match &entry.node {
        Node::Directory => {}
        Node::File {
            digest,
            size,
            group,
        } => {
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(digest.as_bytes());
            bytes.extend_from_slice(&group.to_le_bytes());
        }
        Node::Symlink { target } => push_field(bytes, target),
    }
}

fn push_field(bytes: &mut Vec<u8>, field: &[u8]) {
    bytes.extend_from_slice(&(field.len() as u64).to_le_bytes());
    bytes.extend_from_slice(field);
}
