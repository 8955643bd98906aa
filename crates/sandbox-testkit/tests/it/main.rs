//! The testkit's own promises.
#![expect(clippy::unwrap_used, reason = "a test that fails here says where")]

mod contract;
mod faults;
mod properties;
