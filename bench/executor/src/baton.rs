//! A one-time notification from one thread to another: the waiter spins for a bounded time, then sleeps on a futex.
//!
//! Invariants:
//! * At most one thread waits at a time, and only that thread calls [`Baton::reset`].
//! * `post` wakes only if the waiter has announced its sleep, so a post during the spin makes no system call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

const EMPTY: u32 = 0;
const POSTED: u32 = 1;
const ASLEEP: u32 = 2;

/// The time for which a waiter spins before it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    /// No spin: each wait that comes before its post costs two system calls.
    None,
    /// This time.
    For(Duration),
    /// Until the post comes.
    Forever,
}

/// The spin of the original's benchmarks.
pub const BATON_SPIN: Spin = Spin::For(Duration::from_micros(2));

/// The notification; see the header of the file.
#[derive(Debug)]
pub struct Baton {
    state: AtomicU32,
    spin: Spin,
}

impl Baton {
    /// Creates a baton that has not been posted.
    #[must_use]
    pub const fn new(spin: Spin) -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            spin,
        }
    }

    /// Wakes the waiter; earlier writes are visible to it.
    pub fn post(&self) {
        if self.state.swap(POSTED, Ordering::AcqRel) == ASLEEP {
            futex::wake(&self.state, futex::Flags::PRIVATE, 1).expect("a futex can be woken");
        }
    }

    /// Waits until the baton has been posted since its creation or reset.
    pub fn wait(&self) {
        if self.spin_until_posted() {
            return;
        }
        let asleep =
            self.state
                .compare_exchange(EMPTY, ASLEEP, Ordering::Acquire, Ordering::Acquire);
        if asleep.is_err() {
            return;
        }
        while !self.posted() {
            // Fails if the word has changed or a signal came; the condition distinguishes them.
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, ASLEEP, None);
        }
    }

    /// Prepares the baton for the next post. Only the waiter may call it, and only between a wait and the cause of the
    /// next post.
    pub fn reset(&self) {
        self.state.store(EMPTY, Ordering::Relaxed);
    }

    fn posted(&self) -> bool {
        self.state.load(Ordering::Acquire) == POSTED
    }

    fn spin_until_posted(&self) -> bool {
        let limit = match self.spin {
            Spin::None => return self.posted(),
            Spin::Forever => {
                while !self.posted() {
                    std::hint::spin_loop();
                }
                return true;
            }
            Spin::For(limit) => limit,
        };
        if self.posted() {
            return true;
        }
        let began = Instant::now();
        loop {
            // Several checks per reading of the clock, which costs as much as several of them.
            for _ in 0..8 {
                if self.posted() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if began.elapsed() >= limit {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn baton_post_publishes_earlier_writes() {
        for spin in [Spin::None, BATON_SPIN, Spin::Forever] {
            let (there, back, value) = (Baton::new(spin), Baton::new(spin), AtomicU64::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for turn in 1..=1000 {
                        there.wait();
                        there.reset();
                        assert_eq!(value.load(Ordering::Relaxed), turn);
                        back.post();
                    }
                });
                for turn in 1..=1000 {
                    value.store(turn, Ordering::Relaxed);
                    there.post();
                    back.wait();
                    back.reset();
                }
            });
        }
    }
}
