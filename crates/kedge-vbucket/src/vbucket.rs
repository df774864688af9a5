//! The state of one vBucket.

use crate::apply::{PersistenceMode, UnappliedFigures};
use crate::change_queue::{AfterLog, ChangeQueue};
use crate::checkpoint::Position;
use crate::collections::OpenCollections;
use crate::cursors::{CursorOpening, VbIdentity};
use crate::document_table::DocumentTable;
use crate::durability::{DurabilityFigures, DurabilityMonitor, DurabilityRules};
use crate::effects::{MemoryUse, StepEffects};
use crate::failover::FailoverTable;
use crate::hash_table::HashTable;
use crate::history::History;
use crate::replay::Replay;
use crate::results::VbProgress;
use crate::snapshot::IncomingStream;
use crate::state::VbState;
use crate::step::Step;
use crate::store::VbStore;
use crate::topology::Topology;
use foldhash::fast::RandomState;
use kedge_types::{Now, Seqno, VbId, VbUuid};

/// The arguments that a vBucket is made with.
#[derive(Clone, Debug)]
pub struct VbSetup {
    /// Its number.
    pub id: VbId,
    /// The uuid of its first branch.
    pub uuid: VbUuid,
    /// Shards that its hash table begins with; it adds more as it grows.
    pub shards: usize,
    /// Seed of its hash table.
    pub hasher: RandomState,
    /// Where its changes are kept.
    pub persistence: PersistenceMode,
    /// The chains of SyncWrites when it is active and nobody says otherwise: [`Topology::alone`] on a node that
    /// is alone. `None`: none is committed before [`VBucket::set_state`] says who.
    pub topology: Option<Topology>,
}

/// One partition of a bucket: documents, their order, and what waits for the disk.
#[derive(Debug)]
pub struct VBucket {
    id: VbId,
    pub(crate) store: VbStore,
    pub(crate) durability: DurabilityMonitor,
    pub(crate) stream: IncomingStream,
    pub(crate) replay: Replay,
    pub(crate) is_quarantined: bool,
    pub(crate) is_deleted: bool,
    /// Its memory as [`VBucket::take_effects`] has handed it out.
    handed_out: MemoryUse,
}

impl VBucket {
    /// An empty, active vBucket.
    #[must_use]
    pub fn new(setup: VbSetup) -> Self {
        let VbSetup {
            id,
            uuid,
            shards,
            hasher,
            persistence,
            topology,
        } = setup;
        Self {
            id,
            store: VbStore::new(id, uuid, shards, hasher, persistence),
            durability: DurabilityMonitor::new(topology),
            stream: IncomingStream::default(),
            replay: Replay::default(),
            is_quarantined: false,
            is_deleted: false,
            handed_out: MemoryUse::default(),
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> VbId {
        self.id
    }

    /// Its state on its node.
    #[must_use]
    pub fn state(&self) -> VbState {
        self.store.state
    }

    /// Begins a step in which commands run on its documents.
    pub fn at(&mut self, now: Now) -> Step<'_> {
        Step {
            now,
            store: &mut self.store,
            durability: &mut self.durability,
        }
    }

    /// Its documents together with their order.
    #[must_use]
    pub fn store(&self) -> &VbStore {
        &self.store
    }

    /// [`VBucket::store`], to exchange documents with its file.
    pub fn store_mut(&mut self) -> &mut VbStore {
        &mut self.store
    }

    /// Number of its history: it changes with every reset and rollback. What was read from the file while it was
    /// another is of no use any more.
    #[must_use]
    pub fn history_id(&self) -> u32 {
        self.store.unapplied.history()
    }

    /// Its identity for streams.
    #[must_use]
    pub fn identity(&self) -> VbIdentity {
        VbIdentity {
            state: self.store.state,
            uuid: self.store.history.failover.uuid(),
            history: self.history_id(),
        }
    }

    /// Opens a stream's cursor for the changes behind `after`.
    pub fn open_cursor(&mut self, after: Seqno) -> CursorOpening {
        let high = self.store.history.high_seqno;
        self.store.changes.open_cursor(after, high)
    }

    /// Visits the next shard of the hash table and lets go of documents of dropped collections, whether the file has
    /// them or not. What was on disk only is known to be gone at the end of the round. Returns how many documents and
    /// tombstones left memory.
    pub fn sweep_dropped(&mut self) -> u64 {
        self.store.sweep_dropped()
    }

    /// Its branches, seqnos and CAS values.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.store.history
    }

    /// Its documents and tombstones.
    #[must_use]
    pub fn documents(&self) -> &DocumentTable {
        &self.store.documents
    }

    /// [`VBucket::documents`], to fill a filter of the file's keys.
    pub fn documents_mut(&mut self) -> &mut DocumentTable {
        &mut self.store.documents
    }

