//! The state of a vBucket.

use crate::apply::{PersistenceMode, UnappliedFigures};
use crate::change_queue::{AfterLog, ChangeQueue};
use crate::checkpoint::Position;
use crate::collections::OpenCollections;
use crate::cursors::{CursorOpening, StreamEvents, VbIdentity};
use crate::document_table::DocumentTable;
use crate::durability::{DurabilityFigures, DurabilityMonitor, DurabilityRules};
use crate::effects::{MemoryUse, StepEffects, SweepWork};
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

/// The parameters of a new vBucket.
#[derive(Clone, Debug)]
pub struct VbSetup {
    /// The vBucket id.
    pub id: VbId,
    /// The UUID of its first branch.
    pub uuid: VbUuid,
    /// The initial number of shards of the hash table, which grows.
    pub shards: usize,
    /// The seed of the hash table.
    pub hasher: RandomState,
    /// The persistence mode.
    pub persistence: PersistenceMode,
    /// The default chains of an active vBucket: [`Topology::alone`] on a single node. With `None`, no SyncWrite is
    /// committed before [`VBucket::set_state`] sets a topology.
    pub topology: Option<Topology>,
}

/// A partition of a bucket: its documents, their order, and the changes that wait for the disk.
#[derive(Debug)]
pub struct VBucket {
    id: VbId,
    pub(crate) store: VbStore,
    pub(crate) durability: DurabilityMonitor,
    pub(crate) stream: IncomingStream,
    pub(crate) replay: Replay,
    pub(crate) is_quarantined: bool,
    pub(crate) is_deleted: bool,
    /// The memory use that [`VBucket::take_effects`] last handed out.
    handed_out: MemoryUse,
    /// The work for sweeps at that time.
    known_work: SweepWork,
}

