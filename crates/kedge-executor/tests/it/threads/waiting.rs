//! Waiting for the run that a wake causes.

use std::sync::mpsc::Receiver;

use kedge_executor::{Executor, Next, OwnerId, TaskContext, TaskId, TaskSpec};

use crate::support::{
    Counter, Gate, HIGH, NORMAL, READER, asleep, begin, eventually, finish, occupy, sleeper,
    threaded, within,
};

#[test]
fn wake_and_wait_returns_when_the_run_begins_on_threads() {
    let (executor, owner) = threaded(2);
    let (begun, gate) = (Counter::default(), Gate::default());
    let (counted, passes) = (begun.clone(), gate.clone());
    let task = move |_: &TaskContext<'_>| {
        counted.add();
        passes.pass();
        Next::Sleep
    };
    let id = executor.schedule(asleep(&NORMAL, owner), task).unwrap();
    let wakes = executor.clone();
    assert!(
        within(move || wakes.wake_and_wait(id)),
        "though the run has not ended"
    );
    // The task runs: the caller waits for the next run.
    let wakes = executor.clone();
    let second = begin(move || wakes.wake_and_wait(id));
    assert!(second.try_recv().is_err());
    begun.wait_for(1);
    gate.open();
    assert!(finish(&second));
    begun.wait_for(2);
    executor.unregister(owner, true);
}

/// Starts `waiters` threads that wait for a run of a task whose pool is busy. Returns the task and its runs.
fn wait_for_a_run(
    executor: &Executor,
    owner: OwnerId,
    waiters: usize,
) -> (TaskId, Counter, Vec<Receiver<bool>>) {
    let (id, runs) = sleeper(executor, owner);
    let wait = |_| {
        let executor = executor.clone();
        begin(move || executor.wake_and_wait(id))
    };
    let waiters = (0..waiters).map(wait).collect();
    eventually(|| executor.pools()[NORMAL.pool() as usize].queued == 1);
    (id, runs, waiters)
}

#[test]
fn many_callers_wait_for_the_same_run() {
    let (executor, owner) = threaded(1);
    let (_, gate) = occupy(&executor, owner);
    let (_, runs, waiters) = wait_for_a_run(&executor, owner, 8);
    gate.open();
    for waiter in &waiters {
        assert!(finish(waiter));
    }
    // The run has begun; now it has ended, too.
    executor.unregister(owner, true);
    // One for the first waiters, and at most one for each later one.
    assert!((1..=8).contains(&runs.get()));
}

#[test]
fn wake_and_wait_returns_false_when_the_task_ends() {
    type End = fn(&Executor, OwnerId, TaskId);
    let ends: [End; 3] = [
        |executor, _, id| assert!(executor.cancel(id)),
        |executor, owner, _| executor.unregister(owner, true),
        |executor, _, _| executor.shutdown(),
    ];
    for end in ends {
        let (executor, owner) = threaded(1);
        let busy = executor.register("busy").unwrap();
        let (_, gate) = occupy(&executor, busy);
        let (id, runs, waiters) = wait_for_a_run(&executor, owner, 4);
        let ended = {
            let executor = executor.clone();
            begin(move || end(&executor, owner, id))
        };
        // The pool is busy, so the task is not even dropped, unless its owner ends.
        eventually(|| !executor.wake(id));
        gate.open();
        finish(&ended);
        for waiter in &waiters {
            assert!(!finish(waiter));
        }
        assert_eq!(runs.get(), 0);
        assert!(!executor.wake_and_wait(id));
    }
}

/// The run that ends is not the one that the caller waits for.
#[test]
fn wake_and_wait_returns_false_after_the_last_run() {
    let (executor, owner) = threaded(2);
    let (begun, gate) = (Gate::default(), Gate::default());
    let (opens, passes) = (begun.clone(), gate.clone());
    let task = move |_: &TaskContext<'_>| {
        opens.open();
        passes.pass();
        Next::Done
    };
    let id = executor
        .schedule(TaskSpec::new(&NORMAL, owner), task)
        .unwrap();
    begun.pass();
    let wakes = executor.clone();
    let waiter = begin(move || wakes.wake_and_wait(id));
    gate.open();
    assert!(!finish(&waiter));
    executor.unregister(owner, true);
}

/// Tasks wait for tasks of other pools, and of their own while it has threads.
#[test]
fn tasks_may_wait_for_runs_of_other_tasks() {
    let (executor, owner) = threaded(2);
    let runs = Counter::default();
    let ids = [&READER, &HIGH].map(|kind| {
        executor
            .schedule(asleep(kind, owner), runs.task(Next::Sleep))
            .unwrap()
    });
    let inner = executor.clone();
    let handle = executor.submit_as(&NORMAL, owner, move || {
        (0..500).all(|_| ids.iter().all(|id| inner.wake_and_wait(*id)))
    });
    assert_eq!(within(move || handle.wait()), Ok(true));
    // The last run has begun but may not have ended.
    runs.wait_for(1_000);
}
