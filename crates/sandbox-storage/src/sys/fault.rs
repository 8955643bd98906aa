//! Faults on purpose: the n-th system call of a thread fails, or the process dies there.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

/// What happens at the chosen call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The call fails with this error.
    Fail(Errno),
    /// From this call on every one fails with this error, as on a full disk.
    FailOn(Errno),
    /// The process dies, as by SIGKILL.
    Die,
    /// The plan's act is done just before the call: what a rival does meanwhile.
    Act,
    /// The same before each call from this one on.
    ActOn,
}

/// Which call is hit, and what was called.
pub(crate) struct Plan {
    at: usize,
    fault: Fault,
    act: Box<dyn Fn() + Send + Sync>,
    calls: AtomicUsize,
    log: Mutex<Vec<&'static str>>,
}

impl Plan {
    /// Hits the call with this number, from 0; `usize::MAX` hits none and only counts.
    pub(crate) fn new(at: usize, fault: Fault) -> Arc<Self> {
        Self::with(at, fault, || ())
    }

    /// Does something else just before the call with this number.
    pub(crate) fn acting(at: usize, act: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Self::with(at, Fault::Act, act)
    }

    /// Does something else just before each call.
    pub(crate) fn acting_always(act: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Self::with(0, Fault::ActOn, act)
    }

    fn with(at: usize, fault: Fault, act: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            at,
            fault,
            act: Box::new(act),
            calls: AtomicUsize::new(0),
            log: Mutex::default(),
        })
    }

    /// Runs `work` under the plan.
    pub(crate) fn run<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        struct Disarm(Option<Arc<Plan>>);
        impl Drop for Disarm {
            fn drop(&mut self) {
                adopt(self.0.take());
            }
        }
        let _disarm = Disarm(adopt(Some(Arc::clone(self))));
        work()
    }

    /// The act's own calls are nobody's.
    fn act(&self) {
        let own = adopt(None);
        (self.act)();
        adopt(own);
    }

    /// The calls so far, by name.
    pub(crate) fn log(&self) -> Vec<&'static str> {
        self.log.lock().unwrap().clone()
    }
}

thread_local! {
    static PLAN: RefCell<Option<Arc<Plan>>> = const { RefCell::new(None) };
}

/// The plan of this thread, for a worker that it starts.
pub(crate) fn current() -> Option<Arc<Plan>> {
    PLAN.with(|plan| plan.borrow().clone())
}

/// Puts this thread under a plan and gives back the one before.
pub(crate) fn adopt(plan: Option<Arc<Plan>>) -> Option<Arc<Plan>> {
    PLAN.with(|current| current.replace(plan))
}

/// Counts a call, and fails or dies where the plan says so.
pub(crate) fn check(name: &'static str) -> Result<(), Errno> {
    let Some(plan) = current() else { return Ok(()) };
    let number = plan.calls.fetch_add(1, Ordering::SeqCst);
    plan.log.lock().unwrap().push(name);
    match plan.fault {
        Fault::Fail(errno) if number == plan.at => Err(errno),
        Fault::FailOn(errno) if number >= plan.at => Err(errno),
        Fault::Act if number == plan.at => {
            plan.act();
            Ok(())
        }
        Fault::ActOn if number >= plan.at => {
            plan.act();
            Ok(())
        }
        Fault::Die if number == plan.at => {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            // Delivery to oneself precedes the return of kill(2): nothing runs from here.
            loop {
                std::thread::park();
            }
        }
        _ => Ok(()),
    }
}
