//! The state of one vBucket.

use crate::apply::{Persistence, Unapplied};
use crate::checkpoint::{Change, CheckpointFigures, Checkpoints, CursorId, Position};
use crate::collections::{Collections, collection_of};
use crate::dropped_purge::DroppedPurge;
use crate::durability::{
    Acks, Completion, Done, Fate, PassiveDurabilityMonitor, PersistWaiter, Prepare, PrepareQueue,
    SyncWriteCounts, Waiter,
};
use crate::effects::MemoryUse;
use crate::failover::FailoverTable;
use crate::hash_table::HashTable;
use crate::hash_table::KeyHash;
use crate::hlc::HybridClock;
use crate::item::{Deletion, Item, ItemMeta};
use crate::lock::Locks;
use crate::receive::Stream;
use crate::replay::Replay;
use crate::residency::Residency;
use crate::snapshot::Snapshot;
use crate::topology::Topology;
use crate::write::Mutated;
use foldhash::fast::RandomState;
use kedge_types::{Expiry, Now, RevSeqno, Seqno, Status, VbId, VbUuid};

/// What a vBucket is to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VbState {
    /// Takes reads and writes.
    Active = 1,
    /// Follows an active on another node.
    Replica = 2,
    /// Becomes active soon.
    Pending = 3,
    /// Answers nothing.
    Dead = 4,
}

impl VbState {
    /// The state of a number: that of the wire and of the log.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Active),
            2 => Some(Self::Replica),
            3 => Some(Self::Pending),
            4 => Some(Self::Dead),
            _ => None,
        }
    }
}

/// What waits for the log when a part of it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLog {
    /// Nothing.
    Nothing,
    /// Only commits of what was just written. Nobody waits for these: they go with the next change of the vBucket, which
    /// is one of its [`crate::StepEffects`], or after a while by themselves.
    CommitsOnly,
    /// Changes that came meanwhile: the vBucket stays queued.
    More,
}

/// What a vBucket is made with.
#[derive(Clone, Debug)]
pub struct VbSetup {
    /// Its number.
    pub id: VbId,
    /// The uuid of its first branch.
    pub uuid: VbUuid,
    /// Parts of its hash table.
    pub shards: usize,
    /// Seed of its hash table.
    pub hasher: RandomState,
    /// Where its changes are kept.
    pub persistence: Persistence,
    /// Who has to acknowledge SyncWrites when it is active and nobody says otherwise: [`Topology::alone`] on a node that
    /// is alone. `None`: none is committed before [`VBucket::set_state`] says who.
    pub topology: Option<Topology>,
}

/// One partition of a bucket: documents, their order, and what waits for the disk.
#[derive(Debug)]
pub struct VBucket {
    pub(crate) id: VbId,
    pub(crate) state: VbState,
    pub(crate) table: HashTable,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) log_cursor: CursorId,
    pub(crate) clock: HybridClock,
    pub(crate) failover: FailoverTable,
    pub(crate) prepares: PrepareQueue,
    /// What other nodes have acknowledged to it.
    pub(crate) acks: Acks,
    /// What it acknowledges to another.
    pub(crate) following: PassiveDurabilityMonitor,
    pub(crate) stream: Stream,
    /// The snapshot that it is in the middle of.
    pub(crate) open: Option<Snapshot>,
    pub(crate) sync_writes: SyncWriteCounts,
    /// The chains that it has as an active of which nothing else is said.
    pub(crate) own_topology: Option<Topology>,
    pub(crate) locks: Locks,
    pub(crate) persist_waiters: Vec<PersistWaiter>,
    pub(crate) done: Vec<Done>,
    pub(crate) high_seqno: Seqno,
    /// The last seqno whose change is visible to clients without SyncWrites: all but prepares and aborts.
    pub(crate) visible_seqno: Seqno,
    pub(crate) persisted_seqno: Seqno,
    /// The highest revision of a tombstone that was forgotten: a new document of the same key must not start below.
    pub(crate) purged_rev: RevSeqno,
    pub(crate) purge_seqno: Seqno,
    pub(crate) expired: u64,
    pub(crate) unapplied: Unapplied,
    pub(crate) replay: Replay,
    pub(crate) collections: Collections,
    pub(crate) dropped_purge: DroppedPurge,
    pub(crate) residency: Residency,
    /// It was rolled back, and its file has not followed yet.
    pub(crate) rewinding: bool,
    /// A value, in memory or on disk, may have extended attributes.
    pub(crate) may_have_xattrs: bool,
    /// It was just made, and nobody ever wrote on its branch.
    pub(crate) is_unwritten: bool,
    pub(crate) is_quarantined: bool,
    pub(crate) is_deleted: bool,
    /// Where the next random number comes from; it decides about nothing but counts of accesses.
    random: u64,
    queued_for_log: bool,
    /// Up to here only commits wait for the log, and nobody waits for them.
    lazy_upto: Position,
    /// Its memory as [`VBucket::take_effects`] has handed it out.
    pub(crate) handed_out: MemoryUse,
}

