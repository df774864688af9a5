//! Shutdown, and the end of owners and of the executor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use kedge_executor::{
    Next, Pool, Priority, ScheduleError, TaskContext, TaskError, TaskKind, TaskSpec, ThreadCount,
};

use super::{name_of, this_thread};
use crate::support::{
    AUXIO, Counter, Gate, HIGH, HOUR, NORMAL, OnDrop, READER, WRITER, asleep, begin, eventually,
    finish, histogram_of, manual, occupy, spin, threaded, within,
};

/// Shutdown used to ignore owners that another thread was unregistering, and ended the threads that their last runs
/// needed.
#[test]
fn shutdown_waits_for_unregistrations_in_progress() {
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

/// Two tasks that both called `shutdown` used to wait for each other.
#[test]
fn two_tasks_may_shut_down_concurrently() {
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
            let task = move |context: &TaskContext<'_>| {
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

/// The destructor of the task used to wait for the end of that task.
#[test]
fn task_may_hold_the_last_clone_of_the_executor() {
    let (executor, owner) = threaded(2);
    let (done, result) = channel();
    let held = executor.clone();
    let told = OnDrop::new(move || done.send(()).unwrap());
    let gate = Gate::default();
    let pass = gate.clone();
    let task = move |_: &TaskContext<'_>| {
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
fn task_may_unregister_an_owner_of_another_executor() {
    let (manual, driver, owner) = manual();
    let (executor, same) = threaded(1);
    executor
        .schedule(asleep(&NORMAL, same), Counter::default().task(Next::Sleep))
        .unwrap();
    let ended = executor.clone();
    let task = move |_: &TaskContext<'_>| {
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
        Err(ScheduleError::NoOwner)
    );
}

#[test]
fn destructor_cannot_unregister_its_own_owner() {
    let (executor, owner) = threaded(1);
    let id = {
        let inner = executor.clone();
        let guard = OnDrop::new(move || inner.unregister(owner, true));
        let task = move |_: &TaskContext<'_>| {
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

/// A pool that was resized during the shutdown used to keep its threads.
#[test]
fn no_thread_starts_after_shutdown() {
    for _ in 0..100 {
        let (executor, owner) = threaded(1);
        let resizes = {
            let executor = executor.clone();
            begin(move || {
                for count in [2, 3, 1, 4] {
                    executor
                        .set_threads(Pool::NonIo, ThreadCount::Fixed(count))
                        .unwrap();
                }
            })
        };
        let handle = executor.submit_as(&NORMAL, owner, || ());
        executor.shutdown();
        finish(&resizes);
        assert!(executor.pools().iter().all(|pool| pool.threads == 0));
        assert!(matches!(handle.wait(), Ok(()) | Err(TaskError::Cancelled)));
    }
}

/// Queued, running and sleeping tasks of several owners, on all pools.
#[test]
fn shutdown_ends_all_tasks_on_threads() {
    let (executor, owner) = threaded(2);
    let drops = Counter::default();
    let kinds = [&NORMAL, &READER, &WRITER, &AUXIO];
    for nth in 0..400_u32 {
        let dropped = drops.clone();
        let guard = OnDrop::new(move || {
            dropped.add();
        });
        let spec = TaskSpec {
            first_run: Some(Duration::from_millis(u64::from(nth % 3) * 5)),
            ..TaskSpec::new(kinds[nth as usize % 4], owner)
        };
        let task = move |_: &TaskContext<'_>| {
            guard.touch();
            match nth % 5 {
                0 => Next::Again,
                1 => Next::Snooze(Duration::from_micros(30)),
                2 => Next::Snooze(Duration::from_secs(30)),
                _ => Next::Sleep,
            }
        };
        executor.schedule(spec, task).unwrap();
    }
    let waits = (0..20).map(|nth| executor.submit(Pool::NonIo, move || nth));
    let waits: Vec<_> = waits.collect();
    let ends = executor.clone();
    within(move || ends.shutdown());
    assert_eq!(drops.get(), 400);
    assert!(executor.tasks().is_empty());
    for (nth, handle) in waits.into_iter().enumerate() {
        let result = within(move || handle.wait());
        assert!(
            result == Ok(nth) || result == Err(TaskError::Cancelled),
            "{result:?}"
        );
    }
    let refused = executor.submit(Pool::NonIo, || 1).wait();
    assert_eq!(
        refused,
        Err(TaskError::NotScheduled(ScheduleError::NoOwner))
    );
}

/// The threads outlive every clone but the last.
#[test]
fn threads_end_with_the_last_clone() {
    let (executor, owner) = threaded(2);
    let clone = executor.clone();
    let handles = Pool::ALL.map(|pool| executor.submit(pool, this_thread));
    let threads = handles.map(|handle| handle.wait().unwrap());
    drop(executor);
    assert_eq!(clone.submit_as(&NORMAL, owner, || 1).wait(), Ok(1));
    assert!(threads.iter().all(|thread| name_of(*thread).is_some()));
    within(move || drop(clone));
    for thread in threads {
        eventually(|| name_of(thread).is_none());
    }
}

/// The context's executor does not keep the executor alive; otherwise a task that stores a clone of it would keep
/// itself alive.
#[test]
fn clone_of_the_contexts_executor_does_not_keep_it_alive() {
    let (executor, owner) = threaded(1);
    let kept = Arc::new(std::sync::Mutex::new(None));
    let keeps = kept.clone();
    let task = move |context: &TaskContext<'_>| {
        *keeps.lock().unwrap() = Some(context.executor().clone());
        Next::Sleep
    };
    executor
        .schedule(TaskSpec::new(&NORMAL, owner), task)
        .unwrap();
    eventually(|| kept.lock().unwrap().is_some());
    within(move || drop(executor));
    let kept = kept.lock().unwrap().take().unwrap();
    assert!(kept.tasks().is_empty());
    assert_eq!(kept.register("late"), Err(ScheduleError::NoOwner));
}

/// When `unregister` returns, no task of the owner runs, and none begins later.
#[test]
fn no_task_runs_after_unregister() {
    for round in 0..50_u32 {
        let (executor, owner) = threaded(2);
        let ended = Arc::new(AtomicBool::new(false));
        let late = Counter::default();
        let schedulers = [(), ()].map(|()| {
            let (executor, ended, late) = (executor.clone(), ended.clone(), late.clone());
            begin(move || {
                loop {
                    let (ended, late) = (ended.clone(), late.clone());
                    let mut spec = TaskSpec::new(&NORMAL, owner);
                    spec.wants_last_run = true;
                    let task = move |_: &TaskContext<'_>| {
                        if ended.load(Ordering::SeqCst) {
                            late.add();
                        }
                        Next::Snooze(Duration::from_micros(10))
                    };
                    match executor.schedule(spec, task) {
                        Ok(id) => executor.wake(id),
                        Err(refused) => return refused,
                    };
                }
            })
        });
        eventually(|| executor.tasks().len() > 20);
        executor.unregister(owner, round % 2 == 0);
        ended.store(true, Ordering::SeqCst);
        for scheduler in &schedulers {
            assert_eq!(finish(scheduler), ScheduleError::NoOwner);
        }
        assert_eq!(late.get(), 0);
        assert!(executor.tasks().is_empty());
    }
}

/// The queue time starts when a task was due, although the end of its owner has touched it since.
#[test]
fn unregister_does_not_reset_queue_time() {
    static WAITED: TaskKind = TaskKind::new("waited", Pool::NonIo, Priority::Normal, HOUR);
    const TIME: Duration = Duration::from_millis(5);
    let (executor, owner) = threaded(1);
    let busy = executor.register("busy").unwrap();
    let (_, gate) = occupy(&executor, busy);
    let spec = TaskSpec {
        wants_last_run: true,
        ..TaskSpec::new(&WAITED, owner)
    };
    executor
        .schedule(spec, Counter::default().task(Next::Sleep))
        .unwrap();
    spin(TIME);
    let ends = executor.clone();
    let ended = begin(move || ends.unregister(owner, false));
    eventually(|| executor.submit_as(&NORMAL, owner, || ()).id().is_none());
    gate.open();
    finish(&ended);
    let (_, high_us, _) = histogram_of(&executor, &WAITED).queue_time.buckets[0];
    assert!(u128::from(high_us) >= TIME.as_micros(), "{high_us} us");
}

#[test]
fn task_unregisters_an_owner_with_running_tasks() {
    let (executor, owner) = threaded(3);
    let other = executor.register("other").unwrap();
    let runs = Counter::default();
    for _ in 0..10 {
        executor
            .schedule(TaskSpec::new(&NORMAL, other), runs.task(Next::Again))
            .unwrap();
    }
    runs.wait_for(100);
    let (tell, told) = channel();
    let task = move |context: &TaskContext<'_>| {
        context.executor().unregister(other, true);
        let left = context
            .executor()
            .tasks()
            .iter()
            .filter(|task| task.owner == "other")
            .count();
        tell.send(left).unwrap();
        context.executor().unregister(owner, true);
        tell.send(usize::MAX).unwrap();
        Next::Sleep
    };
    executor
        .schedule(TaskSpec::new(&HIGH, owner), task)
        .unwrap();
    assert_eq!(finish(&told), 0);
    // A task cannot unregister its own owner: the panic ends the task.
    eventually(|| executor.tasks().is_empty());
    assert!(told.try_recv().is_err());
    assert_eq!(executor.submit_as(&NORMAL, owner, || 1).wait(), Ok(1));
}
