//! Rollback to an earlier seqno.
//!
//! A rollback is possible only to a state in the file, because replaced versions exist nowhere else, and only to a
//! header that holds a whole batch: its high seqno is the end of its snapshot. A header between two parts of a batch
//! lacks versions of later parts.
//!
//! The owner of the file performs these steps: apply all changes; [`VBucket::rollback`]; sync the record to the log;
//! rewind the file; [`crate::VbRecovery::rewound`]; read the keys that left memory from the file and pass them to
//! [`crate::VbStore::warm`]; [`crate::VbStore::warmed`]. After a crash behind the record, replay requests the remaining
//! steps, see [`VBucket::needs_rewind`].

use crate::snapshot::IncomingStream;
use crate::vbucket::VBucket;
use kedge_types::{Seqno, VbUuid};

impl VBucket {
    /// Removes everything after `to` and starts a new branch with `uuid` there. Waiting SyncWrites end with an
    /// ambiguous status. Returns the keys of removed documents, of which the file may have older versions. No command
    /// may run until [`crate::VbRecovery::rewound`], see [`crate::VbStore::is_rewinding`].
    ///
    /// # Panics
    /// If `to` is not applied yet.
    pub fn rollback(&mut self, to: Seqno, uuid: VbUuid) -> Vec<Box<[u8]>> {
        assert!(
            to <= self.applied_seqno(),
            "only what is in the file can be gone back to"
        );
        self.durability.on_shutdown();
        self.durability.reset();
        self.stream = IncomingStream::default();
        self.store.rollback_to(to, uuid)
    }
}
