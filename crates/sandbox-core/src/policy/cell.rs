//! The policy in force, with its revision, as one value.

use std::sync::{Arc, Mutex};

use crate::policy::Policy;
use crate::posture::Revision;
use crate::wait::lock;

/// A policy and the revision it came with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySnapshot {
    /// The revision.
    pub revision: Revision,
    /// The policy.
    pub policy: Policy,
}

/// Publishes `(revision, policy)` as one snapshot: gate, broker and coding adapter read
/// it whole, never one without the other.
#[derive(Debug)]
pub struct PolicyCell(Mutex<Arc<PolicySnapshot>>);

impl PolicyCell {
    /// A cell that holds this policy at the first revision.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self(Mutex::new(Arc::new(PolicySnapshot {
            revision: Revision::FIRST,
            policy,
        })))
    }

    /// What is in force now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<PolicySnapshot> {
        Arc::clone(&lock(&self.0))
    }

    /// Puts a policy in force under the next revision.
    pub(crate) fn publish(&self, policy: Policy) -> Arc<PolicySnapshot> {
        let mut current = lock(&self.0);
        *current = Arc::new(PolicySnapshot {
            revision: current.revision.next(),
            policy,
        });
        Arc::clone(&current)
    }
}
