//! Content-addressed storage of templates and sessions.
//!
//! **Owns** one folder, the store: the bytes of files by their SHA-256 (*blobs*), published
//! trees of them (*templates*), the private copies that commands run in (*sessions*), and
//! the kernel locks that make one process the owner of a session (*leases*).
//!
//! **Never knows** an async runtime, a network or a process: it is synchronous and starts
//! nothing. Every call may take as long as the disk does.
//!
//! What is visible is whole, after a kill at any point: work happens in `staging/` and
//! appears by one rename. `FORMAT.md` beside the crate has the layout and the encodings.
//!
//! **Start** with [`Store::open`], make a template with [`Store::prewarm`], and a session
//! of it with [`Store::create`].
//!
//! ```
//! use sandbox_core::{BackendName, TemplateFile, TemplateFiles, TemplateId, WorkspacePath};
//! use sandbox_storage::{Options, SessionOptions, Store};
//!
//! # let folder = tempfile::tempdir()?;
//! # let state_dir = folder.path().join("state");
//! let store = Store::open(&state_dir, &Options::default())?;
//! let backend = BackendName::new("example")?;
//!
//! let readme = TemplateFile::file(WorkspacePath::parse("README")?, "hello\n");
//! let files = TemplateFiles::new(vec![readme])?;
//! let template = store.prewarm(&backend, &TemplateId::new("docs")?, &files)?;
//!
//! let session = store.create(&backend, &template.template_key, &SessionOptions::default())?;
//! let saved = session.saved_state();
//! session.release();
//!
//! let session = store.reconnect(&backend, &saved, "the example")?;
//! session.delete()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod changes;
mod digest;
mod erase;
mod error;
#[cfg(test)]
mod faults;
mod format;
mod gc;
mod identity;
mod ingest;
mod json;
mod layout;
mod lease;
mod manifest;
mod materialise;
mod open;
mod parallel;
mod prewarm;
mod probe;
mod publish;
mod reap;
mod record;
mod reference;
mod session;
mod staging;
mod stats;
mod store;
mod sys;
mod template;
mod tree;
mod trust;
mod usage;
mod walk;

pub use changes::{Change, ChangeKind};
pub use digest::{Digest, TreeId};
pub use erase::erase_tree;
pub use gc::{GcOptions, GcReport};
pub use identity::Entered;
pub use ingest::{
    HostFolder, IngestLimits, IngestOptions, IngestStats, Ingested, Progress, SkipReason, Skipped,
    Stripped, Unreadable,
};
pub use record::SessionMode;
pub use reference::RefName;
pub use session::{Details, Session, SessionInfo, SessionOptions};
pub use store::{Durability, Options, Store};
pub use template::{Source, TemplateInfo};
pub use usage::Usage;
