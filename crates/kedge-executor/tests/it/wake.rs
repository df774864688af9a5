//! Wakes in each phase of a task.

use std::time::Duration;

use kedge_executor::{Next, Pool, TaskContext, TaskSpec, TaskState};

use crate::support::{
    Counter, HIGH, HOUR, Log, NORMAL, READER, SECOND, after, asleep, histogram_of, manual, sleeper,
};

#[test]
fn repeated_wakes_of_a_sleeping_task_cause_one_run() {
    let (executor, manual, owner) = manual();
    let (id, runs) = sleeper(&executor, owner);
    assert_eq!(manual.advance(HOUR), 0);
    assert!(executor.wake(id));
    assert!(executor.wake(id));
    assert_eq!(runs.get(), 0, "a wake only posts");
    assert_eq!(manual.run_ready(), 1);
    assert_eq!(manual.advance(HOUR), 0);
    assert!(executor.wake(id));
    assert_eq!(manual.run_ready(), 1);
    assert_eq!(runs.get(), 2);
}

/// The run returns `Sleep` after the wake.
#[test]
fn wake_during_a_run_causes_another_whatever_the_run_returns() {
    for next in [
        Next::Sleep,
        Next::Snooze(HOUR),
        Next::Snooze(Duration::ZERO),
        Next::Again,
    ] {
        let (executor, manual, owner) = manual();
        let runs = Counter::default();
        let counted = runs.clone();
        let task = move |context: &TaskContext<'_>| {
            if counted.add() > 1 {
                return Next::Sleep;
            }
            assert!(context.executor().wake(context.id()));
            assert!(context.executor().wake(context.id()));
            next
        };
        executor
            .schedule(TaskSpec::new(&NORMAL, owner), task)
            .unwrap();
        assert_eq!(manual.run_ready(), 2, "{next:?}");
        assert_eq!(manual.advance(2 * HOUR), 0, "{next:?}");
    }
}

#[test]
fn wake_during_the_last_run_has_no_effect() {
    let (executor, manual, owner) = manual();
    let task = |context: &TaskContext<'_>| {
        assert!(context.executor().wake(context.id()));
        Next::Done
    };
    let id = executor
        .schedule(TaskSpec::new(&NORMAL, owner), task)
        .unwrap();
    assert_eq!(manual.run_ready(), 1);
    assert!(executor.tasks().is_empty());
    assert!(!executor.wake(id));
}

/// The wake precedes the timer, which then has no effect.
#[test]
fn wake_cancels_the_timer() {
    let (executor, manual, owner) = manual();
    let times = Log::default();
    let noted = times.clone();
    let task = move |context: &TaskContext<'_>| {
        noted.note(context.now().as_secs());
        Next::Snooze(60 * SECOND)
    };
    let id = executor
        .schedule(after(&NORMAL, owner, 60 * SECOND), task)
        .unwrap();
    manual.advance(10 * SECOND);
    assert!(executor.wake(id));
    manual.advance(100 * SECOND);
    assert_eq!(times.take(), [10, 70]);
    manual.advance(10 * SECOND);
    assert!(executor.wake(id));
    assert!(executor.wake(id));
    manual.advance(110 * SECOND);
    assert_eq!(times.take(), [120, 180]);
}

/// A task with a deadline is woken and then sleeps without one: the stale timer does not end that sleep.
#[test]
fn stale_timer_does_not_end_a_later_sleep() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    let spec = after(&NORMAL, owner, 10 * SECOND);
    let id = executor.schedule(spec, runs.task(Next::Sleep)).unwrap();
    assert!(executor.wake(id));
    assert_eq!(manual.advance(HOUR), 1);
}

#[test]
fn wakes_of_a_queued_task_cause_one_run() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    let id = executor
        .schedule(TaskSpec::new(&NORMAL, owner), runs.task(Next::Sleep))
        .unwrap();
    assert!(executor.wake(id));
    assert!(executor.wake(id));
    assert_eq!(executor.tasks()[0].state, TaskState::Queued);
    assert_eq!(manual.run_ready(), 1);
}

