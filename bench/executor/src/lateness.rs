//! The lateness of timers in an idle pool: 1,000 tasks snooze until far later, and others, one after the other, for a
//! short while.
//!
//! Runs in a process of its own, so that nothing else needs the processor.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use kedge_bench_common::random::Random;

use crate::idle::add_sleepers;
use crate::pool::TaskPool;

const SHORTEST_US: u64 = 2_000;
const LONGEST_US: u64 = 20_000;
/// The distance of the other timers: beyond the end of the measurement.
const FAR: Duration = Duration::from_secs(120);
/// The lateness after which a timer counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// The deviation of the start of a run from the end of its snooze.
#[derive(Debug, Clone, Copy)]
pub struct Lateness {
    /// The median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The maximum.
    pub max_ms: f64,
}

/// Measures in this process, which must have no other work.
///
/// # Panics
/// When a timer is lost.
#[must_use]
pub fn run<P: TaskPool>(pool: &P, snoozes: usize) -> Lateness {
    let (tell, told) = mpsc::channel();
    // Each is snoozed once: a task that has just run may not sleep yet.
    let ids: Vec<_> = (0..snoozes)
        .map(|_| {
            let tell = tell.clone();
            pool.add(None, move || {
                let _ = tell.send(Instant::now());
            })
        })
        .collect();
    add_sleepers(pool, FAR);

    let mut random = Random::new(1);
    let mut late_ms: Vec<_> = ids
        .into_iter()
        .map(|id| {
            let time = Duration::from_micros(SHORTEST_US + random.below(LONGEST_US - SHORTEST_US));
            let due = Instant::now() + time;
            pool.snooze(id, time);
            let began = told.recv_timeout(time + LOST_AFTER);
            off_by(began.expect("a timer fires"), due).as_secs_f64() * 1e3
        })
        .collect();
    late_ms.sort_by(f64::total_cmp);
    let at = |share: f64| late_ms[(share * (late_ms.len() - 1) as f64).round() as usize];
    Lateness {
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        max_ms: at(1.0),
    }
}

/// Returns the deviation; too early is as wrong as too late, and one of the two is zero.
fn off_by(began: Instant, due: Instant) -> Duration {
    began.saturating_duration_since(due) + due.saturating_duration_since(began)
}
