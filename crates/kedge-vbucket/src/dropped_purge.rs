//! Documents of collections that were dropped, as long as memory has them.
//!
//! No command reaches them. They go shard by shard, so that nobody waits for a long walk.
//!
//! Invariant: while the hash table may have such a document, a round of the shards is under way or wanted; a drop during a
//! round makes another one begin.

/// The progress of the purge of dropped collections from memory.
#[derive(Debug, Default)]
pub(crate) struct DroppedPurge {
    /// Shards that are to be visited in this round.
    pub(crate) left: usize,
    /// Live documents of dropped collections that were not found in memory yet.
    pub(crate) documents: u64,
}

impl DroppedPurge {
    /// A collection of so many live documents was dropped.
    pub(crate) fn add(&mut self, documents: u64, shards: usize) {
        self.documents += documents;
        self.left = shards;
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.left > 0
    }
}
