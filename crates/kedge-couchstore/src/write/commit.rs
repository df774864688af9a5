//! Commits and rollbacks: a header at the end of the file (couchstore file format, sections 4.3 and 7).

use std::sync::Arc;

use super::Writer;
use crate::format::block::{DATA, HEADER};
use crate::format::header::{Header, Previous};
use crate::limits::{BLOCK_BYTES, OFFSET_MAX};
use crate::{DamageKind, Error, InvalidBatch, Offset, Snapshot};

impl Writer {
    /// Makes all changes since the last commit durable, atomically, together with earlier commits of
    /// [`Writer::commit_later`]. The header stores `timestamp_ns`, usually the time in nanoseconds since 1970.
    ///
    /// # Errors
    /// Disk errors. If the last step failed, later opens may find the commit or not.
    pub fn commit(&mut self, timestamp_ns: u64) -> Result<Offset, Error> {
        let offset = self.write_header(timestamp_ns)?;
        self.make_durable()?;
        Ok(offset)
    }

    /// Commits like [`Writer::commit`], but later opens do not find the commit, and it need not be durable, until
    /// [`Writer::make_durable`] or a later commit has returned. So several commits can share the two syncs of one.
    ///
    /// # Errors
    /// Disk errors.
    pub fn commit_later(&mut self, timestamp_ns: u64) -> Result<Offset, Error> {
        self.write_header(timestamp_ns)
    }

    /// Starts the writeback of commits that are not durable, without waiting for it.
    pub fn begin_sync(&mut self) {
        self.out.begin_sync();
    }

    /// Makes all commits durable.
    ///
    /// # Errors
    /// Disk errors. If the last step failed, later opens may find each of the commits or not.
    pub fn make_durable(&mut self) -> Result<(), Error> {
        if self.unsynced.is_empty() {
            return Ok(());
        }
        // Sync before the type bytes are set: a header may only be visible when all that it points to is durable.
        self.out.sync()?;
        for header in &self.unsynced {
            self.out.set_block_type(*header, HEADER)?;
        }
        self.out.sync()?;
        self.unsynced.clear();
        self.out.shrink();
        Ok(())
    }

    /// Writes a header without its type byte, so that no search finds it yet.
    fn write_header(&mut self, timestamp_ns: u64) -> Result<Offset, Error> {
        self.out.check()?;
        if self.out.position() + 2 * BLOCK_BYTES > OFFSET_MAX {
            return Err(InvalidBatch::FileFull.into());
        }
        let mut header = self.draft.clone();
        header.timestamp_ns = timestamp_ns;
        // The draft was made from this header: the newest one, or one that was rewound to.
        header.previous = Previous::At(self.draft.offset);
        let offset = self.out.append_header(|offset, out| {
            header.offset = offset;
            header.put(DATA, out);
        })?;
        self.out.write_all()?;
        self.unsynced.push(offset);
        let header = header.into_read();
        self.committed = Arc::new(header.clone());
        self.draft = header;
        self.changed = false;
        Ok(offset)
    }

    /// Returns to the state at an older header of this file, which the next commit makes the newest. Nothing is
    /// truncated, and later commits stay readable through their headers.
    ///
    /// # Errors
    /// [`InvalidBatch::Uncommitted`] if there are uncommitted changes; damage if the file has no such header.
    pub fn rewind(&mut self, to: &Header) -> Result<(), Error> {
        self.out.check()?;
        if self.changed {
            return Err(InvalidBatch::Uncommitted.into());
        }
        // Read again, because a header of another file must not become one of this.
        let found = self.snapshot().at(to.offset())?;
        if found.header() != to || to.offset > self.committed.offset {
            return Err(self.shared.corrupt(to.offset, DamageKind::NotAHeader));
        }
        self.changed = to.offset != self.committed.offset;
        self.draft = to.clone();
        Ok(())
    }

    /// Returns the newest header whose update seqno is at most `seqno`: the target of a rollback.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn rollback_point(&self, seqno: kedge_types::Seqno) -> Result<Option<Snapshot>, Error> {
        let mut snapshot = Some(self.snapshot());
        while let Some(candidate) = snapshot {
            if candidate.header().update_seqno() <= seqno {
                return Ok(Some(candidate));
            }
            snapshot = candidate.older()?;
        }
        Ok(None)
    }
}
