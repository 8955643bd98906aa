//! Admission: who may start, under which policy, and until when.

use std::sync::{Arc, Mutex};

use crate::error::{ErrorCode, Result, SandboxError};
use crate::policy::{Policy, PolicyCell, PolicySnapshot};
use crate::posture::Revision;
use crate::refusal::Refusal;
use crate::session::When;
use crate::wait::{Waiters, lock};

/// The most commands that a session may be configured to run at once.
const MAX_CONCURRENT: usize = 1024;

/// The one place that admits commands of a session.
///
/// Admission, its count and the revision it happens under are one step under one lock
/// (SPEC OWN-1); a policy change closes admission for its time (SPEC BAK-6); after a
/// stop began nothing is admitted (SPEC OWN-2).
#[derive(Debug)]
pub(crate) struct Gate {
    max_running: usize,
    policy: PolicyCell,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    waiters: Waiters,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    running: usize,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Active,
    Stopping,
    Stopped,
}

/// Where a change of policy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    UnderWay,
    /// A change was given up half-way: what is enforced is not known.
    Unsettled,
}

/// A place among the running commands; dropping it gives the place back.
///
/// The driver moves it into the task that owns the child.
#[derive(Debug)]
#[must_use]
pub struct Permit {
    shared: Arc<Shared>,
}

impl Permit {
    /// Waits until the session begins to stop: whatever this permit admitted is then killed.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn stopping(&self) {
        self.shared.waiters.until(|| self.is_stopping()).await;
    }

    /// Whether the session has begun to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        lock(&self.shared.state).phase != Phase::Active
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.shared.state).running -= 1;
        self.shared.waiters.wake_all();
    }
}

impl Gate {
    /// A gate for this many commands at once.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` outside 1 to 1024.
    pub(crate) fn new(max_running: usize, policy: Policy) -> Result<Self> {
        if !(1..=MAX_CONCURRENT).contains(&max_running) {
            return Err(SandboxError::invalid(
                "the number of concurrent commands",
                max_running.to_string(),
                "1 to 1024 is accepted",
            ));
        }
        Ok(Self {
            max_running,
            policy: PolicyCell::new(policy),
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    phase: Phase::Active,
                    running: 0,
                    change: Change::None,
                }),
                waiters: Waiters::default(),
            }),
        })
    }

    /// Admits one command, under the policy as it is now; `at` names the revision that
    /// the caller has in mind.
    pub(crate) fn admit(&self, at: Option<Revision>) -> Result<(Permit, Arc<PolicySnapshot>)> {
        let mut state = lock(&self.shared.state);
        check_active(&state)?;
        match state.change {
            Change::None => {}
            Change::UnderWay => return Err(busy("the network policy is being changed")),
            Change::Unsettled => {
                return Err(busy(
                    "a change of the network policy was given up half-way: set the policy again",
                ));
            }
        }
        let snapshot = self.policy.snapshot();
        if let Some(at) = at.filter(|&at| at != snapshot.revision) {
            let what = format!(
                "the command was prepared under policy revision {at}, and revision {} is in force",
                snapshot.revision
            );
            return Err(busy(&what).with_refusal(Refusal {
                code: ErrorCode::Busy,
                what,
                rule: None,
                revision: Some(snapshot.revision),
                hint: Some("prepare the command again".to_owned()),
                retryable: true,
            }));
        }
        if state.running >= self.max_running {
            return Err(busy(&format!(
                "{} commands are running, and {} may run at once",
                state.running, self.max_running
            )));
        }
        state.running += 1;
        Ok((
            Permit {
                shared: Arc::clone(&self.shared),
            },
            snapshot,
        ))
    }

    /// Refuses everything once a stop has begun (SPEC BAK-7).
    pub(crate) fn check_active(&self) -> Result<()> {
        check_active(&lock(&self.shared.state))
    }

    /// The policy in force.
    pub(crate) fn snapshot(&self) -> Arc<PolicySnapshot> {
        self.policy.snapshot()
    }

    /// How many commands are running or being started.
    pub(crate) fn running(&self) -> usize {
        lock(&self.shared.state).running
    }

    /// Closes admission for a change of policy.
    pub(crate) fn begin_change(&self, when: When) -> Result<PolicyChange<'_>> {
        let mut state = lock(&self.shared.state);
        check_active(&state)?;
        if state.change == Change::UnderWay {
            return Err(busy(
                "the network policy is being changed by another caller",
            ));
        }
        if when == When::Idle && state.running > 0 {
            return Err(busy(&format!(
                "{} commands are running under the present policy; wait for them, or ask for the change now",
                state.running
            )));
        }
        state.change = Change::UnderWay;
        Ok(PolicyChange {
            gate: self,
            settled: false,
        })
    }

    /// Admits nothing from here on; true for the first caller.
    pub(crate) fn begin_stop(&self) -> bool {
        let mut state = lock(&self.shared.state);
        let first = state.phase == Phase::Active;
        if first {
            state.phase = Phase::Stopping;
        }
        drop(state);
        self.shared.waiters.wake_all();
        first
    }

    /// Says that the stop is over.
    pub(crate) fn finish_stop(&self) {
        lock(&self.shared.state).phase = Phase::Stopped;
        self.shared.waiters.wake_all();
    }
}

