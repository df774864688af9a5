//! Unregistration of an owner, on the manual executor.

use kedge_executor::{Executor, Next, OwnerId, ScheduleError, TaskContext, TaskError, TaskSpec};

use crate::support::{
    Counter, HIGH, HOUR, LOW, Log, NORMAL, OnDrop, SECOND, after, asleep, manual,
};

/// One task that sleeps, one with a deadline and one that is queued.
fn in_each_phase(owner: OwnerId) -> [TaskSpec; 3] {
    [
        asleep(&NORMAL, owner),
        after(&HIGH, owner, SECOND),
        TaskSpec::new(&LOW, owner),
    ]
}

/// Gives an owner tasks that count their runs and drops.
fn fill(executor: &Executor, owner: OwnerId, runs: &Counter, drops: &Counter) {
    for spec in in_each_phase(owner) {
        let (counted, dropped) = (runs.clone(), drops.clone());
        let guard = OnDrop::new(move || {
            dropped.add();
        });
        let task = move |_: &TaskContext<'_>| {
            guard.touch();
            counted.add();
            Next::Sleep
        };
        executor.schedule(spec, task).unwrap();
    }
}

#[test]
fn unregister_drops_the_tasks_of_that_owner_only() {
    for force in [false, true] {
        let (executor, manual, owner) = manual();
        let other = executor.register("other").unwrap();
        let (runs, drops) = (Counter::default(), Counter::default());
        fill(&executor, owner, &runs, &drops);
        let (other_runs, other_drops) = (Counter::default(), Counter::default());
        fill(&executor, other, &other_runs, &other_drops);
        executor.unregister(owner, force);
        assert_eq!((runs.get(), drops.get()), (0, 3));
        assert_eq!(other_runs.get(), 0, "nobody's work was done meanwhile");
        manual.advance(HOUR);
        assert_eq!((runs.get(), other_runs.get(), other_drops.get()), (0, 2, 0));
        assert_eq!(executor.tasks().len(), 3);
    }
}

#[test]
fn unregistered_owner_accepts_no_tasks() {
    let (executor, manual, owner) = manual();
    executor.unregister(owner, false);
    let drops = Counter::default();
    let dropped = drops.clone();
    let guard = OnDrop::new(move || {
        dropped.add();
    });
    let task = move |_: &TaskContext<'_>| {
        guard.touch();
        Next::Done
    };
    assert_eq!(
        executor.schedule(TaskSpec::new(&NORMAL, owner), task),
        Err(ScheduleError::NoOwner)
    );
    assert_eq!(drops.get(), 1, "who is refused is dropped at once");
    let handle = executor.submit_as(&NORMAL, owner, || ());
    assert!(handle.is_finished());
    assert_eq!(handle.id(), None);
    assert_eq!(
        handle.wait(),
        Err(TaskError::NotScheduled(ScheduleError::NoOwner))
    );
    assert_eq!(manual.run_ready(), 0);
    // The second call does nothing.
    executor.unregister(owner, true);
}

#[test]
fn next_owner_in_the_same_slot_is_distinct() {
    let (executor, manual, old) = manual();
    executor.unregister(old, true);
    let new = executor.register("owner").unwrap();
    assert_ne!(old, new);
    let runs = Counter::default();
    executor
        .schedule(TaskSpec::new(&NORMAL, new), runs.task(Next::Sleep))
        .unwrap();
    assert!(
        executor
            .schedule(TaskSpec::new(&NORMAL, old), runs.task(Next::Sleep))
            .is_err()
    );
    executor.unregister(old, true);
    assert_eq!(manual.run_ready(), 1);
    assert_eq!(executor.tasks()[0].owner, "owner");
}

