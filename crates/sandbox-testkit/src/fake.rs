//! A backend in memory, stricter than any that runs real processes.
//!
//! It yields at every step, refuses a second live handle, keeps nothing usable after a
//! stop, and starts no command that was admitted under an older policy. Its commands are
//! the scripts of the [contract](crate::contract::script), each `Program` that a test
//! gives it, and nothing else; a [`Fault`] goes wrong once, where it fits next. All its
//! waits are tokio's, so a paused clock moves them.

mod archive;
mod backend;
mod command;
mod driver;
mod fault;
mod handle;
mod process;
mod program;
mod shell;
mod tree;

pub use backend::FakeBackend;
pub use fault::Fault;
pub use program::{Program, Step};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex over a small state, which is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
