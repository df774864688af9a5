//! Statistics of an executor.

use std::time::Duration;

use kedge_executor::{
    LatencyHistogram, Next, Pool, PoolInfo, Priority, TaskContext, TaskKind, TaskSpec, TaskState,
};

use crate::support::{
    AUXIO, Counter, HOUR, LOW, NORMAL, READER, SECOND, WRITER, after, asleep, histogram_of, manual,
    spin, threaded,
};

#[test]
fn tasks_are_listed_with_their_descriptions() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    assert!(executor.tasks().is_empty());
    let described = TaskSpec {
        description: format!("item {}", 7).into(),
        ..after(&LOW, owner, 5 * SECOND)
    };
    let first = executor
        .schedule(described, runs.task(Next::Sleep))
        .unwrap();
    let second = executor
        .schedule(TaskSpec::new(&READER, owner), runs.task(Next::Sleep))
        .unwrap();
    manual.advance(2 * SECOND);
    let tasks = executor.tasks();
    assert_eq!(tasks.len(), 2);
    let task = tasks.iter().find(|task| task.id == first).unwrap();
    assert_eq!(
        (task.owner.as_str(), task.kind, task.description.as_str()),
        ("owner", "low", "item 7")
    );
    assert_eq!((task.pool, task.priority), (Pool::NonIo, Priority::Low));
    assert_eq!(task.state, TaskState::Snoozing(Some(3 * SECOND)));
    assert_eq!((task.runs, task.run_time), (0, Duration::ZERO));
    let task = tasks.iter().find(|task| task.id == second).unwrap();
    assert_eq!((task.state, task.runs), (TaskState::Snoozing(None), 1));
    assert!(executor.wake(second));
    let states: Vec<TaskState> = executor.tasks().iter().map(|task| task.state).collect();
    assert!(states.contains(&TaskState::Queued));
}

#[test]
fn running_task_is_listed_as_running() {
    let (executor, _manual, owner) = manual();
    let looks = executor.clone();
    let handle = executor.submit_as(&WRITER, owner, move || looks.tasks());
    let id = handle.id().unwrap();
    let seen = handle.wait().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].id, seen[0].state, seen[0].runs),
        (id, TaskState::Running, 1)
    );
}

#[test]
fn runs_of_an_earlier_task_in_the_slot_are_not_counted() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    for _ in 0..3 {
        let id = executor
            .schedule(
                after(&NORMAL, owner, SECOND),
                runs.task(Next::Snooze(SECOND)),
            )
            .unwrap();
        manual.advance(10 * SECOND);
        assert_eq!(executor.tasks()[0].runs, 10);
        assert!(executor.cancel(id));
        manual.run_ready();
    }
    assert_eq!(runs.get(), 30);
}

#[test]
fn pool_info_counts_queued_tasks() {
    let (executor, manual, owner) = manual();
    for kind in [&READER, &READER, &AUXIO] {
        executor
            .schedule(TaskSpec::new(kind, owner), |_: &TaskContext<'_>| Next::Done)
            .unwrap();
    }
    let info = |pool, queued| PoolInfo {
        pool,
        threads: 0,
        idle: 0,
        queued,
    };
    let expected = [
        (Pool::Reader, 2),
        (Pool::Writer, 0),
        (Pool::AuxIo, 1),
        (Pool::NonIo, 0),
    ];
    assert_eq!(
        executor.pools(),
        expected.map(|(pool, queued)| info(pool, queued))
    );
    manual.run_ready();
    assert!(executor.pools().iter().all(|pool| pool.queued == 0));
}

#[test]
fn task_kinds_are_listed_after_first_use() {
    static ONE: TaskKind = TaskKind::new("kind_one", Pool::NonIo, Priority::Normal, HOUR);
    static TWO: TaskKind = TaskKind::new("kind_two", Pool::NonIo, Priority::Normal, HOUR);
    static NEVER: TaskKind = TaskKind::new("kind_never", Pool::NonIo, Priority::Normal, HOUR);
    let (executor, manual, owner) = manual();
    assert!(executor.kinds().is_empty());
    let _ = NEVER.name();
    for kind in [&TWO, &ONE, &TWO] {
        executor
            .schedule(TaskSpec::new(kind, owner), |_: &TaskContext<'_>| Next::Done)
            .unwrap();
    }
    let names = || {
        executor
            .kinds()
            .iter()
            .map(|info| info.kind.name())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["kind_two", "kind_one"]);
    manual.run_ready();
    assert_eq!(histogram_of(&executor, &TWO).run_time.count, 2);
    executor.reset_stats();
    assert_eq!(names(), ["kind_two", "kind_one"]);
    assert_eq!(
        histogram_of(&executor, &TWO).run_time,
        LatencyHistogram::default()
    );
}

/// Every run counts once in each histogram, whichever thread it ran on.
#[test]
fn histograms_count_every_run_on_every_thread() {
    static COUNTED: TaskKind = TaskKind::new("counted", Pool::NonIo, Priority::Normal, HOUR);
    let (executor, owner) = threaded(6);
    let handles: Vec<_> = (0..5_000)
        .map(|_| executor.submit_as(&COUNTED, owner, || ()))
        .collect();
    for handle in handles {
        handle.wait().unwrap();
    }
    // The result is available before the run is counted.
    executor.unregister(owner, true);
    let info = histogram_of(&executor, &COUNTED);
    let total =
        |histogram: &LatencyHistogram| histogram.buckets.iter().map(|bucket| bucket.2).sum::<u64>();
    for histogram in [&info.queue_time, &info.run_time] {
        assert_eq!((histogram.count, total(histogram)), (5_000, 5_000));
        assert!(
            histogram
                .buckets
                .iter()
                .all(|(low, high, count)| low <= high && *count > 0)
        );
        assert!(histogram.buckets.is_sorted());
    }
    assert_eq!((info.panics, info.slow), (0, 0));
}

/// Every run takes longer than expected, because the expected duration is zero.
#[test]
fn slow_runs_are_counted() {
    static SLOW: TaskKind = TaskKind::new(
        "slow",
        Pool::NonIo,
        Priority::Normal,
        Duration::from_nanos(1),
    );
    const TIME: Duration = Duration::from_millis(3);
    let (executor, owner) = threaded(1);
    let id = executor.schedule(TaskSpec::new(&SLOW, owner), |_: &TaskContext<'_>| {
        spin(TIME);
        Next::Sleep
    });
    let id = id.unwrap();
    let task = || {
        executor
            .tasks()
            .into_iter()
            .find(|task| task.id == id)
            .unwrap()
    };
    crate::support::eventually(|| matches!(task().state, TaskState::Snoozing(None)));
    assert!(task().run_time >= TIME);
    let info = histogram_of(&executor, &SLOW);
    assert_eq!(info.slow, 1);
    let (_, high, _) = info.run_time.buckets[0];
    assert!(u128::from(high) >= TIME.as_micros());
}

#[test]
fn task_ids_are_never_reused() {
    let (executor, manual, owner) = manual();
    let mut ids = std::collections::HashSet::new();
    for _ in 0..1_000 {
        for _ in 0..3 {
            let id = executor
                .schedule(TaskSpec::new(&NORMAL, owner), |_: &TaskContext<'_>| {
                    Next::Done
                })
                .unwrap();
            assert!(ids.insert(id));
        }
        manual.run_ready();
    }
    assert!(
        executor
            .schedule(asleep(&NORMAL, owner), |_: &TaskContext<'_>| Next::Done)
            .is_ok()
    );
}
