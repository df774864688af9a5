//! Asynchronous reads with io_uring (Linux, `io_uring(7)`).
//!
//! Invariants:
//! * The buffer and the file of a read are in `reads` from before its submission until after its completion.
//! * A ring has at most as many reads in flight as entries in its completion queue, so no completion is lost.

#![expect(
    unsafe_code,
    reason = "the system writes into memory after the call that gave it has returned"
)]

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::{fs, io};

use io_uring::{IoUring, opcode, types};
use slab::Slab;

/// A file for reads through a [`ReadRing`].
#[derive(Debug, Clone)]
pub struct RingFile(Arc<fs::File>);

impl RingFile {
    pub(crate) fn new(file: &Arc<fs::File>) -> Self {
        RingFile(Arc::clone(file))
    }
}

/// A ring of asynchronous reads, which belongs to one thread.
pub struct ReadRing {
    ring: IoUring,
    reads: Slab<ReadInFlight>,
    reads_max: usize,
    /// The number of queued reads that are not submitted yet.
    unsubmitted: usize,
}

/// A read in flight.
#[derive(Debug)]
struct ReadInFlight {
    file: RingFile,
    bytes: Vec<u8>,
    offset: u64,
    /// The number of bytes read so far.
    len: usize,
    token: u64,
}

impl std::fmt::Debug for ReadRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadRing")
            .field("reads", &self.reads.len())
            .finish()
    }
}

impl ReadRing {
    /// Creates a ring for up to `reads_max` concurrent reads, rounded up to a power of two. Only the calling thread may
    /// submit reads.
    ///
    /// # Errors
    /// The error of the system if it has no rings or forbids them.
    pub fn new(reads_max: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .build(reads_max)?;
        let reads_max = ring.params().sq_entries() as usize;
        Ok(ReadRing {
            ring,
            reads: Slab::new(),
            reads_max,
            unsubmitted: 0,
        })
    }

    /// Returns `true` if no read is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Returns `true` if queued reads are not submitted yet.
    #[must_use]
    pub fn has_more_to_submit(&self) -> bool {
        self.unsubmitted > 0
    }

    /// Returns `true` if no further read can be queued now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.reads.len() == self.reads_max
    }

    /// Queues a read of `len` bytes at `offset` for the next [`ReadRing::submit`]. `token` identifies its completion.
    ///
    /// # Panics
    /// Panics if the ring is full.
    pub fn read(&mut self, file: RingFile, offset: u64, len: usize, token: u64) {
        assert!(!self.is_full(), "the caller has looked");
        let read = ReadInFlight {
            file,
            bytes: vec![0; len],
            offset,
            len: 0,
            token,
        };
        let key = self.reads.insert(read);
        self.push(key);
    }

    /// Queues a read of the bytes that are still missing.
    fn push(&mut self, key: usize) {
        let read = &mut self.reads[key];
        let rest = &mut read.bytes[read.len..];
        let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(types::Fd(read.file.0.as_raw_fd()), rest.as_mut_ptr(), len)
            .offset(read.offset + read.len as u64)
            .build()
            .user_data(key as u64);
        // SAFETY: buffer and file stay unchanged in `reads` until the read has completed: nothing removes a read from
        // there before, `drop` included, and a `Vec` that is not accessed does not move its buffer.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "there are no more reads than places");
        self.unsubmitted += 1;
    }

    /// Submits the queued reads.
    ///
    /// # Errors
    /// The error of the system. The next call submits the reads again.
    pub fn submit(&mut self) -> io::Result<()> {
        while self.unsubmitted > 0 {
            match self.ring.submit() {
                Ok(count) => self.unsubmitted -= count.min(self.unsubmitted),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Collects completed reads. `done` receives the token of each, and all of its bytes or its error.
    pub fn take_done(&mut self, mut done: impl FnMut(u64, io::Result<Vec<u8>>)) {
        loop {
            let Some(end) = self.ring.completion().next() else {
                return;
            };
            let key = end.user_data() as usize;
            let read = &mut self.reads[key];
            let result = match end.result() {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                count if count > 0 => {
                    read.len += count as usize;
                    Ok(())
                }
                errno => Err(io::Error::from_raw_os_error(-errno)),
            };
            let again = match &result {
                Ok(()) => read.len < read.bytes.len(),
                Err(error) => error.kind() == io::ErrorKind::Interrupted,
            };
            if again {
                self.push(key);
                continue;
            }
            let read = self.reads.remove(key);
            done(read.token, result.map(|()| read.bytes));
        }
    }
}

impl AsRawFd for ReadRing {
    /// Returns the descriptor of the ring, which becomes readable when a read completes.
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl Drop for ReadRing {
    fn drop(&mut self) {
        while !self.reads.is_empty() {
            let waited = self
                .submit()
                .and_then(|()| self.ring.submit_and_wait(1).map(drop));
            let is_lost = waited.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
            if is_lost {
                // The system may still write into this memory.
                std::mem::forget(std::mem::take(&mut self.reads));
                return;
            }
            self.take_done(|_, _| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Returns `None` where the system has no rings, so that there is nothing to test.
    fn ring(reads_max: u32) -> Option<ReadRing> {
        ReadRing::new(reads_max).ok()
    }

    fn file(bytes: &[u8]) -> RingFile {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(bytes).expect("it can be written");
        RingFile::new(&Arc::new(file))
    }

    /// Waits for all reads. Returns tokens with bytes or kinds of errors, sorted by token.
    fn all(ring: &mut ReadRing) -> Vec<(u64, Result<Vec<u8>, io::ErrorKind>)> {
        let mut all = Vec::new();
        while !ring.is_empty() {
            ring.submit().expect("it can be told");
            ring.ring.submit_and_wait(1).expect("it can be waited for");
            ring.take_done(|token, result| all.push((token, result.map_err(|e| e.kind()))));
        }
        all.sort_by_key(|(token, _)| *token);
        all
    }

    #[test]
    fn concurrent_ring_reads_return_bytes_or_errors() {
        let Some(mut ring) = ring(8) else { return };
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        let file = file(&bytes);
        for round in 0..20_u64 {
            for token in 0..7 {
                let at = (round * 700 + token * 97) as usize;
                ring.read(file.clone(), at as u64, 1_000 + token as usize, token);
            }
            ring.read(file.clone(), 19_990, 11, 7);
            assert!(ring.is_full());
            let mut expected: Vec<_> = (0..7)
                .map(|token| {
                    let at = (round * 700 + token * 97) as usize;
                    (token, Ok(bytes[at..at + 1_000 + token as usize].to_vec()))
                })
                .collect();
            expected.push((7, Err(io::ErrorKind::UnexpectedEof)));
            assert_eq!(all(&mut ring), expected);
        }
    }

    #[test]
    fn dropped_ring_waits_for_reads_in_flight() {
        let Some(mut ring) = ring(64) else { return };
        let file = file(&vec![7; 1 << 20]);
        for token in 0..64 {
            ring.read(file.clone(), token * 1_024, 4_096, token);
        }
        ring.submit().expect("it can be told");
        drop(ring);
        assert_eq!(Arc::strong_count(&file.0), 1);
    }
}
