//! The threads of pools: number, names and changes.

use std::collections::BTreeSet;
use std::env;
use std::process::Command;
use std::sync::{Arc, Barrier};

use kedge_executor::{Executor, ExecutorConfig, Next, Pool, TaskContext, TaskSpec, ThreadCount};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{name_of, nice_of, this_thread};
use crate::support::{Counter, NORMAL, begin, eventually, finish, threaded, within};

/// Returns all threads of a pool, each seen while all the others are busy.
fn at_work(executor: &Executor, pool: Pool, count: usize) -> Vec<i32> {
    let barrier = Arc::new(Barrier::new(count));
    let handles: Vec<_> = (0..count)
        .map(|_| {
            let barrier = barrier.clone();
            executor.submit(pool, move || {
                barrier.wait();
                this_thread()
            })
        })
        .collect();
    within(move || {
        handles
            .into_iter()
            .map(|handle| handle.wait().unwrap())
            .collect()
    })
}

#[test]
fn threads_are_named_after_their_pools() {
    let executor = Executor::new(ExecutorConfig {
        reader: ThreadCount::Fixed(3),
        writer: ThreadCount::Fixed(1),
        auxio: ThreadCount::Fixed(2),
        nonio: ThreadCount::Fixed(11),
        ..ExecutorConfig::default()
    });
    let executor = executor.unwrap();
    for (pool, count) in Pool::ALL.into_iter().zip([3, 1, 2, 11]) {
        let names: BTreeSet<_> = at_work(&executor, pool, count)
            .into_iter()
            .map(|thread| name_of(thread).unwrap())
            .collect();
        let expected: BTreeSet<_> = (0..count)
            .map(|number| format!("{}-{number}", pool.name()))
            .collect();
        assert_eq!(names, expected);
        assert_eq!(executor.pools()[pool as usize].threads, count);
    }
}

#[test]
fn pool_lacks_threads_when_all_are_busy_and_tasks_are_due() {
    let executor = Executor::new(ExecutorConfig {
        writer: ThreadCount::Fixed(1),
        ..ExecutorConfig::default()
    });
    let executor = executor.unwrap();
    let (gone_in, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let busy = {
        let (gone_in, go_on) = (gone_in.clone(), go_on.clone());
        executor.submit(Pool::Writer, move || {
            gone_in.wait();
            go_on.wait();
        })
    };
    gone_in.wait();
    assert!(!executor.lacks_threads(Pool::Writer));
    let waits = executor.submit(Pool::Writer, || ());
    assert!(executor.lacks_threads(Pool::Writer));
    assert!(!executor.lacks_threads(Pool::Reader));
    go_on.wait();
    within(move || (busy.wait().unwrap(), waits.wait().unwrap()));
    assert!(!executor.lacks_threads(Pool::Writer));
}

#[test]
fn auxio_threads_have_a_higher_nice_value() {
    for nice in [0, 5, 100] {
        let executor = Executor::new(ExecutorConfig {
            auxio_nice: nice,
            ..ExecutorConfig::default()
        })
        .unwrap();
        let usual = nice_of(this_thread());
        let nice_in = |pool| {
            executor
                .submit(pool, || nice_of(this_thread()))
                .wait()
                .unwrap()
        };
        for pool in [Pool::Reader, Pool::Writer, Pool::NonIo] {
            assert_eq!(nice_in(pool), usual);
        }
        // 19 is the largest nice value.
        assert_eq!(nice_in(Pool::AuxIo), (usual + nice).min(19));
    }
}

/// Runs as many tasks at once as the pool has threads, repeatedly, with other sizes in between.
#[test]
fn pool_has_the_requested_number_of_threads() {
    let (executor, _owner) = threaded(2);
    let mut before: Vec<i32> = Vec::new();
    for count in [2, 5, 1, 3, 3, 8, 1] {
        executor
            .set_threads(Pool::NonIo, ThreadCount::Fixed(count))
            .unwrap();
        let now = at_work(&executor, Pool::NonIo, count);
        assert_eq!(now.iter().collect::<BTreeSet<_>>().len(), count);
        // Surplus threads end.
        for thread in before.iter().filter(|thread| !now.contains(thread)) {
            eventually(|| name_of(*thread).is_none());
        }
        before = now;
    }
}

#[test]
fn repeatedly_resized_pool_runs_all_tasks() {
    const TASKS: u32 = 3_000;
    let (executor, owner) = threaded(2);
    let done = Counter::default();
    let (sizes, told) = (executor.clone(), done.clone());
    let resizes = begin(move || {
        let mut count = 1;
        while told.get() < TASKS {
            count = count * 7 % 11;
            sizes
                .set_threads(Pool::NonIo, ThreadCount::Fixed(count))
                .unwrap();
        }
    });
    for nth in 0..TASKS {
        let (counted, mut runs) = (done.clone(), 0);
        let task = move |_: &TaskContext<'_>| {
            runs += 1;
            if runs < 3 {
                return if nth % 2 == 0 {
                    Next::Again
                } else {
                    Next::Snooze(std::time::Duration::from_micros(10))
                };
            }
            counted.add();
            Next::Done
        };
        executor
            .schedule(TaskSpec::new(&NORMAL, owner), task)
            .unwrap();
    }
    done.wait_for(TASKS);
    finish(&resizes);
    eventually(|| executor.tasks().is_empty());
}

/// A task may end its own thread, which completes the run first.
#[test]
fn task_may_resize_its_own_pool() {
    let (executor, _owner) = threaded(4);
    let inner = executor.clone();
    let handle = executor.submit(Pool::NonIo, move || {
        for count in [1, 6, 2] {
            inner
                .set_threads(Pool::NonIo, ThreadCount::Fixed(count))
                .unwrap();
        }
    });
    assert_eq!(within(move || handle.wait()), Ok(()));
    assert_eq!(at_work(&executor, Pool::NonIo, 2).len(), 2);
}

/// In a process of its own, whose memory is limited until threads cannot be started.
#[test]
fn threads_that_fail_to_start_are_not_counted() {
    const CHILD: &str = "KEDGE_TEST_WITHOUT_MEMORY";
    if env::var_os(CHILD).is_some() {
        run_out_of_memory();
        return;
    }
    let name = "threads::size::threads_that_fail_to_start_are_not_counted";
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned()
        + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

fn run_out_of_memory() {
    let (executor, _owner) = threaded(2);
    at_work(&executor, Pool::NonIo, 2);
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split_whitespace().next().unwrap().parse().unwrap();
    let before = getrlimit(Resource::As);
    // The stack of a thread takes two megabytes.
    let limit = pages * rustix::param::page_size() as u64 + (40 << 20);
    setrlimit(
        Resource::As,
        Rlimit {
            current: Some(limit),
            maximum: before.maximum,
        },
    )
    .unwrap();
    let result = executor.set_threads(Pool::NonIo, ThreadCount::Fixed(100));
    setrlimit(Resource::As, before).unwrap();
    assert!(result.is_err(), "40 MB are enough for 100 threads?");
    let count = executor.pools()[Pool::NonIo as usize].threads;
    assert!((2..100).contains(&count), "{count}");
    assert_eq!(at_work(&executor, Pool::NonIo, count).len(), count);
    executor
        .set_threads(Pool::NonIo, ThreadCount::Fixed(100))
        .unwrap();
    assert_eq!(at_work(&executor, Pool::NonIo, 100).len(), 100);
}
