//! The backend on real bubblewrap, as root and as an ordinary user.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that fails here says where")]

mod backend;
mod confinement;
mod contract;
mod faults;
mod host;
mod outcomes;
mod processes;
mod session;
mod streams;
mod wire;
