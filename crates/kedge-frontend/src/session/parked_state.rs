//! The state of parked commands that their handlers need to continue.

use std::collections::VecDeque;
use std::sync::Arc;

use kedge_bucket::{Item, Mutated};
use kedge_subdoc::{OwnedSpec, SubdocMutation, VbucketContext};
use kedge_types::{Cas, Status, VbId};

/// A sub-document lookup that waits for its document.
#[derive(Debug)]
pub(crate) struct PendingLookup {
    pub(crate) specs: Vec<OwnedSpec>,
    pub(crate) around: VbucketContext,
    pub(crate) single: bool,
}

/// A sub-document mutation that is parked.
#[derive(Debug)]
pub(crate) struct PendingSubdocMutation {
    pub(crate) mutation: Arc<SubdocMutation>,
    pub(crate) single: bool,
}

/// An OBSERVE that waits for the disk.
#[derive(Debug)]
pub(crate) struct PendingObserve {
    /// The reply about the keys before.
    pub(crate) value: Vec<u8>,
    /// The key that it waits for, and those behind it.
    pub(crate) keys: VecDeque<(VbId, Box<[u8]>)>,
}

/// The step of a command that was parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextStep {
    /// The operation that the command is named after; most commands have no other step.
    Main,
    /// Reads the metadata of the document that will be written.
    ReadMeta,
    /// Creates a document that was missing.
    Vivify,
    /// Stores a value that is stale already, over the document with this CAS.
    Stale(Cas),
    /// Reads the new length of the document.
    ReadLength(Mutated),
    /// Sets the expiry of the counter, which has this value now.
    SetExpiry(Mutated, u64),
    /// Reads the metadata of the counter that the reply needs.
    ReadCounterMeta(Mutated, u64),
}

/// A parked command of the text protocol.
#[derive(Debug)]
pub(crate) struct SuspendedCommand {
    /// The bytes of the command.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) step: TextStep,
}

/// A retrieval that waits for documents, or for room in the output of its connection.
#[derive(Debug)]
pub(crate) struct Retrieval {
    pub(crate) with_cas: bool,
    /// The expiry that documents get, as on the wire.
    pub(crate) touch: Option<u32>,
    /// Largest number of documents that are requested at a time.
    pub(crate) window: usize,
    pub(crate) start_ns: u64,
    /// Documents that were requested and not answered, in order.
    pub(crate) parts: VecDeque<RetrievedDocument>,
    /// Keys that were not requested yet.
    pub(crate) rest: VecDeque<Box<[u8]>>,
    pub(crate) failed: Option<Status>,
    /// The next document is large: a task continues.
    pub(crate) needs_task: bool,
}

#[derive(Debug)]
pub(crate) struct RetrievedDocument {
    pub(crate) key: Box<[u8]>,
    pub(crate) found: RetrievalState,
}

#[derive(Debug)]
pub(crate) enum RetrievalState {
    /// Parked in this slot.
    Parked(u8),
    Document(Item, Cas),
    Missing,
}

/// The state of a connection of the text protocol between two calls.
#[derive(Debug, Default)]
pub(crate) struct TextState {
    /// Bytes of a refused value that are still to be skipped.
    swallow: u64,
    /// The number of the next commands whose documents were requested from memory.
    pub(crate) ahead: usize,
    /// A retrieval that waits for documents, or for room in the output.
    pub(crate) retrieval: Option<Box<Retrieval>>,
}

impl TextState {
    /// Sets the number of bytes to skip before the next command.
    pub(crate) fn swallow(&mut self, bytes: u64) {
        self.swallow = bytes;
    }

    /// Skips the bytes of a refused value that are among the next `bytes`. Returns their number, and true if the value has
    /// ended.
    #[inline]
    pub(crate) fn skip(&mut self, bytes: usize) -> (usize, bool) {
        let skipped = self.swallow.min(bytes as u64);
        self.swallow -= skipped;
        (skipped as usize, self.swallow == 0)
    }
}