impl VBucket {
    /// An empty, active vBucket.
    #[must_use]
    pub fn new(setup: VbSetup) -> Self {
        let mut checkpoints = Checkpoints::new();
        let log_cursor = checkpoints.add_cursor();
        Self {
            id: setup.id,
            state: VbState::Active,
            table: HashTable::new(setup.shards, setup.hasher),
            checkpoints,
            log_cursor,
            clock: HybridClock::default(),
            failover: FailoverTable::new(setup.uuid),
            prepares: PrepareQueue::default(),
            acks: Acks::new(setup.topology.clone()),
            following: PassiveDurabilityMonitor::default(),
            stream: Stream::default(),
            open: None,
            sync_writes: SyncWriteCounts::default(),
            own_topology: setup.topology,
            locks: Locks::default(),
            persist_waiters: Vec::new(),
            done: Vec::new(),
            high_seqno: Seqno(0),
            visible_seqno: Seqno(0),
            persisted_seqno: Seqno(0),
            purged_rev: RevSeqno(0),
            purge_seqno: Seqno(0),
            expired: 0,
            unapplied: Unapplied::new(setup.persistence),
            replay: Replay::default(),
            collections: Collections::new(),
            dropped_purge: DroppedPurge::default(),
            residency: Residency::complete(),
            rewinding: false,
            may_have_xattrs: false,
            is_unwritten: false,
            is_quarantined: false,
            is_deleted: false,
            random: u64::from(setup.id.get()) + 1,
            queued_for_log: false,
            lazy_upto: Position::default(),
            handed_out: MemoryUse::default(),
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> VbId {
        self.id
    }

    /// What it is to its node.
    #[must_use]
    pub fn state(&self) -> VbState {
        self.state
    }

    /// Its history.
    #[must_use]
    pub fn failover(&self) -> &FailoverTable {
        &self.failover
    }

    /// The last seqno given out.
    #[must_use]
    pub fn high_seqno(&self) -> Seqno {
        self.high_seqno
    }

    /// The last seqno that a client without SyncWrites may hear of.
    #[must_use]
    pub fn visible_seqno(&self) -> Seqno {
        self.visible_seqno
    }

    /// Everything up to this seqno is on disk.
    #[must_use]
    pub fn persisted_seqno(&self) -> Seqno {
        self.persisted_seqno
    }

    /// The highest seqno of a tombstone that was forgotten.
    #[must_use]
    pub fn purge_seqno(&self) -> Seqno {
        self.purge_seqno
    }

    /// The last CAS given out.
    #[must_use]
    pub fn last_cas(&self) -> kedge_types::Cas {
        self.clock.last()
    }

    /// How far apart the clocks are whose CAS values it took.
    #[must_use]
    pub fn drift(&self) -> crate::hlc::Drift {
        self.clock.drift()
    }

    /// Live documents, in memory or on disk only.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.table.documents() + self.residency.on_disk_only()
    }

    /// Tombstones in memory.
    #[must_use]
    pub fn tombstones(&self) -> usize {
        self.table.tombstones()
    }

    /// Whether [`VBucket::sweep`] is wanted soon: documents have an expiry, or are locked. Tombstones can wait.
    #[must_use]
    pub fn wants_sweep(&self) -> bool {
        self.table.expiring() > 0 || !self.locks.is_empty()
    }

    /// Documents that expired since the start.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Changes that wait for the log.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.checkpoints.unread(self.log_cursor)
    }

    /// Number of the open checkpoint.
    #[must_use]
    pub fn checkpoint_id(&self) -> u64 {
        self.checkpoints.open_id()
    }

    /// Its checkpoints, and how far they were read.
    #[must_use]
    pub fn checkpoint_figures(&self) -> CheckpointFigures {
        self.checkpoints.figures(self.log_cursor, self.high_seqno)
    }

