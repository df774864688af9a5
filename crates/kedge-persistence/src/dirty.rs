//! The list of vBuckets that have changes for the log.

use kedge_sync::{RankedMutex, ranks::DirtyListRank};
use kedge_types::VbId;
use std::collections::VecDeque;

/// A vBucket that has changes for the log, and the time of the oldest one in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirtyVb {
    pub(crate) vb: VbId,
    pub(crate) since_ns: u64,
}

/// vBuckets that have changes for the log and are not in the committer's queue yet.
#[derive(Debug, Default)]
pub(crate) struct DirtyList {
    list: RankedMutex<DirtyListRank, Vec<DirtyVb>>,
}

impl DirtyList {
    pub(crate) fn push(&self, dirty: DirtyVb) {
        self.list.lock().push(dirty);
    }

    pub(crate) fn take_into(&self, queue: &mut VecDeque<DirtyVb>) {
        queue.extend(self.list.lock().drain(..));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }
}
