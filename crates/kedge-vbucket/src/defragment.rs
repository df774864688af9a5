//! Defragmentation: items leave slabs of which few blocks are in use.
//!
//! Overwrites with other sizes leave blocks behind that nothing needs. Their memory can be given back only when all blocks of a
//! slab are free. The documents themselves are unchanged by a move: nothing but their address differs.

use crate::store::VbStore;

/// Statistics of a defragmentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// The number of documents and tombstones that were visited.
    pub visited: usize,
    /// The number of those that moved.
    pub moved: usize,
}

impl VbStore {
    /// Returns memory that queues needed when they were longer.
    pub fn return_memory(&mut self) {
        self.changes.checkpoints.return_memory();
    }

    /// Defragments the memory of one shard of the hash table. An item that something else refers to, as the log applier or a
    /// stream, stays where it is.
    pub fn defragment(&mut self, shard: usize) -> Defragmented {
        let (visited, moved) = self.documents.table.relocate_shard(shard);
        Defragmented { visited, moved }
    }
}
