//! Compression of values in memory.
//!
//! Compression takes longer than a lock may be held. The caller takes documents with [`VbStore::to_compress`],
//! compresses their values without the vBucket's lock with a [`crate::ValueCompressor`], and passes the result to
//! [`VbStore::compressed`]. The document is unchanged by this: revision, seqno and CAS stay, and nothing is written to
//! disk. Only applied documents are compressed, so that no second version is kept alive.

use crate::item::Item;
use crate::store::VbStore;

impl VbStore {
    /// Appends documents of one shard that are applied and whose compression was not attempted yet. Stops after the
    /// document that exceeds `bytes` of values.
    pub fn to_compress(&self, shard: usize, bytes: usize, out: &mut Vec<Item>) {
        if self.documents.table.compressible() == 0 || self.unapplied.rewinding {
            return;
        }
        let applied = self.unapplied.applied();
        let mut taken = 0;
        for item in self.documents.table.shard(shard) {
            if taken > bytes {
                break;
            }
            if item.is_compressible() && item.seqno() <= applied && !item.is_blind() {
                taken += item.value().len();
                out.push(item.clone());
            }
        }
    }

    /// Replaces the value of `item` by `packed`, or records that compression does not pay if that is `None`. Has no
    /// effect if the document has changed meanwhile or left memory. Returns the number of bytes saved.
    pub fn compressed(&mut self, item: &Item, packed: Option<&[u8]>) -> usize {
        let hash = self.documents.hash(item.key());
        let there = self.documents.find(hash, item.key());
        if !there.is_some_and(|there| there.is_same(item)) {
            return 0;
        }
        let Some(packed) = packed else {
            self.documents.table.mark_stays_plain(item);
            return 0;
        };
        if let Some(old) = self.documents.table.put(hash, item.with_packed(packed)) {
            self.on_replaced(&old);
        }
        item.value().len() - packed.len()
    }
}
