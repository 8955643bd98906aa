//! Every name on disk, in one place. `docs` of the crate describe what each holds.

use sandbox_core::{SessionId, TemplateKey};

use crate::digest::Digest;

pub(crate) const FORMAT: &str = "FORMAT";
pub(crate) const FORMAT_NEW: &str = "FORMAT.new";
pub(crate) const LOCK: &str = "lock";
pub(crate) const LOCK_STORE: &str = "store";
pub(crate) const LOCK_GC: &str = "gc";
pub(crate) const BLOBS: &str = "blobs";
pub(crate) const TEMPLATES: &str = "templates";
pub(crate) const SESSIONS: &str = "sessions";
pub(crate) const LEASES: &str = "leases";
pub(crate) const REFS: &str = "refs";
pub(crate) const STAGING: &str = "staging";
pub(crate) const TRASH: &str = "trash";
pub(crate) const QUARANTINE: &str = "quarantine";

/// The folders of a store, in the order in which they are made.
pub(crate) const FOLDERS: [&str; 9] = [
    LOCK, BLOBS, TEMPLATES, SESSIONS, LEASES, REFS, STAGING, TRASH, QUARANTINE,
];

/// In a template.
pub(crate) const MANIFEST: &str = "manifest";
pub(crate) const META: &str = "meta.json";
pub(crate) const USE: &str = "use";

/// In a session.
pub(crate) const STATE: &str = "state.json";
pub(crate) const WORKSPACE: &str = "workspace";
pub(crate) const HOME: &str = "home";
pub(crate) const POLICY: &str = "policy.json";
pub(crate) const DIRTY: &str = "dirty";
/// What `stat` said of each file when the workspace was made; see [`crate::changes`].
pub(crate) const STATS: &str = "stats";

/// In a staging folder.
pub(crate) const STAGING_LOCK: &str = "lock";
pub(crate) const STAGING_BLOBS: &str = "blobs";
pub(crate) const STAGING_OUT: &str = "out";

/// Mode of every folder of the store. SPEC STO-8.
pub(crate) const FOLDER_MODE: u32 = 0o700;
/// Mode of every record and lock. SPEC STO-8.
pub(crate) const RECORD_MODE: u32 = 0o600;
/// Mode of every blob.
pub(crate) const BLOB_MODE: u32 = 0o400;
/// Mode of a session's workspace, as the inside sees it.
pub(crate) const WORKSPACE_MODE: u32 = 0o755;

/// The largest record that is read.
pub(crate) const MAX_RECORD_BYTES: u64 = 1 << 20;
/// The largest manifest that is read: about ten million entries.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 2 << 30;

/// The folder of a blob, and its name in it.
pub(crate) fn blob(digest: &Digest) -> (String, String) {
    let mut folder = digest.to_string();
    let name = folder.split_off(2);
    (folder, name)
}

pub(crate) fn template(key: &TemplateKey) -> String {
    key.to_string()
}

pub(crate) fn session(id: &SessionId) -> String {
    id.to_string()
}

/// The side file that says, without being trusted, who holds a lease.
pub(crate) fn holder(id: &SessionId) -> String {
    format!("{id}.holder")
}
