//! Shutdown, the end of owners, and of the executor.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use kedge_executor::{Context, Ended, Next, Pool, Refused, TaskSpec, Threads};

use crate::support::{
    Counter, Gate, HIGH, NORMAL, OnDrop, asleep, begin, eventually, finish, manual, occupy,
    threaded, within,
};

/// Shutdown did not wait for owners that somebody else was ending, and took the threads away that their last runs
/// needed.
#[test]
fn a_shutdown_lets_unregistrations_end_that_wait() {
    let (executor, owner) = threaded(1);
    let busy = executor.register("busy").unwrap();
    let (_, gate) = occupy(&executor, busy);
    let last = TaskSpec {
        wants_last_run: true,
        ..asleep(&NORMAL, owner)
    };
    let runs = Counter::default();
    executor.schedule(last, runs.task(Next::Sleep)).unwrap();
    let end = |owner, force| {
        let executor = executor.clone();
        begin(move || executor.unregister(owner, force))
    };
    let ends = [end(owner, false), end(busy, true)];
    let is_closed = |owner| executor.submit_as(&NORMAL, owner, || ()).id().is_none();
    eventually(|| is_closed(owner) && is_closed(busy));
    let shuts_down = {
        let executor = executor.clone();
        begin(move || executor.shutdown())
    };
    eventually(|| executor.register("late").is_err());
    for _ in 0..20 {
        // sleep: time for the shutdown to end the threads, which it must not do yet
        thread::sleep(Duration::from_millis(1));
    }
    gate.open();
    finish(&shuts_down);
    for ends in ends {
        finish(&ends);
    }
    assert!(executor.tasks().is_empty());
    assert!(runs.get() <= 1);
}

/// Two tasks that both ended the executor waited for each other.
#[test]
fn two_tasks_may_shut_down_at_once() {
    for same_owner in [true, false] {
        let (executor, owner) = threaded(2);
        let second = if same_owner {
            owner
        } else {
            executor.register("second").unwrap()
        };
        let barrier = Arc::new(Barrier::new(2));
        let (done, result) = channel();
        for owner in [owner, second] {
            let (barrier, done) = (barrier.clone(), done.clone());
            let task = move |context: &Context<'_>| {
                barrier.wait();
                context.executor().shutdown();
                done.send(()).unwrap();
                Next::Sleep
            };
            executor
                .schedule(TaskSpec::new(&NORMAL, owner), task)
                .unwrap();
        }
        finish(&result);
        finish(&result);
        within(move || executor.shutdown());
    }
}

/// The thread that dropped the task waited, in the task's destructor, for the task to be gone.
#[test]
fn a_task_may_hold_the_last_clone_of_the_executor() {
    let (executor, owner) = threaded(2);
    let (done, result) = channel();
    let held = executor.clone();
    let told = OnDrop::new(move || done.send(()).unwrap());
    let gate = Gate::default();
    let pass = gate.clone();
    let task = move |_: &Context<'_>| {
        // Dropped in this order, with the task.
        let _ = (&held, &told);
        pass.pass();
        Next::Done
    };
    executor
        .schedule(TaskSpec::new(&HIGH, owner), task)
        .unwrap();
    drop(executor);
    gate.open();
    finish(&result);
}

#[test]
fn a_task_may_end_an_owner_of_another_executor() {
    let (manual, driver, owner) = manual();
    let (executor, same) = threaded(1);
    executor
        .schedule(asleep(&NORMAL, same), Counter::default().task(Next::Sleep))
        .unwrap();
    let ended = executor.clone();
    let task = move |_: &Context<'_>| {
        ended.unregister(same, true);
        Next::Done
    };
    manual
        .schedule(TaskSpec::new(&NORMAL, owner), task)
        .unwrap();
    assert_eq!(driver.run_ready(), 1);
    assert!(executor.tasks().is_empty());
    assert_eq!(
        executor.schedule(asleep(&NORMAL, same), Counter::default().task(Next::Sleep)),
        Err(Refused::NoOwner)
    );
}

#[test]
fn a_destructor_cannot_unregister_its_own_owner() {
    let (executor, owner) = threaded(1);
    let id = {
        let inner = executor.clone();
        let guard = OnDrop::new(move || inner.unregister(owner, true));
        let task = move |_: &Context<'_>| {
            guard.touch();
            Next::Sleep
        };
        executor.schedule(asleep(&NORMAL, owner), task).unwrap()
    };
    assert!(executor.cancel(id));
    eventually(|| executor.tasks().is_empty());
    let kinds = executor.kinds();
    let normal = kinds
        .iter()
        .find(|info| info.kind.name() == "normal")
        .unwrap();
    assert_eq!(normal.panics, 1);
    within(move || executor.unregister(owner, true));
}

/// A pool that got threads while the executor ended kept them.
#[test]
fn no_thread_is_begun_after_the_end() {
    for _ in 0..100 {
        let (executor, owner) = threaded(1);
        let resizes = {
            let executor = executor.clone();
            begin(move || {
                for count in [2, 3, 1, 4] {
                    executor
                        .set_threads(Pool::NonIo, Threads::Fixed(count))
                        .unwrap();
                }
            })
        };
        let handle = executor.submit_as(&NORMAL, owner, || ());
        executor.shutdown();
        finish(&resizes);
        assert!(executor.pools().iter().all(|pool| pool.threads == 0));
        assert!(matches!(handle.wait(), Ok(()) | Err(Ended::Cancelled)));
    }
}
