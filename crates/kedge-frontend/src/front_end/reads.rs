//! Documents that commands of this thread wait for: read by the system while the thread goes on, many with one call.
//!
//! What is in the system's memory is there when that call returns; of the rest the poll hears.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use kedge_bucket::{Bucket, Fetch};
use kedge_disk::ReadRing;
use kedge_types::limits::FRONT_END_READS_MAX;
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use slab::Slab;

use super::adaptive_polling::AdaptivePolling;

/// The token of the ring.
pub(super) const RING: Token = Token(usize::MAX - 1);
/// The reads of a thread.
pub(super) struct DocumentReads {
    ring: ReadRing,
    fetches: Slab<(Arc<Bucket>, Fetch)>,
    /// Reused.
    taken: Vec<Fetch>,
    pub(super) waits: AdaptivePolling,
}

impl DocumentReads {
    /// On the thread itself, which looks for so long whether reads have ended before it sleeps.
    ///
    /// # Errors
    /// What the system says where there are no such reads.
    pub(super) fn new(poll: &Poll, look: Duration) -> io::Result<Self> {
        let ring = ReadRing::new(FRONT_END_READS_MAX)?;
        let fd = ring.as_raw_fd();
        let registry = poll.registry();
        registry.register(&mut SourceFd(&fd), RING, Interest::READABLE)?;
        Ok(Self {
            ring,
            fetches: Slab::new(),
            taken: Vec::new(),
            waits: AdaptivePolling::new(look),
        })
    }

    /// Takes what commands of this thread wait for in a bucket.
    pub(super) fn take(&mut self, thread: u16, bucket: &Arc<Bucket>) {
        bucket
            .residency()
            .fetcher()
            .take_fetches(thread, &mut self.taken);
        for fetch in self.taken.drain(..) {
            if self.ring.is_full() {
                bucket.residency().fetcher().give_up_fetch(fetch);
                continue;
            }
            let (file, place) = (fetch.file().clone(), fetch.place());
            let len = (place.end - place.start) as usize;
            let token = self.fetches.insert((Arc::clone(bucket), fetch));
            self.ring.read(file, place.start, len, token as u64);
        }
    }

    /// Whether there are any.
    pub(super) fn are_under_way(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Whether the system would not take all reads: then it is told again soon.
    pub(super) fn are_held_up(&self) -> bool {
        self.ring.has_more_to_submit()
    }

    /// Tells the system what was taken, and lets commands go on whose documents are there.
    pub(super) fn go_on(&mut self) {
        if !self.are_under_way() {
            return;
        }
        // What it does not take now, as memory is short, it is told the next time.
        let _ = self.ring.submit();
        self.ring.take_done(|token, read| {
            let (bucket, fetch) = self.fetches.remove(token as usize);
            bucket.residency().fetcher().end_fetch(fetch, read);
        });
    }
}
