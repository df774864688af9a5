//! Streams into the bucket: what another node sends to the vBuckets that follow it, and what is acknowledged to it.
//!
//! What came is applied in batches, under one lock of the vBucket, and is a write in all else: memory is accounted for, and
//! the log has it soon. When memory is short it is not taken, and stays with the caller until there is room.
//!
//! Acknowledgements move on in two places: when changes come, of which the caller hears at once, and when the disk has
//! them, of which whoever brought them there tells the [`ReplicaSink`].

use crate::dcp::StreamSignals;
use crate::dcp::component::Dcp;
use kedge_bucket_core::BucketCore;
use kedge_bucket_core::BucketPhase;
use kedge_bucket_core::DiskWriters as _;
use kedge_bucket_core::Total;
use kedge_sync::{RankedRwLock, ranks::ReplicaSinkRank};
use kedge_types::{DurabilityLevel, Seqno, Status, VbId};
use kedge_vbucket::{
    FailoverTable, NodeName, ReceiveError, Received, ResumePoint, Snapshot, VBucket,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Who receives streams for the bucket's vBuckets.
pub trait ReplicaSink: Send + Sync {
    /// The disk has more of what these vBuckets received: prepares up to these seqnos are to be acknowledged. Takes what
    /// is in `acks`. Called on any thread; it is to return at once.
    fn acknowledge(&self, acks: &mut Vec<(VbId, Seqno)>);

    /// There is room again for what was not taken.
    fn room(&self);
}

/// What became of changes that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Memory is short: what is left was not taken. [`ReplicaSink::room`] says when to try again.
    pub later: bool,
    /// Prepares up to here are to be acknowledged.
    pub ack: Option<Seqno>,
}

/// Why changes were not taken. The stream has to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// There is no such vBucket, or it is not ready.
    Status(Status),
    /// They cannot follow what the vBucket has.
    Wrong(ReceiveError),
}

impl ApplyError {
    /// As a status.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Self::Status(status) => status,
            Self::Wrong(error) => error.status(),
        }
    }
}

impl From<Status> for ApplyError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<ReceiveError> for ApplyError {
    fn from(error: ReceiveError) -> Self {
        Self::Wrong(error)
    }
}

/// What the receiving side of a bucket needs.
#[derive(Default)]
pub(super) struct Receiving {
    sink: RankedRwLock<ReplicaSinkRank, Option<Arc<dyn ReplicaSink>>>,
    /// Something was not taken.
    pub(super) wants_room: AtomicBool,
    /// Received changes are to be on disk soon, and nobody has requested a flush since.
    wants_disk: AtomicBool,
}

impl std::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiving").finish_non_exhaustive()
    }
}

impl Dcp {
    /// Who hears of acknowledgements, and of room.
    pub fn set_replica_sink(&self, sink: Arc<dyn ReplicaSink>) {
        *self.signals.receiving.sink.write() = Some(sink);
    }

    pub(super) fn replica_sink(&self) -> Option<Arc<dyn ReplicaSink>> {
        self.signals.receiving.sink.read().clone()
    }

    /// Where a stream into a vBucket has to begin.
    ///
    /// # Errors
    /// `NotMyVbucket` when there is none of this number; `TemporaryFailure` while it is not ready.
    pub fn resume_point(&self, vb: VbId) -> Result<ResumePoint, Status> {
        let resume = self.following(vb, |vbucket| Ok(vbucket.history().resume_point()));
        resume.map_err(ApplyError::status)
    }

    /// A stream into a vBucket that was asked for when the vBucket stood at `from` was accepted, whose history is
    /// `failover`. What is to be acknowledged at once the
    /// [`ReplicaSink`] hears.
    ///
    /// # Errors
    /// [`ApplyError`]; `TemporaryFailure` when the vBucket stands elsewhere by now, so that what comes does not follow.
    pub fn stream_begins(
        &self,
        vb: VbId,
        from: &ResumePoint,
        failover: FailoverTable,
    ) -> Result<(), ApplyError> {
        let ack = self.following(vb, |vbucket| {
            if vbucket.history().resume_point() != *from {
                return Err(Status::TemporaryFailure.into());
            }
            vbucket.begin_stream(failover)?;
            Ok::<_, ApplyError>(vbucket.take_ack())
        })?;
        // The sender has forgotten what it heard in an earlier stream, and nothing more may come.
        self.hand_over_acks(&mut ack.map(|seqno| (vb, seqno)).into_iter().collect());
        Ok(())
    }

    /// The stream into a vBucket ended. Nothing happens if there was none.
    pub fn stream_ends(&self, vb: VbId) {
        // What is not there has no stream.
        let _ = self.following(vb, |vbucket| {
            vbucket.end_stream();
            Ok(())
        });
    }

