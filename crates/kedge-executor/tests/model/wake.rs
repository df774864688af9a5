//! No wake is lost, and no task runs on two threads at once.

use std::sync::Arc;

use kedge_executor::{Next, TaskContext};
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

use crate::support::{Level, Probe, Wrong, asleep, check, executor};

/// Two threads write and wake, at any point of the task's runs. A run sees the last value.
#[test]
fn run_follows_every_wake() {
    check(|| {
        let (executor, owner) = executor(2);
        let (wrong, dropped, seen) = (Wrong::default(), Level::default(), Level::default());
        let written = Arc::new(AtomicU32::new(0));
        let probe = Probe::new(&wrong, &dropped);
        let (from, to) = (written.clone(), seen.clone());
        let task = move |_: &TaskContext<'_>| {
            let value = from.load(Ordering::SeqCst);
            probe.run();
            to.set(value);
            Next::Sleep
        };
        let id = executor.schedule(asleep(owner), task).unwrap();
        let wakers = [(), ()].map(|()| {
            let (executor, written) = (executor.clone(), written.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    written.fetch_add(1, Ordering::SeqCst);
                    assert!(executor.wake(id));
                }
            })
        });
        seen.wait_for(4);
        for waker in wakers {
            waker.join().unwrap();
        }
        executor.shutdown();
        assert_eq!(dropped.get(), 1);
        wrong.check();
    });
}

/// A task's own wake and one by another thread, in a run that ends in each way.
#[test]
fn task_that_wakes_itself_runs_again_whatever_it_returns() {
    check(|| {
        let (executor, owner) = executor(2);
        let (wrong, dropped, runs) = (Wrong::default(), Level::default(), Level::default());
        let probe = Probe::new(&wrong, &dropped);
        let counted = runs.clone();
        let task = move |context: &TaskContext<'_>| {
            probe.run();
            counted.add();
            match counted.get() {
                1 => {
                    context.executor().wake(context.id());
                    Next::Sleep
                }
                2 => Next::Again,
                _ => Next::Sleep,
            }
        };
        let id = executor.schedule(asleep(owner), task).unwrap();
        let waker = {
            let executor = executor.clone();
            thread::spawn(move || assert!(executor.wake(id)))
        };
        assert!(executor.wake(id));
        runs.wait_for(3);
        waker.join().unwrap();
        executor.unregister(owner, true);
        assert!(runs.get() <= 5);
        assert_eq!(dropped.get(), 1);
        assert!(!executor.wake(id));
        wrong.check();
        executor.shutdown();
    });
}

/// A waiter sees a run that began after its call, or the end of the task.
#[test]
fn wake_and_wait_returns_for_a_run_or_the_end() {
    check(|| {
        let (executor, owner) = executor(2);
        let (wrong, dropped, runs) = (Wrong::default(), Level::default(), Level::default());
        let counted = runs.clone();
        let probe = Probe::new(&wrong, &dropped);
        let id = executor.schedule(
            asleep(owner),
            probe.task(move || {
                counted.add();
                if counted.get() < 3 {
                    Next::Sleep
                } else {
                    Next::Done
                }
            }),
        );
        let id = id.unwrap();
        let waiters = [(), ()].map(|()| {
            let executor = executor.clone();
            thread::spawn(move || executor.wake_and_wait(id))
        });
        let canceller = {
            let executor = executor.clone();
            thread::spawn(move || executor.cancel(id))
        };
        let began = waiters.map(|waiter| waiter.join().unwrap());
        assert!(canceller.join().unwrap());
        executor.unregister(owner, true);
        let count = runs.get();
        assert!(count >= u32::from(began.contains(&true)));
        assert!(count <= 2);
        wrong.check();
        executor.shutdown();
    });
}
