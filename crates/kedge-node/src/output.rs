//! The output queue of one client.
//!
//! Replies are composed into one buffer. A large value is not copied there: its item is kept, and the value is sent
//! from the item when its turn comes.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use kedge_bucket::Item;

/// The largest number of slices of one write.
const SLICES_MAX: usize = 64;
/// The largest number of bytes of a value in one write: the system copies them before it returns.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// The capacity in bytes above which an empty buffer is released.
const KEEP_BYTES_MAX: usize = 512 << 10;

/// The number of sent bytes at the front of a non-empty buffer after which they are removed.
const CUT_BYTES: usize = 64 << 10;

/// A value that is sent from its item.
#[derive(Debug)]
struct Large {
    /// The number of bytes of the buffer that precede it.
    at: usize,
    /// The number of its bytes that were sent.
    sent: usize,
    item: Item,
}

/// Queued bytes for one client.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// The number of bytes of the buffer that were sent.
    sent: usize,
    large: VecDeque<Large>,
    large_bytes: usize,
}

impl Output {
    /// Returns the buffer for replies. Only append.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the number of bytes composed so far, sent ones included: the start of the next reply.
    pub fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Queues the item's value after the bytes composed so far.
    pub fn push_value(&mut self, item: Item) {
        self.large_bytes += item.value().len();
        self.large.push_back(Large {
            at: self.bytes.len(),
            sent: 0,
            item,
        });
    }

    /// Removes everything composed since [`Self::position`] was `position`; none of it was sent.
    pub fn truncate(&mut self, position: usize) {
        self.bytes.truncate(position);
        while self.large.back().is_some_and(|large| large.at > position) {
            let large = self.large.pop_back();
            self.large_bytes -= large.map_or(0, |large| large.item.value().len());
        }
    }

    /// Returns the number of unsent bytes.
    pub fn queued(&self) -> usize {
        self.bytes.len() - self.sent + self.large_bytes
    }

    /// Returns whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.queued() == 0
    }

    /// Returns whether it uses no memory.
    pub fn is_bare(&self) -> bool {
        self.bytes.capacity() == 0
    }

    /// Forgets sent bytes, once all were sent, and keeps the buffer unless it became large.
    pub fn recycle(&mut self) {
        debug_assert!(self.is_empty());
        self.bytes.clear();
        self.sent = 0;
        if self.bytes.capacity() > KEEP_BYTES_MAX {
            self.bytes = Vec::new();
        }
        if self.large.capacity() > SLICES_MAX {
            self.large = VecDeque::new();
        }
    }

    /// Makes one write of as much as `sink` accepts. Returns the number of written bytes.
    ///
    /// # Errors
    /// The error of `sink`, including `WouldBlock`.
    pub fn write_to(&mut self, sink: &mut impl Write) -> io::Result<usize> {
        let written = if self.large.is_empty() {
            let written = sink.write(&self.bytes[self.sent..])?;
            self.sent += written;
            written
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.fill(&mut slices);
            let written = sink.write_vectored(&slices[..count])?;
            self.advance(written);
            written
        };
        self.cut();
        Ok(written)
    }

    /// Removes the sent part if it is most of a large buffer.
    fn cut(&mut self) {
        if self.sent < CUT_BYTES || self.sent * 2 < self.bytes.len() {
            return;
        }
        self.bytes.drain(..self.sent);
        for large in &mut self.large {
            large.at -= self.sent;
        }
        self.sent = 0;
    }

    fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut count = 0;
        let mut at = self.sent;
        for large in &self.large {
            if count + 2 > SLICES_MAX {
                return count;
            }
            if large.at > at {
                slices[count] = IoSlice::new(&self.bytes[at..large.at]);
                count += 1;
                at = large.at;
            }
            let value = &large.item.value()[large.sent..];
            slices[count] = IoSlice::new(&value[..value.len().min(WRITE_BYTES_MAX)]);
            count += 1;
            if value.len() > WRITE_BYTES_MAX {
                return count;
            }
        }
        if count < SLICES_MAX && at < self.bytes.len() {
            slices[count] = IoSlice::new(&self.bytes[at..]);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(large) = self.large.front_mut() {
            let before = (large.at - self.sent).min(written);
            self.sent += before;
            written -= before;
            if self.sent < large.at {
                return;
            }
            let rest = large.item.value().len() - large.sent;
            let taken = rest.min(written);
            large.sent += taken;
            self.large_bytes -= taken;
            written -= taken;
            if taken < rest {
                return;
            }
            self.large.pop_front();
        }
        self.sent += written;
    }

    /// Returns all queued bytes, in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut at = self.sent;
        for large in &self.large {
            all.extend_from_slice(&self.bytes[at..large.at]);
            at = large.at;
            all.extend_from_slice(&large.item.value()[large.sent..]);
        }
        all.extend_from_slice(&self.bytes[at..]);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_vbucket::ItemMeta;
    use proptest::prelude::*;

    /// A sink that takes at most `step` bytes at a time.
    struct Slow {
        step: usize,
        got: Vec<u8>,
    }

    impl Write for Slow {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let n = buf.len().min(self.step);
            self.got.extend_from_slice(&buf[..n]);
            Ok(n)
        }

        fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            self.write(&all)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn output_keeps_its_order_when_taken_in_parts(
            parts in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..150),
            step in 1usize..100,
        ) {
            let mut out = Output::default();
            let mut expected = Vec::new();
            for (large, bytes) in &parts {
                expected.extend_from_slice(bytes);
                if *large {
                    out.push_value(Item::new(&ItemMeta::default(), b"k", &[bytes]));
                } else {
                    out.buffer().extend_from_slice(bytes);
                }
            }
            prop_assert_eq!(out.queued(), expected.len());
            prop_assert_eq!(out.to_vec(), expected.clone());
            let mut sink = Slow { step, got: Vec::new() };
            while !out.is_empty() {
                prop_assert!(out.write_to(&mut sink).unwrap() > 0);
            }
            prop_assert_eq!(sink.got, expected);
        }
    }
}
