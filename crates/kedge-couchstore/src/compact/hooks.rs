//! What the caller of a compaction decides, and hears.

use std::ops::ControlFlow;

use super::{LocalPatch, Progress};
use crate::{Entry, Error, OldVersion};

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is copied.
    Keep,
    /// It is left out.
    Drop,
    /// It is left out, and the target's purge seqno raised to its seqno: a tombstone, whose absence a reader of changes
    /// has to know of. The entry with the highest seqno of the file is kept all the same.
    Purge,
    /// Asks again with the body. Whoever says so then keeps the entry.
    NeedBody,
    /// The compaction ends with [`Error::Stopped`].
    Stop,
}

/// Decides what a compaction keeps. A closure that takes an entry and its body is one that does nothing else.
pub trait Hooks {
    /// Decides about an entry of the main pass, in the order of seqnos. `body` is `None` unless it was asked for; it is
    /// decompressed where the store compressed it, and without bytes where the entry has none.
    fn filter(&mut self, entry: &Entry, body: Option<&[u8]>) -> Verdict {
        let _ = (entry, body);
        Verdict::Keep
    }

    /// Hears of an entry that was copied: `disk_bytes` is what its body takes in the target. While catching up,
    /// `replaced` is what the target had under the key.
    fn copied(&mut self, entry: &Entry, disk_bytes: u32, replaced: Option<OldVersion<'_>>) {
        let _ = (entry, disk_bytes, replaced);
    }

    /// Says what of the source's local documents is to be different in the target. Called before every commit; what is
    /// not said again is as in the source.
    ///
    /// # Errors
    /// Those of reading local documents. They end the compaction.
    fn locals(&mut self, locals: &mut LocalPatch) -> Result<(), Error> {
        let _ = locals;
        Ok(())
    }

    /// Called before every few hundred KiB that are read or written: `bytes` are those to come. It may sleep, or stop
    /// the compaction.
    fn pace(&mut self, bytes: u64, progress: &Progress) -> ControlFlow<()> {
        let _ = (bytes, progress);
        ControlFlow::Continue(())
    }
}

/// Keeps everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeepAll;

impl Hooks for KeepAll {}

impl<F: FnMut(&Entry, Option<&[u8]>) -> Verdict> Hooks for F {
    fn filter(&mut self, entry: &Entry, body: Option<&[u8]>) -> Verdict {
        self(entry, body)
    }
}
