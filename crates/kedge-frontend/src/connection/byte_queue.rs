//! Bytes of a connection that wait: received and not executed, or encrypted and not sent. An empty queue holds no memory.

/// A queue of bytes. Unexecuted ones are, as a rule, the beginning of a frame.
#[derive(Default)]
pub(super) struct ByteQueue {
    bytes: Vec<u8>,
    /// The number of bytes at the front that were consumed.
    at: usize,
}

impl ByteQueue {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Replaces the bytes.
    pub(super) fn set(&mut self, bytes: &[u8]) {
        self.bytes = bytes.to_vec();
        self.at = 0;
    }

    /// Frees the bytes.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops bytes from the front.
    pub(super) fn consume(&mut self, count: usize) {
        self.at += count;
        if self.at >= self.bytes.len() {
            self.clear();
        }
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.reserve(self.len() + bytes.len())
                .extend_from_slice(bytes);
        }
    }

    /// Takes a request from the front, without a copy if nothing else is there.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        if self.at == 0 && self.bytes.len() == len {
            return std::mem::take(&mut self.bytes);
        }
        let request = self.as_slice()[..len].to_vec();
        self.consume(len);
        request
    }

    /// Puts bytes back to the front.
    pub(super) fn put_back(&mut self, mut bytes: Vec<u8>) {
        bytes.extend_from_slice(self.as_slice());
        self.bytes = bytes;
        self.at = 0;
    }

    /// The buffer, with room for a frame of `frame` bytes, to append the next bytes to.
    pub(super) fn reserve(&mut self, frame: usize) -> &mut Vec<u8> {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        // All of it: memory that nothing was written to costs nothing.
        let rest = frame.saturating_sub(self.bytes.len());
        self.bytes.reserve_exact(rest);
        &mut self.bytes
    }
}
