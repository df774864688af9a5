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

use crate::recovery::VbRecovery;
use crate::snapshot::IncomingStream;
use crate::states::replace_all;
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
        let acknowledged = acknowledged_upto(self);
        self.store.history.require(acknowledged);
        self.durability.on_shutdown();
        self.durability.reset();
        self.stream = IncomingStream::default();
        self.store.rollback_to(to, uuid)
    }
}

impl VbRecovery<'_> {
    /// Resets the vBucket as [`VBucket::reset`] does, in place of a rollback.
    pub fn reset_for_rollback(&mut self, uuid: VbUuid) {
        let acknowledged = acknowledged_upto(self.vb);
        let history = &mut self.vb.store.history;
        history.require(acknowledged);
        let catch_up = history.catch_up.take();
        drop(replace_all(self.vb, uuid, catch_up));
    }
}

impl VbRecovery<'_> {
    /// Resets an empty vBucket to make place for a copy of another node's file. Nothing is applied to its file until
    /// [`VbRecovery::install`] or [`VbRecovery::give_up_copy`], see [`crate::VbStore::is_rewinding`].
    ///
    /// # Panics
    /// If the vBucket is not empty.
    pub fn reset_for_file(&mut self, uuid: VbUuid) {
        let history = &mut self.vb.store.history;
        assert_eq!(history.high_seqno, Seqno(0), "a file replaces nothing");
        let catch_up = history.catch_up.take();
        drop(replace_all(self.vb, uuid, catch_up));
        self.vb.store.unapplied.rewinding = true;
    }

    /// Leaves the vBucket empty, because no file was installed.
    pub fn give_up_copy(&mut self) {
        self.vb.store.unapplied.rewinding = false;
    }
}

/// Returns the last seqno up to which the vBucket may have acknowledged prepares. After a restart in the middle of a
/// snapshot, the acknowledged seqno is not exactly known.
fn acknowledged_upto(vb: &VBucket) -> Seqno {
    let logged = vb.store.unapplied.progress();
    let prepared = logged.prepared.max(logged.completed);
    let consistent = vb.store.history.consistent_seqno();
    let known = vb.durability.high_prepared(&vb.store);
    known.max(prepared.min(consistent))
}