#[test]
fn wake_of_an_unknown_task_returns_false() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    let done = executor
        .schedule(TaskSpec::new(&NORMAL, owner), runs.task(Next::Done))
        .unwrap();
    let cancelled = executor
        .schedule(asleep(&NORMAL, owner), runs.task(Next::Sleep))
        .unwrap();
    assert!(executor.cancel(cancelled));
    assert!(!executor.wake(cancelled), "though it is not dropped yet");
    manual.run_ready();
    for id in [done, cancelled] {
        assert!(!executor.wake(id));
        assert!(!executor.wake_and_wait(id));
        assert!(!executor.snooze(id, SECOND));
        assert!(!executor.cancel(id));
    }
    assert_eq!(runs.get(), 1);
}

#[test]
fn task_wakes_other_tasks() {
    let (executor, manual, owner) = manual();
    let order = Log::default();
    let noted = order.clone();
    let sleeper = executor.schedule(asleep(&HIGH, owner), move |_: &TaskContext<'_>| {
        noted.note("woken");
        Next::Sleep
    });
    let (sleeper, noted) = (sleeper.unwrap(), order.clone());
    let waker = move |context: &TaskContext<'_>| {
        noted.note("wakes");
        assert!(context.executor().wake(sleeper));
        noted.note("ends");
        Next::Snooze(SECOND)
    };
    executor
        .schedule(TaskSpec::new(&READER, owner), waker)
        .unwrap();
    manual.advance(SECOND);
    assert_eq!(order.take(), ["wakes", "ends", "woken"].repeat(2));
}

/// The queue time starts when the task was last due.
#[test]
fn queue_time_starts_when_the_task_was_last_due() {
    static AGAIN: kedge_executor::TaskKind = kedge_executor::TaskKind::new(
        "again",
        Pool::NonIo,
        kedge_executor::Priority::Normal,
        SECOND,
    );
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    let task = move |_: &TaskContext<'_>| match runs.add() % 3 {
        1 => Next::Again,
        2 => Next::Snooze(HOUR),
        _ => Next::Sleep,
    };
    let id = executor
        .schedule(after(&AGAIN, owner, 10 * SECOND), task)
        .unwrap();
    assert_eq!(manual.advance(2 * HOUR), 3);
    assert!(executor.wake(id));
    assert_eq!(manual.advance(2 * HOUR), 3);
    // No time passes on the manual executor while a task waits.
    let queue_time = histogram_of(&executor, &AGAIN).queue_time;
    assert_eq!((queue_time.count, queue_time.buckets), (6, vec![(0, 0, 6)]));
}

/// On a manual executor the caller runs due tasks while it waits.
#[test]
fn wake_and_wait_returns_when_the_run_begins() {
    let (executor, manual, owner) = manual();
    let (id, runs) = sleeper(&executor, owner);
    assert!(executor.wake_and_wait(id));
    assert_eq!(runs.get(), 1);
    assert_eq!(manual.run_ready(), 0);
    let ended = executor.schedule(asleep(&HIGH, owner), {
        let executor = executor.clone();
        move |_: &TaskContext<'_>| {
            assert!(executor.cancel(id));
            Next::Sleep
        }
    });
    assert!(executor.wake(ended.unwrap()));
    assert!(
        !executor.wake_and_wait(id),
        "it was cancelled before its run"
    );
    assert_eq!(runs.get(), 1);
}

/// The task would wait for itself forever. The manual executor panics, the task ends, and all others continue.
#[test]
fn task_that_waits_for_its_own_run_panics_on_a_manual_executor() {
    let (executor, manual, owner) = manual();
    let task = |context: &TaskContext<'_>| {
        context.executor().wake_and_wait(context.id());
        Next::Sleep
    };
    executor
        .schedule(TaskSpec::new(&NORMAL, owner), task)
        .unwrap();
    assert_eq!(manual.run_ready(), 1);
    assert!(executor.tasks().is_empty());
    assert_eq!(histogram_of(&executor, &NORMAL).panics, 1);
}
