//! Values that are kept compressed in memory.
//!
//! Compressing takes longer than a lock may be held. So documents are taken out with [`VbStore::to_compress`], their values
//! compressed without the vBucket's lock by a [`crate::ValueCompressor`], and what came of it is given to [`VbStore::compressed`].
//! That is no change of the document: version, seqno and CAS stay, and no disk hears of it. Only what the file has is
//! compressed, so that no other version is kept alive for it.

use crate::item::Item;
use crate::store::VbStore;

impl VbStore {
    /// Documents of one shard of the hash table whose values nobody has tried to compress and the file has, up to
    /// `bytes` of them and one more.
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

    /// `packed` is the value of `item`, compressed, or nothing if that does not save enough. Nothing happens when the
    /// document has changed meanwhile, or has left memory. Returns the bytes that were saved.
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
