//! What is queued runs, whoever falls asleep, comes or goes meanwhile.

use kedge_executor::{Context, Next, Pool, TaskSpec, Threads};
use shuttle::thread;

use crate::support::{KIND, Level, check, executor};

/// Tasks are queued while threads search for work, give up and fall asleep.
#[test]
fn what_is_queued_runs_though_threads_fall_asleep() {
    check(|| {
        let (executor, owner) = executor(2);
        let runs = Level::default();
        let schedulers = [(), ()].map(|()| {
            let (executor, runs) = (executor.clone(), runs.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    let runs = runs.clone();
                    let task = move |_: &Context<'_>| {
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

/// One at a time, so that all threads fall asleep in between.
#[test]
fn a_task_wakes_a_pool_that_sleeps() {
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

/// A pool grows and shrinks while tasks are queued; those that are there at the end run.
#[test]
fn a_pool_that_changes_its_size_runs_everything() {
    check(|| {
        let (executor, owner) = executor(2);
        let resizer = {
            let executor = executor.clone();
            thread::spawn(move || {
                for count in [1, 3, 1] {
                    executor
                        .set_threads(Pool::NonIo, Threads::Fixed(count))
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

/// Threads that are begun while all end.
#[test]
fn no_thread_outlives_a_shutdown() {
    check(|| {
        let (executor, owner) = executor(1);
        let resizer = {
            let executor = executor.clone();
            thread::spawn(move || {
                executor
                    .set_threads(Pool::NonIo, Threads::Fixed(2))
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
