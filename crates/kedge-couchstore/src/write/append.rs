//! The end of a file during writes: chunks are collected in a buffer and written to disk in large writes.
//!
//! Invariant: each position is written once, and nothing is written after an error, so that cached nodes of readers
//! always equal those in the file.

use std::sync::Arc;

use crate::file::shared::OpenFile;
use crate::format::block::{DATA, boundary, insert};
use crate::limits::{BLOCK_BYTES, HEADER_BYTES_MAX, OFFSET_MAX};
use crate::tree::node::Node;
use crate::{Error, InvalidBatch, Offset};

/// Sizes of the smallest and the largest buffer, in bytes.
const BUFFER_BYTES_MIN: usize = 24 << 10;
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// Number of bytes that the buffer may exceed its limit by: the last chunk before a write, or a header and the padding
/// before it.
const BEYOND_BYTES: usize = BLOCK_BYTES as usize + HEADER_BYTES_MAX as usize;
/// Size of the buffer per document of a batch, in bytes.
const BUFFER_BYTES_PER_DOCUMENT: usize = 16;

/// Appends chunks to a file.
pub(crate) struct FileAppender {
    shared: Arc<OpenFile>,
    /// Bytes after `written` that are not in the file yet.
    buffer: Vec<u8>,
    buffer_bytes_max: usize,
    written: u64,
    encoder: Box<snap::raw::Encoder>,
    /// The body of a chunk before it is framed.
    body: Vec<u8>,
    sealed: Vec<u8>,
    /// Number of written bytes after which a sync follows.
    sync_each_bytes: u64,
    synced: u64,
    /// The position up to which writeback was started.
    begun: u64,
    failed: bool,
}

