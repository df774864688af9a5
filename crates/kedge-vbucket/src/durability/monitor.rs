//! The durability monitor of a vBucket: commit, abort and timeout of SyncWrite prepares.
//!
//! An active vBucket completes its prepares when its chains acknowledge them. A replica or pending vBucket completes
//! them when its active one does, and acknowledges them; see [`PassiveDurabilityMonitor`].

use super::{
    Acks, DurabilityFigures, DurabilityRules, PassiveDurabilityMonitor, Prepare, PrepareQueue,
    PrepareState, SyncWriteCounts,
};
use crate::checkpoint::Change;
use crate::completion::{
    ClientWaiter, CompletedCommand, Completion, Cookie, PersistWaiter, ambiguous, sync_write_failed,
};
use crate::hash_table::KeyHash;
use crate::item::{Deletion, Item, ItemMeta};
use crate::results::{Mutated, StepOutcome};
use crate::snapshot::DcpSnapshot;
use crate::store::VbStore;
use crate::topology::{NodeName, Topology};
use kedge_types::limits::{DURABILITY_TIMEOUT_MS_DEFAULT, SEQNO_PERSISTENCE_SECS};
use kedge_types::{Durability, Expiry, Now, Seqno, Status};

/// The prepares in flight, their acknowledgements, and waiting clients.
#[derive(Debug)]
pub struct DurabilityMonitor {
    pub(crate) prepares: PrepareQueue,
    /// The acknowledgements of other nodes, while the vBucket is active.
    pub(crate) acks: Acks,
    /// The acknowledgements to the active node, while the vBucket is a replica or pending.
    pub(crate) passive: PassiveDurabilityMonitor,
    counts: SyncWriteCounts,
    /// The default chains of an active vBucket.
    own_topology: Option<Topology>,
    persist_waiters: Vec<PersistWaiter>,
    /// True if the SyncWrites in flight end before another node takes over, and no others begin.
    hands_over: bool,
    /// Parked commands that have ended.
    pub(crate) done: Vec<CompletedCommand>,
}

impl DurabilityMonitor {
    pub(crate) fn new(topology: Option<Topology>) -> Self {
        Self {
            prepares: PrepareQueue::default(),
            acks: Acks::new(topology.clone()),
            passive: PassiveDurabilityMonitor::default(),
            counts: SyncWriteCounts::default(),
            own_topology: topology,
            persist_waiters: Vec::new(),
            hands_over: false,
            done: Vec::new(),
        }
    }

    /// Removes all prepares and acknowledgements. Waiting clients have received their responses before.
    pub(crate) fn reset(&mut self) {
        self.prepares.clear();
        self.acks.forget_all();
        self.passive = PassiveDurabilityMonitor::default();
    }

    /// Returns whether clients wait for SyncWrites or for the disk, so that [`crate::VBucket::on_time`] must be called.
    #[must_use]
    pub fn has_waiters(&self) -> bool {
        self.prepares.has_clients() || !self.persist_waiters.is_empty()
    }

