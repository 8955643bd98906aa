//! The bubblewrap backend of the sandbox.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod argv;
mod config;
pub mod keeper;
mod supervise;

pub use config::{Config, KernelBounds, Owner, ReadOnlyMount};
