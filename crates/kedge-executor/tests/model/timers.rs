//! Deadlines, with the timer thread: none is missed, and none ends a later sleep.

use std::time::Duration;

use kedge_executor::{Executor, Next, OwnerId, TaskId, TaskSpec};
use shuttle::thread;

use crate::support::{KIND, Level, Probe, Wrong, check, executor};

const SOON: Duration = Duration::from_micros(2);

/// A task that counts its runs, and the timer thread.
struct Counted {
    executor: Executor,
    owner: OwnerId,
    id: TaskId,
    runs: Level,
    dropped: Level,
    wrong: Wrong,
}

impl Counted {
    /// `next` receives the number of the run that ends.
    fn begin(
        threads: usize,
        first_run: Option<Duration>,
        next: impl Fn(u32) -> Next + Send + 'static,
    ) -> Self {
        let (executor, owner) = executor(threads);
        executor.start_model_timer().unwrap();
        let (wrong, dropped, runs) = (Wrong::default(), Level::default(), Level::default());
        let counted = runs.clone();
        let task = Probe::new(&wrong, &dropped).task(move || {
            counted.add();
            next(counted.get())
        });
        let spec = TaskSpec {
            first_run,
            ..TaskSpec::new(&KIND, owner)
        };
        let id = executor.schedule(spec, task).unwrap();
        Self {
            executor,
            owner,
            id,
            runs,
            dropped,
            wrong,
        }
    }

    fn end(self) {
        self.executor.shutdown();
        self.wrong.check();
    }
}

/// The timer fires while the task is woken and its deadline is moved. The task still completes its runs.
#[test]
fn deadline_is_met_while_wakes_and_snoozes_move_it() {
    check(|| {
        let task = Counted::begin(2, Some(SOON), |run| match run {
            0..3 => Next::Snooze(SOON),
            _ => Next::Done,
        });
        let id = task.id;
        let mover = {
            let executor = task.executor.clone();
            thread::spawn(move || {
                executor.snooze(id, SOON);
                executor.snooze(id, 3 * SOON);
            })
        };
        let waker = {
            let executor = task.executor.clone();
            thread::spawn(move || executor.wake(id))
        };
        task.dropped.wait_for(1);
        assert_eq!(task.runs.get(), 3);
        mover.join().unwrap();
        waker.join().unwrap();
        task.end();
    });
}

/// A sleeping task without a deadline gets one and is woken.
#[test]
fn snooze_and_wake_cause_one_or_two_runs() {
    check(|| {
        let task = Counted::begin(1, None, |_| Next::Sleep);
        let (executor, id) = (&task.executor, task.id);
        let snoozers = [(), ()].map(|()| {
            let executor = executor.clone();
            thread::spawn(move || executor.snooze(id, SOON))
        });
        let woken = executor.wake(id);
        assert!(woken);
        task.runs.wait_for(1);
        for snoozer in snoozers {
            snoozer.join().unwrap();
        }
        // Once more, without another thread.
        while !executor.snooze(id, SOON) {
            thread::yield_now();
        }
        let before = task.runs.get();
        task.runs.wait_for(before.max(2));
        executor.unregister(task.owner, true);
        assert!(task.runs.get() <= 4);
        assert_eq!(task.dropped.get(), 1);
        task.end();
    });
}

/// The deadline moves when the timer has already found the task due.
#[test]
fn postponed_deadline_ends_no_sleep() {
    check(|| {
        let task = Counted::begin(1, Some(SOON), |_| Next::Sleep);
        let executor = &task.executor;
        let moved = executor
            .snooze(task.id, Duration::from_secs(3_600))
            .then(|| task.runs.get());
        for _ in 0..8 {
            thread::yield_now();
        }
        executor.unregister(task.owner, true);
        if let Some(before) = moved {
            // The task slept, and no thread woke it.
            assert_eq!(task.runs.get(), before);
        }
        assert!(task.runs.get() <= 1);
        task.end();
    });
}
