//! Names by content: SHA-256 of blobs, manifests and keys.

use sandbox_core::{BackendName, TemplateId, TemplateKey};
use sha2::{Digest as _, Sha256};

sandbox_core::id_type! {
    /// The SHA-256 of a file's bytes: the name of a blob.
    pub struct Digest, "digest"
}

sandbox_core::id_type! {
    /// The SHA-256 of a manifest's bytes: one exact tree, times of change included.
    pub struct TreeId, "tree id"
}

/// A hash over a sequence of fields, each of which can't run into the next.
pub(crate) struct FieldHasher(Sha256);

impl FieldHasher {
    /// Begins with a domain, so that no two kinds of hash share a preimage.
    pub(crate) fn new(domain: &[u8]) -> Self {
        Self(Sha256::new_with_prefix(domain))
    }

    /// A field of any length: its length as 8 bytes, little-endian, then its bytes.
    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// A field of a length that the encoding fixes.
    pub(crate) fn fixed(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

impl Digest {
    /// The digest of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::from_bytes(Sha256::digest(bytes).into())
    }
}

/// A digest in the making.
#[derive(Default)]
pub(crate) struct Hashing(Sha256);

impl Hashing {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest::from_bytes(self.0.finalize().into())
    }
}

/// The key of a template: a pure function of backend, template id and content root (SPEC STO-1).
pub(crate) fn template_key(
    backend: &BackendName,
    id: &TemplateId,
    content_root: &[u8; 32],
) -> TemplateKey {
    let mut hasher = FieldHasher::new(b"sbx-template-v1");
    hasher.field(backend.as_str().as_bytes());
    hasher.field(id.as_str().as_bytes());
    hasher.fixed(content_root);
    TemplateKey::from_bytes(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    // STC-07: the border between backend and id is part of the key.
    #[test]
    fn stc_07_fields_do_not_run_into_each_other() {
        let key = |backend: &str, id: &str| {
            template_key(
                &BackendName::new(backend).unwrap(),
                &TemplateId::new(id).unwrap(),
                &[0; 32],
            )
        };
        assert_ne!(key("ab", "c"), key("a", "bc"));
    }
}
