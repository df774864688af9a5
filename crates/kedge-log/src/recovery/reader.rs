//! Reads a segment file in large blocks, searches it for batch headers, and decrypts batches.

use std::ops::Range;

use kedge_disk::{DiskError, File};
use memchr::memmem;

use crate::Lsn;
use crate::format::{ALIGN, BATCH_MAGIC, BatchHeader};
use crate::seal::BatchOpener;
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
    /// Decrypts the batches of an encrypted segment.
    opener: Option<BatchOpener>,
    /// The decrypted records of the batch at `plain_at`. `buf` stays as it is in the file, because what does not decrypt
    /// is searched for headers.
    plain: Vec<u8>,
    plain_at: Option<Lsn>,
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
        let opener = segment.secret.clone().map(BatchOpener::new);
        SegmentReader {
            file,
            segment,
            len,
            buf,
            start: 0,
            filled: 0,
            is_tolerant,
            opener,
            plain: Vec::new(),
            plain_at: None,
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
        let range = self.load(offset, bytes)?;
        Ok(&self.buf[range])
    }

    /// Returns the place of bytes of the file in `buf`.
    fn load(&mut self, offset: u64, bytes: u64) -> Result<Range<usize>, DiskError> {
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
        Ok(from..from + bytes as usize)
    }

    /// Returns the bytes of a batch after its header, decrypted in an encrypted segment. Returns `None` if the batch is
    /// not as it was when it was encrypted. The caller has checked that the batch ends within the segment.
    pub(super) fn body(&mut self, header: &BatchHeader) -> Result<Option<&[u8]>, DiskError> {
        let header_bytes = self.segment.batch_header_bytes();
        let start = self.segment.offset(header.lsn) + header_bytes;
        let bytes = header.bytes - header_bytes;
        if self.opener.is_none() {
            return self.get(start, bytes).map(Some);
        }
        if self.plain_at != Some(header.lsn) {
            let range = self.load(start, bytes)?;
            self.plain.clear();
            self.plain.extend_from_slice(&self.buf[range]);
            let opener = self.opener.as_mut();
            let is_open = opener.is_some_and(|opener| opener.open(header, &mut self.plain));
            self.plain_at = is_open.then_some(header.lsn);
        }
        Ok(self.plain_at.map(|_| self.plain.as_slice()))
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
        let header_bytes = self.segment.batch_header_bytes() as usize;
        let (base, salt) = (self.segment.base, self.segment.salt);
        let first = self.segment.offset(base);
        let mut at = from;
        while at + header_bytes as u64 <= self.len {
            let bytes = BLOCK_BYTES.min(self.len - at);
            let block = self.get(at, bytes)?;
            let last = block.len() - header_bytes;
            let end = last + BATCH_MAGIC.len();
            for index in memmem::find_iter(&block[..end], &BATCH_MAGIC) {
                if !index.is_multiple_of(ALIGN) {
                    continue;
                }
                let offset = at + index as u64;
                let lsn = Lsn(base.0 + offset - first);
                let fields = &block[index..index + header_bytes];
                if let Some(header) = BatchHeader::decode(fields, salt, lsn)
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
