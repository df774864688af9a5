//! Priorities without starvation, and round-robin among owners.

use kedge_executor::{
    Executor, Next, OwnerId, Pool, STARVATION_LIMIT, TaskContext, TaskKind, TaskSpec,
};

use crate::support::{Counter, HIGH, LOW, Log, NORMAL, READER, SECOND, after, asleep, manual};

/// Schedules a task that records its name, once.
fn note(
    executor: &Executor,
    kind: &'static TaskKind,
    owner: OwnerId,
    log: &Log<String>,
    name: impl Into<String>,
) {
    let (noted, name) = (log.clone(), name.into());
    let task = move |_: &TaskContext<'_>| {
        noted.note(name.clone());
        Next::Done
    };
    executor.schedule(TaskSpec::new(kind, owner), task).unwrap();
}

#[test]
fn higher_priorities_run_first_and_equal_ones_in_order() {
    let (executor, manual, owner) = manual();
    let log = Log::default();
    for nth in 0..3 {
        note(&executor, &LOW, owner, &log, format!("low {nth}"));
        note(&executor, &NORMAL, owner, &log, format!("normal {nth}"));
        note(&executor, &HIGH, owner, &log, format!("high {nth}"));
    }
    manual.run_ready();
    let expected: Vec<String> = ["high", "normal", "low"]
        .iter()
        .flat_map(|name| (0..3).map(move |nth| format!("{name} {nth}")))
        .collect();
    assert_eq!(log.take(), expected);
}

/// The task arrives while the thread is in the middle of a batch.
#[test]
fn high_priority_task_does_not_wait_behind_a_batch() {
    let (executor, manual, owner) = manual();
    let log = Log::default();
    for nth in 0..1_000 {
        note(&executor, &LOW, owner, &log, format!("low {nth}"));
    }
    for _ in 0..10 {
        assert!(manual.run_one(Pool::NonIo));
    }
    log.take();
    note(&executor, &HIGH, owner, &log, "high");
    assert!(manual.run_one(Pool::NonIo));
    assert_eq!(log.take(), ["high"]);
}

/// The same with a deadline that passes while tasks of low priority are queued.
#[test]
fn high_priority_deadline_runs_before_queued_low_priority() {
    let (executor, manual, owner) = manual();
    let log = Log::default();
    let noted = log.clone();
    let high = move |_: &TaskContext<'_>| {
        noted.note("high".to_owned());
        Next::Done
    };
    executor
        .schedule(after(&HIGH, owner, SECOND), high)
        .unwrap();
    for nth in 0..3 {
        let noted = log.clone();
        let low = move |_: &TaskContext<'_>| {
            noted.note(format!("low {nth}"));
            Next::Done
        };
        executor.schedule(after(&LOW, owner, SECOND), low).unwrap();
    }
    manual.advance(SECOND);
    assert_eq!(log.take(), ["high", "low 0", "low 1", "low 2"]);
}

#[test]
fn low_priority_does_not_starve() {
    let (executor, manual, owner) = manual();
    // Due again as soon as it has run.
    let (high, low) = (Counter::default(), Counter::default());
    executor
        .schedule(TaskSpec::new(&HIGH, owner), high.task(Next::Again))
        .unwrap();
    executor
        .schedule(TaskSpec::new(&LOW, owner), low.task(Next::Again))
        .unwrap();
    let rounds = 100;
    for _ in 0..rounds * (STARVATION_LIMIT + 1) {
        assert!(manual.run_one(Pool::NonIo));
    }
    assert_eq!((high.get(), low.get()), (rounds * STARVATION_LIMIT, rounds));
}

#[test]
fn owners_take_turns_whatever_their_number_of_tasks() {
    let (executor, manual, many) = manual();
    let few = executor.register("few").unwrap();
    let log = Log::default();
    for nth in 0..100 {
        note(&executor, &NORMAL, many, &log, format!("many {nth}"));
    }
    for nth in 0..3 {
        note(&executor, &NORMAL, few, &log, format!("few {nth}"));
    }
    manual.run_ready();
    let order = log.take();
    assert_eq!(order.len(), 103);
    assert_eq!(
        order[..7],
        [
            "many 0", "few 0", "many 1", "few 1", "many 2", "few 2", "many 3"
        ]
    );
}

/// A task of one owner that is always due leaves another owner its turns.
#[test]
fn always_due_task_leaves_other_owners_their_turns() {
    let (executor, manual, restless) = manual();
    let other = executor.register("other").unwrap();
    let (one, two) = (Counter::default(), Counter::default());
    for _ in 0..5 {
        executor
            .schedule(TaskSpec::new(&NORMAL, restless), one.task(Next::Again))
            .unwrap();
    }
    executor
        .schedule(TaskSpec::new(&NORMAL, other), two.task(Next::Again))
        .unwrap();
    for _ in 0..1_000 {
        assert!(manual.run_one(Pool::NonIo));
    }
    assert_eq!((one.get(), two.get()), (500, 500));
}

/// A task that returns `Again` runs after the tasks of its owner that are due already.
#[test]
fn task_that_runs_again_queues_behind_due_tasks() {
    let (executor, manual, owner) = manual();
    let log = Log::default();
    for name in ["one", "two", "three"] {
        let (noted, runs) = (log.clone(), Counter::default());
        let task = move |_: &TaskContext<'_>| {
            noted.note(name);
            if runs.add() < 3 {
                Next::Again
            } else {
                Next::Sleep
            }
        };
        executor
            .schedule(TaskSpec::new(&NORMAL, owner), task)
            .unwrap();
    }
    assert_eq!(manual.run_ready(), 9);
    assert_eq!(log.take(), ["one", "two", "three"].repeat(3));
}

#[test]
fn pools_do_not_wait_for_each_other() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    executor
        .schedule(TaskSpec::new(&READER, owner), runs.task(Next::Sleep))
        .unwrap();
    let sleeper = executor
        .schedule(asleep(&NORMAL, owner), runs.task(Next::Sleep))
        .unwrap();
    assert!(!manual.run_one(Pool::NonIo));
    assert!(executor.wake(sleeper));
    assert!(manual.run_one(Pool::NonIo));
    assert!(!manual.run_one(Pool::NonIo));
    assert!(manual.run_one(Pool::Reader));
    assert_eq!(runs.get(), 2);
}
