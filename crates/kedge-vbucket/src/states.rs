//! What a vBucket is to its node, and how it ends and begins anew.
//!
//! A vBucket that was deleted is dead, has nothing and answers nothing, until [`VBucket::set_state`] makes it anew. What
//! the log has of it before the record of the deletion is void; the file goes when the log has that record.

use crate::checkpoint::Change;
use crate::failover::FailoverTable;
use crate::hash_table::HashTable;
use crate::lock::Locks;
use crate::residency::Residency;
use crate::vbucket::{VBucket, VbState};
use kedge_types::{RevSeqno, Seqno, VbUuid};

impl VBucket {
    /// Its file cannot be read, so it answers nothing: it is dead until a later start, and nothing of it is written.
    pub fn set_aside(&mut self) {
        self.state = VbState::Dead;
        self.is_set_aside = true;
    }

    /// Whether it was set aside.
    #[must_use]
    pub fn is_set_aside(&self) -> bool {
        self.is_set_aside
    }

    /// Whether it was deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// Makes it what it is to be for its node; one that was deleted begins anew, empty. `uuid` is that of the branch that
    /// begins then, and when it becomes active. When it is active no more, whoever waits hears that the outcome is not
    /// known, and prepares stay prepared.
    pub fn set_state(&mut self, state: VbState, uuid: VbUuid) {
        if self.is_deleted {
            self.state = state;
            return self.reset(uuid);
        }
        if self.state == state {
            return;
        }
        self.state = state;
        if state == VbState::Active {
            self.failover.begin(uuid, self.high_seqno);
        } else {
            self.on_shutdown();
        }
        let failover = Box::new(self.failover.clone());
        self.checkpoints.push(Change::State(failover, state));
        self.commit_ready();
    }

    /// Throws everything away and begins a new history under `uuid`. Whoever waits hears that the outcome is not
    /// known. What the log has not written yet is not worth writing any more, but stays queued in front of the reset,
    /// as positions were handed out.
    pub fn reset(&mut self, uuid: VbUuid) {
        self.on_shutdown();
        self.forget_all(FailoverTable::new(uuid));
        self.unsettled.replaces_file = true;
        let failover = Box::new(self.failover.clone());
        self.checkpoints.push(Change::Reset(failover, self.state));
    }

    /// Throws everything away, and answers nothing from now on. As [`VBucket::reset`] in all else. Gives what was in
    /// memory.
    #[must_use = "dropping it takes a while: it is to be done without the vBucket's lock"]
    pub fn delete_vbucket(&mut self) -> HashTable {
        self.on_shutdown();
        let empty = HashTable::new(self.table.shard_count(), self.table.hasher().clone());
        let table = std::mem::replace(&mut self.table, empty);
        self.forget_to_delete();
        self.checkpoints.push(Change::Delete);
        table
    }

    /// There is a mark on the disk that it was deleted. Replay of the log follows.
    pub fn begin_deleted(&mut self) {
        self.state = VbState::Dead;
        self.is_deleted = true;
        self.replay.begin_deleted();
    }

    pub(crate) fn forget_to_delete(&mut self) {
        self.forget_all(self.failover.clone());
        self.unsettled.removes_file = true;
        self.state = VbState::Dead;
        self.is_deleted = true;
    }

    pub(crate) fn forget_all(&mut self, failover: FailoverTable) {
        self.table.clear();
        self.prepares.clear();
        self.locks = Locks::default();
        self.unsettled.begin_history();
        self.residency = Residency::complete();
        self.rewinding = false;
        self.is_deleted = false;
        self.failover = failover;
        self.high_seqno = Seqno(0);
        self.visible_seqno = Seqno(0);
        self.persisted_seqno = Seqno(0);
        self.purged_rev = RevSeqno(0);
        self.purge_seqno = Seqno(0);
    }
}
