//! Documents of collections that were dropped, as long as memory has them.
//!
//! No command reaches them. They go shard by shard, so that nobody waits for a long walk.
//!
//! Invariant: while the hash table may have such a document, a round of the shards is under way or wanted; a drop during a
//! round makes another one begin.

use crate::hash_table::Verdict;
use crate::vbucket::VBucket;

/// How far a vBucket is with letting go of them.
#[derive(Debug, Default)]
pub(crate) struct DroppedPurge {
    /// Shards that are to be visited in this round.
    left: usize,
    /// Live documents of dropped collections that were not found in memory yet.
    documents: u64,
}

impl DroppedPurge {
    /// A collection of so many live documents was dropped.
    pub(crate) fn add(&mut self, documents: u64, shards: usize) {
        self.documents += documents;
        self.left = shards;
    }
}

impl VBucket {
    /// Whether [`VBucket::sweep_dropped`] has something to do.
    #[must_use]
    pub fn has_dropped_documents(&self) -> bool {
        self.dropped_purge.left > 0
    }

    /// Visits the next shard of the hash table and lets go of documents of dropped collections, whether the file has them
    /// or not. What was on disk only is known to be gone at the end of the round. Returns how many documents and tombstones
    /// left memory.
    pub fn sweep_dropped(&mut self) -> u64 {
        let Some(shard) = self.dropped_purge.left.checked_sub(1) else {
            return 0;
        };
        let mut gone = Vec::new();
        let collections = &self.collections;
        let judge = |item: &crate::Item| {
            if collections.is_open(crate::collections::collection_of(item.key())) {
                Verdict::Stays
            } else {
                Verdict::Goes
            }
        };
        let goes = |_, item: &crate::Item| {
            item.mark_replaced();
            gone.push(item.clone());
        };
        self.table.judge(shard, judge, goes);
        let count = gone.len() as u64;
        for item in gone {
            self.unapplied.on_replaced(&item, self.persisted_seqno);
            self.locks.remove(item.key());
            let was_live = u64::from(!item.is_deleted());
            let documents = &mut self.dropped_purge.documents;
            *documents = documents.saturating_sub(was_live);
        }
        self.dropped_purge.left = shard;
        if shard == 0 {
            let documents = std::mem::take(&mut self.dropped_purge.documents);
            self.residency.on_gone(documents);
        }
        count
    }
}
