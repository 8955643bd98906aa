//! Fakes, the contract of backends, and strategies.
#![forbid(unsafe_code)]

pub mod contract;
pub mod fake;
