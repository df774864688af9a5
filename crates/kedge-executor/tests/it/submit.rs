//! Closures that run once, and waiting for their results.

use std::pin::Pin;
use std::task::{Context as Polled, Poll, Waker};

use kedge_executor::{Pool, TaskError, TaskHandle, TaskState};

use crate::support::{
    Counter, Gate, HOUR, NORMAL, OnDrop, READER, begin, finish, manual, occupy, threaded, within,
};

fn poll<T>(handle: &mut TaskHandle<T>) -> Poll<Result<T, TaskError>> {
    Pin::new(handle).poll(&mut Polled::from_waker(Waker::noop()))
}

#[test]
fn closure_runs_once_on_its_pool() {
    let (executor, manual, owner) = manual();
    let handle = executor.submit(Pool::Writer, || "result");
    assert!(!handle.is_finished());
    assert!(!manual.run_one(Pool::Reader));
    assert!(manual.run_one(Pool::Writer));
    assert!(handle.is_finished());
    assert_eq!(handle.wait(), Ok("result"));
    let handle = executor.submit_as(&READER, owner, || 7);
    let id = handle.id().unwrap();
    let task = executor
        .tasks()
        .into_iter()
        .find(|task| task.id == id)
        .unwrap();
    assert_eq!(
        (task.owner.as_str(), task.kind, task.state),
        ("owner", "read", TaskState::Queued)
    );
    assert_eq!(
        handle.wait(),
        Ok(7),
        "who waits does the work on a manual executor"
    );
    assert!(!executor.wake(id));
    assert_eq!(manual.advance(HOUR), 0);
}

#[test]
fn handle_is_a_future() {
    let (executor, manual, owner) = manual();
    let mut handle = executor.submit_as(&NORMAL, owner, || 7);
    assert_eq!(poll(&mut handle), Poll::Pending);
    manual.run_ready();
    assert_eq!(poll(&mut handle), Poll::Ready(Ok(7)));
}

#[test]
fn cancelled_closure_does_not_run() {
    let (executor, manual, owner) = manual();
    let runs = Counter::default();
    let counted = runs.clone();
    let mut handle = executor.submit_as(&NORMAL, owner, move || counted.add());
    assert!(executor.cancel(handle.id().unwrap()));
    assert!(!executor.cancel(handle.id().unwrap()));
    assert_eq!(poll(&mut handle), Poll::Pending, "its pool drops it");
    manual.run_ready();
    assert_eq!(poll(&mut handle), Poll::Ready(Err(TaskError::Cancelled)));
    assert_eq!(runs.get(), 0);
}

#[test]
fn closure_cancelled_during_its_run_returns_its_result() {
    let (executor, _manual, owner) = manual();
    let cancels = executor.clone();
    let handle = executor.submit_as(&NORMAL, owner, move || {
        let id = cancels.tasks()[0].id;
        cancels.cancel(id)
    });
    assert_eq!(handle.wait(), Ok(true));
    assert!(executor.tasks().is_empty());
}

#[test]
fn dropped_handle_does_not_cancel_the_closure() {
    let (executor, manual, owner) = manual();
    let drops = Counter::default();
    let dropped = drops.clone();
    drop(executor.submit_as(&NORMAL, owner, move || {
        OnDrop::new(move || {
            dropped.add();
        })
    }));
    assert_eq!(manual.run_ready(), 1);
    assert_eq!(drops.get(), 1, "the result too is dropped");
}

#[test]
fn result_is_kept_for_a_late_waiter() {
    let (executor, manual, owner) = manual();
    let handle = executor.submit_as(&NORMAL, owner, || vec![1, 2, 3]);
    manual.run_ready();
    executor.unregister(owner, true);
    executor.shutdown();
    drop((executor, manual));
    assert_eq!(handle.wait(), Ok(vec![1, 2, 3]));
}

