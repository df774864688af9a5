//! TimeoutAddCancel: many tasks, one pool thread. One item: snooze a task for a random 10 to 30 s. Nothing runs.

use std::time::{Duration, Instant};

use kedge_bench_common::random::Random;

use crate::burn::Burners;
use crate::measure::{Outcome, Window, measure};
use crate::pool::TaskPool;

const SHORTEST_US: u64 = 10_000_000;
const LONGEST_US: u64 = 30_000_000;
/// The longest duration of a cell.
const LONGEST_CELL: Duration = Duration::from_millis(150);
/// The number of items between two checks of the flag that ends the cell.
const STRIDE: u64 = 16;

/// The figures of a cell.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// The caller's view: a snooze that only posts is finished when it is posted.
    pub outcome: Outcome,
    /// Items per second until the pool has also acted on the last one.
    pub settled_per_s: f64,
}

/// Returns the shorter window of a cell: a contender that posts faster than its pool acts has a growing queue.
#[must_use]
pub fn shortened(window: Window) -> Window {
    Window {
        measured: window.measured.min(LONGEST_CELL),
        ..window
    }
}

/// Returns a random time to snooze for.
pub fn snooze_time(random: &mut Random) -> Duration {
    Duration::from_micros(SHORTEST_US + random.below(LONGEST_US - SHORTEST_US))
}

/// Runs one cell. With `busy` other threads of this process keep all cores busy meanwhile.
///
/// # Panics
/// When the pool has lost the task that signals the end.
#[must_use]
pub fn run<P: TaskPool>(tasks: usize, busy: bool, window: Window) -> Timeouts {
    let pool = P::start(1);
    let mut random = Random::new(tasks as u64);
    let ids: Vec<_> = (0..tasks)
        .map(|_| pool.add(Some(snooze_time(&mut random)), || {}))
        .collect();
    let last = pool.add(None, || {});
    assert!(pool.wake_and_wait(last), "a task that is there");

    let burners = Burners::start(busy);
    let others_cpu = || burners.cpu();
    let began = Instant::now();
    let outcome = measure(1, shortened(window), others_cpu, |_, progress| {
        let mut random = random.clone();
        let mut all = ids.iter().cycle();
        while progress.go_on() {
            for id in all.by_ref().take(STRIDE as usize) {
                pool.snooze(*id, snooze_time(&mut random));
            }
            progress.add(STRIDE);
        }
    });
    assert!(pool.wake_and_wait(last), "a task that is there");
    let settled_per_s = outcome.total_items as f64 / began.elapsed().as_secs_f64();
    Timeouts {
        outcome,
        settled_per_s,
    }
}
