//! Messages to the thread of an event loop.
//!
//! A thread checks its inbox before it sleeps, so only a sleeping one is woken, once per batch. The order of steps on
//! both sides ensures that none sleeps on a full inbox: the thread marks itself as asleep and then checks; the sender
//! fills and then checks whether the thread sleeps.

use std::sync::atomic::{AtomicBool, Ordering};

use kedge_sync::{RankedMutex, ranks::InboxMessages};
use mio::Waker;

/// Unread messages for a thread.
pub struct Inbox<M> {
    messages: RankedMutex<InboxMessages, Vec<M>>,
    sleeping: AtomicBool,
    waker: Waker,
}

impl<M> Inbox<M> {
    /// Creates an empty inbox of a thread that `waker` wakes.
    #[must_use]
    pub fn new(waker: Waker) -> Self {
        Self {
            messages: RankedMutex::new(Vec::new()),
            sleeping: AtomicBool::new(false),
            waker,
        }
    }

    /// Adds messages and wakes the thread if it sleeps.
    pub fn send(&self, messages: impl IntoIterator<Item = M>) {
        self.messages.lock().extend(messages);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // Fails only if the thread is gone, which needs no message any more.
            let _ = self.waker.wake();
        }
    }

    /// Marks the thread as about to sleep. False if there are messages, and it must not sleep.
    pub fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.messages.lock().is_empty() {
            return true;
        }
        self.sleeping.store(false, Ordering::SeqCst);
        false
    }

    /// Marks the thread as awake.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Takes all messages; `read` is emptied and swapped in, so that no memory is allocated for each batch.
    pub fn take(&self, read: &mut Vec<M>) {
        read.clear();
        std::mem::swap(&mut *self.messages.lock(), read);
    }
}

impl<M> std::fmt::Debug for Inbox<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}
