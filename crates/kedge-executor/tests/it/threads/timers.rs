//! Timers of a real clock are never early. The tests do not check their delay.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use kedge_executor::{Next, TaskContext, TaskState};

use crate::support::{Counter, HOUR, NORMAL, SECOND, after, eventually, finish, sleeper, threaded};

#[test]
fn timers_never_fire_early() {
    let (executor, owner) = threaded(2);
    let (tell, told) = channel();
    for ms in [0, 1, 2, 5, 30, 30, 30, 100, 1_200] {
        let tell = tell.clone();
        let (time, begun) = (Duration::from_millis(ms), Instant::now());
        let task = move |_: &TaskContext<'_>| {
            tell.send((time, begun.elapsed())).unwrap();
            Next::Done
        };
        executor
            .schedule(after(&NORMAL, owner, time), task)
            .unwrap();
    }
    for _ in 0..9 {
        let (time, took) = finish(&told);
        assert!(took >= time, "{took:?} instead of {time:?}");
    }
}

#[test]
fn task_may_snooze_repeatedly() {
    const TIME: Duration = Duration::from_millis(2);
    let (executor, owner) = threaded(1);
    let (runs, begun) = (Counter::default(), Instant::now());
    executor
        .schedule(after(&NORMAL, owner, TIME), runs.task(Next::Snooze(TIME)))
        .unwrap();
    runs.wait_for(10);
    assert!(begun.elapsed() >= 10 * TIME);
}

/// An earlier deadline than all others of the timer, a later one, or none.
#[test]
fn deadline_may_move_while_the_timer_waits_for_it() {
    let (executor, owner) = threaded(1);
    let (id, runs) = sleeper(&executor, owner);
    assert!(executor.snooze(id, HOUR));
    assert!(executor.snooze(id, Duration::from_millis(1)));
    runs.wait_for(1);
    for round in 2..200 {
        // The task may not be asleep yet after the run before.
        eventually(|| executor.snooze(id, Duration::from_micros(u64::from(round) * 3)));
        if round % 3 == 0 {
            executor.snooze(id, HOUR);
            executor.wake(id);
        }
        runs.wait_for(round);
    }
    eventually(|| executor.snooze(id, HOUR));
    assert!(
        matches!(executor.tasks()[0].state, TaskState::Snoozing(Some(left)) if left > HOUR / 2)
    );
}

/// Tasks that sleep long do not delay the timers of others, and all end with their owner.
#[test]
fn ten_thousand_sleeping_tasks_do_not_delay_others() {
    const SLEEPERS: u64 = 10_000;
    let (executor, owner) = threaded(2);
    let (drops, runs) = (Counter::default(), Counter::default());
    let mut ids = Vec::new();
    for nth in 0..SLEEPERS {
        let dropped = drops.clone();
        let task = crate::support::dropping(move || {
            dropped.add();
        });
        let time = 100 * SECOND + Duration::from_millis(nth % 977);
        ids.push(
            executor
                .schedule(after(&NORMAL, owner, time), task)
                .unwrap(),
        );
    }
    for id in &ids {
        assert!(executor.snooze(*id, 200 * SECOND));
    }
    let quick = Duration::from_micros(100);
    for _ in 0..100 {
        executor
            .schedule(after(&NORMAL, owner, quick), runs.task(Next::Snooze(quick)))
            .unwrap();
    }
    runs.wait_for(1_000);
    assert_eq!(executor.tasks().len(), SLEEPERS as usize + 100);
    assert_eq!(drops.get(), 0);
    for id in &ids[..1_000] {
        assert!(executor.wake(*id));
    }
    executor.unregister(owner, true);
    assert_eq!(u64::from(drops.get()), SLEEPERS);
    assert!(executor.tasks().is_empty());
}
