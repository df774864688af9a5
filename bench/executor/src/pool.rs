//! The interface of a contender.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::baton::{BATON_SPIN, Baton};

/// A pool that runs closures on threads of its own.
pub trait Pool: Sized + Send + Sync {
    /// The name in tables and bars.
    const NAME: &'static str;

    /// Starts a pool whose work runs on this many threads. Dropping it ends and joins them.
    fn start(threads: usize) -> Self;

    /// Runs `job` once, on a thread of the pool. The caller does not wait.
    fn spawn<J: FnOnce() + Send + 'static>(&self, job: J);

    /// Executes [`work`] on a thread of the pool, and waits for its result through the best handle: the pool's own, or
    /// a baton that the caller keeps from item to item.
    fn call(&self, slot: &Arc<Slot>, input: u64) -> u64 {
        slot.baton.reset();
        let theirs = Arc::clone(slot);
        self.spawn(move || {
            theirs.value.store(work(input), Ordering::Relaxed);
            theirs.baton.post();
        });
        slot.baton.wait();
        slot.value.load(Ordering::Relaxed)
    }
}

/// A pool of tasks: with an id, an owner, a kind, statistics, a wake time, and never two runs at once.
pub trait TaskPool: Pool {
    /// The id of a task.
    type Id: Copy + Send + Sync;

    /// Schedules a task that sleeps until it is woken or `wake_in` has passed, and sleeps for ever after each run.
    fn add<R: FnMut() + Send + 'static>(&self, wake_in: Option<Duration>, run: R) -> Self::Id;

    /// Wakes the task. May return before the pool has acted.
    fn wake(&self, id: Self::Id);

    /// Wakes the task, and returns after the pool has acted: true if the task existed.
    fn wake_and_wait(&self, id: Self::Id) -> bool;

    /// Moves the wake time of the task. May return before the pool has acted.
    fn snooze(&self, id: Self::Id, wake_in: Duration);

    /// Ends the task. May return before the pool has acted.
    fn cancel(&self, id: Self::Id);
}

/// A pool with task semantics in an idle server: all four pools with their usual numbers of threads.
pub trait WholePool: TaskPool {
    /// Starts all pools.
    fn start_whole() -> Self;
}

/// The place of the result of an item.
#[derive(Debug)]
pub struct Slot {
    baton: Baton,
    value: AtomicU64,
}

impl Slot {
    /// Creates an empty slot.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            baton: Baton::new(BATON_SPIN),
            value: AtomicU64::new(0),
        })
    }
}

/// Computes an item: next to nothing, but nothing that can be optimised away.
#[must_use]
pub fn work(input: u64) -> u64 {
    std::hint::black_box(input)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(17)
}