    /// Bytes of documents, slots and checkpoints, and of what else waits for the file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes()
            + self.checkpoints.bytes()
            + self.unapplied.pinned_bytes()
            + self.residency.bytes()
    }

    /// Its documents and tombstones.
    #[must_use]
    pub fn table(&self) -> &HashTable {
        &self.table
    }

    /// Whether SyncWrites or waits for the disk are under way, so that time must be passed to
    /// [`VBucket::on_time`].
    #[must_use]
    pub fn has_waiters(&self) -> bool {
        self.prepares.has_clients() || !self.persist_waiters.is_empty()
    }

    pub(crate) fn mutated(&self, item: &Item) -> Mutated {
        Mutated {
            cas: item.cas(),
            uuid: self.failover.uuid(),
            seqno: item.seqno(),
        }
    }

    /// Puts a change into the hash table. The version that leaves it may stay alive for the file only. Gives back its
    /// seqno; 0 when there is none.
    pub(crate) fn put(&mut self, hash: KeyHash, item: Item) -> Seqno {
        self.may_have_xattrs |= item.has_xattrs();
        if self.may_have(hash, item.key()) {
            item.mark_blind();
        }
        let collection = collection_of(item.key());
        let (seqno, is_live) = (item.seqno(), !item.is_deleted());
        let old = self.table.put(hash, item);
        let was_live = old.as_ref().is_some_and(|old| !old.is_deleted());
        self.collections
            .on_put(collection, seqno, is_live, was_live);
        let Some(old) = old else {
            return Seqno(0);
        };
        if old.is_blind()
            && let Some(new) = self.table.find(hash, old.key())
        {
            new.mark_blind();
        }
        self.unapplied.on_replaced(&old, self.persisted_seqno);
        old.seqno()
    }

    /// xorshift64 (G. Marsaglia, 2003).
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    pub(crate) fn next_seqno(&mut self) -> Seqno {
        self.high_seqno = self.high_seqno.next();
        self.high_seqno
    }

    /// Whether the log has to be told that changes wait here. Commits that nobody waits for are no reason.
    pub(crate) fn take_newly_dirty(&mut self) -> bool {
        !self.queued_for_log
            && self.checkpoints.end_position() > self.lazy_upto
            && self.take_newly_queued()
    }

    /// Someone waits for what is queued for the log.
    pub(crate) fn expect_log(&mut self) {
        self.lazy_upto = Position::default();
    }

    /// Returns whether changes wait here that the log was not told of, which it is now: true once for every time the
    /// queue fills.
    pub fn take_newly_queued(&mut self) -> bool {
        !self.queued_for_log && self.checkpoints.has_more(self.log_cursor) && {
            self.queued_for_log = true;
            true
        }
    }

    /// Copies changes that the log has not written yet to `out`, in seqno order, and says where they end; bounded as
    /// in [`Checkpoints::peek`].
    pub fn changes_for_log(&self, max: usize, max_bytes: usize, out: &mut Vec<Change>) -> Position {
        self.checkpoints.peek(self.log_cursor, max, max_bytes, out)
    }

    /// The log holds everything up to `to`, synced; the vBucket's file does, with [`Persistence::Direct`].
    pub fn on_logged(&mut self, to: Position) -> AfterLog {
        if let Some(seqno) = self.checkpoints.seqno_before(self.log_cursor, to) {
            self.persisted_seqno = self.persisted_seqno.max(seqno);
        }
        self.pass_on(to);
        let more = self.checkpoints.has_more(self.log_cursor);
        if self.state == VbState::Active {
            self.commit_ready();
        } else {
            self.following.update(self.persisted_seqno, &self.prepares);
        }
        if !self.persist_waiters.is_empty() {
            self.answer_persisted();
        }
        self.queued_for_log = more;
        match (more, self.checkpoints.has_more(self.log_cursor)) {
            (true, _) => AfterLog::More,
            (false, true) => {
                self.lazy_upto = self.checkpoints.end_position();
                AfterLog::CommitsOnly
            }
            (false, false) => AfterLog::Nothing,
        }
    }

    fn answer_persisted(&mut self) {
        let persisted = self.persisted_seqno;
        let (reached, waiting) = std::mem::take(&mut self.persist_waiters)
            .into_iter()
            .partition(|wait| wait.seqno <= persisted);
        self.persist_waiters = waiting;
        self.answer_persist_waiters(reached, Ok(()));
    }

    fn answer_persist_waiters(&mut self, waiters: Vec<PersistWaiter>, result: Result<(), Status>) {
        self.done
            .extend(waiters.into_iter().map(|wait| wait.end(result)));
    }

    /// Ends, in order, the prepares whose level is reached, or that were given up. Only an active vBucket decides about
    /// them, and only as far as its chains have acknowledged.
    pub(crate) fn commit_ready(&mut self) {
        if self.state != VbState::Active {
            return;
        }
        while let Some(first) = self.prepares.first() {
            let is_ready = first.item.seqno() <= self.acks.reached()
                && first.is_satisfied(self.persisted_seqno);
            let fate = first.fate;
            // Nobody can read what would be committed.
            let is_dropped = self.is_of_dropped(first.item.key());
            if !is_ready && !is_dropped && !matches!(fate, Fate::Overdue { .. }) {
                return;
            }
            let Some(prepare) = self.prepares.take_first() else {
                return;
            };
            match fate {
                Fate::Overdue { unix_secs } if !is_ready => self.abort(&prepare, unix_secs),
                _ if is_dropped => {
                    let unix_secs = self.clock.last().get() / 1_000_000_000;
                    self.abort(&prepare, unix_secs);
                }
                _ => self.commit(prepare),
            }
        }
    }

    fn commit(&mut self, prepare: Prepare) {
        let prepared = prepare.item.seqno();
        let item = prepare.item.with_seqno(self.next_seqno());
        self.visible_seqno = self.high_seqno;
        let replaced = self.put(prepare.hash, item.clone());
        let change = Change::Commit {
            item: item.clone(),
            prepared,
        };
        self.checkpoints.push_over(change, replaced);
        self.sync_writes.committed.add(prepare.level);
        self.sync_writes.not_durable += u64::from(self.acks.is_fallback());
        if let Fate::Client(waiter) = prepare.fate {
            self.done.push(Done {
                cookie: waiter.cookie,
                completion: Completion::SyncWrite {
                    result: Ok(self.mutated(&item)),
                    item: Some(item),
                },
                committed: Some(prepare.level),
                began_ns: waiter.began_ns,
            });
        }
    }

    /// Tells clients whose SyncWrites take too long that the outcome is not known, aborts these in their order, and ends
    /// waits for the disk that took too long.
    pub fn on_time(&mut self, now: Now) {
        if self.state == VbState::Active {
            let late = self.prepares.take_late(now.mono_ns, now.unix_secs());
            self.done.extend(late.into_iter().map(ambiguous));
        }
        self.commit_ready();
        if self
            .persist_waiters
            .iter()
            .any(|wait| wait.waiter.deadline_ns <= now.mono_ns)
        {
            let (late, waiting) = std::mem::take(&mut self.persist_waiters)
                .into_iter()
                .partition(|wait| wait.waiter.deadline_ns <= now.mono_ns);
            self.persist_waiters = waiting;
            self.answer_persist_waiters(late, Err(Status::TemporaryFailure));
        }
    }

    fn abort(&mut self, prepare: &Prepare, unix_secs: u64) {
        let meta = ItemMeta {
            seqno: self.next_seqno(),
            expiry: Expiry(u32::try_from(unix_secs).unwrap_or(u32::MAX)),
            deleted: Some(Deletion::Explicit),
            ..prepare.item.meta()
        };
        let item = Item::new(&meta, prepare.item.key(), &[]);
        self.sync_writes.aborted.add(prepare.level);
        self.collections.on_seqno(item.key(), item.seqno());
        self.checkpoints.push(Change::Abort {
            item,
            prepared: prepare.item.seqno(),
        });
    }

    /// The node stops: everyone who still waits hears that the outcome is not known. PrepareQueue stay prepared.
    pub fn on_shutdown(&mut self) {
        let waiters = self.prepares.inherit();
        self.done.extend(waiters.into_iter().map(ambiguous));
        let waiting = std::mem::take(&mut self.persist_waiters);
        self.answer_persist_waiters(waiting, Err(Status::TemporaryFailure));
    }
}

fn ambiguous(waiter: Waiter) -> Done {
    sync_write_failed(waiter, Status::SyncWriteAmbiguous)
}

pub(crate) fn sync_write_failed(waiter: Waiter, status: Status) -> Done {
    Done {
        cookie: waiter.cookie,
        completion: Completion::SyncWrite {
            result: Err(status),
            item: None,
        },
        committed: None,
        began_ns: waiter.began_ns,
    }
}
