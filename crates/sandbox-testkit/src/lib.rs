//! What authors and users of backends test with.
//!
//! **Owns** the [`contract`] of a backend as tests over `&dyn Backend`, and a strict
//! [`fake`] backend in memory, with scripted faults, for those who use sessions and want no
//! real ones, and the [`helper`] that tests of real isolation use. **Never knows** any crate
//! of ours but core: everybody's tests use it.
//!
//! Start with [`contract_tests!`], which makes a test of each property:
//!
//! ```no_run
//! async fn my_backend() -> std::sync::Arc<dyn sandbox_core::Backend> {
//!     std::sync::Arc::new(sandbox_testkit::fake::FakeBackend::new())
//! }
//!
//! mod contract {
//!     sandbox_testkit::contract_tests!(super::my_backend().await);
//! }
//! # fn main() {}
//! ```
#![forbid(unsafe_code)]

pub mod contract;
pub mod fake;
pub mod helper;
