//! What every backend does, as tests.
//!
//! A property is a function of a `&dyn Backend` that panics where the backend is wrong. It
//! asks through the traits alone, in a session of its own that it deletes, and its name
//! begins with the line of SPEC that it proves. [`contract_tests!`](crate::contract_tests)
//! makes one test of each.

#![expect(clippy::unwrap_used, reason = "a property that fails says where")]

pub mod commands;
pub mod files;
pub mod lifecycle;
pub mod policy;
pub mod script;

mod place;

use std::any::Any;
use std::sync::Arc;

use sandbox_core::Backend;

/// A backend under test, with what must live as long as it does.
#[derive(Debug)]
pub struct Subject {
    backend: Arc<dyn Backend>,
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

impl Subject {
    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Keeps something until the test is over: a folder that is then removed, say.
    #[must_use]
    pub fn keeping(backend: Arc<dyn Backend>, kept: impl Any + Send + Sync) -> Self {
        Self {
            backend,
            _kept: Some(Box::new(kept)),
        }
    }
}

impl From<Arc<dyn Backend>> for Subject {
    fn from(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            _kept: None,
        }
    }
}
