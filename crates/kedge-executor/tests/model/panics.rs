//! Panics while other threads wait for the task.

use std::panic::resume_unwind;

use kedge_executor::{Next, TaskContext, TaskSpec};
use shuttle::thread;

use crate::support::{Dropped, KIND, Level, asleep, check, executor};

/// A run panics while one thread waits for it to begin and another for the end of its owner. Both continue, and the
/// same worker runs the next task.
#[test]
fn waiters_of_a_panicking_task_continue() {
    check(|| {
        let (executor, owner) = executor(1);
        let dropped = Level::default();
        let guard = Dropped(dropped.clone());
        let task = move |_: &TaskContext<'_>| -> Next {
            let _ = &guard;
            // As `panic!` does, without console output in thousands of schedules.
            resume_unwind(Box::new("in the run"));
        };
        let id = executor.schedule(asleep(owner), task).unwrap();
        let waker = {
            let executor = executor.clone();
            thread::spawn(move || executor.wake_and_wait(id))
        };
        let ender = {
            let executor = executor.clone();
            thread::spawn(move || executor.unregister(owner, false))
        };
        let began = waker.join().unwrap();
        ender.join().unwrap();
        assert_eq!(dropped.get(), 1);
        let kinds = executor.kinds();
        let panics: u64 = kinds.iter().map(|info| info.panics).sum();
        assert_eq!(panics, u64::from(began), "it panics if it was begun");
        let next = executor.register("next").unwrap();
        let runs = Level::default();
        let counted = runs.clone();
        let task = move |_: &TaskContext<'_>| {
            counted.add();
            Next::Done
        };
        executor.schedule(TaskSpec::new(&KIND, next), task).unwrap();
        runs.wait_for(1);
        executor.shutdown();
    });
}
