//! Deadlines, which the manual clock meets exactly.

use std::time::Duration;

use kedge_executor::{Next, TaskContext, TaskSpec, TaskState};

use crate::support::{Counter, HOUR, Log, NORMAL, SECOND, after, asleep, manual};

const NANOSECOND: Duration = Duration::from_nanos(1);

/// A task that records its run times in ns and always returns `next`.
fn noting(times: &Log<u128>, next: Next) -> impl kedge_executor::Task + use<> {
    let times = times.clone();
    move |context: &TaskContext<'_>| {
        times.note(context.now().as_nanos());
        next
    }
}

#[test]
fn deadline_is_exact_to_the_nanosecond() {
    // Some deadlines are checked early, and some coincide with those checks.
    for ns in [
        1,
        2,
        999_999_999,
        1_000_000_000,
        1_000_000_001,
        1 << 33,
        86_400_000_000_123,
    ] {
        let (executor, manual, owner) = manual();
        let times = Log::default();
        let time = Duration::from_nanos(ns);
        assert_eq!(manual.now(), NANOSECOND);
        executor
            .schedule(
                after(&NORMAL, owner, time),
                noting(&times, Next::Snooze(time)),
            )
            .unwrap();
        assert_eq!(manual.advance(time - NANOSECOND), 0);
        assert_eq!(manual.advance(NANOSECOND), 1);
        assert_eq!(manual.now(), time + NANOSECOND);
        assert_eq!(manual.advance(3 * time), 3);
        let due = |nth: u64| u128::from(1 + nth * ns);
        assert_eq!(times.take(), [due(1), due(2), due(3), due(4)]);
    }
}

#[test]
fn many_deadlines_fire_in_order() {
    let (executor, manual, owner) = manual();
    let times = Log::default();
    let count = 1_000;
    for nth in 0..count {
        // In no order, near and far.
        let time = Duration::from_millis((nth * 7_919) % 10_007);
        executor
            .schedule(after(&NORMAL, owner, time), noting(&times, Next::Done))
            .unwrap();
    }
    let due_at_once = 1;
    assert_eq!(manual.run_ready(), due_at_once);
    manual.advance(HOUR);
    let times = times.take();
    assert!(times.is_sorted());
    let mut expected: Vec<u128> = (0..u128::from(count))
        .map(|nth| 1 + (nth * 7_919) % 10_007 * 1_000_000)
        .collect();
    expected.sort_unstable();
    assert_eq!(times, expected);
}

#[test]
fn snooze_moves_a_deadline_in_both_directions() {
    let (executor, manual, owner) = manual();
    let times = Log::default();
    let id = executor
        .schedule(asleep(&NORMAL, owner), noting(&times, Next::Sleep))
        .unwrap();
    assert!(executor.snooze(id, 50 * SECOND));
    assert!(executor.snooze(id, 20 * SECOND), "nearer");
    assert_eq!(manual.advance(19 * SECOND), 0);
    assert!(executor.snooze(id, 100 * SECOND), "further");
    assert_eq!(manual.advance(99 * SECOND), 0);
    assert_eq!(manual.advance(SECOND), 1);
    assert_eq!(times.take(), [119_000_000_001]);
    assert!(executor.snooze(id, Duration::ZERO), "at once");
    assert_eq!(manual.advance(Duration::ZERO), 1);
    assert_eq!(manual.advance(HOUR), 0);
}

#[test]
fn snooze_affects_sleeping_tasks_only() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    let counted = runs.clone();
    let task = move |context: &TaskContext<'_>| {
        assert!(!context.executor().snooze(context.id(), SECOND), "it runs");
        counted.add();
        Next::Sleep
    };
    let id = executor
        .schedule(TaskSpec::new(&NORMAL, owner), task)
        .unwrap();
    assert!(!executor.snooze(id, SECOND), "it is queued");
    assert_eq!(manual.run_ready(), 1);
    assert!(executor.snooze(id, SECOND));
    assert!(executor.wake(id));
    assert!(!executor.snooze(id, HOUR), "it is queued again");
    assert_eq!(manual.run_ready(), 1);
    assert_eq!(
        manual.advance(2 * HOUR),
        0,
        "the wake ended the sleep, and its deadline"
    );
    assert!(executor.cancel(id));
    assert!(!executor.snooze(id, SECOND));
    assert_eq!(runs.get(), 2);
}

/// As for the timeout of a connection that is active from time to time.
#[test]
fn repeatedly_postponed_deadline_never_fires() {
    let (executor, manual, owner) = manual();
    let times = Log::default();
    let id = executor
        .schedule(asleep(&NORMAL, owner), noting(&times, Next::Sleep))
        .unwrap();
    for _ in 0..10_000 {
        assert!(executor.snooze(id, 10 * SECOND));
        assert_eq!(manual.advance(SECOND), 0);
    }
    assert_eq!(manual.advance(9 * SECOND), 1);
    assert_eq!(times.take(), [10_009_000_000_001]);
}

#[test]
fn longest_delays_never_end() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    let id = executor
        .schedule(after(&NORMAL, owner, Duration::MAX), runs.task(Next::Sleep))
        .unwrap();
    assert!(executor.snooze(id, Duration::MAX));
    assert_eq!(manual.advance(1_000_000 * HOUR), 0);
    let state = executor.tasks()[0].state;
    assert!(
        matches!(state, TaskState::Snoozing(Some(left)) if left > 1_000_000 * HOUR),
        "{state:?}"
    );
    assert!(executor.wake(id));
    assert_eq!(manual.run_ready(), 1);
}

#[test]
fn tasks_made_due_by_a_run_run_before_the_clock_advances() {
    let (executor, manual, owner) = manual();
    let times = Log::default();
    let noted = times.clone();
    let first = move |context: &TaskContext<'_>| {
        let task = noting(&noted, Next::Done);
        let spec = after(&NORMAL, owner, 3 * SECOND);
        context.executor().schedule(spec, task).unwrap();
        noted.note(context.now().as_nanos());
        Next::Snooze(2 * SECOND)
    };
    executor
        .schedule(after(&NORMAL, owner, SECOND), first)
        .unwrap();
    manual.advance(6 * SECOND);
    let seconds: Vec<u128> = times.take().iter().map(|ns| ns / 1_000_000_000).collect();
    assert_eq!(seconds, [1, 3, 4, 5, 6]);
}
