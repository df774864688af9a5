//! The list of open files in LRU order.
//!
//! Invariants:
//! * A vBucket is in the list exactly while its slot keeps a handle, as seen under the lock of that slot's current
//!   file. So it enters and leaves the list only under that lock.
//! * The list selects the file to close, and the slot closes it.

use kedge_sync::{RankedMutex, ranks::OpenFileList};
use kedge_types::VbId;

/// No list node.
const NONE: u32 = u32::MAX;

/// The limits of open files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenFileLimits {
    pub(crate) keep: bool,
    pub(crate) files: usize,
    pub(crate) bytes: u64,
}

/// The list, from the most to the least recently used file.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    list: RankedMutex<OpenFileList, LruList>,
}

#[derive(Debug)]
struct LruList {
    places: Vec<LruNode>,
    newest: u32,
    oldest: u32,
    files: usize,
    bytes: u64,
    limits: OpenFileLimits,
}

#[derive(Clone, Copy, Debug)]
struct LruNode {
    newer: u32,
    older: u32,
    bytes: u64,
    listed: bool,
}

impl OpenFiles {
    pub(crate) fn new(vbuckets: u16, limits: OpenFileLimits) -> Self {
        let place = LruNode {
            newer: NONE,
            older: NONE,
            bytes: 0,
            listed: false,
        };
        OpenFiles {
            list: RankedMutex::new(LruList {
                places: vec![place; usize::from(vbuckets)],
                newest: NONE,
                oldest: NONE,
                files: 0,
                bytes: 0,
                limits,
            }),
        }
    }

    /// Returns `true` if handles are kept at all.
    pub(crate) fn keeps(&self) -> bool {
        let list = self.list.lock();
        list.limits.keep && list.limits.files > 0
    }

    /// Returns `true` if the limit allows an open handle for every vBucket.
    pub(crate) fn keeps_all(&self) -> bool {
        let list = self.list.lock();
        list.limits.keep && list.limits.files >= list.places.len()
    }

    pub(crate) fn set_limits(&self, limits: OpenFileLimits) {
        self.list.lock().limits = limits;
    }

    /// Records a use of the open file of `vb`, which takes `bytes` bytes of memory.
    pub(crate) fn used(&self, vb: VbId, bytes: u64) {
        let mut list = self.list.lock();
        list.unlink(vb);
        list.push(vb, bytes);
    }

    /// Records that the file of `vb` was closed.
    pub(crate) fn closed(&self, vb: VbId) {
        self.list.lock().unlink(vb);
    }

    /// Returns the file to close next, while there are too many.
    pub(crate) fn excess(&self) -> Option<VbId> {
        self.list.lock().excess()
    }

    /// Returns the number of files in the list and their memory in bytes.
    pub(crate) fn figures(&self) -> (usize, u64) {
        let list = self.list.lock();
        (list.files, list.bytes)
    }
}

impl LruList {
    fn excess(&self) -> Option<VbId> {
        let OpenFileLimits { keep, files, bytes } = self.limits;
        let is_over = !keep || self.files > files || self.bytes > bytes;
        (is_over && self.oldest != NONE).then_some(VbId(self.oldest as u16))
    }

    fn push(&mut self, vb: VbId, bytes: u64) {
        let at = u32::from(vb.get());
        let older = std::mem::replace(&mut self.newest, at);
        match self.places.get_mut(older as usize) {
            Some(place) => place.newer = at,
            None => self.oldest = at,
        }
        self.places[at as usize] = LruNode {
            newer: NONE,
            older,
            bytes,
            listed: true,
        };
        self.files += 1;
        self.bytes += bytes;
    }

    fn unlink(&mut self, vb: VbId) {
        let place = &mut self.places[usize::from(vb.get())];
        if !std::mem::take(&mut place.listed) {
            return;
        }
        let LruNode {
            newer,
            older,
            bytes,
            ..
        } = *place;
        match self.places.get_mut(newer as usize) {
            Some(place) => place.older = older,
            None => self.newest = older,
        }
        match self.places.get_mut(older as usize) {
            Some(place) => place.newer = newer,
            None => self.oldest = newer,
        }
        self.files -= 1;
        self.bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(files: usize, bytes: u64) -> OpenFileLimits {
        OpenFileLimits {
            keep: true,
            files,
            bytes,
        }
    }

    #[test]
    fn no_file_stays_open_with_a_limit_of_zero() {
        let files = OpenFiles::new(2, limits(2, 100));
        files.used(VbId(0), 10);
        assert!(files.keeps());
        assert_eq!(files.excess(), None);
        files.set_limits(OpenFileLimits {
            keep: false,
            ..limits(2, 100)
        });
        assert!(!files.keeps());
        assert_eq!(files.excess(), Some(VbId(0)));
        files.closed(VbId(0));
        assert_eq!((files.excess(), files.figures()), (None, (0, 0)));
        files.set_limits(limits(0, 100));
        assert!(!files.keeps());
    }

    proptest! {
        /// Compared with a vector that has the most recently used file last.
        #[test]
        fn least_recently_used_file_is_closed_first(
            steps in proptest::collection::vec((0u16..9, 0u64..50, 0u8..4), 0..300),
        ) {
            let files = OpenFiles::new(9, limits(4, 120));
            let mut model: Vec<(u16, u64)> = Vec::new();
            for (vb, bytes, step) in steps {
                model.retain(|(known, _)| *known != vb);
                if step == 0 {
                    files.closed(VbId(vb));
                } else {
                    files.used(VbId(vb), bytes);
                    model.push((vb, bytes));
                }
                let sum = |model: &[(u16, u64)]| model.iter().map(|(_, bytes)| bytes).sum::<u64>();
                while let Some(gone) = files.excess() {
                    prop_assert!(model.len() > 4 || sum(&model) > 120);
                    prop_assert_eq!(model.remove(0).0, gone.get());
                    files.closed(gone);
                }
                prop_assert!(model.len() <= 4 && sum(&model) <= 120);
                prop_assert_eq!(files.figures(), (model.len(), sum(&model)));
            }
        }
    }
}
