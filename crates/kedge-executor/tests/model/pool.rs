//! Queued tasks run, whichever threads fall asleep, start or end meanwhile.

use kedge_executor::{Next, Pool, TaskContext, TaskSpec, ThreadCount};
use shuttle::thread;

use crate::support::{KIND, Level, check, executor};

/// Tasks are queued while threads search for work, give up and fall asleep.
#[test]
fn queued_tasks_run_while_threads_fall_asleep() {
    check(|| {
        let (executor, owner) = executor(2);
        let runs = Level::default();
        let schedulers = [(), ()].map(|()| {
            let (executor, runs) = (executor.clone(), runs.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    let runs = runs.clone();
                    let task = move |_: &TaskContext<'_>| {
                        runs.add();
                        Next::Done
                    };
                    executor
                        .schedule(TaskSpec::new(&KIND, owner), task)
                        .unwrap();
                }
            })
        });
        runs.wait_for(6);
        for scheduler in schedulers {
            scheduler.join().unwrap();
        }
        executor.shutdown();
        assert_eq!(runs.get(), 6);
    });
}

/// One task at a time, so that all threads fall asleep in between.
#[test]
fn queued_task_wakes_a_sleeping_pool() {
    check(|| {
        let (executor, owner) = executor(2);
        for nth in 0..4 {
            assert_eq!(
                executor.submit_as(&KIND, owner, move || nth).wait(),
                Ok(nth)
            );
        }
        executor.shutdown();
    });
}

/// A pool grows and shrinks while tasks are queued. The threads that remain run them.
#[test]
fn resized_pool_runs_all_tasks() {
    check(|| {
        let (executor, owner) = executor(2);
        let resizer = {
            let executor = executor.clone();
            thread::spawn(move || {
                for count in [1, 3, 1] {
                    executor
                        .set_threads(Pool::NonIo, ThreadCount::Fixed(count))
                        .unwrap();
                }
            })
        };
        let handles = [0, 1, 2, 3].map(|nth| executor.submit_as(&KIND, owner, move || nth));
        for (nth, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.wait(), Ok(nth));
        }
        resizer.join().unwrap();
        assert_eq!(executor.submit_as(&KIND, owner, || 9).wait(), Ok(9));
        assert_eq!(executor.pools()[Pool::NonIo as usize].threads, 1);
        executor.shutdown();
    });
}

/// Threads start during the shutdown.
#[test]
fn no_thread_outlives_shutdown() {
    check(|| {
        let (executor, owner) = executor(1);
        let resizer = {
            let executor = executor.clone();
            thread::spawn(move || {
                executor
                    .set_threads(Pool::NonIo, ThreadCount::Fixed(2))
                    .unwrap();
            })
        };
        let handle = executor.submit_as(&KIND, owner, || ());
        executor.shutdown();
        resizer.join().unwrap();
        let _ = handle.wait();
        assert!(executor.pools().iter().all(|pool| pool.threads == 0));
    });
}
