//! State transitions of a vBucket, resets and deletion.
//!
//! A deleted vBucket is dead and empty and answers no requests until [`VBucket::set_state`] re-creates it. Its log
//! records before the deletion are void. The file is removed once the log has the deletion.

use crate::catch_up::CatchUpPoint;
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
    /// The target state.
    pub state: VbState,
    /// The nodes that have to acknowledge SyncWrites of an active vBucket. `None` keeps the topology of an active
    /// vBucket, or selects the default topology.
    pub topology: Option<Topology>,
    /// The branch that starts when the vBucket becomes active or is re-created.
    pub uuid: VbUuid,
    /// True if the vBucket has everything that the previous active one had: it then becomes active without a new branch. True
    /// for a dead one if it was handed over, see [`crate::VbStore::is_handed_over`].
    pub takeover: bool,
}

impl StateChange {
    /// Creates a change to `state` without topology and takeover.
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
    /// Quarantines a vBucket whose file cannot be read: it is dead until a later start, and nothing of it is written.
    pub fn quarantine(&mut self) {
        self.store.state = VbState::Dead;
        self.is_quarantined = true;
    }

    /// Returns whether the vBucket is quarantined.
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        self.is_quarantined
    }

    /// Returns whether the vBucket is deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// Changes the state. A deleted vBucket is re-created, empty.
    ///
    /// When the vBucket leaves the active state, waiting SyncWrites end with an ambiguous status. The prepares stay,
    /// and the next active vBucket completes them. When it becomes active, a branch starts at its last consistent
    /// point. The received part of an interrupted snapshot belongs to that branch.
    pub fn set_state(&mut self, change: StateChange) {
        let StateChange { state, uuid, .. } = change;
        self.store.is_handed_over = change.takeover && state == VbState::Dead;
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
            self.durability.end_active(&self.store);
            self.store.documents.locks = Locks::default();
        }
        // In a takeover, a replica becomes pending while its stream continues.
        if !(self.store.state.is_follower() && state.is_follower()) {
            self.stream = IncomingStream::default();
        }
        self.store.state = state;
        self.set_chains(change.topology);
        if state == VbState::Active {
            let history = &mut self.store.history;
            let began = history.consistent_seqno();
            history.end_snapshot_here();
            // A takeover has everything that the previous active had, and without one the rest is given up.
            history.catch_up = None;
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

    /// Begins the end of an active vBucket that another node takes over: SyncWrites get `TemporaryFailure`, so that those
    /// in flight end with their results. It ends with the next state, or with [`VBucket::cancel_handover`].
    pub fn begin_handover(&mut self) {
        self.durability.set_hands_over(self.store.is_active());
    }

    /// Allows SyncWrites again, because no other node takes over.
    pub fn cancel_handover(&mut self) {
        self.durability.set_hands_over(false);
    }

    /// Makes an active vBucket pending after the start of a node in a cluster, until the node is told that it is still
    /// active: another node may be active by now. A branch starts then, because assigned seqnos that were not persisted
    /// are lost.
    pub fn wait_for_role(&mut self) {
        if self.store.is_active() {
            self.store.state = VbState::Pending;
            self.set_chains(None);
        }
    }

    /// Records that the bucket was just created on this cluster node. Nothing was written on its branch, which leaves
    /// no entry when the branch of its first active starts.
    pub fn note_unwritten(&mut self) {
        let history = &mut self.store.history;
        history.is_unwritten =
            self.store.state != VbState::Active && history.high_seqno == Seqno(0);
    }

    /// Records that a node has prepared everything up to `prepared`. Commits are among the effects.
    ///
    /// # Errors
    /// `NotMyVbucket` unless the vBucket is active; `OutOfRange` above the high seqno; `TemporaryFailure` if too many
    /// nodes outside the chains acknowledge.
    pub fn acknowledge(&mut self, node: &NodeName, prepared: Seqno) -> Result<(), Status> {
        if !self.store.is_active() {
            return Err(Status::NotMyVbucket);
        }
        if prepared > self.store.history.high_seqno {
            return Err(Status::OutOfRange);
        }
        self.durability.acknowledge(node, prepared, &mut self.store)
    }

    /// Removes everything and starts a new history under `uuid`. Waiting SyncWrites end with an ambiguous status.
    /// Changes that are not logged yet are void, but stay queued before the reset because positions were handed out.
    pub fn reset(&mut self, uuid: VbUuid) {
        drop(self.flush(uuid));
    }

    /// Resets the vBucket as [`VBucket::reset`] does. Returns the documents that were in memory.
    #[must_use = "dropping it takes a while: it is to be done without the vBucket's lock"]
    pub fn flush(&mut self, uuid: VbUuid) -> HashTable {
        replace_all(self, uuid, None)
    }

    /// Deletes the vBucket: removes everything as [`VBucket::reset`] does and answers no further requests. Returns the
    /// documents that were in memory.
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

/// Removes everything and starts a new history under `uuid`, which has to reach `catch_up`. Returns the documents that
/// were in memory.
pub(crate) fn replace_all(
    vb: &mut VBucket,
    uuid: VbUuid,
    catch_up: Option<Box<CatchUpPoint>>,
) -> HashTable {
    vb.durability.on_shutdown();
    let table = vb.store.documents.take_table();
    vb.forget_all(FailoverTable::new(uuid));
    vb.store.history.catch_up = catch_up;
    vb.store.unapplied.replaces_file = true;
    let branch = Box::new(vb.store.new_branch());
    vb.store.changes.push(Change::Reset(branch, vb.store.state));
    table
}
