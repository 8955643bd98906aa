//! Cancelling a command, without a runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::wait::Waiters;

/// A switch that is thrown once: whoever holds a clone can throw it or wait for it.
///
/// Given to a spawn it cancels the command: before the start nothing is started, later
/// everything is killed, and the result is `SANDBOX_CANCELLED` (SPEC PROC-4).
///
/// ```
/// use sandbox_core::CancelToken;
///
/// let token = CancelToken::new();
/// let other = token.clone();
/// assert!(!token.is_cancelled());
/// other.cancel();
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<State>);

#[derive(Debug, Default)]
struct State {
    thrown: AtomicBool,
    waiters: Waiters,
}

impl CancelToken {
    /// A token that nobody has thrown.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Throws it; may be repeated.
    pub fn cancel(&self) {
        self.0.thrown.store(true, Ordering::SeqCst);
        self.0.waiters.wake_all();
    }

    /// Whether it was thrown.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.thrown.load(Ordering::SeqCst)
    }

    /// Waits until it is thrown.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn cancelled(&self) {
        self.0.waiters.until(|| self.is_cancelled()).await;
    }
}
