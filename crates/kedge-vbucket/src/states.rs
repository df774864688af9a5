//! What a vBucket is to its node, and how it ends and begins anew.
//!
//! A vBucket that was deleted is dead, has nothing and answers nothing, until [`VBucket::set_state`] makes it anew. What
//! the log has of it before the record of the deletion is void; the file goes when the log has that record.

use crate::checkpoint::Change;
use crate::collections::Collections;
use crate::dropped_purge::DroppedPurge;
use crate::durability::{DurabilityRules, PassiveDurabilityMonitor};
use crate::failover::FailoverTable;
use crate::hash_table::HashTable;
use crate::lock::Locks;
use crate::residency::Residency;
use crate::topology::{NodeName, Topology};
use crate::vbucket::{VBucket, VbState};
use kedge_types::{RevSeqno, Seqno, Status, VbUuid};

/// What a vBucket is to become for its node.
#[derive(Clone, Debug)]
pub struct StateChange {
    /// What it is from now on.
    pub state: VbState,
    /// Who has to acknowledge its SyncWrites, if it is active. `None`: as before, if it was active; else what it was made
    /// with.
    pub topology: Option<Topology>,
    /// The branch that begins when it becomes active or is made anew.
    pub uuid: VbUuid,
    /// It has all that the active before it had, which has ended: it becomes active without a branch of its own.
    pub takeover: bool,
}

impl StateChange {
    /// To `state`, with nothing else said.
    #[must_use]
    pub fn to(state: VbState, uuid: VbUuid) -> Self {
        Self {
            state,
            topology: None,
            uuid,
            takeover: false,
        }
    }
}

impl VBucket {
    /// Its file cannot be read, so it answers nothing: it is dead until a later start, and nothing of it is written.
    pub fn quarantine(&mut self) {
        self.state = VbState::Dead;
        self.is_quarantined = true;
    }

