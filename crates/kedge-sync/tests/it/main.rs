//! Orders of locks.

#![cfg(debug_assertions)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kedge_sync::{Rank, RankedCondvar, RankedMutex, RankedRwLock};

macro_rules! ranks {
    ($($name:ident: $order:literal;)*) => {$(
        #[derive(Debug)]
        enum $name {}

        impl Rank for $name {
            const ORDER: u8 = $order;
            const NAME: &'static str = stringify!($name);
        }
    )*};
}

ranks! {
    Low: 1;
    Middle: 2;
    AlsoMiddle: 2;
    High: 3;
}

#[derive(Default)]
struct Locks {
    low: RankedMutex<Low, u32>,
    middle: RankedMutex<Middle, u32>,
    also_middle: RankedRwLock<AlsoMiddle, u32>,
    high: RankedMutex<High, u32>,
}

/// The message of the panic of `work`, if it panics.
fn panic_of(work: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(work)).err()?;
    panic.downcast_ref::<String>().cloned()
}

#[test]
fn higher_ranks_may_be_taken() {
    let locks = Locks::default();
    for _ in 0..2 {
        let _low = locks.low.lock();
        let _middle = locks.also_middle.read();
        *locks.high.lock() += 1;
    }
    let _low = locks.low.lock();
    let _high = locks.high.lock();
}

#[test]
fn equal_and_lower_ranks_must_not_be_taken() {
    let locks = Locks::default();
    let refused = panic_of(|| {
        let _high = locks.high.lock();
        let _low = locks.low.lock();
    });
    let refused = refused.expect("High goes after Low");
    assert!(
        refused.contains("Low (rank 1)") && refused.contains("High (rank 3)"),
        "{refused}"
    );
    for equal in [
        panic_of(|| {
            let _middle = locks.middle.lock();
            let _also = locks.also_middle.write();
        }),
        panic_of(|| {
            let _also = locks.also_middle.read();
            let _again = locks.also_middle.read();
        }),
        panic_of(|| {
            let _also = locks.also_middle.write();
            let _middle = locks.middle.lock();
        }),
    ] {
        assert!(equal.is_some());
    }
    // The panics have released their locks, and the thread may take all of them again.
    drop((locks.low.lock(), locks.middle.lock(), locks.high.lock()));
}

#[test]
fn guards_are_dropped_in_any_order() {
    let locks = Locks::default();
    let low = locks.low.lock();
    let middle = locks.middle.lock();
    drop(low);
    assert!(panic_of(|| drop(locks.low.lock())).is_some());
    let high = locks.high.lock();
    drop(middle);
    drop(high);
    drop(locks.low.lock());
}

#[test]
fn a_lock_that_is_only_tried_counts_when_it_is_held() {
    let locks = Locks::default();
    let high = locks.high.lock();
    let low = locks.low.try_lock().expect("nobody holds it");
    assert!(locks.low.try_lock().is_none());
    drop(high);
    assert!(panic_of(|| drop(locks.low.lock())).is_some());
    drop(locks.middle.lock());
    drop(low);
    drop(locks.low.lock());
}

#[test]
fn ranks_are_those_of_a_thread() {
    let locks = Locks::default();
    let _high = locks.high.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| *locks.low.lock() += 1);
    });
    assert_eq!(locks.low.into_inner(), 1);
}

#[test]
fn a_wait_returns_with_the_lock() {
    let shared = Arc::new((RankedMutex::<Low, bool>::default(), RankedCondvar::new()));
    let other = shared.clone();
    let mut is_set = shared.0.lock();
    let setter = std::thread::spawn(move || {
        *other.0.lock() = true;
        other.1.notify_all();
    });
    shared.1.wait_while(&mut is_set, |is_set| !*is_set);
    assert!(*is_set);
    let timed_out = shared.1.wait_for(&mut is_set, Duration::from_millis(1));
    assert!(timed_out.timed_out());
    assert!(
        panic_of(|| drop(shared.0.lock())).is_some(),
        "it is held again"
    );
    setter.join().expect("the other thread ends");
}
