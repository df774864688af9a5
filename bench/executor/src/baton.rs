//! A one-time notice from one thread to another: the waiter spins for a bounded time, then sleeps on a futex.
//!
//! Invariants:
//! * At most one thread waits at a time, and only that thread calls [`Baton::reset`].
//! * `post` wakes only when the waiter has said that it sleeps, so a post that comes during the spin makes no system call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

const EMPTY: u32 = 0;
const POSTED: u32 = 1;
const ASLEEP: u32 = 2;

/// How long a waiter looks before it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    /// Not at all: each wait that comes before its post costs two system calls.
    None,
    /// For this time.
    For(Duration),
    /// Until the post comes.
    Forever,
}

/// What the benchmarks of the original wait with.
pub const BATON_SPIN: Spin = Spin::For(Duration::from_micros(2));

/// See the header of the file.
#[derive(Debug)]
pub struct Baton {
    state: AtomicU32,
    spin: Spin,
}

impl Baton {
    /// A baton that has not been posted.
    #[must_use]
    pub const fn new(spin: Spin) -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            spin,
        }
    }

    /// Lets the waiter go on; what was written before is visible to it.
    pub fn post(&self) {
        if self.state.swap(POSTED, Ordering::AcqRel) == ASLEEP {
            futex::wake(&self.state, futex::Flags::PRIVATE, 1).expect("a futex can be woken");
        }
    }

    /// Returns once the baton has been posted since it was made or reset.
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
            // Fails when the word has changed or a signal came; the condition says which.
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, ASLEEP, None);
        }
    }

    /// Makes it ready for the next post. Only the waiter may, and only between a wait and what leads to a post.
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
            // Some looks per look at the clock, which costs as much as several of them.
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
    fn every_way_to_wait_sees_what_was_written_before_the_post() {
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
