//! A temporary file of sorted runs: blocks of records, framed and protected like the chunks of a couchstore file.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use kedge_disk::File;

use super::record;
use crate::compact::meter::ProgressMeter;
use crate::crypto::{EncryptionKey, KEY_BYTES};
use crate::format::chunk::Codec;
use crate::{DamageKind, Error, Offset};

/// Size of a write, in bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Runs in a file.
#[derive(Debug)]
pub(super) struct SpillFile {
    file: Box<dyn File>,
    path: PathBuf,
    codec: Codec,
    block_bytes: usize,
    /// The byte range of each run.
    runs: Vec<Range<u64>>,
    /// Records that are not in a block yet.
    block: Vec<u8>,
    /// Blocks that are not in the file yet.
    out: Vec<u8>,
    written: u64,
    sealed: Vec<u8>,
}

impl SpillFile {
    pub(super) fn new(
        file: Box<dyn File>,
        path: PathBuf,
        is_secret: bool,
        block_bytes: usize,
    ) -> Self {
        let codec = if is_secret {
            throw_away_codec()
        } else {
            Codec::Crc32c
        };
        SpillFile {
            file,
            path,
            codec,
            block_bytes,
            runs: Vec::new(),
            block: Vec::new(),
            out: Vec::new(),
            written: 0,
            sealed: Vec::new(),
        }
    }

    /// Returns the completed runs.
    pub(super) fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    /// Adds a record to the current run.
    pub(super) fn push(
        &mut self,
        record: &[u8],
        meter: &mut ProgressMeter<'_>,
    ) -> Result<(), Error> {
        if !self.block.is_empty() && self.block.len() + record.len() > self.block_bytes {
            self.end_block(meter)?;
        }
        self.block.extend_from_slice(record);
        Ok(())
    }

    /// Completes the current run.
    pub(super) fn end_run(&mut self, meter: &mut ProgressMeter<'_>) -> Result<(), Error> {
        if !self.block.is_empty() {
            self.end_block(meter)?;
        }
        self.write_out()?;
        let start = self.runs.last().map_or(0, |run| run.end);
        self.runs.push(start..self.written);
        // Between runs the memory has other uses.
        (self.block, self.out, self.sealed) = (Vec::new(), Vec::new(), Vec::new());
        Ok(())
    }

    fn end_block(&mut self, meter: &mut ProgressMeter<'_>) -> Result<(), Error> {
        meter.moves(0, self.block.len() as u64)?;
        let at = self.written + self.out.len() as u64;
        let (head, stored) = self.codec.encode(at, &self.block, &mut self.sealed);
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(stored);
        self.block.clear();
        if self.out.len() >= WRITE_BYTES.min(4 * self.block_bytes) {
            self.write_out()?;
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<(), Error> {
        self.file.write_at(&self.out, self.written)?;
        self.written += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    fn corrupt(&self, at: u64, problem: DamageKind) -> Error {
        Error::Corrupt {
            file: self.path.clone(),
            offset: Offset(at),
            problem,
        }
    }
}

/// Creates an encryption with a random key that is never stored, because only this process reads the file.
fn throw_away_codec() -> Codec {
    let mut secret = [0; KEY_BYTES];
    getrandom::fill(&mut secret).expect("the system has random numbers");
    let key = EncryptionKey::new("", secret).file_key(1, &[]);
    Codec::Sealed(Arc::new(
        key.expect("keys of version 1 can always be derived"),
    ))
}

/// Reads one run, block by block.
#[derive(Debug)]
pub(super) struct RunReader {
    /// The part of the run that was not read yet.
    left: Range<u64>,
    /// A block as in the file, and the range of its records.
    block: Vec<u8>,
    records: Range<usize>,
    /// The start of the current record, and its length.
    at: usize,
    len: usize,
}

impl RunReader {
    /// Creates a reader before the first record of a run.
    pub(super) fn new(run: Range<u64>) -> Self {
        RunReader {
            left: run,
            block: Vec::new(),
            records: 0..0,
            at: 0,
            len: 0,
        }
    }

    /// Returns the current record.
    pub(super) fn record(&self) -> &[u8] {
        &self.block[self.at..self.at + self.len]
    }

    /// Moves to the next record. Returns `false` at the end of the run.
    pub(super) fn advance(
        &mut self,
        spill: &SpillFile,
        meter: &mut ProgressMeter<'_>,
    ) -> Result<bool, Error> {
        self.at += self.len;
        self.len = 0;
        if self.at == self.records.end {
            if self.left.is_empty() {
                return Ok(false);
            }
            self.read_block(spill, meter)?;
        }
        let rest = &self.block[self.at..self.records.end];
        match record::first(rest) {
            Some(record) => self.len = record.len(),
            // The block passed its check, so it is as it was written.
            None => unreachable!("a block has whole records"),
        }
        Ok(true)
    }

    fn read_block(
        &mut self,
        spill: &SpillFile,
        meter: &mut ProgressMeter<'_>,
    ) -> Result<(), Error> {
        let (codec, at) = (&spill.codec, self.left.start);
        let left = usize::try_from(self.left.end - at).unwrap_or(usize::MAX);
        // A block with one long record is longer than others, and is read in a second step.
        self.read(spill, left.min(codec.disk_bytes(spill.block_bytes)))?;
        let head_bytes = codec.head_bytes();
        if self.block.len() < head_bytes {
            return Err(spill.corrupt(at, DamageKind::ChunkLength(left as u64)));
        }
        let body_bytes = codec.body_bytes(&self.block);
        let body_bytes = body_bytes.map_err(|problem| spill.corrupt(at, problem))?;
        let chunk_bytes = head_bytes + body_bytes as usize;
        if chunk_bytes > left {
            return Err(spill.corrupt(at, DamageKind::ChunkLength(body_bytes.into())));
        }
        if chunk_bytes > self.block.len() {
            self.read(spill, chunk_bytes)?;
        }
        meter.moves(chunk_bytes as u64, 0)?;
        let chunk = &mut self.block[..chunk_bytes];
        let opened = codec.open(at, chunk).map(<[u8]>::len);
        let records_bytes = opened.map_err(|problem| spill.corrupt(at, problem))?;
        self.left.start += chunk_bytes as u64;
        self.at = head_bytes;
        self.records = head_bytes..head_bytes + records_bytes;
        Ok(())
    }

    fn read(&mut self, spill: &SpillFile, bytes: usize) -> Result<(), Error> {
        self.block.resize(bytes, 0);
        Ok(spill.file.read_at(&mut self.block, self.left.start)?)
    }
}
