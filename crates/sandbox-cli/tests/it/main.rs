//! The program as it is run: real arguments, real bubblewrap.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that fails here says where")]

mod copy;
mod events;
mod place;
mod refusals;
mod run;
mod sessions;
mod signals;
mod streams;
mod words;