    /// Whether it was quarantined.
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        self.is_quarantined
    }

    /// Whether it was deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// Makes it what it is to be for its node; one that was deleted begins anew, empty.
    ///
    /// When it is active no more, whoever waits hears that the outcome is not known. PrepareQueue stay prepared; whoever is
    /// active next completes them. When it becomes active, a branch begins at its last consistent point, and what it has
    /// of a snapshot that broke off is part of that branch.
    pub fn set_state(&mut self, change: StateChange) {
        let StateChange { state, uuid, .. } = change;
        if self.is_deleted {
            self.state = state;
            self.set_chains(change.topology);
            return self.reset(uuid);
        }
        if self.state == state {
            if state == VbState::Active && change.topology.is_some() {
                self.set_chains(change.topology);
                self.commit_ready();
            }
            return;
        }
        if self.state == VbState::Active {
            self.leave_active();
        }
        // In a takeover a replica becomes pending in the midst of its stream.
        let follows = |state| matches!(state, VbState::Replica | VbState::Pending);
        if !(follows(self.state) && follows(state)) {
            self.end_stream();
        }
        self.state = state;
        self.set_chains(change.topology);
        if state == VbState::Active {
            let began = self.consistent_seqno();
            self.end_snapshot_here();
            let is_unwritten = std::mem::take(&mut self.is_unwritten);
            if !change.takeover {
                self.begin_branch(uuid, began, is_unwritten);
            }
        }
        let failover = Box::new(self.failover.clone());
        self.checkpoints.push(Change::State(failover, state));
        self.commit_ready();
    }

    /// Its node was started among others: one that was active when the node stopped is pending until it is told that it
    /// still is, as another may be by now. A branch begins then, since what was given out and not persisted is lost.
    pub fn wait_for_role(&mut self) {
        if self.state == VbState::Active {
            self.state = VbState::Pending;
            self.set_chains(None);
        }
    }

    fn begin_branch(&mut self, uuid: VbUuid, began: Seqno, is_unwritten: bool) {
        if is_unwritten {
            // Nobody has anything of the branch that it was made with.
            self.failover = FailoverTable::new(uuid);
        } else {
            self.failover.begin(uuid, began);
        }
    }

    /// The bucket was just made on this node of a cluster: nothing was ever written on the branch that it was made with, so
    /// that it leaves no entry when one begins for its first active.
    pub fn note_unwritten(&mut self) {
        self.is_unwritten = self.state != VbState::Active && self.high_seqno == Seqno(0);
    }

    /// Acknowledgements are of the time that it is active.
    fn set_chains(&mut self, topology: Option<Topology>) {
        if self.state == VbState::Active {
            let topology = topology.or_else(|| self.own_topology.clone());
            self.acks.set_topology(topology);
        } else {
            self.acks.set_topology(None);
            self.acks.forget_all();
        }
    }

    fn leave_active(&mut self) {
        let high_prepared = self.high_prepared_seqno();
        self.on_shutdown();
        self.locks = Locks::default();
        self.following
            .begin_at(self.high_seqno, high_prepared, &self.prepares);
    }

    /// A snapshot that broke off counts as whole: nobody will send the rest.
    pub(crate) fn end_snapshot_here(&mut self) {
        if self.open.take().is_some_and(|open| open.is_disk()) {
            let seen = self.following.take_visible();
            self.visible_seqno = self.visible_seqno.max(seen);
        }
    }

    /// What an active asks of its chains beside their majority.
    pub fn set_durability_rules(&mut self, rules: DurabilityRules) {
        self.acks.set_rules(rules);
        self.commit_ready();
    }

    /// A node has prepared everything up to `prepared`. What is committed by that is among its effects.
    ///
    /// # Errors
    /// `NotMyVbucket` unless it is active; `OutOfRange` when it has given out less; `TemporaryFailure` when too many
    /// nodes acknowledge that no chain names.
    pub fn acknowledge(&mut self, node: &NodeName, prepared: Seqno) -> Result<(), Status> {
        if self.state != VbState::Active {
            return Err(Status::NotMyVbucket);
        }
        if prepared > self.high_seqno {
            return Err(Status::OutOfRange);
        }
        if self.acks.acknowledge(node, prepared)? {
            self.commit_ready();
        }
        Ok(())
    }

    /// A node begins a stream, or its stream ended: what it has acknowledged it may have lost since, and says again.
    pub fn forget_acks(&mut self, node: &NodeName) {
        self.acks.forget(node);
    }

    /// What is to be acknowledged to the active that is followed, if that has moved.
    pub fn take_ack(&mut self) -> Option<Seqno> {
        if self.is_streaming() {
            self.following.take_ack()
        } else {
            None
        }
    }

    /// Whether what it acknowledges next waits for the disk.
    #[must_use]
    pub fn waits_for_disk(&self) -> bool {
        self.is_streaming() && self.following.waits_for_disk()
    }

    /// Throws everything away and begins a new history under `uuid`. Whoever waits hears that the outcome is not
    /// known. What the log has not written yet is not worth writing any more, but stays queued in front of the reset,
    /// as positions were handed out.
    pub fn reset(&mut self, uuid: VbUuid) {
        drop(self.flush(uuid));
    }

    /// As [`VBucket::reset`]. Gives what was in memory.
    #[must_use = "dropping it takes a while: it is to be done without the vBucket's lock"]
    pub fn flush(&mut self, uuid: VbUuid) -> HashTable {
        self.on_shutdown();
        let table = self.take_table();
        self.forget_all(FailoverTable::new(uuid));
        self.unapplied.replaces_file = true;
        let failover = Box::new(self.failover.clone());
        self.checkpoints.push(Change::Reset(failover, self.state));
        table
    }

    /// Throws everything away, and answers nothing from now on. As [`VBucket::reset`] in all else. Gives what was in
    /// memory.
    #[must_use = "dropping it takes a while: it is to be done without the vBucket's lock"]
    pub fn delete_vbucket(&mut self) -> HashTable {
        self.on_shutdown();
        let table = self.take_table();
        self.forget_to_delete();
        self.checkpoints.push(Change::Delete);
        table
    }

    fn take_table(&mut self) -> HashTable {
        let empty = HashTable::new(self.table.shard_count(), self.table.hasher().clone());
        std::mem::replace(&mut self.table, empty)
    }

    /// There is a mark on the disk that it was deleted. Replay of the log follows.
    pub fn begin_deleted(&mut self) {
        self.state = VbState::Dead;
        self.is_deleted = true;
        self.replay.begin_deleted();
    }

    pub(crate) fn forget_to_delete(&mut self) {
        self.forget_all(self.failover.clone());
        self.unapplied.removes_file = true;
        self.state = VbState::Dead;
        self.is_deleted = true;
    }

    pub(crate) fn forget_all(&mut self, failover: FailoverTable) {
        self.table.clear();
        self.prepares.clear();
        self.acks.forget_all();
        self.following = PassiveDurabilityMonitor::default();
        self.end_stream();
        self.open = None;
        self.locks = Locks::default();
        self.unapplied.begin_history();
        self.collections = Collections::new();
        self.dropped_purge = DroppedPurge::default();
        self.residency = Residency::complete();
        self.rewinding = false;
        self.may_have_xattrs = false;
        self.is_deleted = false;
        self.is_unwritten = false;
        self.failover = failover;
        self.high_seqno = Seqno(0);
        self.visible_seqno = Seqno(0);
        self.persisted_seqno = Seqno(0);
        self.purged_rev = RevSeqno(0);
        self.purge_seqno = Seqno(0);
    }
}
