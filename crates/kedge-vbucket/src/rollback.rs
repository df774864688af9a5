//! Going back to an earlier seqno.
//!
//! Only what is in the file can be gone back to: versions that newer ones replaced are nowhere else. And only to a
//! header that holds all of a batch (its high seqno is the end of its snapshot): one between two parts of a batch lacks
//! versions that a later part was to write. So a rollback has
//! these steps, which whoever owns the file takes: everything is applied; [`VBucket::rollback`]; the log has the
//! record, synced; the file is rewound; [`crate::VbRecovery::rewound`]; the keys that left memory are read from the file and given
//! to [`crate::VbStore::warm`]; [`crate::VbStore::warmed`]. After a crash behind the record, replay asks for the
//! rest, see [`crate::VbRecovery::needs_rewind`].

use crate::snapshot::IncomingStream;
use crate::vbucket::VBucket;
use kedge_types::{Seqno, VbUuid};

impl VBucket {
    /// Throws away everything behind `to` and begins a new branch there under `uuid`. Whoever waits hears that the
    /// outcome is not known. Gives the keys whose documents left memory; an older version of them may be in the file.
    /// Until [`crate::VbRecovery::rewound`] no command may run, see [`crate::VbStore::is_rewinding`].
    ///
    /// # Panics
    /// If `to` is not in the file yet.
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
