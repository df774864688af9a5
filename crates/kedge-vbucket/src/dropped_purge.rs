//! Documents of collections that were dropped, as long as memory has them.
//!
//! No command reaches them. They go shard by shard, so that nobody waits for a long walk.
//!
//! Invariant: while the hash table may have such a document, a round of the shards is under way or wanted; a drop during a
//! round makes another one begin.

/// The progress of the purge of dropped collections from memory.
#[derive(Debug, Default)]
pub(crate) struct DroppedPurge {
    /// The shard that this round visits next; `None`: there is no round.
    pub(crate) next: Option<usize>,
    /// Live documents of dropped collections that were not found in memory yet.
    pub(crate) documents: u64,
}

impl DroppedPurge {
    /// Begins a round, as a collection of so many live documents was dropped.
    pub(crate) fn add(&mut self, documents: u64) {
        self.documents += documents;
        self.next = Some(0);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.next.is_some()
    }
}
