//! LongLived: a number of tasks in total, divided over the front threads, asleep for ever. One item: wake the next task
//! and wait until it has run; the run counts, posts, and goes back to sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::baton::{BATON_SPIN, Baton};
use crate::burn::Burners;
use crate::measure::{Outcome, Window, measure};
use crate::pool::TaskPool;

/// The way in which a task is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Posts without waiting.
    Post,
    /// Waits until the pool has acted.
    AndWait,
}

/// Runs one cell. With `busy` other threads of this process keep all cores busy meanwhile.
///
/// # Panics
/// When the number of runs differs from the number of wakes.
#[must_use]
pub fn run<P: TaskPool>(
    threads: usize,
    tasks: usize,
    wake: Wake,
    busy: bool,
    window: Window,
) -> Outcome {
    let pool = P::start(threads);
    let runs = Arc::new(AtomicU64::new(0));
    let batons: Vec<_> = (0..threads)
        .map(|_| Arc::new(Baton::new(BATON_SPIN)))
        .collect();
    let ids: Vec<_> = (0..tasks)
        .map(|index| {
            let (baton, runs) = (Arc::clone(&batons[index % threads]), Arc::clone(&runs));
            pool.add(None, move || {
                runs.fetch_add(1, Ordering::Relaxed);
                baton.post();
            })
        })
        .collect();
    let burners = Burners::start(busy);
    let others_cpu = || burners.cpu();
    let outcome = measure(threads, window, others_cpu, |front, progress| {
        let mut own = ids.iter().skip(front).step_by(threads).cycle();
        let baton = &batons[front];
        while progress.go_on()
            && let Some(id) = own.next()
        {
            baton.reset();
            match wake {
                Wake::Post => pool.wake(*id),
                Wake::AndWait => assert!(pool.wake_and_wait(*id), "a task that is there"),
            }
            baton.wait();
            progress.add(1);
        }
    });
    for id in ids {
        pool.cancel(id);
    }
    drop(pool);
    let runs = runs.load(Ordering::Relaxed);
    assert_eq!(runs, outcome.total_items, "one run for one wake");
    outcome
}
