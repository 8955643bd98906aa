//! What goes wrong, once, where it fits next.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use sandbox_core::CancelToken;

use super::lock;

/// One thing that goes wrong in a [`FakeBackend`](super::FakeBackend).
///
/// Faults wait in the order they were given; each happens at the next call that it fits,
/// and once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A session that is being made can't be isolated.
    Create,
    /// A command's isolation can't be set up: nothing is started.
    SetUp,
    /// A command's output ends after so many bytes, and the command is lost.
    CutOutput {
        /// How much is passed on, of both streams together.
        after: u64,
    },
    /// A command's end is told so long after its streams have closed.
    LateExit(Duration),
    /// The other side of a session is gone when it is next asked: what runs is lost, and
    /// everything fails until the session is stopped.
    LostSession,
    /// A change of policy can't be enforced.
    Policy,
    /// A change of policy takes effect only once the token is thrown.
    HeldPolicy(CancelToken),
    /// A stop finds something that does not go away; all the same it ends.
    Stop,
}

/// Faults that have not happened yet.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<VecDeque<Fault>>);

impl Faults {
    pub(super) fn add(&self, fault: Fault) {
        lock(&self.0).push_back(fault);
    }

    /// Takes the first one that fits.
    pub(super) fn take<T>(&self, fits: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        let mut faults = lock(&self.0);
        let (index, taken) = faults
            .iter()
            .enumerate()
            .find_map(|(index, fault)| Some((index, fits(fault)?)))?;
        faults.remove(index);
        Some(taken)
    }

    pub(super) fn waiting(&self) -> usize {
        lock(&self.0).len()
    }
}
