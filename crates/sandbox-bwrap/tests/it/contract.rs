//! What every backend does, on bubblewrap.

use std::sync::Arc;

use sandbox_bwrap::BwrapBackend;
use sandbox_core::Backend;
use sandbox_testkit::contract::Subject;

use crate::backend::config;

async fn subject() -> Subject {
    let state = tempfile::tempdir().unwrap();
    let backend = BwrapBackend::new(config(state.path())).unwrap();
    Subject::keeping(Arc::new(backend) as Arc<dyn Backend>, state)
}

sandbox_testkit::contract_tests!(subject().await);
