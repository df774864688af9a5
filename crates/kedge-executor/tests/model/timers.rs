//! Deadlines, with the timer's thread: none is missed, none ends a later sleep.

use std::time::Duration;

use kedge_executor::{Next, TaskSpec};
use shuttle::thread;

use crate::support::{KIND, Level, Probe, Wrong, asleep, check, executor};

const SOON: Duration = Duration::from_micros(2);

/// The timer fires while the task is woken, and while its deadline is moved: it runs to its end all the same.
#[test]
fn a_deadline_is_met_whoever_moves_it() {
    check(|| {
        let (executor, owner) = executor(2);
        executor.begin_timer_of_model().unwrap();
        let (wrong, dropped, runs) = (Wrong::default(), Level::default(), Level::default());
        let counted = runs.clone();
        let task = Probe::new(&wrong, &dropped).task(move || {
            counted.add();
            if counted.get() < 3 {
                Next::Snooze(SOON)
            } else {
                Next::Done
            }
        });
        let spec = TaskSpec {
            first_run: Some(SOON),
            ..TaskSpec::new(&KIND, owner)
        };
        let id = executor.schedule(spec, task).unwrap();
        let mover = {
            let executor = executor.clone();
            thread::spawn(move || {
                executor.snooze(id, SOON);
                executor.snooze(id, 3 * SOON);
            })
        };
        let waker = {
            let executor = executor.clone();
            thread::spawn(move || executor.wake(id))
        };
        dropped.wait_for(1);
        assert_eq!(runs.get(), 3);
        mover.join().unwrap();
        waker.join().unwrap();
        executor.shutdown();
        wrong.check();
    });
}

/// A task that slept for ever is given a deadline, and woken.
#[test]
fn a_snooze_and_a_wake_give_a_run_each_or_one_together() {
    check(|| {
        let (executor, owner) = executor(1);
        executor.begin_timer_of_model().unwrap();
        let (wrong, dropped, runs) = (Wrong::default(), Level::default(), Level::default());
        let counted = runs.clone();
        let task = Probe::new(&wrong, &dropped).task(move || {
            counted.add();
            Next::Sleep
        });
        let id = executor.schedule(asleep(owner), task).unwrap();
        let snoozers = [(), ()].map(|()| {
            let executor = executor.clone();
            thread::spawn(move || executor.snooze(id, SOON))
        });
        let woken = executor.wake(id);
        assert!(woken);
        runs.wait_for(1);
        for snoozer in snoozers {
            snoozer.join().unwrap();
        }
        // Once more, without anybody to help.
        while !executor.snooze(id, SOON) {
            thread::yield_now();
        }
        let before = runs.get();
        runs.wait_for(before.max(2));
        executor.unregister(owner, true);
        assert!(runs.get() <= 4);
        assert_eq!(dropped.get(), 1);
        wrong.check();
        executor.shutdown();
    });
}

/// The timer has found the task due when its deadline moves away: it is too late to wake it.
#[test]
fn a_deadline_that_moved_away_ends_no_sleep() {
    check(|| {
        let (executor, owner) = executor(1);
        executor.begin_timer_of_model().unwrap();
        let (wrong, dropped, runs) = (Wrong::default(), Level::default(), Level::default());
        let counted = runs.clone();
        let task = Probe::new(&wrong, &dropped).task(move || {
            counted.add();
            Next::Sleep
        });
        let spec = TaskSpec {
            first_run: Some(SOON),
            ..TaskSpec::new(&KIND, owner)
        };
        let id = executor.schedule(spec, task).unwrap();
        let moved = executor
            .snooze(id, Duration::from_secs(3_600))
            .then(|| runs.get());
        for _ in 0..8 {
            thread::yield_now();
        }
        executor.unregister(owner, true);
        if let Some(before) = moved {
            // It slept then, and nobody woke it.
            assert_eq!(runs.get(), before);
        }
        assert!(runs.get() <= 1);
        wrong.check();
        executor.shutdown();
    });
}
