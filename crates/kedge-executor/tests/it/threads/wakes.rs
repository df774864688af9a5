//! No wake is lost, and no task runs twice at a time, whoever wakes it when.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kedge_executor::{Context, Next, TaskState};

use crate::support::{NORMAL, asleep, eventually, threaded};

/// A wake of a task that was queued already only looked at its state: the processor could let that look pass what the
/// waker had written before, and the run that began at that moment saw neither the value nor another wake.
#[test]
fn a_run_sees_what_was_written_before_the_wake_that_it_answers() {
    const ROUNDS: u64 = 200_000;
    let (executor, owner) = threaded(1);
    let (data, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (from, to) = (data.clone(), seen.clone());
    let task = move |_: &Context<'_>| {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        Next::Sleep
    };
    let id = executor.schedule(asleep(&NORMAL, owner), task).unwrap();
    let is_asleep = || executor.tasks()[0].state == TaskState::Snoozing(None);
    for round in 1..=ROUNDS {
        assert!(executor.wake(id));
        // The second wake is to come when the run begins.
        for _ in 0..round % 16 {
            spin_loop();
        }
        data.store(round, Ordering::Relaxed);
        assert!(executor.wake(id));
        let is_seen = || seen.load(Ordering::Relaxed) == round;
        for _ in 0..10_000 {
            if is_seen() {
                break;
            }
            spin_loop();
        }
        if !is_seen() {
            eventually(|| is_seen() || is_asleep());
            assert!(is_seen(), "round {round}: the wake was lost");
        }
    }
}
