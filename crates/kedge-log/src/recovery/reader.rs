//! Reads a segment file in large blocks and searches it for batch headers.

use kedge_disk::{DiskError, File};
use memchr::memmem;

use crate::Lsn;
use crate::format::{ALIGN, BATCH_HEADER_BYTES, BATCH_MAGIC, BatchHeader};
use crate::segment::Segment;

/// Size of a block in bytes. It fits into the cache of a core while it is parsed.
const BLOCK_BYTES: u64 = 512 << 10;
/// Number of bytes that count as unreadable after a failed read.
const PIECE_BYTES: usize = 4096;

/// A window onto a segment file.
pub(super) struct SegmentReader {
    pub(super) file: Box<dyn File>,
    pub(super) segment: Segment,
    /// Number of bytes of the file to read: at most its length, and a multiple of 8.
    len: u64,
    buf: Vec<u8>,
    /// Offset of `buf[..filled]` in the file.
    start: u64,
    filled: usize,
    /// `true` if unreadable bytes count as zeros.
    is_tolerant: bool,
    /// Number of unreadable bytes so far.
    pub(super) unreadable_bytes: u64,
}

impl SegmentReader {
    /// Creates a reader. `file_bytes` is the real length of the file, whatever its header states; `buf` is reused
    /// memory.
    pub(super) fn new(
        file: Box<dyn File>,
        segment: Segment,
        file_bytes: u64,
        buf: Vec<u8>,
        is_tolerant: bool,
    ) -> Self {
        let len = file_bytes.min(segment.bytes) / ALIGN as u64 * ALIGN as u64;
        SegmentReader {
            file,
            segment,
            len,
            buf,
            start: 0,
            filled: 0,
            is_tolerant,
            unreadable_bytes: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn into_parts(self) -> (Box<dyn File>, Vec<u8>) {
        (self.file, self.buf)
    }

    /// Returns the bytes of the file at `offset`. The caller stays within [`SegmentReader::len`], so the memory is at
    /// most as large as the file.
    pub(super) fn get(&mut self, offset: u64, bytes: u64) -> Result<&[u8], DiskError> {
        assert!(offset + bytes <= self.len, "a read beyond the segment");
        let is_here = offset >= self.start && offset + bytes <= self.start + self.filled as u64;
        if !is_here {
            let wanted = bytes.max(BLOCK_BYTES).min(self.len - offset) as usize;
            if self.buf.len() < wanted {
                self.buf.resize(wanted, 0);
            }
            self.filled = 0;
            self.fill(offset, wanted)?;
            self.start = offset;
            self.filled = wanted;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buf[from..from + bytes as usize])
    }

    fn fill(&mut self, offset: u64, wanted: usize) -> Result<(), DiskError> {
        match self.file.read_at(&mut self.buf[..wanted], offset) {
            Err(_) if self.is_tolerant => {}
            result => return result,
        }
        for (index, piece) in self.buf[..wanted].chunks_mut(PIECE_BYTES).enumerate() {
            let at = offset + (index * PIECE_BYTES) as u64;
            if self.file.read_at(piece, at).is_err() {
                piece.fill(0);
                self.unreadable_bytes += piece.len() as u64;
            }
        }
        Ok(())
    }

    /// Returns the first offset, at or after `from` (a multiple of 8), of a sound batch header that was written for
    /// that position and that `accept` takes.
    pub(super) fn find_header(
        &mut self,
        from: u64,
        mut accept: impl FnMut(&BatchHeader) -> bool,
    ) -> Result<Option<(u64, BatchHeader)>, DiskError> {
        let header_bytes = BATCH_HEADER_BYTES as u64;
        let segment = self.segment;
        let mut at = from;
        while at + header_bytes <= self.len {
            let bytes = BLOCK_BYTES.min(self.len - at);
            let block = self.get(at, bytes)?;
            let last = block.len() - BATCH_HEADER_BYTES;
            let end = last + BATCH_MAGIC.len();
            for index in memmem::find_iter(&block[..end], &BATCH_MAGIC) {
                if !index.is_multiple_of(ALIGN) {
                    continue;
                }
                let offset = at + index as u64;
                let lsn = Lsn(segment.base.0 + offset - segment.offset(segment.base));
                if let Some(header) = BatchHeader::decode(&block[index..], segment.salt, lsn)
                    && accept(&header)
                {
                    return Ok(Some((offset, header)));
                }
            }
            at += (last + ALIGN) as u64;
        }
        Ok(None)
    }
}
