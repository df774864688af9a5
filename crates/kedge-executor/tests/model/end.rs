//! The end of owners and of the executor, while everything goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kedge_executor::{Context, Ended, Next, Refused, TaskSpec};
use shuttle::thread;

use crate::support::{Dropped, KIND, Level, Probe, Wrong, asleep, check, executor};

/// When it is over no task of the owner runs, and all that were taken are dropped.
#[test]
fn nothing_of_an_owner_is_left_when_it_has_ended() {
    for force in [false, true] {
        check(move || {
            let (executor, owner) = executor(1);
            let wrong = Wrong::default();
            // No part of the schedule, so it is exact.
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
                        let task = move |_: &Context<'_>| {
                            wrong.unless(!ended.load(Ordering::SeqCst));
                            thread::yield_now();
                            wrong.unless(!ended.load(Ordering::SeqCst));
                            Next::Sleep
                        };
                        match executor.schedule(spec, task) {
                            Ok(id) => {
                                executor.wake(id);
                            }
                            Err(refused) => assert_eq!(refused, Refused::NoOwner),
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

/// Those that want a last run get one, and know it.
#[test]
fn a_last_run_is_the_last() {
    check(|| {
        let (executor, owner) = executor(2);
        let (wrong, dropped, last) = (Wrong::default(), Level::default(), Level::default());
        let probe = Probe::new(&wrong, &dropped);
        let (told, judge) = (last.clone(), wrong.clone());
        let task = move |context: &Context<'_>| {
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

/// Tasks queued, running and asleep; others schedule, wake, move deadlines, wait and register meanwhile.
#[test]
fn a_shutdown_ends_everything() {
    check(|| {
        let (executor, owner) = executor(2);
        executor.begin_timer_of_model().unwrap();
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
                let refused = Err(Ended::Refused(Refused::NoOwner));
                assert!(result == Ok(1) || result == Err(Ended::Cancelled) || result == refused);
                executor.snooze(id, soon);
                executor.wake_and_wait(id);
            })
        };
        let registrar = {
            let executor = executor.clone();
            thread::spawn(move || {
                if let Ok(owner) = executor.register("late") {
                    // Whether it is taken or not, it does not wait for ever.
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

/// Tasks that end everything, at once, and a thread that does so too; none waits for another for ever.
#[test]
fn tasks_and_a_thread_may_shut_down_at_once() {
    check(|| {
        let (executor, owner) = executor(2);
        let other = executor.register("other").unwrap();
        let dropped = Level::default();
        for owner in [owner, other] {
            let dropped = Dropped(dropped.clone());
            let task = move |context: &Context<'_>| {
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

/// A task ends everything and nobody waits: the threads end behind it.
#[test]
fn a_task_ends_the_executor_and_its_threads() {
    check(|| {
        let (executor, owner) = executor(2);
        let dropped = Level::default();
        let others = Dropped(dropped.clone());
        let asleep = executor.schedule(asleep(owner), move |_: &Context<'_>| {
            let _ = &others;
            Next::Sleep
        });
        let task = |context: &Context<'_>| {
            context.executor().shutdown();
            Next::Done
        };
        executor
            .schedule(TaskSpec::new(&KIND, owner), task)
            .unwrap();
        executor.wake(asleep.unwrap());
        dropped.wait_for(1);
        // The model ends when all threads have; the guard has nothing to do but that.
        std::mem::forget(executor);
    });
}

/// The last clone goes with the task that holds it.
#[test]
fn the_last_clone_may_go_with_a_task() {
    check(|| {
        let (executor, owner) = executor(1);
        let dropped = Level::default();
        let (held, tells) = (executor.clone(), Dropped(dropped.clone()));
        let task = move |_: &Context<'_>| {
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
