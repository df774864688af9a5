//! The place for decrypted bytes: a part of the buffer that the connections of a thread share, or the memory of one
//! large frame.

/// The place for decrypted bytes, with the number of bytes that it still takes.
pub(in crate::connection) enum PlainBytes<'b> {
    /// A buffer, of which the first bytes are filled.
    Shared {
        /// The buffer.
        buffer: &'b mut [u8],
        /// The number of filled bytes.
        filled: usize,
    },
    /// Memory of a frame, to append to.
    Owned {
        /// The memory.
        buffer: &'b mut Vec<u8>,
        /// The number of bytes to append at most.
        room: usize,
    },
}

impl PlainBytes<'_> {
    /// The number of bytes that it takes.
    pub(in crate::connection) fn room(&self) -> usize {
        match self {
            Self::Shared { buffer, filled } => buffer.len() - filled,
            Self::Owned { room, .. } => *room,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Takes as many of these bytes as there is room for, and returns their number.
    pub(super) fn put(&mut self, bytes: &[u8]) -> usize {
        let count = self.room().min(bytes.len());
        match self {
            Self::Shared { buffer, filled } => {
                buffer[*filled..*filled + count].copy_from_slice(&bytes[..count]);
                *filled += count;
            }
            Self::Owned { buffer, room } => {
                buffer.extend_from_slice(&bytes[..count]);
                *room -= count;
            }
        }
        count
    }
}
