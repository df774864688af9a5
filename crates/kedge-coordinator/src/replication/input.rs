//! Received bytes that are not consumed yet.

use std::io::{self, Read};

/// The size of one read in bytes, which is kept as long as the connection exists.
const ROOM: usize = 256 << 10;
/// The step in bytes by which memory for a larger frame grows ahead of its data.
const GROW_AHEAD: usize = 1 << 20;

/// A buffer that is filled at its end and consumed from its front.
pub(super) struct InputBuffer {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl InputBuffer {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; ROOM],
            from: 0,
            to: 0,
        }
    }

    /// Returns the bytes that are not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Consumes so many bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.from += count;
        assert!(self.from <= self.to, "only what came can be worked off");
    }

    /// Reads once. The frame at the front has `need` bytes, as far as is known. Returns the number of received bytes,
    /// and true if there may be more.
    ///
    /// # Errors
    /// The error of `source`; `UnexpectedEof` at its end.
    pub(super) fn read(
        &mut self,
        source: &mut impl Read,
        need: usize,
    ) -> io::Result<(usize, bool)> {
        self.bytes.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let wanted = need.min(self.to + GROW_AHEAD).max(ROOM);
        if wanted != self.bytes.len() && self.to <= wanted {
            self.bytes.resize(wanted, 0);
            self.bytes.shrink_to(wanted);
        }
        let room = &mut self.bytes[self.to..];
        let len = room.len();
        match source.read(room)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.to += count;
                Ok((count, count == len))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_messages_are_handled_in_order_whatever_their_size() {
        let all: Vec<u8> = (0..3 * ROOM + 17).map(|at| (at % 251) as u8).collect();
        for frame in [1, 1_000, ROOM, ROOM + 1, 2 * ROOM + 5] {
            let mut source = &all[..];
            let mut input = InputBuffer::new();
            let mut got = Vec::new();
            loop {
                while input.unread().len() >= frame {
                    got.extend_from_slice(&input.unread()[..frame]);
                    input.consume(frame);
                }
                match input.read(&mut source, frame) {
                    Ok((count, _)) => assert!(count > 0),
                    Err(error) => {
                        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                        break;
                    }
                }
            }
            got.extend_from_slice(input.unread());
            assert_eq!(got, all, "frames of {frame}");
        }
    }
}