    /// Returns whether no client waits for a SyncWrite.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        !self.prepares.has_clients()
    }

    /// Checks that a SyncWrite may begin.
    pub(crate) fn check_possible(&self) -> Result<(), Status> {
        if self.hands_over {
            return Err(Status::TemporaryFailure);
        }
        self.acks.check_possible()
    }

    pub(crate) fn set_hands_over(&mut self, hands_over: bool) {
        self.hands_over = hands_over;
    }

    /// Returns the high completed seqno: the highest prepare that was committed or aborted.
    #[must_use]
    pub fn high_completed_seqno(&self) -> Seqno {
        self.prepares.completed()
    }

    /// Returns the nodes that have to acknowledge SyncWrites.
    #[must_use]
    pub fn topology(&self) -> Option<&Topology> {
        self.acks.topology()
    }

    /// Forgets the acknowledgements of a node whose stream started or ended. The node may have lost what it
    /// acknowledged, and acknowledges again.
    pub fn forget_acks(&mut self, node: &NodeName) {
        self.acks.forget(node);
    }

    /// Returns the high prepared seqno: the levels of prepares up to it are satisfied on this node.
    pub(crate) fn high_prepared(&self, store: &VbStore) -> Seqno {
        if !store.is_active() {
            return self.passive.high_prepared();
        }
        let persisted = store.history.persisted_seqno;
        let satisfied = self.prepares.iter();
        let satisfied = satisfied.take_while(|prepare| prepare.is_satisfied(persisted));
        let last = satisfied.last().map(|prepare| prepare.item.seqno());
        last.unwrap_or_default().max(self.prepares.completed())
    }

    pub(crate) fn figures(&self, store: &VbStore) -> DurabilityFigures {
        let seqno = |prepare: &Prepare| prepare.item.seqno();
        let (mut tracked, mut last) = (self.prepares.iter().map(seqno), None);
        let first = tracked.next();
        if first.is_some() {
            last = tracked.next_back().or(first);
        }
        DurabilityFigures {
            state: store.state,
            topology: self.acks.topology().cloned(),
            acknowledged: self.acks.all().to_vec(),
            high_prepared: self.high_prepared(store),
            high_completed: self.high_completed_seqno(),
            tracked: self.prepares.len(),
            tracked_range: first.zip(last),
            accepted: self.counts.accepted,
            committed: self.counts.committed,
            aborted: self.counts.aborted,
            committed_not_durable: self.counts.not_durable,
        }
    }

    /// Prepares `item`, which has the high seqno.
    pub(crate) fn prepare(
        &mut self,
        now: Now,
        durability: Durability,
        cookie: Cookie,
        (hash, item): (KeyHash, Item),
        store: &mut VbStore,
    ) -> StepOutcome<Mutated> {
        let timeout_ms = durability
            .timeout_ms
            .map_or(DURABILITY_TIMEOUT_MS_DEFAULT, u32::from);
        let deadline_ns = now.mono_ns + u64::from(timeout_ms) * 1_000_000;
        store.collections.on_seqno(item.key(), item.seqno());
        store.changes.push(Change::Prepare(item.clone()));
        self.counts.accepted.add(durability.level);
        self.prepares.add(Prepare {
            hash,
            item,
            level: durability.level,
            state: PrepareState::Client(ClientWaiter {
                cookie,
                began_ns: now.mono_ns,
                deadline_ns,
            }),
        });
        self.commit_ready(store);
        // The command is not parked if its completion is available at once.
        match self.done.pop_if(|done| done.cookie == cookie) {
            Some(CompletedCommand {
                completion:
                    Completion::SyncWrite {
                        result: Ok(mutated),
                        ..
                    },
                ..
            }) => StepOutcome::Done(mutated),
            _ => StepOutcome::Parked,
        }
    }

    /// Completes prepares in order while the first one is ready to commit, was timed out, or belongs to a dropped
    /// collection. Only an active vBucket does so.
    pub(crate) fn commit_ready(&mut self, store: &mut VbStore) {
        if !store.is_active() {
            return;
        }
        while let Some(first) = self.prepares.first() {
            let is_ready = first.item.seqno() <= self.acks.reached()
                && first.is_satisfied(store.history.persisted_seqno);
            let state = first.state;
            // A commit into a dropped collection would be invisible.
            let is_dropped = store.collections.is_of_dropped(first.item.key());
            if !is_ready && !is_dropped && !matches!(state, PrepareState::Aborting { .. }) {
                return;
            }
            let Some(prepare) = self.prepares.take_first() else {
                return;
            };
            match state {
                PrepareState::Aborting { unix_secs } if !is_ready => {
                    self.abort(&prepare, unix_secs, store);
                }
                _ if is_dropped => {
                    let unix_secs = store.history.clock.last().get() / 1_000_000_000;
                    self.abort(&prepare, unix_secs, store);
                }
                _ => self.commit(prepare, store),
            }
        }
    }

    fn commit(&mut self, prepare: Prepare, store: &mut VbStore) {
        let prepared = prepare.item.seqno();
        let item = prepare.item.with_seqno(store.history.next_seqno());
        let change = Change::Commit {
            item: item.clone(),
            prepared,
        };
        store.put_and_push(prepare.hash, item.clone(), change);
        self.counts.committed.add(prepare.level);
        self.counts.not_durable += u64::from(self.acks.is_fallback());
        if let PrepareState::Client(waiter) = prepare.state {
            self.done.push(CompletedCommand {
                cookie: waiter.cookie,
                completion: Completion::SyncWrite {
                    result: Ok(store.history.mutated(&item)),
                    item: Some(item),
                },
                committed: Some(prepare.level),
                began_ns: waiter.began_ns,
            });
        }
    }

    fn abort(&mut self, prepare: &Prepare, unix_secs: u64, store: &mut VbStore) {
        let meta = ItemMeta {
            seqno: store.history.next_seqno(),
            expiry: Expiry(u32::try_from(unix_secs).unwrap_or(u32::MAX)),
            deleted: Some(Deletion::Explicit),
            ..prepare.item.meta()
        };
        let item = Item::new(&meta, prepare.item.key(), &[]);
        self.counts.aborted.add(prepare.level);
        store.collections.on_seqno(item.key(), item.seqno());
        store.changes.push(Change::Abort {
            item,
            prepared: prepare.item.seqno(),
        });
    }

    /// Ends the waits that have timed out. SyncWrites end with an ambiguous status and are aborted in their order.
    pub(crate) fn on_time(&mut self, now: Now, store: &mut VbStore) {
        if store.is_active() {
            let late = self.prepares.take_timed_out(now.mono_ns, now.unix_secs());
            self.done.extend(late.into_iter().map(ambiguous));
        }
        self.commit_ready(store);
        if self.hands_over && self.is_drained() {
            store.changes.wake_streams();
        }
        let is_late = |wait: &PersistWaiter| wait.waiter.deadline_ns <= now.mono_ns;
        self.end_persist_waiters(is_late, Err(Status::TemporaryFailure));
    }

    /// Ends all waits because the node stops or the vBucket leaves the active state. SyncWrites end with an ambiguous
    /// status. The prepares stay.
    pub(crate) fn on_shutdown(&mut self) {
        let waiters = self.prepares.inherit();
        self.done.extend(waiters.into_iter().map(ambiguous));
        self.end_persist_waiters(|_| true, Err(Status::TemporaryFailure));
    }

    /// Commits prepares and ends waits after the persisted seqno has advanced.
    pub(crate) fn on_persisted(&mut self, store: &mut VbStore) {
        let persisted = store.history.persisted_seqno;
        if store.is_active() {
            self.commit_ready(store);
        } else {
            self.passive.update(persisted, &self.prepares);
        }
        self.end_persist_waiters(|wait| wait.seqno <= persisted, Ok(()));
    }

    fn end_persist_waiters(
        &mut self,
        ends: impl Fn(&PersistWaiter) -> bool,
        result: Result<(), Status>,
    ) {
        let ended = self.persist_waiters.extract_if(.., |wait| ends(wait));
        self.done.extend(ended.map(|wait| wait.end(result)));
    }

    /// Parks a command until `seqno` is persisted. `write` is the write whose response is delayed, if there is one.
    pub(crate) fn wait_for(
        &mut self,
        now: Now,
        seqno: Seqno,
        cookie: Cookie,
        write: Option<(Mutated, Item)>,
    ) {
        let deadline_ns = now.mono_ns + SEQNO_PERSISTENCE_SECS * 1_000_000_000;
        self.persist_waiters.push(PersistWaiter {
            seqno,
            waiter: ClientWaiter {
                cookie,
                began_ns: now.mono_ns,
                deadline_ns,
            },
            write,
        });
    }

    /// Sets the chains of an active vBucket. Otherwise removes chains and acknowledgements.
    pub(crate) fn set_chains(&mut self, is_active: bool, topology: Option<Topology>) {
        self.hands_over &= is_active;
        if is_active {
            let topology = topology.or_else(|| self.own_topology.clone());
            self.acks.set_topology(topology);
        } else {
            self.acks.set_topology(None);
            self.acks.forget_all();
        }
    }

    pub(crate) fn set_rules(&mut self, rules: DurabilityRules, store: &mut VbStore) {
        self.acks.set_rules(rules);
        self.commit_ready(store);
    }

    /// Records that a node has prepared everything up to `prepared`.
    pub(crate) fn acknowledge(
        &mut self,
        node: &NodeName,
        prepared: Seqno,
        store: &mut VbStore,
    ) -> Result<(), Status> {
        if self.acks.acknowledge(node, prepared)? {
            self.commit_ready(store);
        }
        Ok(())
    }

    /// Ends the active state: waits end, and acknowledgement as a replica starts.
    pub(crate) fn end_active(&mut self, store: &VbStore) {
        let high_prepared = self.high_prepared(store);
        self.on_shutdown();
        self.passive
            .begin_at(store.history.high_seqno, high_prepared, &self.prepares);
    }

    /// Fails the SyncWrites of a dropped collection with `UnknownCollection`. Their prepares are aborted in order.
    pub(crate) fn abort_matching(&mut self, unix_secs: u64, which: impl Fn(&[u8]) -> bool) {
        let waiters = self.prepares.abort_matching(unix_secs, which);
        let unknown = |waiter| sync_write_failed(waiter, Status::UnknownCollection);
        self.done.extend(waiters.into_iter().map(unknown));
    }

    /// Records the end of a received snapshot. `seqno` is the high seqno.
    pub(crate) fn complete_snapshot(
        &mut self,
        snapshot: &DcpSnapshot,
        seqno: Seqno,
        persisted: Seqno,
    ) {
        if snapshot.is_disk() {
            let completed = snapshot.high_completed.unwrap_or_default().min(seqno);
            self.prepares.end_upto(completed);
        }
        self.passive.complete(snapshot, seqno, &self.prepares);
        self.passive.update(persisted, &self.prepares);
    }

    /// Starts with everything on disk, as after a restart. Nothing is missing up to `consistent`. A client may have
    /// seen the commits of the prepares.
    pub(crate) fn begin_persisted(&mut self, consistent: Seqno, store: &mut VbStore) {
        let prepared = store.unapplied.progress().prepared_upto(consistent);
        self.passive
            .all_persisted(consistent, prepared, &self.prepares);
        self.commit_ready(store);
    }
}
