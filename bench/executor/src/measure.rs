//! One cell of a table: front threads work for a fixed time, and their items are counted from outside.
//!
//! The time is fixed and not the number of items: an unfair pool ends with one slow thread that has the machine for
//! itself, which would flatter a mean over threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rustix::time::{ClockId, clock_gettime};

/// The time after which an item counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// The time that a cell runs.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// The time before the measurement.
    pub warm_up: Duration,
    /// The measured time.
    pub measured: Duration,
}

/// The counter of a front thread, and its stop flag.
#[derive(Debug)]
pub struct Progress<'a> {
    items: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl Progress<'_> {
    /// Returns whether another item is wanted.
    #[must_use]
    pub fn go_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Adds to the items. Only one thread counts here, so no atomic addition is needed.
    pub fn add(&self, items: u64) {
        let so_far = self.items.load(Ordering::Relaxed);
        self.items.store(so_far + items, Ordering::Relaxed);
    }
}

/// The results of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Items of all front threads per second of wall time.
    pub items_per_s: f64,
    /// Items of the slowest front thread per item of the fastest.
    pub fairness: f64,
    /// Processor time of the process per item, without that of `others_cpu`.
    pub cpu_us_per_item: f64,
    /// All items from start to end, also outside the window.
    pub total_items: u64,
}

/// Runs `front` on `threads` front threads and counts. `others_cpu` is the processor time of threads of this process
/// that are not part of the cell.
pub fn measure<F>(
    threads: usize,
    window: Window,
    others_cpu: impl Fn() -> Duration,
    front: F,
) -> Outcome
where
    F: Fn(usize, &Progress<'_>) + Sync,
{
    let stop = AtomicBool::new(false);
    let items: Vec<_> = (0..threads)
        .map(|_| CachePadded::new(AtomicU64::new(0)))
        .collect();
    let counts = || -> Vec<u64> {
        items
            .iter()
            .map(|items| items.load(Ordering::Relaxed))
            .collect()
    };
    let snapshot = || {
        (
            counts(),
            process_cpu().saturating_sub(others_cpu()),
            Instant::now(),
        )
    };
    let (before, after) = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|index| {
                let progress = Progress {
                    items: &items[index],
                    stop: &stop,
                };
                let front = &front;
                thread::Builder::new()
                    .name(format!("front-{index}"))
                    .spawn_scoped(scope, move || front(index, &progress))
                    .expect("a thread can be started")
            })
            .collect();
        thread::sleep(window.warm_up);
        let before = snapshot();
        thread::sleep(window.measured);
        let after = snapshot();
        stop.store(true, Ordering::Relaxed);
        end_or_give_up(&running);
        (before, after)
    });

    let done: Vec<u64> = before.0.iter().zip(&after.0).map(|(a, b)| b - a).collect();
    let sum: u64 = done.iter().sum();
    let least = done.iter().copied().min().unwrap_or(0);
    let most = done.iter().copied().max().unwrap_or(0);
    let cpu_us = after.1.saturating_sub(before.1).as_secs_f64() * 1e6;
    Outcome {
        items_per_s: sum as f64 / (after.2 - before.2).as_secs_f64(),
        fairness: least as f64 / most.max(1) as f64,
        cpu_us_per_item: cpu_us / sum.max(1) as f64,
        total_items: counts().iter().sum(),
    }
}

/// Waits until all front threads have finished their last item.
fn end_or_give_up(running: &[thread::ScopedJoinHandle<'_, ()>]) {
    let asked = Instant::now();
    while !running.iter().all(thread::ScopedJoinHandle::is_finished) {
        if asked.elapsed() > LOST_AFTER {
            eprintln!("an item was lost: a front thread still waits for it");
            std::process::exit(3);
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// Returns the processor time of the process, user and system, of all its threads.
#[must_use]
pub fn process_cpu() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// Returns the processor time of the calling thread.
#[must_use]
pub fn own_cpu() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(
        time.tv_sec.try_into().unwrap_or(0),
        time.tv_nsec.try_into().unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Window = Window {
        warm_up: Duration::from_millis(5),
        measured: Duration::from_millis(50),
    };

    #[test]
    fn counts_the_items_of_all_threads_and_sees_one_that_starves() {
        let no_others = || Duration::ZERO;
        let outcome = measure(2, SHORT, no_others, |index, progress| {
            progress.add(3);
            while progress.go_on() {
                if index == 1 {
                    progress.add(1);
                }
                thread::yield_now();
            }
        });
        assert!(outcome.total_items >= 6, "{outcome:?}");
        assert!(outcome.fairness < 1.0, "{outcome:?}");
    }
}
