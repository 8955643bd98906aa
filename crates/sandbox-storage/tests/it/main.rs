//! The store through its public interface, on a real disk.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that fails here says where")]

mod changes;
mod child;
mod gc;
mod ingest;
mod keys;
mod kill;
mod leases;
mod model;
mod mounts;
mod open;
mod sessions;
mod support;
