//! Reads of chunks from disk: exactly the needed bytes for a lookup, and far ahead for a scan.

use std::ops::Range;

use kedge_disk::File;

use super::shared::OpenFile;
use crate::format::block::{end_of, strip, uninterrupted};
use crate::format::chunk::Codec;
use crate::limits::BLOCK_BYTES;
use crate::{DamageKind, Error, Offset};

/// Size in bytes of the first read of a chunk whose size is unknown. Nearly all interior nodes that this crate writes
/// are shorter, and bytes read after a node are wasted.
const GUESS_BYTES_MAX: u64 = 2048;
/// Size in bytes of the first read-ahead of a scan; doubled while the scan moves forward.
const AHEAD_BYTES_MIN: usize = 16 << 10;

/// Largest gap in bytes that a read covers instead of starting a new one: about the extra cost of a second read.
const GAP_BYTES_MAX: u64 = 4096;

/// The known size of a chunk before it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ChunkSize {
    /// The chunk has exactly this number of bytes on disk.
    Exactly(u32),
    /// The chunk of a sound file has at most this number of bytes on disk: one read of this or a smaller size usually
    /// gets all of it.
    UpTo(u64),
}

/// A part of a file in memory. Each reader has its own.
#[derive(Debug)]
pub(crate) struct ReadWindow {
    /// Memory whose first `len` bytes are those of the file from `start` on. It only grows, because clearing it before
    /// each read would take a large part of the read time.
    bytes: Vec<u8>,
    len: usize,
    start: u64,
    /// Largest read-ahead; 0 reads only the needed bytes.
    ahead_max: usize,
    ahead: usize,
    /// A chunk without the type bytes of blocks, or decrypted.
    stripped: Vec<u8>,
}

impl ReadWindow {
    /// Creates a window for lookups: every read has the needed size.
    pub(crate) fn exact() -> Self {
        ReadWindow::ahead(0)
    }

    /// Creates a window for scans: it reads up to `ahead_max` bytes at once while the offsets of chunks ascend.
    pub(crate) fn ahead(ahead_max: usize) -> Self {
        ReadWindow {
            bytes: Vec::new(),
            len: 0,
            start: 0,
            ahead_max,
            ahead: 0,
            stripped: Vec::new(),
        }
    }

    /// Creates a window with these bytes of the file.
    pub(crate) fn holding(start: u64, bytes: Vec<u8>) -> Self {
        ReadWindow {
            len: bytes.len(),
            bytes,
            start,
            ..ReadWindow::exact()
        }
    }

    /// Returns the body of the chunk at `at`, validated and decrypted. It has to end before `end`, the header that
    /// refers to it.
    pub(crate) fn chunk(
        &mut self,
        shared: &OpenFile,
        at: Offset,
        expect: ChunkSize,
        bytes_max: u32,
        end: Offset,
    ) -> Result<&[u8], Error> {
        let codec = shared.codec();
        let corrupt = |problem| shared.corrupt(at, problem);
        if let Some(chunk) = self.whole_chunk(codec, at.0, expect, bytes_max, end.0) {
            return codec.check(&self.bytes[chunk]).map_err(corrupt);
        }
        let head_bytes = codec.head_bytes() as u64;
        let first = match expect {
            ChunkSize::Exactly(bytes) => u64::from(bytes),
            ChunkSize::UpTo(bytes) => bytes.min(GUESS_BYTES_MAX),
        };
        let first_end = end_of(at.0, first.max(head_bytes)).min(end.0);
        if end_of(at.0, head_bytes) > first_end {
            return Err(corrupt(DamageKind::ChunkLength(0)));
        }
        if let Err(error) = self.hold(shared, at.0, first_end, end.0) {
            // The guess may extend beyond the chunk, to bytes that cannot be read.
            let ChunkSize::UpTo(_) = expect else {
                return Err(error);
            };
            self.fill(shared, at.0, 0, end_of(at.0, head_bytes))?;
        }
        let body_bytes = codec.body_bytes(self.payload(at.0, head_bytes as usize));
        let body_bytes = body_bytes.map_err(corrupt)?;
        let chunk_bytes = head_bytes + u64::from(body_bytes);
        if let ChunkSize::Exactly(expected) = expect
            && chunk_bytes != u64::from(expected)
        {
            return Err(corrupt(DamageKind::BodySize {
                expected,
                found: chunk_bytes,
            }));
        }
        let chunk_end = end_of(at.0, chunk_bytes);
        if chunk_end > end.0 || body_bytes > bytes_max {
            return Err(corrupt(DamageKind::ChunkLength(body_bytes.into())));
        }
        self.hold(shared, at.0, chunk_end, end.0)?;
        if codec.is_sealed() {
            self.payload_copy(at.0, chunk_bytes as usize);
            return codec.open(at.0, &mut self.stripped).map_err(corrupt);
        }
        let chunk = self.payload(at.0, chunk_bytes as usize);
        codec.check(chunk).map_err(corrupt)
    }

