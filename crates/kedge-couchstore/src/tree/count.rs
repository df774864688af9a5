//! Counts from reduce values: one path down the tree, whatever the range.

use super::BySeqno;
use super::search::NodeReader;
use crate::Error;
use crate::format::pointer::{Pointer, SeqnoReduce};
use crate::limits::DEPTH_MAX;

impl NodeReader<'_> {
    /// Returns the number of entries of the tree by seqno with a key below `key`.
    pub(crate) fn count_below(
        &mut self,
        root: &Pointer<SeqnoReduce>,
        key: &[u8],
    ) -> Result<u64, Error> {
        let mut pointer = *root;
        let mut count = 0_u64;
        for _ in 0..DEPTH_MAX {
            let node = self.node::<BySeqno>(&pointer)?;
            let mut child = None;
            for entry in node.entries() {
                if node.is_leaf() {
                    count += u64::from(entry.key < key);
                } else if entry.key < key {
                    count = count.saturating_add(entry.pointer::<BySeqno>().reduce.count);
                } else {
                    child = Some(entry.pointer::<BySeqno>());
                    break;
                }
            }
            match child {
                Some(child) => pointer = child,
                None => return Ok(count),
            }
        }
        Err(self.too_deep::<BySeqno>(&pointer))
    }
}
