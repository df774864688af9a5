//! What a vBucket is to its node, and how it ends and begins anew.
//!
//! A vBucket that was deleted is dead, has nothing and answers nothing, until [`VBucket::set_state`] makes it anew. What
//! the log has of it before the record of the deletion is void; the file goes when the log has that record.

use crate::checkpoint::Change;
use crate::failover::FailoverTable;
use crate::hash_table::HashTable;
use crate::lock::Locks;
use crate::snapshot::IncomingStream;
use crate::state::VbState;
use crate::topology::{NodeName, Topology};
use crate::vbucket::VBucket;
use kedge_types::{Seqno, Status, VbUuid};

/// A change of the state of a vBucket.
#[derive(Clone, Debug)]
pub struct StateChange {
    /// The new state.
    pub state: VbState,
    /// The nodes that have to acknowledge its SyncWrites, if it is active. `None`: as before, if it was active; else
    /// what it was made with.
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
        self.store.state = VbState::Dead;
        self.is_quarantined = true;
    }

    /// Returns whether it was quarantined.
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        self.is_quarantined
    }

    /// Returns whether it was deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// Makes it what it is to be for its node; one that was deleted begins anew, empty.
    ///
    /// When it is active no more, whoever waits hears that the outcome is not known. Prepares stay prepared; whoever is
    /// active next completes them. When it becomes active, a branch begins at its last consistent point, and what it
    /// has of a snapshot that broke off is part of that branch.
    pub fn set_state(&mut self, change: StateChange) {
        let StateChange { state, uuid, .. } = change;
        if self.is_deleted {
            self.store.state = state;
            self.set_chains(change.topology);
            return self.reset(uuid);
        }
        if self.store.state == state {
            if state == VbState::Active && change.topology.is_some() {
                self.set_chains(change.topology);
                self.durability.commit_ready(&mut self.store);
            }
            return;
        }
        if self.store.is_active() {
            self.durability.leave_active(&self.store);
            self.store.documents.locks = Locks::default();
        }
        // In a takeover a replica becomes pending in the midst of its stream.
        if !(self.store.state.is_follower() && state.is_follower()) {
            self.stream = IncomingStream::default();
        }
        self.store.state = state;
        self.set_chains(change.topology);
        if state == VbState::Active {
            let history = &mut self.store.history;
            let began = history.consistent_seqno();
            history.end_snapshot_here();
            let is_unwritten = std::mem::take(&mut history.is_unwritten);
            if !change.takeover {
                history.begin_branch(uuid, began, is_unwritten);
            }
        }
        self.store.push_state();
        self.durability.commit_ready(&mut self.store);
    }

    fn set_chains(&mut self, topology: Option<Topology>) {
        let is_active = self.store.is_active();
        self.durability.set_chains(is_active, topology);
    }

    /// Its node was started among others: one that was active when the node stopped is pending until it is told that it
    /// still is, as another may be by now. A branch begins then, since what was given out and not persisted is lost.
    pub fn wait_for_role(&mut self) {
        if self.store.is_active() {
            self.store.state = VbState::Pending;
            self.set_chains(None);
        }
    }

    /// The bucket was just made on this node of a cluster: nothing was ever written on the branch that it was made
    /// with, so that it leaves no entry when one begins for its first active.
    pub fn note_unwritten(&mut self) {
        let history = &mut self.store.history;
        history.is_unwritten =
            self.store.state != VbState::Active && history.high_seqno == Seqno(0);
    }

    /// A node has prepared everything up to `prepared`. What is committed by that is among its effects.
    ///
    /// # Errors
    /// `NotMyVbucket` unless it is active; `OutOfRange` when it has given out less; `TemporaryFailure` when too many
    /// nodes acknowledge that no chain names.
    pub fn acknowledge(&mut self, node: &NodeName, prepared: Seqno) -> Result<(), Status> {
        if !self.store.is_active() {
            return Err(Status::NotMyVbucket);
        }
        if prepared > self.store.history.high_seqno {
            return Err(Status::OutOfRange);
        }
        self.durability.acknowledge(node, prepared, &mut self.store)
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
        self.durability.on_shutdown();
        let table = self.store.documents.take_table();
        self.forget_all(FailoverTable::new(uuid));
        self.store.unapplied.replaces_file = true;
        let failover = Box::new(self.store.history.failover.clone());
        self.store
            .changes
            .push(Change::Reset(failover, self.store.state));
        table
    }

    /// Throws everything away, and answers nothing from now on. As [`VBucket::reset`] in all else. Gives what was in
    /// memory.
    #[must_use = "dropping it takes a while: it is to be done without the vBucket's lock"]
    pub fn delete_vbucket(&mut self) -> HashTable {
        self.durability.on_shutdown();
        let table = self.store.documents.take_table();
        self.forget_to_delete();
        self.store.changes.push(Change::Delete);
        table
    }

    pub(crate) fn forget_to_delete(&mut self) {
        self.forget_all(self.store.history.failover.clone());
        self.store.unapplied.removes_file = true;
        self.store.state = VbState::Dead;
        self.is_deleted = true;
    }

    pub(crate) fn forget_all(&mut self, failover: FailoverTable) {
        self.store.reset(failover);
        self.durability.reset();
        self.stream = IncomingStream::default();
        self.is_deleted = false;
    }
}