impl VBucket {
    /// Creates an empty, active vBucket.
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
            known_work: SweepWork::default(),
        }
    }

    /// Returns the vBucket id.
    #[must_use]
    pub fn id(&self) -> VbId {
        self.id
    }

    /// Returns the state on this node.
    #[must_use]
    pub fn state(&self) -> VbState {
        self.store.state
    }

    /// Starts a step, in which commands run on the documents.
    pub fn at(&mut self, now: Now) -> Step<'_> {
        Step {
            now,
            store: &mut self.store,
            durability: &mut self.durability,
        }
    }

    /// Returns the documents, collections, history and queues.
    #[must_use]
    pub fn store(&self) -> &VbStore {
        &self.store
    }

    /// Returns [`VBucket::store`] for exchanges with the file.
    pub fn store_mut(&mut self) -> &mut VbStore {
        &mut self.store
    }

    /// Returns the id of the history, which changes with every reset and rollback. Reads of the file under another id
    /// are void.
    #[must_use]
    pub fn history_id(&self) -> u32 {
        self.store.unapplied.history()
    }

    /// Returns the identity for streams.
    #[must_use]
    pub fn identity(&self) -> VbIdentity {
        VbIdentity {
            state: self.store.state,
            uuid: self.store.history.failover.uuid(),
            history: self.history_id(),
        }
    }

    /// Opens a stream cursor after the seqno `after`.
    pub fn open_cursor(&mut self, after: Seqno) -> CursorOpening {
        let high = self.store.history.high_seqno;
        self.store.changes.open_cursor(after, high)
    }

    /// Visits the next shard of the hash table and removes documents of dropped collections, whether they are applied
    /// or not. At the end of a round, those on disk only are accounted for as removed. Returns the number of documents
    /// and tombstones that were removed from memory.
    pub fn sweep_dropped(&mut self) -> u64 {
        self.store.sweep_dropped()
    }

    /// Returns the failover table, seqnos and CAS clock.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.store.history
    }

    /// Returns the documents and tombstones.
    #[must_use]
    pub fn documents(&self) -> &DocumentTable {
        &self.store.documents
    }

    /// Returns [`VBucket::documents`] to fill a filter with the keys of the file.
    pub fn documents_mut(&mut self) -> &mut DocumentTable {
        &mut self.store.documents
    }

    /// Returns the open collections.
    #[must_use]
    pub fn collections(&self) -> &OpenCollections {
        &self.store.collections
    }

    /// Returns the queue of changes for the log and for streams.
    #[must_use]
    pub fn changes(&self) -> &ChangeQueue {
        &self.store.changes
    }

    /// Returns [`VBucket::changes`] to move the cursors of streams.
    pub fn changes_mut(&mut self) -> &mut ChangeQueue {
        &mut self.store.changes
    }

    /// Returns the durability monitor.
    #[must_use]
    pub fn durability(&self) -> &DurabilityMonitor {
        &self.durability
    }

    /// Returns [`VBucket::durability`] to forget acknowledgements.
    pub fn durability_mut(&mut self) -> &mut DurabilityMonitor {
        &mut self.durability
    }

    /// Returns the hash table of the documents in memory.
    #[must_use]
    pub fn table(&self) -> &HashTable {
        &self.store.documents.table
    }

    /// Returns the failover table.
    #[must_use]
    pub fn failover(&self) -> &FailoverTable {
        &self.store.history.failover
    }

    /// Returns the high seqno: the last one that was assigned or received.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.store.history.high_seqno
    }

    /// Returns the persisted seqno: everything up to it is on disk.
    #[must_use]
    pub fn persisted_seqno(&self) -> Seqno {
        self.store.history.persisted_seqno
    }

    /// Returns the applied seqno: everything up to it is in the vBucket's file.
    #[must_use]
    pub fn applied_seqno(&self) -> Seqno {
        self.store.unapplied.applied()
    }

    /// Returns statistics of the changes that are in the log but not in the file.
    #[must_use]
    pub fn unapplied(&self) -> UnappliedFigures {
        self.store.unapplied.figures()
    }

    /// Returns the bytes of documents, slots, checkpoints and unapplied changes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.store.documents.bytes()
            + self.store.changes.checkpoints.bytes()
            + self.store.unapplied.pinned_bytes()
    }

    /// Takes the effects of the steps since the last call. Returns `None` if there are none, as after most reads.
    pub fn take_effects(&mut self) -> Option<StepEffects> {
        let used = self.memory_use();
        let work = self.store.documents.sweep_work();
        let newly_dirty = self.store.changes.take_newly_dirty();
        let stream_events = self.store.changes.take_stream_events();
        if used == self.handed_out
            && work == self.known_work
            && !newly_dirty
            && stream_events == StreamEvents::default()
            && self.durability.done.is_empty()
        {
            return None;
        }
        let before = std::mem::replace(&mut self.handed_out, used);
        let known_work = std::mem::replace(&mut self.known_work, work);
        Some(StepEffects {
            memory: used.since(&before),
            newly_dirty,
            stream_events,
            completions: std::mem::take(&mut self.durability.done),
            new_work: work.since(known_work),
        })
    }

    /// Replaces this vBucket by another. The memory of both counts as handed out, the work for sweeps does not.
    pub fn replace_with(&mut self, other: Self) {
        let before = self.handed_out;
        *self = other;
        self.known_work = SweepWork::default();
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

    /// Records that the log has everything up to `to`, synced. With [`PersistenceMode::Direct`], the file has.
    pub fn on_logged(&mut self, to: Position) -> AfterLog {
        let Self {
            store, durability, ..
        } = self;
        store.on_logged(to);
        let more = store.changes.has_more();
        durability.on_persisted(store);
        store.changes.after_log(more)
    }

    /// Ends the waits that have timed out. SyncWrites end with an ambiguous status and are aborted in their order.
    pub fn on_time(&mut self, now: Now) {
        self.durability.on_time(now, &mut self.store);
    }

    /// Ends all waits because the node stops. SyncWrites end with an ambiguous status, and their prepares stay.
    pub fn on_shutdown(&mut self) {
        self.durability.on_shutdown();
    }

    /// Sets the rules of an active vBucket for its chains.
    pub fn set_durability_rules(&mut self, rules: DurabilityRules) {
        self.durability.set_rules(rules, &mut self.store);
    }

    /// Returns statistics of the SyncWrites.
    #[must_use]
    pub fn durability_figures(&self) -> DurabilityFigures {
        self.durability.figures(&self.store)
    }

    /// Returns the progress, for the comparison with other nodes.
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
