//! The same work on many items, by as many threads as the disk gains from.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::error::{Cause, Result};

/// Runs `work` once for each index below `count`, on up to `threads` threads, each with a
/// state of its own. The first failure stops the rest and is returned.
pub(crate) fn for_each<S>(
    count: usize,
    threads: usize,
    state: impl Fn() -> Result<S> + Sync,
    work: impl Fn(&mut S, usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let run = || {
        let result = (|| {
            let mut state = state()?;
            while !stop.load(Ordering::Relaxed) {
                let begin = next.fetch_add(BATCH, Ordering::Relaxed);
                if begin >= count {
                    break;
                }
                for index in begin..count.min(begin + BATCH) {
                    work(&mut state, index)?;
                }
            }
            Ok(())
        })();
        if result.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        result
    };
    if threads < 2 || count <= BATCH {
        return run();
    }
    #[cfg(test)]
    let plan = crate::sys::fault::current();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads)
            .map(|_| {
                scope.spawn(|| {
                    #[cfg(test)]
                    crate::sys::fault::adopt(plan.clone());
                    run()
                })
            })
            .collect();
        let own = run();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err(panicked())))
            .fold(own, Result::and)
    })
}

fn panicked() -> Cause {
    Cause::damaged("a copying thread", "it panicked")
}

/// How many neighbours one thread takes at once: they share a folder more often than not.
const BATCH: usize = 32;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_index_is_visited_once_and_a_failure_stops() {
        let seen = Mutex::new(vec![0; 1000]);
        for_each(
            1000,
            2,
            || Ok(()),
            |(), index| {
                seen.lock().unwrap()[index] += 1;
                Ok(())
            },
        )
        .unwrap();
        assert!(seen.lock().unwrap().iter().all(|count| *count == 1));
        let failed = for_each(
            1000,
            2,
            || Ok(()),
            |(), index| match index {
                500 => Err(Cause::Limit("there".into())),
                _ => Ok(()),
            },
        );
        assert!(matches!(failed, Err(Cause::Limit(_))));
    }
}
