//! The bubblewrap backend: sessions whose commands run in bubblewrap.
//!
//! **Owns** processes and namespaces: it joins the store, the helper and (later) the broker
//! into a [`Backend`](sandbox_core::Backend). [`BwrapBackend`] is the factory,
//! [`BwrapHandle`] the owner of one session, [`argv`] the pure function to bubblewrap's
//! options, [`keeper`] the host's side of a session's namespaces, [`toolchain`] what of a
//! home folder is visible inside, [`doctor`] what a host lacks and how to mend it.

//!
//! **Never knows** what a model's tools are, or how a person types.
//!
//! Start with [`BwrapBackend::new`]. Linux only: elsewhere the crate is empty (SPEC BAK-1).
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod argv;
mod backend;
mod config;
pub mod doctor;
mod driver;
mod files;
mod handle;
mod host_folder;
mod identity;
pub mod keeper;
mod launch;
mod locate;
mod probe;
mod supervise;
pub mod toolchain;

pub use backend::{BwrapBackend, OpenOptions};
pub use config::{Config, KernelBounds, Owner, ReadOnlyMount};
pub use handle::BwrapHandle;
pub use host_folder::HostFolder;
pub use identity::is_kernel_root;
