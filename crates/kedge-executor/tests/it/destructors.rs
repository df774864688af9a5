//! A task is dropped on no lock, by its pool: its destructor may call whatever there is to be called.

use std::sync::Arc;

use kedge_executor::{Context, Executor, Next, OwnerId, Pool, TaskSpec, Threads};

use crate::support::{
    Counter, HOUR, NORMAL, OnDrop, READER, SECOND, asleep, dropping, eventually, manual, occupy,
    threaded, within,
};

/// Calls everything. `id` is the task that is dropped, `other` another.
fn call_everything(
    executor: &Executor,
    owner: OwnerId,
    id: kedge_executor::TaskId,
    other: kedge_executor::TaskId,
) {
    let runs = Counter::default();
    // Its owner may be at its end.
    if let Ok(new) = executor.schedule(asleep(&NORMAL, owner), runs.task(Next::Done)) {
        assert!(executor.wake(new));
    }
    executor.wake(id);
    executor.snooze(id, SECOND);
    executor.cancel(id);
    assert!(executor.wake(other));
    executor.snooze(other, HOUR);
    // It is in the list, or its place is free already; the list can be had.
    let _ = (executor.tasks(), executor.kinds(), executor.pools());
    drop(executor.submit(Pool::Reader, || ()));
    let another = executor.register("another").unwrap();
    drop(executor.submit_as(&READER, another, || ()));
    executor.unregister(another, true);
    executor
        .set_threads(Pool::Reader, Threads::Fixed(2))
        .unwrap();
}

/// A task whose destructor calls everything, and then counts.
fn scheduled(
    executor: &Executor,
    owner: OwnerId,
    spec: TaskSpec,
    next: Next,
    done: &Counter,
) -> kedge_executor::TaskId {
    let other_owner = executor.register("of the other").unwrap();
    let other = executor
        .schedule(
            asleep(&READER, other_owner),
            Counter::default().task(Next::Sleep),
        )
        .unwrap();
    let id = Arc::new(std::sync::OnceLock::new());
    let (own, calls, counted) = (id.clone(), executor.clone(), done.clone());
    let guard = OnDrop::new(move || {
        call_everything(&calls, owner, *own.get().unwrap(), other);
        counted.add();
    });
    let task = move |_: &Context<'_>| {
        guard.touch();
        next
    };
    *id.get_or_init(|| executor.schedule(spec, task).unwrap())
}

#[test]
fn a_destructor_calls_everything_after_the_last_run() {
    let (executor, manual, owner) = manual();
    let done = Counter::default();
    scheduled(&executor, owner, asleep(&NORMAL, owner), Next::Done, &done);
    let id = executor
        .tasks()
        .iter()
        .find(|task| task.owner == "owner")
        .unwrap()
        .id;
    assert!(executor.wake(id));
    manual.advance(HOUR);
    assert_eq!(done.get(), 1);
    assert!(executor.tasks().iter().all(|task| task.owner != "owner"));
}

#[test]
fn a_destructor_calls_everything_after_a_cancellation() {
    let (executor, manual, owner) = manual();
    let done = Counter::default();
    let id = scheduled(&executor, owner, asleep(&NORMAL, owner), Next::Sleep, &done);
    assert!(executor.cancel(id));
    manual.advance(HOUR);
    assert_eq!(done.get(), 1);
}

#[test]
fn a_destructor_calls_everything_while_its_owner_ends() {
    let (executor, _manual, owner) = manual();
    let done = Counter::default();
    scheduled(&executor, owner, asleep(&NORMAL, owner), Next::Sleep, &done);
    executor.unregister(owner, true);
    assert_eq!(done.get(), 1);
}

/// As above, with threads, where a lock that is held would be waited for by somebody else too.
#[test]
fn destructors_call_everything_on_threads() {
    let (executor, owner) = threaded(2);
    let done = Counter::default();
    let sleeping: Vec<_> = (0..10)
        .map(|_| scheduled(&executor, owner, asleep(&NORMAL, owner), Next::Sleep, &done))
        .collect();
    for id in &sleeping[..5] {
        assert!(executor.cancel(*id));
    }
    for _ in 0..10 {
        let id = scheduled(&executor, owner, asleep(&NORMAL, owner), Next::Done, &done);
        assert!(executor.wake(id));
    }
    done.wait_for(15);
    within(move || {
        executor.unregister(owner, false);
        executor.shutdown();
    });
    assert_eq!(done.get(), 20);
}

/// Trap 7: not on the thread that cancels, or on the timer's.
#[test]
fn a_task_is_dropped_on_a_thread_of_its_pool() {
    let (executor, owner) = threaded(1);
    let (tell, told) = std::sync::mpsc::channel();
    for next in [Next::Done, Next::Sleep] {
        let tell = tell.clone();
        let guard = OnDrop::new(move || {
            tell.send(std::thread::current().name().unwrap_or("none").to_owned())
                .unwrap();
        });
        let task = move |_: &Context<'_>| {
            guard.touch();
            next
        };
        let id = executor.schedule(asleep(&READER, owner), task).unwrap();
        if next == Next::Done {
            executor.wake(id)
        } else {
            executor.cancel(id)
        };
        assert_eq!(told.recv().unwrap(), "reader-0");
    }
}

/// A busy pool comes late: what only waits for it to be dropped does not keep who ends its owner.
#[test]
fn tasks_in_the_queue_of_a_busy_pool_are_dropped_by_who_ends_their_owner() {
    let (executor, owner) = threaded(1);
    let busy = executor.register("busy").unwrap();
    let (_, gate) = occupy(&executor, busy);
    let drops = Counter::default();
    for spec in [asleep(&NORMAL, owner), TaskSpec::new(&NORMAL, owner)] {
        let dropped = drops.clone();
        let task = dropping(move || {
            dropped.add();
        });
        executor.schedule(spec, task).unwrap();
    }
    let ends = executor.clone();
    within(move || ends.unregister(owner, false));
    assert_eq!(drops.get(), 2);
    assert_eq!(executor.pools()[NORMAL.pool() as usize].queued, 0);
    gate.open();
    eventually(|| executor.tasks().is_empty());
}