/// A closure may submit others to other pools and wait for them.
#[test]
fn closure_may_wait_for_another_closure() {
    let (executor, _manual, _owner) = manual();
    let inner = executor.clone();
    let handle = executor.submit(Pool::NonIo, move || {
        let read = inner.submit(Pool::Reader, || 20).wait().unwrap();
        read + inner.submit(Pool::Writer, || 1).wait().unwrap()
    });
    assert_eq!(handle.wait(), Ok(21));
}

/// It would wait forever, and panics instead.
#[test]
fn closure_that_waits_for_itself_panics_on_a_manual_executor() {
    let (executor, _manual, owner) = manual();
    let inner = executor.clone();
    let handle = executor.submit_as(&NORMAL, owner, move || {
        let running = inner.tasks()[0].id;
        inner.wake_and_wait(running)
    });
    let Err(TaskError::Panicked(text)) = handle.wait() else {
        panic!("it waited, for what?");
    };
    assert!(text.contains("nothing is left to run"), "{text}");
}

#[test]
fn closures_can_be_awaited() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (executor, owner) = threaded(2);
    let sum = within(move || {
        runtime.block_on(async {
            let handles: Vec<_> = (0..100)
                .map(|nth| executor.submit_as(&NORMAL, owner, move || nth))
                .collect();
            let mut sum = 0;
            for handle in handles {
                sum += handle.await.unwrap();
            }
            let panics = executor.submit_as(&NORMAL, owner, || panic!("a text"));
            assert_eq!(
                panics.await,
                Err::<(), _>(TaskError::Panicked("a text".to_owned()))
            );
            sum
        })
    });
    assert_eq!(sum, 99 * 100 / 2);
}

/// A future that is no longer polled: its closure runs and its waker is woken, with no other effect.
#[test]
fn future_may_be_dropped_after_a_poll() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let (executor, owner) = threaded(1);
    let (_, gate) = occupy(&executor, owner);
    let (late, done) = (Counter::default(), Gate::default());
    let (counted, opens) = (late.clone(), done.clone());
    runtime.block_on(async {
        let slow = executor.submit_as(&NORMAL, owner, move || {
            counted.add();
            opens.open();
        });
        let quick = executor.submit(Pool::Reader, || 1);
        tokio::select! {
            biased;
            _ = slow => panic!("the pool is busy"),
            result = quick => assert_eq!(result, Ok(1)),
        }
    });
    gate.open();
    done.pass();
    assert_eq!(late.get(), 1);
}

#[test]
fn waiters_receive_the_end_of_owner_and_executor() {
    let (executor, owner) = threaded(1);
    let (_, gate) = occupy(&executor, owner);
    let handles: Vec<_> = (0..4)
        .map(|nth| executor.submit_as(&NORMAL, owner, move || nth))
        .collect();
    assert!(executor.cancel(handles[0].id().unwrap()));
    let waiters: Vec<_> = handles
        .into_iter()
        .map(|handle| begin(move || handle.wait()))
        .collect();
    let ended = begin(move || executor.unregister(owner, true));
    for waiter in &waiters {
        assert_eq!(finish(waiter), Err(TaskError::Cancelled));
    }
    gate.open();
    finish(&ended);
}

/// With spinning in `submit` or without, and with or without further submissions before the wait.
#[test]
fn results_reach_waiters_with_their_own_synchronisation() {
    let (executor, owner) = threaded(2);
    let front = move |ahead: usize| {
        let (sender, results) = std::sync::mpsc::channel();
        for batch in 0..2_000 {
            for number in 0..ahead {
                let sender = sender.clone();
                let send = move || sender.send((batch, number)).unwrap();
                drop(executor.submit_as(&NORMAL, owner, send));
            }
            let mut had: Vec<_> = results.iter().take(ahead).collect();
            had.sort_unstable();
            let all: Vec<_> = (0..ahead).map(|number| (batch, number)).collect();
            assert_eq!(had, all);
        }
    };
    within(move || {
        std::thread::scope(|scope| {
            for ahead in [1, 1, 3, 20] {
                let front = &front;
                scope.spawn(move || front(ahead));
            }
        });
    });
}