    /// A snapshot begins in the stream into a vBucket.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub fn receive_snapshot(&self, vb: VbId, snapshot: Snapshot) -> Result<(), ApplyError> {
        self.following(vb, |vbucket| Ok(vbucket.begin_snapshot(snapshot)?))
    }

    /// Changes came in the stream into a vBucket. Those that were taken leave `changes`. To be followed by
    /// [`Dcp::flush_received`] at the end of the caller's turn.
    ///
    /// # Errors
    /// [`ApplyError`]: of the first that is left in `changes`; those before it were taken.
    pub fn receive(&self, vb: VbId, changes: &mut Vec<Received>) -> Result<Taken, ApplyError> {
        let now = self.core.setup.clock.now();
        let (mut taken, mut later, mut waits_for_disk) = (0, false, false);
        let result: Result<_, ApplyError> = self.following(vb, |vbucket| {
            for change in changes.iter() {
                let bytes = bytes_of(change);
                if self.core.quota.admit(bytes) == Err(Status::TemporaryFailure) {
                    later = true;
                    break;
                }
                vbucket.receive(now, change.clone())?;
                taken += 1;
            }
            waits_for_disk = vbucket.waits_for_disk();
            Ok(vbucket.take_ack())
        });
        let wants_disk = waits_for_disk || changes[..taken].iter().any(needs_disk);
        changes.drain(..taken);
        self.core.totals.add(Total::ReceivedItems, taken as u64);
        let receiving = &self.signals.receiving;
        if wants_disk {
            if self.core.is_direct() {
                self.persistence.queues().on_waiting(vb);
            }
            receiving.wants_disk.store(true, Ordering::SeqCst);
        }
        if later {
            self.core.totals.add(Total::ReceivedLater, 1);
            receiving.wants_room.store(true, Ordering::SeqCst);
            self.residency.pager().make_room();
            // There may be some by now.
            self.signals.look_for_receivers(&self.core);
        }
        Ok(Taken {
            later,
            ack: result?,
        })
    }

    /// To be called at the end of a turn in which changes came. With `lead` this thread may write the log itself if that is
    /// idle; it does so when it has nothing else to do. Acknowledgements come through the sink, before this returns when
    /// it led.
    pub fn flush_received(&self, lead: bool) {
        let receiving = &self.signals.receiving;
        let wants_disk = &receiving.wants_disk;
        if wants_disk.load(Ordering::Relaxed) && wants_disk.swap(false, Ordering::SeqCst) {
            self.persistence.writers().write_now(lead);
        }
    }

    /// Nodes have prepared everything up to these seqnos of these vBuckets. Those that are not active here, or never gave
    /// that out, are left out.
    pub fn acknowledge(&self, node: &NodeName, acks: &[(VbId, Seqno)]) {
        let now = self.core.setup.clock.now();
        let mut done = Vec::new();
        for (vb, seqno) in acks {
            let Some(vbucket) = self.core.vbuckets.get(vb.index()) else {
                continue;
            };
            let mut vbucket = vbucket.lock();
            let step = |vbucket: &mut VBucket| vbucket.acknowledge(node, *seqno);
            let (_, mut ended) = self.core.account(now, &mut vbucket, step);
            drop(vbucket);
            done.append(&mut ended);
        }
        self.core.after_step();
        if !done.is_empty() {
            self.core.deliver(now, &mut done);
        }
    }

    /// A node begins a stream of a vBucket, or its stream ended: it says again what it has prepared.
    pub fn forget_acks(&self, vb: VbId, node: &NodeName) {
        if let Some(vbucket) = self.core.vbuckets.get(vb.index()) {
            vbucket.lock().durability_mut().forget_acks(node);
        }
    }

    /// Runs a step of a vBucket that may follow another.
    fn following<R>(
        &self,
        vb: VbId,
        step: impl FnOnce(&mut VBucket) -> Result<R, ApplyError>,
    ) -> Result<R, ApplyError> {
        self.core.change_vbucket(vb, |vbucket| Ok(step(vbucket)))?
    }

    /// Says that there is room, if someone waits for that.
    pub(super) fn tell_receivers(&self) {
        let wants_room = &self.signals.receiving.wants_room;
        if wants_room.load(Ordering::SeqCst)
            && self.core.phase() == BucketPhase::Open
            && self.core.quota.admit(0).is_ok()
            && wants_room.swap(false, Ordering::SeqCst)
            && let Some(sink) = self.replica_sink()
        {
            sink.room();
        }
    }

    /// The disk has more: tells whoever receives what is to be acknowledged.
    pub(crate) fn hand_over_acks(&self, acks: &mut Vec<(VbId, Seqno)>) {
        if acks.is_empty() {
            return;
        }
        match self.replica_sink() {
            Some(sink) => sink.acknowledge(acks),
            None => acks.clear(),
        }
    }
}

impl StreamSignals {
    /// Reports that memory was given back. Cheap unless something that came was not taken. May be called under any lock.
    pub(crate) fn look_for_receivers(&self, core: &BucketCore) {
        if self.receiving.wants_room.load(Ordering::Relaxed) && core.quota.admit(0).is_ok() {
            core.wake_parked(&self.cursors);
        }
    }
}

/// Whether its acknowledgement waits for the disk.
fn needs_disk(change: &Received) -> bool {
    matches!(change, Received::Prepare(item) if item.level() == Some(DurabilityLevel::PersistToMajority))
}

fn bytes_of(change: &Received) -> usize {
    match change {
        Received::Document(item) | Received::Prepare(item) => item.heap_bytes(),
        _ => 0,
    }
}
