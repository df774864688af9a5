//! A queue with many producers and one consumer: the way to the scheduler thread.
//!
//! Invariant: the consumer announces its sleep before its last check, and a producer posts before it checks for a
//! sleeping consumer, so that one of the two sees the other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;

/// The contender; see the header of the file.
#[derive(Debug)]
pub(super) struct Inbox<M> {
    messages: SegQueue<M>,
    asleep: CachePadded<AtomicBool>,
    taker: OnceLock<Thread>,
}

impl<M> Inbox<M> {
    pub(super) fn new() -> Self {
        Self {
            messages: SegQueue::new(),
            asleep: CachePadded::new(AtomicBool::new(false)),
            taker: OnceLock::new(),
        }
    }

    /// Makes the calling thread the consumer. Before this no post wakes it.
    pub(super) fn attach(&self) {
        let _ = self.taker.set(std::thread::current());
    }

    pub(super) fn post(&self, message: M) {
        self.messages.push(message);
        fence(Ordering::SeqCst);
        let wake = self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel);
        if wake && let Some(taker) = self.taker.get() {
            taker.unpark();
        }
    }

    pub(super) fn take(&self) -> Option<M> {
        self.messages.pop()
    }

    /// Sleeps until something is posted, or for `time`. May return early.
    pub(super) fn sleep(&self, time: Option<Duration>) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.messages.is_empty() {
            match time {
                Some(time) => std::thread::park_timeout(time),
                None => std::thread::park(),
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}
