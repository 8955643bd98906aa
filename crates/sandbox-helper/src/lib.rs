//! The processes that stand between the host and a command.
//!
//! **Owns** the two roles of the program `sandbox-helper`: *keeper*, which holds a session's
//! namespaces and starts bubblewrap on request, and *init*, pid 1 of each command, which reads
//! its request, sets the limits and executes. And the [`wire`] that both speak with the host.
//!
//! **Never knows** tokio, JSON, policies, templates or the store: it runs between `fork` and
//! `exec`, thousands of times, in one thread.
//!
//! Start at [`entry::main`], which is all that the program calls, or at [`wire`], which is all
//! that the host side needs:
//!
//! ```
//! use sandbox_helper::wire::{Body, Message};
//!
//! let datagram = Message::new(7, Body::Signal(15)).encode();
//! assert_eq!(Message::decode(&datagram).unwrap().body, Body::Signal(15));
//! ```
#![cfg(target_os = "linux")]

pub mod entry;
mod init;
mod keeper;
mod probe;
mod step;
#[expect(
    unsafe_code,
    reason = "what rustix has no safe form of: fork, exec, dispositions, fixed descriptor numbers"
)]
mod sys;
pub mod wire;

pub use step::Step;
