//! The end of owners and of the executor during other operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kedge_executor::{Next, ScheduleError, TaskContext, TaskError, TaskSpec};
use shuttle::thread;

use crate::support::{Dropped, KIND, Level, Probe, Wrong, asleep, check, executor};

/// Afterwards no task of the owner runs, and all accepted tasks are dropped.
#[test]
fn unregister_leaves_no_task_of_the_owner() {
    for force in [false, true] {
        check(move || {
            let (executor, owner) = executor(1);
            let wrong = Wrong::default();
            // Not part of the schedule, so it is exact.
            let ended = Arc::new(AtomicBool::new(false));
            let scheduler = {
                let (executor, ended, wrong) = (executor.clone(), ended.clone(), wrong.clone());
                thread::spawn(move || {
                    for first_run in [Some(Duration::ZERO), None] {
                        let (ended, wrong) = (ended.clone(), wrong.clone());
                        let spec = TaskSpec {
                            first_run,
                            wants_last_run: true,
                            ..TaskSpec::new(&KIND, owner)
                        };
                        let task = move |_: &TaskContext<'_>| {
                            wrong.unless(!ended.load(Ordering::SeqCst));
                            thread::yield_now();
                            wrong.unless(!ended.load(Ordering::SeqCst));
                            Next::Sleep
                        };
                        match executor.schedule(spec, task) {
                            Ok(id) => {
                                executor.wake(id);
                            }
                            Err(refused) => assert_eq!(refused, ScheduleError::NoOwner),
                        }
                    }
                })
            };
            executor.unregister(owner, force);
            ended.store(true, Ordering::SeqCst);
            scheduler.join().unwrap();
            assert!(executor.tasks().is_empty());
            wrong.check();
            executor.shutdown();
        });
    }
}

/// Tasks that want a last run get one and see `is_last_run`.
#[test]
fn no_run_follows_the_last_run() {
    check(|| {
        let (executor, owner) = executor(2);
        let (wrong, dropped, last) = (Wrong::default(), Level::default(), Level::default());
        let probe = Probe::new(&wrong, &dropped);
        let (told, judge) = (last.clone(), wrong.clone());
        let task = move |context: &TaskContext<'_>| {
            probe.run();
            judge.unless(told.get() == 0);
            if context.is_last_run() {
                told.add();
            }
            Next::Again
        };
        let spec = TaskSpec {
            wants_last_run: true,
            ..asleep(owner)
        };
        let id = executor.schedule(spec, task).unwrap();
        let waker = {
            let executor = executor.clone();
            thread::spawn(move || executor.wake(id))
        };
        executor.unregister(owner, false);
        assert_eq!((last.get(), dropped.get()), (1, 1));
        waker.join().unwrap();
        wrong.check();
        executor.shutdown();
    });
}

/// Tasks are queued, running and asleep; other threads schedule, wake, snooze, wait and register.
#[test]
fn shutdown_ends_queued_running_and_sleeping_tasks() {
    check(|| {
        let (executor, owner) = executor(2);
        executor.start_model_timer().unwrap();
        let (wrong, dropped) = (Wrong::default(), Level::default());
        let soon = Duration::from_micros(1);
        let id = executor.schedule(
            TaskSpec::new(&KIND, owner),
            Probe::new(&wrong, &dropped).task(move || Next::Snooze(soon)),
        );
        let id = id.unwrap();
        let submitter = {
            let executor = executor.clone();
            thread::spawn(move || {
                let result = executor.submit_as(&KIND, owner, || 1).wait();
                let refused = Err(TaskError::NotScheduled(ScheduleError::NoOwner));
                assert!(
                    result == Ok(1) || result == Err(TaskError::Cancelled) || result == refused
                );
                executor.snooze(id, soon);
                executor.wake_and_wait(id);
            })
        };
        let registrar = {
            let executor = executor.clone();
            thread::spawn(move || {
                if let Ok(owner) = executor.register("late") {
                    // Accepted or not, it does not wait forever.
                    let _ = executor.submit_as(&KIND, owner, || ()).wait();
                }
            })
        };
        executor.shutdown();
        assert_eq!(dropped.get(), 1);
        submitter.join().unwrap();
        registrar.join().unwrap();
        assert!(executor.tasks().is_empty());
        wrong.check();
    });
}

/// Tasks and a thread call `shutdown` at once. None waits for another forever.
#[test]
fn concurrent_shutdowns_by_tasks_and_a_thread_return() {
    check(|| {
        let (executor, owner) = executor(2);
        let other = executor.register("other").unwrap();
        let dropped = Level::default();
        for owner in [owner, other] {
            let dropped = Dropped(dropped.clone());
            let task = move |context: &TaskContext<'_>| {
                context.executor().shutdown();
                let _ = &dropped;
                Next::Sleep
            };
            executor.schedule(TaskSpec::new(&KIND, owner), task).ok();
        }
        let unregisters = {
            let executor = executor.clone();
            thread::spawn(move || executor.unregister(owner, false))
        };
        executor.shutdown();
        assert_eq!(dropped.get(), 2);
        unregisters.join().unwrap();
        assert!(executor.tasks().is_empty());
    });
}

/// A task calls `shutdown` and no thread waits: the threads end after the task.
#[test]
fn threads_end_after_a_task_calls_shutdown() {
    check(|| {
        let (executor, owner) = executor(2);
        let dropped = Level::default();
        let others = Dropped(dropped.clone());
        let asleep = executor.schedule(asleep(owner), move |_: &TaskContext<'_>| {
            let _ = &others;
            Next::Sleep
        });
        let task = |context: &TaskContext<'_>| {
            context.executor().shutdown();
            Next::Done
        };
        executor
            .schedule(TaskSpec::new(&KIND, owner), task)
            .unwrap();
        executor.wake(asleep.unwrap());
        dropped.wait_for(1);
        // The model ends when all threads have ended, which is all that the guard would wait for.
        std::mem::forget(executor);
    });
}

/// The task holds the last clone.
#[test]
fn task_may_drop_the_last_clone() {
    check(|| {
        let (executor, owner) = executor(1);
        let dropped = Level::default();
        let (held, tells) = (executor.clone(), Dropped(dropped.clone()));
        let task = move |_: &TaskContext<'_>| {
            let _ = (&held, &tells);
            Next::Done
        };
        executor
            .schedule(TaskSpec::new(&KIND, owner), task)
            .unwrap();
        drop(executor);
        dropped.wait_for(1);
    });
}
