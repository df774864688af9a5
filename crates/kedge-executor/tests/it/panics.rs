//! Panics are caught and counted, and affect no other task.

use std::panic::panic_any;

use kedge_executor::{
    Executor, Next, OwnerId, Pool, Priority, TaskContext, TaskError, TaskKind, TaskSpec,
};

use crate::support::{
    Counter, HOUR, NORMAL, OnDrop, asleep, dropping, eventually, histogram_of, manual, threaded,
    within,
};

/// Panics in each of its methods.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in the destructor");
    }
}

#[test]
fn panicking_run_is_the_last_and_is_counted() {
    static PANICS: TaskKind = TaskKind::new("panics", Pool::NonIo, Priority::Normal, HOUR);
    let (executor, manual, owner) = manual();
    let drops = Counter::default();
    let dropped = drops.clone();
    let guard = OnDrop::new(move || {
        dropped.add();
    });
    let task = move |context: &TaskContext<'_>| -> Next {
        guard.touch();
        context.executor().wake(context.id());
        panic!("in the run");
    };
    let id = executor
        .schedule(TaskSpec::new(&PANICS, owner), task)
        .unwrap();
    assert_eq!(manual.run_ready(), 1);
    assert_eq!(drops.get(), 1);
    assert!(!executor.wake(id));
    assert!(executor.tasks().is_empty());
    let info = histogram_of(&executor, &PANICS);
    assert_eq!((info.panics, info.run_time.count), (1, 1));
    executor.reset_stats();
    assert_eq!(histogram_of(&executor, &PANICS).panics, 0);
}

#[test]
fn panic_in_a_destructor_is_counted_and_frees_the_slot() {
    static PANICS: TaskKind = TaskKind::new("drop_panics", Pool::NonIo, Priority::Normal, HOUR);
    let (executor, manual, owner) = manual();
    let spec = || asleep(&PANICS, owner);
    let cancelled = executor
        .schedule(spec(), dropping(|| panic!("in the destructor")))
        .unwrap();
    let unregistered = executor
        .schedule(spec(), dropping(|| panic!("in the destructor")))
        .unwrap();
    assert!(executor.cancel(cancelled));
    assert_eq!(manual.run_ready(), 1);
    executor.unregister(owner, true);
    assert!(executor.tasks().is_empty());
    assert!(!executor.wake(unregistered));
    assert_eq!(histogram_of(&executor, &PANICS).panics, 2);
}

#[test]
fn panic_of_a_closure_reaches_its_waiter() {
    let (executor, _manual, owner) = manual();
    let panics = |handle: kedge_executor::TaskHandle<()>| match handle.wait() {
        Err(TaskError::Panicked(text)) => text,
        other => panic!("{other:?}"),
    };
    let text = executor.submit(Pool::NonIo, || panic!("a text"));
    assert_eq!(panics(text), "a text");
    let formatted = executor.submit(Pool::NonIo, || panic!("number {}", 5));
    assert_eq!(panics(formatted), "number 5");
    let other = executor.submit_as(&NORMAL, owner, || panic_any(5));
    assert_eq!(panics(other), "no text");
}

#[test]
fn panic_in_a_closures_destructor_still_completes_its_handle() {
    let (executor, manual, owner) = manual();
    let bomb = OnDrop::new(|| panic!("in the destructor"));
    let handle = executor.submit_as(&NORMAL, owner, move || bomb.touch());
    assert!(executor.cancel(handle.id().unwrap()));
    assert_eq!(manual.run_ready(), 1);
    assert_eq!(handle.wait(), Err(TaskError::Cancelled));
}

/// Runs tasks that panic in every possible place.
fn harm(executor: &Executor, owner: OwnerId) {
    let spec = || TaskSpec::new(&NORMAL, owner);
    executor
        .schedule(spec(), |_: &TaskContext<'_>| -> Next {
            panic!("in the run")
        })
        .unwrap();
    executor
        .schedule(spec(), |_: &TaskContext<'_>| -> Next { panic_any(Bomb) })
        .unwrap();
    let bomb = OnDrop::new(|| panic!("in the destructor"));
    let both = move |_: &TaskContext<'_>| -> Next {
        bomb.touch();
        panic!("in the run")
    };
    executor.schedule(spec(), both).unwrap();
    let id = executor
        .schedule(asleep(&NORMAL, owner), dropping(|| panic_any(Bomb)))
        .unwrap();
    assert!(executor.cancel(id));
    drop(executor.submit_as(&NORMAL, owner, || panic!("in the closure")));
    drop(executor.submit_as(&NORMAL, owner, || -> () { panic_any(Bomb) }));
    // The pool drops a result without a receiver.
    drop(executor.submit_as(&NORMAL, owner, || Bomb));
}

/// Panics in the destructors of a panic payload and of an unwanted result used to end the thread.
#[test]
fn panics_do_not_end_threads_of_the_pool() {
    let (executor, owner) = threaded(1);
    for _ in 0..3 {
        harm(&executor, owner);
    }
    eventually(|| executor.tasks().is_empty());
    assert!(histogram_of(&executor, &NORMAL).panics >= 3 * 6);
    assert_eq!(
        within(move || executor.submit_as(&NORMAL, owner, || 5).wait()),
        Ok(5)
    );
}
