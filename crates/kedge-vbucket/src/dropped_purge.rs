//! Removal of documents of dropped collections from memory.
//!
//! No command reaches these documents. They are removed shard by shard, so that no command waits for a long traversal.
//!
//! Invariant: while the hash table may have such a document, a round over the shards is in progress or due. A drop
//! during a round starts another one.

/// The progress of the purge of dropped collections from memory.
#[derive(Debug, Default)]
pub(crate) struct DroppedPurge {
    /// The shard that the round visits next, or `None` without a round.
    pub(crate) next: Option<usize>,
    /// The number of live documents of dropped collections that were not found in memory yet.
    pub(crate) documents: u64,
}

impl DroppedPurge {
    /// Starts a round for a dropped collection with this number of live documents.
    pub(crate) fn add(&mut self, documents: u64) {
        self.documents += documents;
        self.next = Some(0);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.next.is_some()
    }
}
