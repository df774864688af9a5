//! The idle cost of a pool: all pools, 1,000 snoozing tasks of which none is due, and time.
//!
//! Runs in a process of its own, so that no thread of another contender is counted.

use std::fs;
use std::time::{Duration, Instant};

use kedge_bench_common::random::Random;

use crate::measure::{own_cpu, process_cpu};
use crate::pool::{TaskPool, WholePool};

/// The number of snoozing tasks.
pub const TASKS: usize = 1_000;
/// The distance of the timers from the end of the measurement; they are up to twenty seconds further.
const BEYOND: Duration = Duration::from_secs(10);

/// The idle cost.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    /// Threads of the process, the main thread among them.
    pub threads: usize,
    /// The used share of one core.
    pub core_share: f64,
    /// Context switches of all threads per second.
    pub switches_per_s: f64,
}

/// Measures in this process, which must have no other work.
#[must_use]
pub fn run<P: WholePool>(time: Duration) -> Idle {
    let pool = P::start_whole();
    add_sleepers(&pool, time + BEYOND);

    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let before = (
        switches(own),
        process_cpu().saturating_sub(own_cpu()),
        Instant::now(),
    );
    std::thread::sleep(time);
    let after = (
        switches(own),
        process_cpu().saturating_sub(own_cpu()),
        Instant::now(),
    );
    let seconds = (after.2 - before.2).as_secs_f64();
    Idle {
        threads: before.0.0,
        core_share: after.1.saturating_sub(before.1).as_secs_f64() / seconds,
        switches_per_s: after.0.1.saturating_sub(before.0.1) as f64 / seconds,
    }
}

/// Adds tasks that snooze for at least this long, and returns when the pool is idle.
pub(crate) fn add_sleepers<P: TaskPool>(pool: &P, at_least: Duration) {
    let mut random = Random::new(1);
    for _ in 0..TASKS {
        let further = Duration::from_micros(random.below(20_000_000));
        pool.add(Some(at_least + further), || {});
    }
    // Any spinning after the start has stopped by then.
    std::thread::sleep(Duration::from_millis(500));
}

/// Returns the number of threads of this process, and the context switches of all but the measuring one.
fn switches(own: i32) -> (usize, u64) {
    let tasks = fs::read_dir("/proc/self/task").expect("a process can list its threads");
    let names: Vec<_> = tasks.flatten().map(|entry| entry.file_name()).collect();
    let own = own.to_string();
    let total = names
        .iter()
        .filter(|name| **name != *own)
        .map(|name| {
            let path = format!("/proc/self/task/{}/status", name.display());
            context_switches(&fs::read_to_string(path).unwrap_or_default())
        })
        .sum();
    (names.len(), total)
}

fn context_switches(status: &str) -> u64 {
    let counts = status.lines().filter_map(|line| {
        let (name, count) = line.split_once(':')?;
        name.ends_with("voluntary_ctxt_switches")
            .then(|| count.trim().parse::<u64>().ok())?
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_voluntary_and_other_context_switches() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(context_switches(status), 15);
    }
}