impl std::fmt::Debug for FileAppender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Appender")
            .field("file", &self.shared.path())
            .field("written", &self.written)
            .field("buffered", &self.buffer.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl FileAppender {
    /// Creates an appender at `position`.
    pub(crate) fn new(shared: Arc<OpenFile>, position: u64) -> Self {
        FileAppender {
            shared,
            buffer: Vec::new(),
            buffer_bytes_max: BUFFER_BYTES_MIN,
            written: position,
            encoder: Box::new(snap::raw::Encoder::new()),
            body: Vec::new(),
            sealed: Vec::new(),
            sync_each_bytes: u64::MAX,
            synced: position,
            begun: position,
            failed: false,
        }
    }

    /// Sizes the buffer for a batch of this number of documents, whose bodies have `body_bytes` together.
    pub(crate) fn expect_documents(&mut self, documents: usize, body_bytes: usize) {
        let wanted = documents.saturating_mul(BUFFER_BYTES_PER_DOCUMENT);
        self.buffer_bytes_max = wanted.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        // Doubling would take up to twice as much.
        let room = (self.buffer_bytes_max + BEYOND_BYTES).min(body_bytes);
        self.buffer
            .reserve_exact(room.saturating_sub(self.buffer.len()));
    }

    /// Sizes the buffer for a copy of a file, and syncs after each `sync_each_bytes` bytes: the copy then has little
    /// left to sync at its end, and never delays the syncs of others for long.
    pub(crate) fn expect_copy(&mut self, sync_each_bytes: u64) {
        let wanted = usize::try_from(sync_each_bytes).unwrap_or(BUFFER_BYTES_MAX);
        self.buffer_bytes_max = wanted.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
        self.sync_each_bytes = sync_each_bytes;
    }

    /// Returns the position of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Returns the position up to which everything is in the file.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns `true` if everything is in the file, as far as is known.
    pub(crate) fn is_settled(&self) -> bool {
        self.buffer.is_empty() && !self.failed
    }

    /// Returns an error if an earlier operation failed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.failed {
            return Err(Error::PreviousIo {
                file: self.shared.path().to_owned(),
            });
        }
        Ok(())
    }

    /// Appends a chunk with this body. Returns its offset and its size on disk.
    pub(crate) fn append(&mut self, body: &[u8]) -> Result<(u64, u32), Error> {
        self.check()?;
        let at = self.position();
        let codec = self.shared.codec();
        let disk_bytes = codec.disk_bytes(body.len());
        // A header and the type bytes in between have to fit after it, too.
        if at + 2 * disk_bytes as u64 + 2 * BLOCK_BYTES > OFFSET_MAX {
            return Err(InvalidBatch::FileFull.into());
        }
        let (head, stored) = codec.encode(at, body, &mut self.sealed);
        insert(at, head.as_bytes(), &mut self.buffer);
        insert(
            self.written + self.buffer.len() as u64,
            stored,
            &mut self.buffer,
        );
        if self.buffer.len() >= self.buffer_bytes_max {
            self.write_whole_blocks()?;
        }
        Ok((at, disk_bytes as u32))
    }

    /// Appends a chunk with the body that `fill` writes into the buffer. `fill` returns the length of the body.
    pub(crate) fn append_with(
        &mut self,
        fill: impl FnOnce(&mut snap::raw::Encoder, &mut Vec<u8>) -> usize,
    ) -> Result<(u64, u32), Error> {
        let mut body = std::mem::take(&mut self.body);
        let len = fill(&mut self.encoder, &mut body);
        let appended = self.append(&body[..len]);
        self.body = body;
        appended
    }

    /// Caches an appended node.
    pub(crate) fn remember(&self, key: u64, node: Node) {
        self.shared.cache().insert(key, node);
    }

    /// Appends zeros up to the next block, followed by the bytes that `header` appends.
    pub(crate) fn append_header(
        &mut self,
        header: impl FnOnce(Offset, &mut Vec<u8>),
    ) -> Result<Offset, Error> {
        self.check()?;
        let at = boundary(self.position());
        self.buffer.resize((at - self.written) as usize, DATA);
        header(Offset(at), &mut self.buffer);
        Ok(Offset(at))
    }

    /// Writes the buffer to the file.
    pub(crate) fn write_all(&mut self) -> Result<(), Error> {
        self.write_front(self.buffer.len())
    }

    /// Makes the contents of the file durable.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.check()?;
        let synced = self.shared.file().sync_data();
        self.failed |= synced.is_err();
        self.synced = self.written;
        Ok(synced?)
    }

    /// Starts the writeback of written and unsynced data.
    pub(crate) fn begin_sync(&mut self) {
        let from = self.synced.max(self.begun);
        // A length of 0 would mean everything up to the end of the file.
        if from < self.written {
            self.shared.file().begin_sync(from, self.written - from);
            self.begun = self.written;
        }
    }

    /// Overwrites the type byte of a block.
    pub(crate) fn set_block_type(&mut self, at: Offset, block_type: u8) -> Result<(), Error> {
        self.check()?;
        let set = self.shared.file().write_at(&[block_type], at.0);
        self.failed |= set.is_err();
        Ok(set?)
    }

    /// Frees the memory of the buffers, once everything is in the file.
    pub(crate) fn shrink(&mut self) {
        // Not shrunk in place, which might need both at once.
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_BYTES_MIN + BEYOND_BYTES {
            self.buffer = Vec::new();
        }
        self.body.truncate(BUFFER_BYTES_MIN);
        self.body.shrink_to_fit();
        self.sealed.shrink_to(BUFFER_BYTES_MIN);
        self.buffer_bytes_max = BUFFER_BYTES_MIN;
    }

    /// Writes all but the last, partial block, so that it is written once.
    fn write_whole_blocks(&mut self) -> Result<(), Error> {
        let position = self.position();
        let whole = position - position % BLOCK_BYTES;
        self.write_front(whole.saturating_sub(self.written) as usize)
    }

    fn write_front(&mut self, bytes: usize) -> Result<(), Error> {
        self.check()?;
        if bytes == 0 {
            return Ok(());
        }
        let written = self
            .shared
            .file()
            .write_at(&self.buffer[..bytes], self.written);
        self.failed |= written.is_err();
        written?;
        self.written += bytes as u64;
        self.buffer.drain(..bytes);
        if self.written - self.synced >= self.sync_each_bytes {
            self.sync()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
