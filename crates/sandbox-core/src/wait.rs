//! Futures that wait for a flag, without a runtime.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Locks a mutex over a small state.
///
/// No code of ours panics while it holds one, and a state enum is whole at every
/// moment: a poisoned lock is therefore still good.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those who wait for a condition to come true.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Registered>);

#[derive(Debug, Default)]
struct Registered {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Waiters {
    /// Wakes everybody to look again.
    pub(crate) fn wake_all(&self) {
        let wakers = std::mem::take(&mut lock(&self.0).wakers);
        for waker in wakers.into_values() {
            waker.wake();
        }
    }

    /// Waits until `ready` holds; whoever makes it true calls [`Self::wake_all`] afterwards.
    pub(crate) async fn until(&self, ready: impl Fn() -> bool + Send) {
        let place = Place {
            waiters: self,
            key: self.register(),
        };
        poll_fn(|context| {
            // Registered before the look, so that a change in between still wakes us.
            lock(&self.0)
                .wakers
                .insert(place.key, context.waker().clone());
            if ready() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn register(&self) -> u64 {
        let mut registered = lock(&self.0);
        registered.next += 1;
        registered.next
    }
}

/// A registration that ends with its future.
struct Place<'a> {
    waiters: &'a Waiters,
    key: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(&self.waiters.0).wakers.remove(&self.key);
    }
}