#[test]
fn number_of_owners_is_limited() {
    let (executor, _manual, owner) = manual();
    let mut owners = vec![owner];
    let refused = loop {
        match executor.register("one of many") {
            Ok(owner) => owners.push(owner),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, ScheduleError::TooMany);
    // One owner is the executor's own.
    assert_eq!(owners.len(), 1_023);
    executor.unregister(owners[500], true);
    assert!(executor.register("another").is_ok());
    assert_eq!(
        executor.register("one too many"),
        Err(ScheduleError::TooMany)
    );
}

/// Tasks that want a last run get it, see `is_last_run`, and may not add tasks.
#[test]
fn tasks_that_want_a_last_run_get_it() {
    for forced in [false, true] {
        let (executor, manual, owner) = manual();
        let log = Log::default();
        for (name, spec) in ["asleep", "snoozing", "queued"]
            .into_iter()
            .zip(in_each_phase(owner))
        {
            let noted = log.clone();
            let task = move |context: &TaskContext<'_>| {
                let more = context
                    .executor()
                    .schedule(asleep(&NORMAL, owner), |_: &TaskContext<'_>| Next::Done);
                assert_eq!(more, Err(ScheduleError::NoOwner));
                noted.note((name, context.is_last_run()));
                Next::Again
            };
            executor
                .schedule(
                    TaskSpec {
                        wants_last_run: true,
                        ..spec
                    },
                    task,
                )
                .unwrap();
        }
        let plain = Counter::default();
        executor
            .schedule(TaskSpec::new(&NORMAL, owner), plain.task(Next::Sleep))
            .unwrap();
        executor.unregister(owner, forced);
        let mut runs = log.take();
        runs.sort_unstable();
        let expected = [("asleep", true), ("queued", true), ("snoozing", true)];
        assert_eq!(runs, if forced { &[][..] } else { &expected[..] });
        assert_eq!(plain.get(), 0);
        assert!(executor.tasks().is_empty());
        assert_eq!(manual.advance(HOUR), 0);
    }
}

#[test]
fn cancelled_task_gets_no_last_run() {
    let (executor, _manual, owner) = manual();
    let runs = Counter::default();
    let spec = TaskSpec {
        wants_last_run: true,
        ..asleep(&NORMAL, owner)
    };
    let id = executor.schedule(spec, runs.task(Next::Sleep)).unwrap();
    assert!(executor.cancel(id));
    executor.unregister(owner, false);
    assert_eq!(runs.get(), 0);
}

#[test]
fn panic_in_the_last_run_ends_the_task() {
    let (executor, _manual, owner) = manual();
    let spec = TaskSpec {
        wants_last_run: true,
        ..asleep(&NORMAL, owner)
    };
    executor
        .schedule(spec, |_: &TaskContext<'_>| -> Next { panic!("at last") })
        .unwrap();
    executor.unregister(owner, false);
    assert!(executor.tasks().is_empty());
}

#[test]
fn task_may_unregister_another_owner_but_not_its_own() {
    let (executor, manual, owner) = manual();
    let other = executor.register("other").unwrap();
    let (runs, drops) = (Counter::default(), Counter::default());
    fill(&executor, other, &runs, &drops);
    let log = Log::default();
    let noted = log.clone();
    let task = move |context: &TaskContext<'_>| {
        context.executor().unregister(other, true);
        noted.note("ended the other");
        context.executor().unregister(owner, true);
        noted.note("ended its own");
        Next::Done
    };
    executor
        .schedule(TaskSpec::new(&HIGH, owner), task)
        .unwrap();
    manual.run_ready();
    assert_eq!(log.take(), ["ended the other"], "the rest panicked");
    assert_eq!((runs.get(), drops.get()), (0, 3));
    assert!(executor.tasks().is_empty());
    assert!(
        executor
            .schedule(asleep(&NORMAL, owner), Counter::default().task(Next::Done))
            .is_ok()
    );
}

#[test]
fn shutdown_ends_all_owners_and_submitted_closures() {
    let (executor, manual, owner) = manual();
    let (runs, drops) = (Counter::default(), Counter::default());
    fill(&executor, owner, &runs, &drops);
    let handle = executor.submit(NORMAL.pool(), || 1);
    executor.shutdown();
    assert_eq!((runs.get(), drops.get()), (0, 3));
    assert_eq!(handle.wait(), Err(TaskError::Cancelled));
    assert_eq!(
        executor.submit(NORMAL.pool(), || 1).wait(),
        Err(TaskError::NotScheduled(ScheduleError::NoOwner))
    );
    assert_eq!(executor.register("late"), Err(ScheduleError::NoOwner));
    assert_eq!(manual.advance(HOUR), 0);
    executor.shutdown();
}

#[test]
fn task_may_shut_down_its_executor() {
    let (executor, manual, owner) = manual();
    let (runs, drops) = (Counter::default(), Counter::default());
    fill(&executor, owner, &runs, &drops);
    let task = |context: &TaskContext<'_>| {
        context.executor().shutdown();
        Next::Again
    };
    executor
        .schedule(TaskSpec::new(&HIGH, owner), task)
        .unwrap();
    assert_eq!(manual.run_ready(), 1);
    assert_eq!((runs.get(), drops.get()), (0, 3));
    assert!(executor.tasks().is_empty());
}
