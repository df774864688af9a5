//! The hooks of a compaction: decisions and notifications.

use std::ops::ControlFlow;

use super::local::LocalPatch;
use super::meter::CopyProgress;
use crate::{Entry, Error, OldVersion};

/// The decision about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterDecision {
    /// Copy the entry.
    Keep,
    /// Drop the entry.
    Drop,
    /// Drop the entry and raise the purge seqno of the target to its seqno: for a tombstone, whose absence readers of
    /// changes have to know of. The entry with the highest seqno of the file is kept in any case.
    Purge,
    /// Call the filter again with the body. A second `NeedBody` keeps the entry.
    NeedBody,
    /// End the compaction with [`Error::Stopped`].
    Stop,
}

/// The hooks of a compaction. A closure with an entry and its body as parameters implements the filter alone.
pub trait CompactionHooks {
    /// Decides about an entry of the main pass, in the order of seqnos. `body` is `None` unless it was requested. It is
    /// decompressed if the store compressed it, and empty if the entry has none.
    fn filter(&mut self, entry: &Entry, body: Option<&[u8]>) -> FilterDecision {
        let _ = (entry, body);
        FilterDecision::Keep
    }

    /// Called for each copied entry. `disk_bytes` is the size of its body in the target. During catch-up `replaced` is
    /// the version that the target had under the key.
    fn copied(&mut self, entry: &Entry, disk_bytes: u32, replaced: Option<OldVersion<'_>>) {
        let _ = (entry, disk_bytes, replaced);
    }

    /// Changes the target's local documents relative to those of the source. Called before every commit; changes of an
    /// earlier call that are not repeated are dropped.
    ///
    /// # Errors
    /// Errors of reading local documents, which end the compaction.
    fn locals(&mut self, locals: &mut LocalPatch) -> Result<(), Error> {
        let _ = locals;
        Ok(())
    }

    /// Called every few hundred KiB, before `bytes` bytes are read or written. It may sleep, or stop the compaction.
    fn pace(&mut self, bytes: u64, progress: &CopyProgress) -> ControlFlow<()> {
        let _ = (bytes, progress);
        ControlFlow::Continue(())
    }
}

/// Keeps everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeepAll;

impl CompactionHooks for KeepAll {}

impl<F: FnMut(&Entry, Option<&[u8]>) -> FilterDecision> CompactionHooks for F {
    fn filter(&mut self, entry: &Entry, body: Option<&[u8]>) -> FilterDecision {
        self(entry, body)
    }
}
