//! Sweep of the hash table for documents of dropped collections.

use crate::hash_table::EvictionDecision;
use crate::item::Item;
use crate::store::VbStore;

impl VbStore {
    /// Visits the next shard; see [`crate::VBucket::sweep_dropped`].
    pub(crate) fn sweep_dropped(&mut self) -> u64 {
        let Some(shard) = self.documents.dropped.next else {
            return 0;
        };
        let mut gone = Vec::new();
        let collections = &self.collections;
        let decide = |item: &Item| {
            if collections.is_of_dropped(item.key()) {
                EvictionDecision::Remove
            } else {
                EvictionDecision::Keep
            }
        };
        let goes = |_, item: &Item| {
            item.mark_replaced();
            gone.push(item.clone());
        };
        self.documents.table.evict_shard(shard, decide, goes);
        let count = gone.len() as u64;
        for item in gone {
            self.on_replaced(&item);
            self.documents.locks.remove(item.key());
            let was_live = u64::from(!item.is_deleted());
            let documents = &mut self.documents.dropped.documents;
            *documents = documents.saturating_sub(was_live);
        }
        let next = shard + 1;
        let is_last = next >= self.documents.table.shard_count();
        self.documents.dropped.next = (!is_last).then_some(next);
        if is_last {
            let documents = std::mem::take(&mut self.documents.dropped.documents);
            self.documents.residency.on_gone(documents);
        }
        count
    }
}
