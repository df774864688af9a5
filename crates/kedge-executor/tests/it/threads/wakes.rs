//! No wake is lost, and no task runs on two threads at once, whichever threads wake it.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kedge_executor::{Next, TaskContext, TaskState};

use crate::support::{Counter, NORMAL, asleep, begin, eventually, finish, threaded};

/// A wake of a queued task used to only read its state. The processor could order that read before the waker's earlier
/// writes, and the run that began at that moment saw neither those nor another wake.
#[test]
fn run_sees_writes_that_precede_its_wake() {
    const ROUNDS: u64 = 200_000;
    let (executor, owner) = threaded(1);
    let (data, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (from, to) = (data.clone(), seen.clone());
    let task = move |_: &TaskContext<'_>| {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        Next::Sleep
    };
    let id = executor.schedule(asleep(&NORMAL, owner), task).unwrap();
    let is_asleep = || executor.tasks()[0].state == TaskState::Snoozing(None);
    for round in 1..=ROUNDS {
        assert!(executor.wake(id));
        // The second wake should coincide with the start of the run.
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

/// Many threads wake one task, whose runs end in every way: it never runs on two threads, and a run follows the last
/// wake.
#[test]
fn task_runs_on_one_thread_at_a_time_and_after_every_wake() {
    const WAKERS: u64 = 4;
    const WAKES: u64 = 5_000;
    let (executor, owner) = threaded(3);
    let (written, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (from, to) = (written.clone(), seen.clone());
    let (inside, together, mut runs) = (AtomicBool::new(false), Counter::default(), 0_u64);
    let noted = together.clone();
    let task = move |_: &TaskContext<'_>| {
        if inside.swap(true, Ordering::SeqCst) {
            noted.add();
        }
        to.store(from.load(Ordering::SeqCst), Ordering::SeqCst);
        runs += 1;
        for _ in 0..runs % 64 {
            spin_loop();
        }
        inside.store(false, Ordering::SeqCst);
        match runs % 4 {
            0 => Next::Again,
            1 => Next::Snooze(Duration::from_micros(50)),
            2 => Next::Snooze(Duration::from_secs(1_000)),
            _ => Next::Sleep,
        }
    };
    let id = executor.schedule(asleep(&NORMAL, owner), task).unwrap();
    let wakers: Vec<_> = (0..WAKERS)
        .map(|waker| {
            let (executor, written) = (executor.clone(), written.clone());
            begin(move || {
                for nth in 0..WAKES {
                    written.fetch_add(1, Ordering::SeqCst);
                    assert!(executor.wake(id));
                    if nth % 7 == waker {
                        executor.snooze(id, Duration::from_micros(20));
                    }
                }
            })
        })
        .collect();
    for waker in &wakers {
        finish(waker);
    }
    eventually(|| seen.load(Ordering::SeqCst) == WAKERS * WAKES);
    executor.unregister(owner, true);
    assert_eq!(together.get(), 0);
}

/// Tasks that wake each other in a ring, each run caused by one wake: none gets stuck.
#[test]
fn tasks_wake_each_other_across_pools() {
    const ROUNDS: u32 = 2_000;
    let (executor, owner) = threaded(2);
    let ids = Arc::new(std::sync::OnceLock::<Vec<kedge_executor::TaskId>>::new());
    let laps = Counter::default();
    let kinds = [&NORMAL, &crate::support::READER, &crate::support::WRITER];
    let tasks = kinds.iter().enumerate().map(|(nth, kind)| {
        let (ids, laps) = (ids.clone(), laps.clone());
        let task = move |context: &TaskContext<'_>| {
            if laps.add() < ROUNDS {
                let ids = ids.get().expect("they are asleep until it is set");
                assert!(context.executor().wake(ids[(nth + 1) % ids.len()]));
            }
            Next::Sleep
        };
        executor.schedule(asleep(kind, owner), task).unwrap()
    });
    let first = ids.get_or_init(|| tasks.collect())[0];
    assert!(executor.wake(first));
    laps.wait_for(ROUNDS);
}
