//! The reads are those of io_uring (Linux, `io_uring(7)`).
//!
//! Invariants:
//! * What a read writes into, and the file that it reads, are in `reads` from before the system hears of the read until it
//!   has told of its end.
//! * A ring has no more reads under way than it has places for answers, so none is lost.

#![expect(
    unsafe_code,
    reason = "the system writes into memory after the call that gave it has returned"
)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};
use slab::Slab;

/// A file whose bytes are read through a [`ReadRing`].
#[derive(Debug, Clone)]
pub struct RingFile(Arc<fs::File>);

impl RingFile {
    pub(crate) fn new(file: &Arc<fs::File>) -> Self {
        RingFile(Arc::clone(file))
    }
}

/// Reads of one thread.
pub struct ReadRing {
    ring: IoUring,
    reads: Slab<Read>,
    reads_max: usize,
    /// Of those as many are still to be told to the system.
    unsubmitted: usize,
}

/// A read that is under way.
#[derive(Debug)]
struct Read {
    file: RingFile,
    bytes: Vec<u8>,
    offset: u64,
    /// So many are there.
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
    /// For up to `reads_max` reads at a time, rounded up to a power of two, of the calling thread: no other may submit any.
    ///
    /// # Errors
    /// What the system says where there are no rings.
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

    /// Whether no read is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Whether there are reads that the system has not been told of.
    #[must_use]
    pub fn has_more_to_submit(&self) -> bool {
        self.unsubmitted > 0
    }

    /// Whether no more can be asked for now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.reads.len() == self.reads_max
    }

    /// Notes a read of `len` bytes from `offset` on, for the next [`ReadRing::submit`]. `token` is what its end is told with.
    ///
    /// # Panics
    /// When the ring is full.
    pub fn read(&mut self, file: RingFile, offset: u64, len: usize, token: u64) {
        assert!(!self.is_full(), "the caller has looked");
        let read = Read {
            file,
            bytes: vec![0; len],
            offset,
            len: 0,
            token,
        };
        let key = self.reads.insert(read);
        self.push(key);
    }

    /// Has the rest of a read read.
    fn push(&mut self, key: usize) {
        let read = &mut self.reads[key];
        let rest = &mut read.bytes[read.len..];
        let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(types::Fd(read.file.0.as_raw_fd()), rest.as_mut_ptr(), len)
            .offset(read.offset + read.len as u64)
            .build()
            .user_data(key as u64);
        // SAFETY: memory and file stay as they are in `reads` until the system has told of the end: nothing takes a read
        // out of it before, `drop` included, and a `Vec` that is not touched does not move its memory.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "there are no more reads than places");
        self.unsubmitted += 1;
    }

    /// Tells the system of the reads that were noted.
    ///
    /// # Errors
    /// What the system says; they are told with the next call then.
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

    /// Tells of the reads that are done: all bytes of each, or why not.
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
    /// Becomes readable when a read is done.
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

    /// None where the system has no rings: then there is nothing to be tested.
    fn ring(reads_max: u32) -> Option<ReadRing> {
        ReadRing::new(reads_max).ok()
    }

    fn file(bytes: &[u8]) -> RingFile {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(bytes).expect("it can be written");
        RingFile::new(&Arc::new(file))
    }

    /// Waits for all, as (token, bytes or kind of error), by token.
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
    fn many_reads_come_back_with_their_bytes_or_their_error() {
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
    fn a_ring_that_is_dropped_waits_for_what_is_under_way() {
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
