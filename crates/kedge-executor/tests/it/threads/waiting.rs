//! Waiting for the run that a wake brings.

use std::sync::mpsc::Receiver;

use kedge_executor::{Context, Executor, Next, OwnerId, TaskId, TaskSpec};

use crate::support::{
    Counter, Gate, HIGH, NORMAL, READER, asleep, begin, eventually, finish, occupy, sleeper,
    threaded, within,
};

#[test]
fn a_wake_that_is_waited_for_returns_when_the_run_has_begun() {
    let (executor, owner) = threaded(2);
    let (begun, gate) = (Counter::default(), Gate::default());
    let (counted, passes) = (begun.clone(), gate.clone());
    let task = move |_: &Context<'_>| {
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
    // While it runs: the next run is waited for.
    let wakes = executor.clone();
    let second = begin(move || wakes.wake_and_wait(id));
    assert!(second.try_recv().is_err());
    begun.wait_for(1);
    gate.open();
    assert!(finish(&second));
    begun.wait_for(2);
    executor.unregister(owner, true);
}

/// So many wait for the run of a sleeper that is queued, as the threads of its pool are busy. With the sleeper and its
/// runs.
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
fn many_wait_for_the_same_run() {
    let (executor, owner) = threaded(1);
    let (_, gate) = occupy(&executor, owner);
    let (_, runs, waiters) = wait_for_a_run(&executor, owner, 8);
    gate.open();
    for waiter in &waiters {
        assert!(finish(waiter));
    }
    // The run has begun; now it has ended too.
    executor.unregister(owner, true);
    // One for those that were there, and one for each that came later, at most.
    assert!((1..=8).contains(&runs.get()));
}

#[test]
fn who_waits_hears_that_the_run_will_not_come() {
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

/// The run that ends is not the one that is waited for.
#[test]
fn who_waits_for_a_run_after_the_last_hears_so() {
    let (executor, owner) = threaded(2);
    let (begun, gate) = (Gate::default(), Gate::default());
    let (opens, passes) = (begun.clone(), gate.clone());
    let task = move |_: &Context<'_>| {
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

/// Tasks wait for tasks of other pools, and for those of their own while it has threads.
#[test]
fn tasks_wait_for_the_runs_of_others() {
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
    // The last run has begun, no more than that.
    runs.wait_for(1_000);
}