    /// The collections that are open in it.
    #[must_use]
    pub fn collections(&self) -> &OpenCollections {
        &self.store.collections
    }

    /// Its changes, for the log and for streams.
    #[must_use]
    pub fn changes(&self) -> &ChangeQueue {
        &self.store.changes
    }

    /// [`VBucket::changes`], to move the cursors of streams.
    pub fn changes_mut(&mut self) -> &mut ChangeQueue {
        &mut self.store.changes
    }

    /// Its SyncWrites.
    #[must_use]
    pub fn durability(&self) -> &DurabilityMonitor {
        &self.durability
    }

    /// [`VBucket::durability`], to forget acknowledgements.
    pub fn durability_mut(&mut self) -> &mut DurabilityMonitor {
        &mut self.durability
    }

    /// The documents in memory by key.
    #[must_use]
    pub fn table(&self) -> &HashTable {
        &self.store.documents.table
    }

    /// Its failover table.
    #[must_use]
    pub fn failover(&self) -> &FailoverTable {
        &self.store.history.failover
    }

    /// The last seqno given out.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.store.history.high_seqno
    }

    /// Everything up to this seqno is on disk.
    #[must_use]
    pub fn persisted_seqno(&self) -> Seqno {
        self.store.history.persisted_seqno
    }

    /// Everything up to this seqno is in the vBucket's file.
    #[must_use]
    pub fn applied_seqno(&self) -> Seqno {
        self.store.unapplied.applied()
    }

    /// The changes that the log has and the file has not.
    #[must_use]
    pub fn unapplied(&self) -> UnappliedFigures {
        self.store.unapplied.figures()
    }

    /// Bytes of documents, slots and checkpoints, and of what else waits for the file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.store.documents.bytes()
            + self.store.changes.checkpoints.bytes()
            + self.store.unapplied.pinned_bytes()
    }

    /// Hands out the effects of the steps since the last call.
    pub fn take_effects(&mut self) -> StepEffects {
        let used = self.memory_use();
        let before = std::mem::replace(&mut self.handed_out, used);
        let documents = &self.store.documents;
        StepEffects {
            memory: used.since(&before),
            wants_sweep: documents.wants_sweep(),
            has_dropped_documents: documents.has_dropped(),
            has_values_to_compress: documents.table.compressible() > 0,
            newly_dirty: self.store.changes.take_newly_dirty(),
            stream_events: self.store.changes.take_stream_events(),
            completions: std::mem::take(&mut self.durability.done),
        }
    }

    /// Puts another vBucket in its place. The memory of both counts as handed out.
    pub fn replace_with(&mut self, other: Self) {
        let before = self.handed_out;
        *self = other;
        self.handed_out = self.handed_out.plus(&before);
    }

    fn memory_use(&self) -> MemoryUse {
        let changes = &self.store.changes;
        let (checkpoints, cursors) = (changes.checkpoints.bytes(), changes.cursor_bytes());
        MemoryUse {
            total: self.bytes() as i64,
            checkpoints: (checkpoints - cursors) as i64,
            pinned: self.store.unapplied.pinned_bytes() as i64,
            cursors: cursors as i64,
        }
    }

    /// The log holds everything up to `to`, synced; the vBucket's file does, with [`PersistenceMode::Direct`].
    pub fn on_logged(&mut self, to: Position) -> AfterLog {
        let Self {
            store, durability, ..
        } = self;
        store.on_logged(to);
        let more = store.changes.has_more();
        durability.on_persisted(store);
        store.changes.after_log(more)
    }

    /// Tells clients whose SyncWrites take too long that the outcome is not known, aborts these in their order, and
    /// ends waits for the disk that took too long.
    pub fn on_time(&mut self, now: Now) {
        self.durability.on_time(now, &mut self.store);
    }

    /// The node stops: everyone who still waits hears that the outcome is not known. Prepares stay prepared.
    pub fn on_shutdown(&mut self) {
        self.durability.on_shutdown();
    }

    /// Sets what an active asks of its chains beside their majority.
    pub fn set_durability_rules(&mut self, rules: DurabilityRules) {
        self.durability.set_rules(rules, &mut self.store);
    }

    /// Figures of its SyncWrites.
    #[must_use]
    pub fn durability_figures(&self) -> DurabilityFigures {
        self.durability.figures(&self.store)
    }

    /// Its progress, to be compared with that of other nodes.
    #[must_use]
    pub fn progress(&self) -> VbProgress {
        let history = &self.store.history;
        VbProgress {
            state: self.store.state,
            uuid: history.failover.uuid(),
            high_seqno: history.high_seqno,
            persisted_seqno: history.persisted_seqno,
            high_prepared: self.durability.high_prepared(&self.store),
            high_completed: self.durability.high_completed_seqno(),
            consistent: history.consistent_seqno(),
        }
    }
}