/// A change of policy under way: admission is closed until it is settled.
///
/// Dropped before that, what is enforced is not known, and nothing is admitted until a
/// later change settles it: fail closed.
#[derive(Debug)]
#[must_use]
pub(crate) struct PolicyChange<'a> {
    gate: &'a Gate,
    settled: bool,
}

impl PolicyChange<'_> {
    /// Publishes the policy under the next revision.
    pub(crate) fn publish(&self, policy: Policy) -> Arc<PolicySnapshot> {
        self.gate.policy.publish(policy)
    }

    /// Opens admission.
    pub(crate) fn settle(mut self) {
        self.settled = true;
    }
}

impl Drop for PolicyChange<'_> {
    fn drop(&mut self) {
        lock(&self.gate.shared.state).change = if self.settled {
            Change::None
        } else {
            Change::Unsettled
        };
    }
}

fn check_active(state: &State) -> Result<()> {
    match state.phase {
        Phase::Active => Ok(()),
        Phase::Stopping => Err(SandboxError::new(
            ErrorCode::Stopped,
            "the session is being stopped",
        )),
        Phase::Stopped => Err(SandboxError::new(
            ErrorCode::Stopped,
            "the session was stopped",
        )),
    }
}

fn busy(message: &str) -> SandboxError {
    SandboxError::new(ErrorCode::Busy, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(max: usize) -> Gate {
        Gate::new(max, Policy::DenyAll).unwrap()
    }

    fn refused(gate: &Gate, at: Option<Revision>) -> ErrorCode {
        gate.admit(at).unwrap_err().code()
    }

    // OWN-1
    #[test]
    fn own_1_one_more_than_the_bound_is_busy_and_a_dropped_permit_makes_room() {
        for refused in [0, 1025] {
            assert_eq!(
                Gate::new(refused, Policy::DenyAll).unwrap_err().code(),
                ErrorCode::Invalid
            );
        }
        let gate = gate(2);
        let (one, _) = gate.admit(None).unwrap();
        let _two = gate.admit(None).unwrap();
        assert_eq!(refused(&gate, None), ErrorCode::Busy);
        assert_eq!(gate.running(), 2);
        drop(one);
        let _ = gate.admit(None).unwrap();
    }

    // OWN-1: a race never admits one too many.
    #[test]
    fn own_1_threads_that_race_never_pass_the_bound() {
        let gate = gate(8);
        let permits: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..32)
                .map(|_| scope.spawn(|| gate.admit(None).ok()))
                .collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(permits.len(), 8);
    }

    // OWN-2, BAK-7
    #[test]
    fn own_2_nothing_is_admitted_once_a_stop_began() {
        let gate = gate(1);
        let (permit, _) = gate.admit(None).unwrap();
        assert!(!permit.is_stopping());
        assert!(gate.begin_stop());
        assert!(!gate.begin_stop());
        assert!(permit.is_stopping());
        assert_eq!(refused(&gate, None), ErrorCode::Stopped);
        assert_eq!(gate.check_active().unwrap_err().code(), ErrorCode::Stopped);
        assert_eq!(
            gate.begin_change(When::Now).unwrap_err().code(),
            ErrorCode::Stopped
        );
        gate.finish_stop();
        assert_eq!(refused(&gate, None), ErrorCode::Stopped);
    }

    // BAK-6, COD-3
    #[test]
    fn bak_6_a_change_closes_admission_and_raises_the_revision() {
        let gate = gate(2);
        let (permit, before) = gate.admit(Some(Revision::FIRST)).unwrap();
        assert_eq!(
            gate.begin_change(When::Idle).unwrap_err().code(),
            ErrorCode::Busy
        );
        let change = gate.begin_change(When::Now).unwrap();
        assert_eq!(refused(&gate, None), ErrorCode::Busy);
        assert_eq!(
            gate.begin_change(When::Now).unwrap_err().code(),
            ErrorCode::Busy
        );
        change.publish(Policy::AllowAll);
        change.settle();
        assert_eq!(refused(&gate, Some(before.revision)), ErrorCode::Busy);
        let (_, after) = gate.admit(Some(before.revision.next())).unwrap();
        assert_eq!(after.policy, Policy::AllowAll);
        drop(permit);
    }

    // BAK-6: a change that is given up half-way fails closed, and can be settled.
    #[test]
    fn bak_6_an_unsettled_change_admits_nothing_until_the_next_one() {
        let gate = gate(1);
        drop(gate.begin_change(When::Idle).unwrap());
        assert_eq!(refused(&gate, None), ErrorCode::Busy);
        let change = gate.begin_change(When::Idle).unwrap();
        change.publish(Policy::DenyAll);
        change.settle();
        let _ = gate.admit(None).unwrap();
    }
}
