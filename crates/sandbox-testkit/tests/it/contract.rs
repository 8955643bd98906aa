//! The fake keeps the contract.

use std::sync::Arc;

use sandbox_core::Backend;
use sandbox_testkit::fake::FakeBackend;

sandbox_testkit::contract_tests!(Arc::new(FakeBackend::new()) as Arc<dyn Backend>);
