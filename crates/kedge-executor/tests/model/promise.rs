//! The result of a closure reaches who waits for it, in whatever way.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use kedge_executor::Ended;
use shuttle::future::block_on;
use shuttle::sync::mpsc;
use shuttle::thread;

use crate::support::{KIND, check, executor};

#[test]
fn a_result_is_waited_for_and_awaited() {
    check(|| {
        let (executor, owner) = executor(2);
        let first = executor.submit_as(&KIND, owner, || 1);
        let second = executor.submit_as(&KIND, owner, || 2);
        let waiter = thread::spawn(move || first.wait());
        assert_eq!(block_on(second), Ok(2));
        assert_eq!(waiter.join().unwrap(), Ok(1));
        executor.shutdown();
    });
}

/// Polled once, then waited for: the place of who waits changes hands.
#[test]
fn a_result_that_was_polled_for_is_waited_for() {
    check(|| {
        let (executor, owner) = executor(1);
        let mut handle = executor.submit_as(&KIND, owner, || 1);
        let polled = block_on(async {
            std::future::poll_fn(|context: &mut Context<'_>| {
                Poll::Ready(match pin!(&mut handle).poll(context) {
                    Poll::Ready(result) => Some(result),
                    Poll::Pending => None,
                })
            })
            .await
        });
        let result = polled.unwrap_or_else(|| handle.wait());
        assert_eq!(result, Ok(1));
        executor.shutdown();
    });
}

/// So often that the thread is known to wait: it looks for the end within `submit` then.
#[test]
fn who_waits_by_means_of_its_own_has_every_result() {
    check(|| {
        let (executor, owner) = executor(1);
        for number in 0..5 {
            let (sender, result) = mpsc::channel();
            let send = move || sender.send(number).unwrap();
            drop(executor.submit_as(&KIND, owner, send));
            assert_eq!(result.recv(), Ok(number));
        }
        executor.shutdown();
    });
}

#[test]
fn who_waits_hears_of_a_cancellation() {
    check(|| {
        let (executor, owner) = executor(1);
        let handle = executor.submit_as(&KIND, owner, || 1);
        let id = handle.id().unwrap();
        let canceller = {
            let executor = executor.clone();
            thread::spawn(move || executor.cancel(id))
        };
        let result = handle.wait();
        let cancelled = canceller.join().unwrap();
        assert!(result == Ok(1) || cancelled && result == Err(Ended::Cancelled));
        executor.shutdown();
    });
}
