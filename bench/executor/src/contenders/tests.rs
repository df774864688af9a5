//! The properties that every pool with task semantics must have before its speed means anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::baton::{BATON_SPIN, Baton};
use crate::pool::TaskPool;

const DEADLINE: Duration = Duration::from_secs(60);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < DEADLINE, "{what}");
        std::thread::yield_now();
    }
}

/// No wake is lost and no task runs on two threads at once, regardless of who wakes it, and whether it runs.
fn wakes<P: TaskPool>() {
    let pool = P::start(2);
    let runs = Arc::new(AtomicU64::new(0));
    let inside = Arc::new(AtomicBool::new(false));
    let (count, busy) = (Arc::clone(&runs), Arc::clone(&inside));
    let id = pool.add(None, move || {
        assert!(!busy.swap(true, Ordering::SeqCst), "two runs at once");
        count.fetch_add(1, Ordering::SeqCst);
        busy.store(false, Ordering::SeqCst);
    });
    std::thread::scope(|scope| {
        for waker in 0..3 {
            let (pool, runs) = (&pool, &runs);
            scope.spawn(move || {
                for turn in 0..2_000 {
                    let before = runs.load(Ordering::SeqCst);
                    if (waker + turn) % 3 == 0 {
                        assert!(pool.wake_and_wait(id));
                    } else {
                        pool.wake(id);
                    }
                    until("a wake was lost", || runs.load(Ordering::SeqCst) > before);
                }
            });
        }
    });
    assert!(runs.load(Ordering::SeqCst) <= 6_000, "more runs than wakes");
}

/// A wake during a run of the task leads to another run.
fn wake_during_a_run<P: TaskPool>() {
    let pool = P::start(2);
    let (inside, go_on) = (
        Arc::new(Baton::new(BATON_SPIN)),
        Arc::new(Baton::new(BATON_SPIN)),
    );
    let runs = Arc::new(AtomicU64::new(0));
    let (tell, wait, count) = (Arc::clone(&inside), Arc::clone(&go_on), Arc::clone(&runs));
    let id = pool.add(None, move || {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            tell.post();
            wait.wait();
        }
    });
    pool.wake(id);
    inside.wait();
    pool.wake(id);
    pool.wake(id);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    go_on.post();
    until("a wake during a run was lost", || {
        runs.load(Ordering::SeqCst) == 2
    });
}

/// Timers fire, a snooze moves them, and a cancelled task does not run and is not found.
fn timers<P: TaskPool>() {
    let pool = P::start(1);
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let add = |name: &'static str, millis| {
        let order = Arc::clone(&order);
        pool.add(Some(Duration::from_millis(millis)), move || {
            order.lock().push(name);
        })
    };
    // So far away that a slow machine does not reach them.
    let cancelled = add("cancelled", 600_000);
    let moved_back = add("moved back", 600_000);
    let moved_on = add("moved on", 600_000);
    add("in time", 20);
    pool.snooze(moved_back, Duration::from_millis(100));
    pool.snooze(moved_on, Duration::from_secs(3600));
    pool.cancel(cancelled);
    until("the timers fired", || order.lock().len() == 2);
    assert!(!pool.wake_and_wait(cancelled));
    assert!(pool.wake_and_wait(moved_on));
    until("a wake brings a timer forward", || order.lock().len() == 3);
    let mut fired = order.lock().clone();
    fired.sort_unstable();
    assert_eq!(fired, ["in time", "moved back", "moved on"]);
}

/// A thread that slept, for ever or until a later timer, missed a timer that was set meanwhile: it fired with the later
/// one, or never.
fn timers_while_all_sleep<P: TaskPool>() {
    let pool = P::start(2);
    pool.add(Some(Duration::from_secs(600)), || {});
    let fired = Arc::new(AtomicU64::new(0));
    for turn in 1..=50 {
        let count = Arc::clone(&fired);
        pool.add(Some(Duration::from_millis(2)), move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        until("the timer fired", || fired.load(Ordering::SeqCst) == turn);
    }
}

/// Pools end with queued work, and drop it.
fn ends<P: TaskPool>() {
    let held = Arc::new(());
    for _ in 0..50 {
        let pool = P::start(2);
        for _ in 0..20 {
            let held = Arc::clone(&held);
            pool.spawn(move || drop(held));
        }
        let held = Arc::clone(&held);
        pool.add(Some(Duration::from_secs(100)), move || {
            let _ = &held;
        });
    }
    until("everything was dropped", || Arc::strong_count(&held) == 1);
}

macro_rules! semantics {
    ($($name:ident: $pool:ident;)*) => {$(
        mod $name {
            use super::super::$pool;

            #[test]
            fn no_wake_is_lost() {
                super::wakes::<$pool>();
            }

            #[test]
            fn a_wake_during_a_run_leads_to_another() {
                super::wake_during_a_run::<$pool>();
            }

            #[test]
            fn timers_fire_move_and_are_cancelled() {
                super::timers::<$pool>();
            }

            #[test]
            fn a_timer_fires_that_is_set_while_all_threads_sleep() {
                super::timers_while_all_sleep::<$pool>();
            }

            #[test]
            fn pool_ends_with_queued_work() {
                super::ends::<$pool>();
            }
        }
    )*};
}

semantics! {
    single_mutex: SingleMutex;
    one_scheduler: OneScheduler;
    ours: Ours;
}
