//! Background fetches by the front-end thread itself: it submits many reads with one call (io_uring), and continues.
//!
//! Reads that hit the page cache have ended when that call returns; the poll reports the others.

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

/// The token of the io_uring.
pub(super) const RING: Token = Token(usize::MAX - 1);
/// The reads that a thread has submitted.
pub(super) struct DocumentReads {
    ring: ReadRing,
    fetches: Slab<(Arc<Bucket>, Fetch)>,
    /// Buffer of [`Self::take`].
    taken: Vec<Fetch>,
    pub(super) polling: AdaptivePolling,
}

impl DocumentReads {
    /// Creates the ring. `poll_time` is the time to poll for the end of reads before a sleep.
    ///
    /// # Errors
    /// The system's error, on systems without io_uring.
    pub(super) fn new(poll: &Poll, poll_time: Duration) -> io::Result<Self> {
        let ring = ReadRing::new(FRONT_END_READS_MAX)?;
        let fd = ring.as_raw_fd();
        let registry = poll.registry();
        registry.register(&mut SourceFd(&fd), RING, Interest::READABLE)?;
        Ok(Self {
            ring,
            fetches: Slab::new(),
            taken: Vec::new(),
            polling: AdaptivePolling::new(poll_time),
        })
    }

    /// Takes the fetches of a bucket that commands of this thread wait for.
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

    /// Returns true if reads are in progress.
    pub(super) fn is_active(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Returns true if the system did not take all reads, which are submitted again soon.
    pub(super) fn has_unsubmitted(&self) -> bool {
        self.ring.has_more_to_submit()
    }

    /// Submits reads, and resumes the commands whose reads have ended.
    pub(super) fn submit_and_complete(&mut self) {
        if !self.is_active() {
            return;
        }
        // Reads that the system does not take, as memory is short, are submitted the next time.
        let _ = self.ring.submit();
        self.ring.take_done(|token, read| {
            let (bucket, fetch) = self.fetches.remove(token as usize);
            bucket.residency().fetcher().end_fetch(fetch, read);
        });
    }
}
