//! OneShot: N front threads, N pool threads. One item: allocate a task, schedule it, wait for its result, check it.

use std::sync::{Arc, Condvar, Mutex};

use crate::burn::Burners;
use crate::measure::{Outcome, Progress, Window, measure};
use crate::pool::{Pool, Slot, work};

/// The way in which the result comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultNotice {
    /// A mutex and a condition variable that the item creates.
    Condvar,
    /// The pool's own handle, or a baton.
    Handle,
}

/// Runs one cell. With `busy` other threads of this process keep all cores busy meanwhile.
#[must_use]
pub fn run<P: Pool>(threads: usize, notice: ResultNotice, busy: bool, window: Window) -> Outcome {
    let pool = P::start(threads);
    let burners = Burners::start(busy);
    let others_cpu = || burners.cpu();
    measure(
        threads,
        window,
        others_cpu,
        |front, progress| match notice {
            ResultNotice::Condvar => through_condvar(&pool, front, progress),
            ResultNotice::Handle => through_handle(&pool, front, progress),
        },
    )
}

fn through_handle<P: Pool>(pool: &P, front: usize, progress: &Progress<'_>) {
    let slot = Slot::new();
    let mut input = (front as u64) << 48;
    while progress.go_on() {
        input += 1;
        assert_eq!(
            pool.call(&slot, input),
            work(input),
            "the result of another item"
        );
        progress.add(1);
    }
}

fn through_condvar<P: Pool>(pool: &P, front: usize, progress: &Progress<'_>) {
    let mut input = (front as u64) << 48;
    while progress.go_on() {
        input += 1;
        let answer = Arc::new((Mutex::new(None), Condvar::new()));
        let theirs = Arc::clone(&answer);
        pool.spawn(move || {
            *theirs.0.lock().expect("nobody panics with it") = Some(work(input));
            theirs.1.notify_one();
        });
        let given = answer.0.lock().expect("nobody panics with it");
        let given = answer.1.wait_while(given, |value| value.is_none());
        let value = *given.expect("nobody panics with it");
        assert_eq!(value, Some(work(input)), "the result of another item");
        progress.add(1);
    }
}