    /// Returns the range in memory of a sound chunk, head and body, if it is contiguous and can be validated in place,
    /// as nearly always in a scan.
    fn whole_chunk(
        &self,
        codec: &Codec,
        at: u64,
        expect: ChunkSize,
        bytes_max: u32,
        end: u64,
    ) -> Option<Range<usize>> {
        let held = &self.bytes[..self.len];
        let start = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let start = start + uninterrupted(at, codec.head_bytes() as u64)?;
        let head = held.get(start..start + codec.head_bytes())?;
        let body_bytes = codec.body_bytes(head).ok()?;
        let chunk_bytes = codec.head_bytes() as u64 + u64::from(body_bytes);
        let is_expected = match expect {
            ChunkSize::Exactly(bytes) => chunk_bytes == u64::from(bytes),
            ChunkSize::UpTo(_) => body_bytes <= bytes_max,
        };
        uninterrupted(at, chunk_bytes)?;
        let chunk = start..start + chunk_bytes as usize;
        let is_here = chunk.end <= held.len() && self.start + chunk.end as u64 <= end;
        (is_expected && is_here && !codec.is_sealed()).then_some(chunk)
    }

    /// Returns the raw bytes from `at` on, which are in the window.
    fn raw(&self, at: u64) -> &[u8] {
        &self.bytes[(at - self.start) as usize..self.len]
    }

    /// Returns payload that is in the window, contiguously.
    fn payload(&mut self, at: u64, payload: usize) -> &[u8] {
        match uninterrupted(at, payload as u64) {
            Some(skip) => &self.raw(at)[skip..skip + payload],
            None => {
                self.payload_copy(at, payload);
                &self.stripped
            }
        }
    }

    fn payload_copy(&mut self, at: u64, payload: usize) {
        let raw = &self.bytes[(at - self.start) as usize..self.len];
        self.stripped.clear();
        strip(at, raw, payload, &mut self.stripped);
    }

    /// Fills the window with the bytes from `at` to `needed_end`. Nothing is read beyond `end`.
    fn hold(&mut self, shared: &OpenFile, at: u64, needed_end: u64, end: u64) -> Result<(), Error> {
        let held_end = self.start + self.len as u64;
        if at >= self.start && needed_end <= held_end {
            return Ok(());
        }
        let follows = at >= self.start && at <= held_end + GAP_BYTES_MAX;
        self.ahead = if follows && self.len > 0 {
            (self.ahead * 2).clamp(AHEAD_BYTES_MIN, self.ahead_max.max(AHEAD_BYTES_MIN))
        } else {
            0
        };
        let ahead = self.ahead.min(self.ahead_max) as u64;
        let read_end = needed_end
            .max((at + ahead) / BLOCK_BYTES * BLOCK_BYTES)
            .min(end)
            .max(needed_end);
        let keep = if at >= self.start && at < held_end {
            // Bytes at the end of the window that are needed again move to its start.
            let from = (at - self.start) as usize;
            self.bytes.copy_within(from..self.len, 0);
            self.len - from
        } else {
            0
        };
        let read = self.fill(shared, at, keep, read_end);
        if read.is_err() && read_end > needed_end {
            // The unreadable bytes may be ahead of the needed ones.
            return self.fill(shared, at, 0, needed_end);
        }
        read
    }

    /// Fills the window with the bytes from `at` to `end`; the first `keep` of them are at its start.
    fn fill(&mut self, shared: &OpenFile, at: u64, keep: usize, end: u64) -> Result<(), Error> {
        let wanted = (end - at) as usize;
        if self.bytes.len() < wanted {
            // Doubling would take up to twice as much.
            self.bytes.reserve_exact(wanted - self.bytes.len());
            self.bytes.resize(wanted, 0);
        }
        // The window is empty until the read has succeeded.
        (self.start, self.len) = (at, 0);
        shared.read_at(&mut self.bytes[keep..wanted], Offset(at + keep as u64))?;
        self.len = wanted;
        Ok(())
    }
}

/// Reads as many of the wanted bytes as the file has.
pub(crate) fn read_up_to(
    file: &dyn File,
    at: u64,
    wanted: usize,
    file_bytes: u64,
) -> Result<Vec<u8>, Error> {
    let len = file_bytes.saturating_sub(at).min(wanted as u64) as usize;
    let mut bytes = vec![0; len];
    file.read_at(&mut bytes, at)?;
    Ok(bytes)
}
