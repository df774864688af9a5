//! What a cancellation comes to, in each phase of a task.

use kedge_executor::{Context, Next, TaskSpec};

use crate::support::{
    Counter, HOUR, NORMAL, OnDrop, READER, SECOND, after, asleep, dropping, manual,
};

#[test]
fn a_task_that_waits_does_not_run_and_is_dropped_by_its_pool() {
    for first_run in [None, Some(0), Some(5)] {
        let (executor, manual, owner) = manual();
        let (runs, drops) = (Counter::default(), Counter::default());
        let (counted, dropped) = (runs.clone(), drops.clone());
        let guard = OnDrop::new(move || {
            dropped.add();
        });
        let spec = TaskSpec {
            first_run: first_run.map(|seconds| seconds * SECOND),
            ..TaskSpec::new(&READER, owner)
        };
        let task = move |_: &Context<'_>| {
            guard.touch();
            counted.add();
            Next::Sleep
        };
        let id = executor.schedule(spec, task).unwrap();
        assert!(executor.cancel(id));
        assert!(!executor.cancel(id), "only once");
        assert_eq!(drops.get(), 0, "it is the pool that drops it");
        assert!(!manual.run_one(NORMAL.pool()));
        assert!(manual.run_one(READER.pool()));
        assert_eq!((runs.get(), drops.get()), (0, 1));
        assert_eq!(manual.advance(HOUR), 0);
        assert!(executor.tasks().is_empty());
    }
}

/// Trap 5: the run ends by itself, and is the last.
#[test]
fn a_run_that_is_cancelled_ends_by_itself_and_is_the_last() {
    for next in [Next::Done, Next::Again, Next::Snooze(SECOND), Next::Sleep] {
        let (executor, manual, owner) = manual();
        let (runs, drops) = (Counter::default(), Counter::default());
        let (counted, dropped) = (runs.clone(), drops.clone());
        let guard = OnDrop::new(move || {
            dropped.add();
        });
        let task = move |context: &Context<'_>| {
            guard.touch();
            let executor = context.executor();
            assert!(!context.is_cancelled());
            assert!(executor.wake(context.id()));
            assert!(executor.cancel(context.id()));
            assert!(!executor.cancel(context.id()));
            assert!(!executor.wake(context.id()));
            assert!(!executor.snooze(context.id(), SECOND));
            assert!(context.is_cancelled());
            counted.add();
            next
        };
        executor
            .schedule(TaskSpec::new(&NORMAL, owner), task)
            .unwrap();
        assert_eq!(manual.advance(HOUR), 1, "{next:?}");
        assert_eq!((runs.get(), drops.get()), (1, 1), "{next:?}");
        assert!(executor.tasks().is_empty());
    }
}

#[test]
fn a_task_cancels_others() {
    let (executor, manual, owner) = manual();
    let victims = [
        asleep(&NORMAL, owner),
        TaskSpec::new(&NORMAL, owner),
        after(&NORMAL, owner, SECOND),
    ];
    let runs = Counter::default();
    let victims = victims.map(|spec| executor.schedule(spec, runs.task(Next::Sleep)).unwrap());
    let task = move |context: &Context<'_>| {
        for id in victims {
            assert!(context.executor().cancel(id));
        }
        Next::Done
    };
    executor
        .schedule(TaskSpec::new(&READER, owner), task)
        .unwrap();
    manual.advance(HOUR);
    assert_eq!(runs.get(), 0);
    assert!(executor.tasks().is_empty());
}

/// Trap 5: the next task gets the same place, and nothing of the one before.
#[test]
fn an_old_id_does_nothing_to_the_next_task_in_its_place() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    let mut old = executor
        .schedule(after(&NORMAL, owner, 5 * SECOND), runs.task(Next::Sleep))
        .unwrap();
    for _ in 0..100 {
        assert!(executor.cancel(old));
        manual.run_ready();
        let new = executor
            .schedule(after(&NORMAL, owner, 5 * SECOND), runs.task(Next::Sleep))
            .unwrap();
        assert_ne!(old, new);
        assert_eq!(old.get() as u32, new.get() as u32, "it has the same place");
        assert!(!executor.cancel(old));
        assert!(!executor.wake(old));
        assert!(!executor.wake_and_wait(old));
        assert!(!executor.snooze(old, HOUR));
        assert_eq!(manual.run_ready(), 0);
        old = new;
    }
    assert_eq!(runs.get(), 0);
    assert_eq!(
        manual.advance(5 * SECOND),
        1,
        "the last one's deadline stands"
    );
    assert_eq!(runs.get(), 1);
}

/// The timer of a task that is gone neither wakes the next one in its place nor hides its deadline.
#[test]
fn an_old_timer_does_nothing_to_the_next_task_in_its_place() {
    for (old_s, new_s) in [(10, 60), (60, 10), (10, 10)] {
        let (executor, manual, owner) = manual();
        let runs = Counter::default();
        let spec = after(&NORMAL, owner, old_s * SECOND);
        let old = executor.schedule(spec, runs.task(Next::Sleep)).unwrap();
        assert!(executor.cancel(old));
        manual.run_ready();
        let spec = after(&NORMAL, owner, new_s * SECOND);
        executor.schedule(spec, runs.task(Next::Sleep)).unwrap();
        manual.advance(new_s * SECOND - SECOND / 1_000_000_000);
        assert_eq!(runs.get(), 0);
        manual.advance(SECOND / 1_000_000_000);
        assert_eq!(runs.get(), 1);
        assert_eq!(manual.advance(HOUR), 0);
    }
}

/// A cancelled task that is not dropped yet does not lend its place to another.
#[test]
fn a_task_in_the_queue_keeps_its_place_until_it_is_dropped() {
    let (executor, manual, owner) = manual();
    let drops = Counter::default();
    let ids: Vec<_> = (0..10)
        .map(|_| {
            let dropped = drops.clone();
            let task = dropping(move || {
                dropped.add();
            });
            let id = executor
                .schedule(TaskSpec::new(&NORMAL, owner), task)
                .unwrap();
            assert!(executor.cancel(id));
            id.get() as u32
        })
        .collect();
    let mut places = ids.clone();
    places.dedup();
    assert_eq!(places.len(), ids.len());
    assert_eq!(executor.pools()[NORMAL.pool() as usize].queued, 10);
    manual.run_ready();
    assert_eq!(drops.get(), 10);
}
