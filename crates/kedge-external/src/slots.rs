//! The connections to a directory, whose largest number is a setting that can change.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The number of open connections. It is used on one thread.
#[derive(Default)]
pub(crate) struct ConnectionSlots {
    taken: AtomicUsize,
    freed: Notify,
}

/// The place of a connection, which ends when it is dropped.
pub(crate) struct ConnectionSlot<'s>(&'s ConnectionSlots);

impl ConnectionSlots {
    /// Waits until there are fewer than `max` connections, and takes a place.
    pub(crate) async fn take(&self, max: usize) -> ConnectionSlot<'_> {
        while self.taken.load(Ordering::Relaxed) >= max {
            self.freed.notified().await;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        ConnectionSlot(self)
    }
}

impl Drop for ConnectionSlot<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.freed.notify_one();
    }
}
