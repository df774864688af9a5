//! Going back to an earlier seqno.
//!
//! Only what is in the file can be gone back to: versions that newer ones replaced are nowhere else. And only to a
//! header that holds all of a batch (its high seqno is the end of its snapshot): one between two parts of a batch lacks
//! versions that a later part was to write. So a rollback has
//! these steps, which whoever owns the file takes: everything is applied; [`VBucket::rollback`]; the log has the
//! record, synced; the file is rewound; [`VBucket::rewound`]; the keys that left memory are read from the file and given
//! to [`VBucket::warm`]; [`VBucket::warmed`]. After a crash behind the record, replay asks for the
//! rest, see [`VBucket::needs_rewind`].

use crate::checkpoint::Change;
use crate::durability::PassiveDurabilityMonitor;
use crate::file_state::FileState;
use crate::replay::ReplayError;
use crate::vbucket::VBucket;
use kedge_types::{Seqno, VbUuid};

impl VBucket {
    /// Throws away everything behind `to` and begins a new branch there under `uuid`. Whoever waits hears that the
    /// outcome is not known. Gives the keys whose documents left memory; an older version of them may be in the file.
    /// Until [`VBucket::rewound`] no command may run, see [`VBucket::is_rewinding`].
    ///
    /// # Panics
    /// If `to` is not in the file yet.
    pub fn rollback(&mut self, to: Seqno, uuid: VbUuid) -> Vec<Box<[u8]>> {
        assert!(
            to <= self.applied_seqno(),
            "only what is in the file can be gone back to"
        );
        self.on_shutdown();
        let behind = self.table.iter().filter(|item| item.seqno() > to);
        let keys: Vec<Box<[u8]>> = behind.map(|item| item.key().into()).collect();
        for key in &keys {
            self.table.remove(self.table.hash(key), key);
            self.locks.remove(key);
        }
        self.prepares.clear();
        self.acks.forget_all();
        self.following = PassiveDurabilityMonitor::default();
        self.end_stream();
        self.open = None;
        self.failover.begin(uuid, to);
        self.high_seqno = to;
        self.persisted_seqno = to;
        self.visible_seqno = self.visible_seqno.min(to);
        self.unapplied.begin_history();
        self.residency.on_rollback();
        self.rewinding = true;
        self.checkpoints.push(Change::Rollback {
            to,
            table: Box::new(self.failover.clone()),
        });
        keys
    }

    /// Whether the vBucket was rolled back and its file has not followed: what is in memory is not all there is.
    #[must_use]
    pub fn is_rewinding(&self) -> bool {
        self.rewinding
    }

    /// The file was rewound too. Its prepares that have not ended are committed, as in a restart: someone may have
    /// seen their commits.
    ///
    /// # Errors
    /// [`ReplayError::NotRewound`] when the file is not where the vBucket went back to, [`ReplayError::BadPrepare`].
    pub fn rewound(&mut self, base: &FileState) -> Result<(), ReplayError> {
        if base.high_seqno != self.high_seqno {
            return Err(ReplayError::NotRewound {
                to: self.high_seqno,
            });
        }
        let is_open = |id| self.collections.is_open(id);
        let reopens = base.collections.open.iter().any(|open| !is_open(open.id));
        self.take_over(base)?;
        if reopens {
            // Its documents may have left memory when it was dropped.
            self.residency.on_reopened();
        }
        self.purged_rev = self.purged_rev.max(base.state.max_deleted_rev);
        self.residency
            .on_rewound(base.documents(), self.table.documents());
        self.rewinding = false;
        let consistent = self.consistent_seqno();
        let prepared = self.unapplied.progress().prepared_upto(consistent);
        self.following
            .all_persisted(consistent, prepared, &self.prepares);
        self.commit_ready();
        Ok(())
    }
}
