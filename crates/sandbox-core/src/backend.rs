//! What makes sessions.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::driver_session::SessionLimits;
use crate::error::Result;
use crate::handle::Handle;
use crate::id::TemplateKey;
use crate::policy::Policy;
use crate::posture::Posture;
use crate::state::SavedState;
use crate::template::{BackendName, Prewarmed, TemplateId, TemplateSource};

/// A factory of sessions; it holds none.
///
/// To write one: implement [`Driver`](crate::Driver), wrap it in a
/// [`DriverSession`](crate::DriverSession), give that out through a [`Handle`], and run
/// the contract suite of `sandbox-testkit` on the result.
#[async_trait]
pub trait Backend: Debug + Send + Sync {
    /// Its name; a part of every key and record it makes.
    fn name(&self) -> &BackendName;

    /// How well it isolates, measured on this host, before there is a session.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` where it can't even be tried, with what to do.
    async fn posture(&self) -> Result<Posture>;

    /// Makes a template, or finds it whole (SPEC STO-1, STO-3).
    ///
    /// # Errors
    /// `SANDBOX_LIMIT`, `SANDBOX_STORAGE`.
    ///
    /// # Cancel safety
    /// Dropped, the template appears whole or not at all.
    async fn prewarm(&self, id: &TemplateId, source: TemplateSource) -> Result<Prewarmed>;

    /// Makes a session, or comes back to one.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND` for an unknown template or session, `SANDBOX_STATE_MISMATCH`,
    /// `SANDBOX_BUSY` naming the holder, `SANDBOX_UNAVAILABLE` where the isolation can't
    /// be proved. A failed create of a fresh session leaves nothing behind, a failed
    /// reconnect leaves the session as it was (SPEC STO-6).
    ///
    /// # Cancel safety
    /// Dropped, it leaves what a failure leaves.
    async fn create(&self, request: CreateRequest) -> Result<Arc<dyn Handle>>;
}

/// What a session is made from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CreateRequest {
    /// The template its workspace starts from.
    pub template: TemplateKey,
    /// The session to come back to; a fresh one without it.
    pub resume: Option<SavedState>,
    /// The network policy it starts under. `deny-all`.
    pub policy: Policy,
    /// Its bounds.
    pub limits: SessionLimits,
}

impl CreateRequest {
    /// A fresh session of this template.
    #[must_use]
    pub fn fresh(template: TemplateKey) -> Self {
        Self {
            template,
            resume: None,
            policy: Policy::DenyAll,
            limits: SessionLimits::default(),
        }
    }

    /// The session that was saved.
    #[must_use]
    pub fn resume(state: SavedState) -> Self {
        Self {
            resume: Some(state.clone()),
            ..Self::fresh(state.template_key)
        }
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the bounds.
    #[must_use]
    pub fn limits(mut self, limits: SessionLimits) -> Self {
        self.limits = limits;
        self
    }
}
