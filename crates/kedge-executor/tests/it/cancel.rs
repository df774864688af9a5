//! Cancellation in each phase of a task.

use kedge_executor::{Next, TaskContext, TaskSpec};

use crate::support::{
    Counter, HOUR, NORMAL, OnDrop, READER, SECOND, after, asleep, dropping, manual,
};

#[test]
fn cancelled_task_does_not_run_and_is_dropped_by_its_pool() {
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
        let task = move |_: &TaskContext<'_>| {
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

/// The run completes and is the last.
#[test]
fn cancelled_run_completes_and_is_the_last() {
    for next in [Next::Done, Next::Again, Next::Snooze(SECOND), Next::Sleep] {
        let (executor, manual, owner) = manual();
        let (runs, drops) = (Counter::default(), Counter::default());
        let (counted, dropped) = (runs.clone(), drops.clone());
        let guard = OnDrop::new(move || {
            dropped.add();
        });
        let task = move |context: &TaskContext<'_>| {
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
fn task_cancels_other_tasks() {
    let (executor, manual, owner) = manual();
    let victims = [
        asleep(&NORMAL, owner),
        TaskSpec::new(&NORMAL, owner),
        after(&NORMAL, owner, SECOND),
    ];
    let runs = Counter::default();
    let victims = victims.map(|spec| executor.schedule(spec, runs.task(Next::Sleep)).unwrap());
    let task = move |context: &TaskContext<'_>| {
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

/// The next task gets the same slot, and nothing of the task before.
#[test]
fn old_id_has_no_effect_on_the_next_task_in_its_slot() {
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

/// The timer of an ended task neither wakes the next task in its slot nor hides that task's deadline.
#[test]
fn old_timer_has_no_effect_on_the_next_task_in_its_slot() {
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

/// The slot of a cancelled task is not reused before the task is dropped.
#[test]
fn cancelled_task_keeps_its_slot_until_it_is_dropped() {
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
