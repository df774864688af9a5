//! Cancellation succeeds once and is final.

use std::sync::Arc;

use kedge_executor::{Next, TaskContext};
use shuttle::sync::Mutex;
use shuttle::thread;

use crate::support::{Level, Probe, Wrong, asleep, check, executor};

/// One of several cancelling threads succeeds, and the task is dropped once, after its run.
#[test]
fn concurrent_cancels_succeed_once_and_no_run_follows() {
    check(|| {
        let (executor, owner) = executor(2);
        let (wrong, dropped, runs) = (Wrong::default(), Level::default(), Level::default());
        let counted = runs.clone();
        let probe = Probe::new(&wrong, &dropped);
        let task = probe.task(move || {
            counted.add();
            Next::Sleep
        });
        let id = executor.schedule(asleep(owner), task).unwrap();
        let waker = {
            let executor = executor.clone();
            thread::spawn(move || {
                let before = executor.wake(id);
                executor.wake(id) && before
            })
        };
        let cancellers = [(), ()].map(|()| {
            let (executor, runs) = (executor.clone(), runs.clone());
            thread::spawn(move || executor.cancel(id).then(|| runs.get()))
        });
        let cancelled = cancellers.map(|canceller| canceller.join().unwrap());
        waker.join().unwrap();
        dropped.wait_for(1);
        let before: Vec<u32> = cancelled.into_iter().flatten().collect();
        assert_eq!(before.len(), 1, "one cancels");
        // The run in progress is counted at its end.
        assert!(runs.get() <= before[0] + 1);
        assert!(!executor.wake(id));
        assert!(!executor.cancel(id));
        executor.shutdown();
        assert_eq!(dropped.get(), 1);
        wrong.check();
    });
}

/// A cancelled id whose slot is reused matches no task.
#[test]
fn id_of_an_earlier_task_never_affects_a_new_task() {
    check(|| {
        let (executor, owner) = executor(1);
        let (wrong, dropped) = (Wrong::default(), Level::default());
        let old = executor.schedule(
            asleep(owner),
            Probe::new(&wrong, &dropped).task(|| Next::Sleep),
        );
        let old = old.unwrap();
        let canceller = {
            let executor = executor.clone();
            thread::spawn(move || {
                executor.cancel(old);
                executor.cancel(old);
                executor.wake(old);
                executor.snooze(old, std::time::Duration::ZERO);
            })
        };
        let (kept, runs) = (Level::default(), Level::default());
        let counted = runs.clone();
        let new = executor.schedule(
            asleep(owner),
            Probe::new(&wrong, &kept).task(move || {
                counted.add();
                Next::Sleep
            }),
        );
        let new = new.unwrap();
        canceller.join().unwrap();
        dropped.wait_for(1);
        assert_eq!((kept.get(), runs.get()), (0, 0));
        assert_ne!(old, new);
        assert!(executor.cancel(new));
        kept.wait_for(1);
        assert_eq!(runs.get(), 0);
        wrong.check();
        executor.shutdown();
    });
}

/// Two tasks on two threads cancel each other and then themselves while another thread wakes both. All calls return,
/// each task is dropped once, and the run in which a task was cancelled is its last.
#[test]
fn tasks_cancel_each_other_and_themselves_from_their_runs() {
    check(|| {
        let (executor, owner) = executor(2);
        let (wrong, ids) = (Wrong::default(), Arc::new(Mutex::new(Vec::new())));
        let drops = [(), ()].map(|()| Level::default());
        for (me, dropped) in drops.iter().enumerate() {
            let (probe, wrong, of_all) = (Probe::new(&wrong, dropped), wrong.clone(), ids.clone());
            let over = Level::default();
            let task = move |context: &TaskContext<'_>| {
                wrong.unless(over.get() == 0);
                probe.run();
                let other = of_all.lock().unwrap()[1 - me];
                context.executor().cancel(other);
                // `false` if the other task was first. The task is cancelled in either case.
                context.executor().cancel(context.id());
                over.set(1);
                wrong.unless(!context.executor().wake(context.id()));
                Next::Again
            };
            let id = executor.schedule(asleep(owner), task).unwrap();
            ids.lock().unwrap().push(id);
        }
        let woken = ids.lock().unwrap().clone();
        let waker = {
            let executor = executor.clone();
            thread::spawn(move || {
                for id in woken {
                    executor.wake(id);
                }
            })
        };
        for dropped in &drops {
            dropped.wait_for(1);
        }
        waker.join().unwrap();
        executor.shutdown();
        assert_eq!(drops.map(|dropped| dropped.get()), [1, 1]);
        wrong.check();
    });
}
