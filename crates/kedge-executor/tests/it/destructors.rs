//! Tasks are dropped without a lock, by their pool: a destructor may call any method.

use std::sync::Arc;

use kedge_executor::{Executor, Next, OwnerId, Pool, TaskContext, TaskSpec, ThreadCount};

use crate::support::{
    Counter, HOUR, NORMAL, OnDrop, READER, SECOND, asleep, dropping, eventually, manual, occupy,
    threaded, within,
};

/// Calls every method. `id` is the task that is dropped, `other` another.
fn call_everything(
    executor: &Executor,
    owner: OwnerId,
    id: kedge_executor::TaskId,
    other: kedge_executor::TaskId,
) {
    let runs = Counter::default();
    // The owner may be unregistered already.
    if let Ok(new) = executor.schedule(asleep(&NORMAL, owner), runs.task(Next::Done)) {
        assert!(executor.wake(new));
    }
    executor.wake(id);
    executor.snooze(id, SECOND);
    executor.cancel(id);
    assert!(executor.wake(other));
    executor.snooze(other, HOUR);
    // The list may contain the task or not, but the call must return.
    let _ = (executor.tasks(), executor.kinds(), executor.pools());
    drop(executor.submit(Pool::Reader, || ()));
    let another = executor.register("another").unwrap();
    drop(executor.submit_as(&READER, another, || ()));
    executor.unregister(another, true);
    executor
        .set_threads(Pool::Reader, ThreadCount::Fixed(2))
        .unwrap();
}

/// Schedules a task whose destructor calls every method, and then counts.
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
    let task = move |_: &TaskContext<'_>| {
        guard.touch();
        next
    };
    *id.get_or_init(|| executor.schedule(spec, task).unwrap())
}

#[test]
fn destructor_may_call_any_method_after_the_last_run() {
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
fn destructor_may_call_any_method_after_cancel() {
    let (executor, manual, owner) = manual();
    let done = Counter::default();
    let id = scheduled(&executor, owner, asleep(&NORMAL, owner), Next::Sleep, &done);
    assert!(executor.cancel(id));
    manual.advance(HOUR);
    assert_eq!(done.get(), 1);
}

#[test]
fn destructor_may_call_any_method_during_unregister() {
    let (executor, _manual, owner) = manual();
    let done = Counter::default();
    scheduled(&executor, owner, asleep(&NORMAL, owner), Next::Sleep, &done);
    executor.unregister(owner, true);
    assert_eq!(done.get(), 1);
}

/// The same with threads, where other threads would wait for a lock, too.
#[test]
fn destructor_may_call_any_method_on_threads() {
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

/// Neither on the thread that cancels nor on the timer thread.
#[test]
fn task_is_dropped_on_a_thread_of_its_pool() {
    let (executor, owner) = threaded(1);
    let (tell, told) = std::sync::mpsc::channel();
    for next in [Next::Done, Next::Sleep] {
        let tell = tell.clone();
        let guard = OnDrop::new(move || {
            tell.send(std::thread::current().name().unwrap_or("none").to_owned())
                .unwrap();
        });
        let task = move |_: &TaskContext<'_>| {
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

/// A busy pool drops tasks late, which must not delay a caller that unregisters the owner.
#[test]
fn unregister_drops_queued_tasks_of_a_busy_pool() {
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
