//! Inbound streams: the changes that replica and pending vBuckets receive from their active, and the acknowledgements of
//! prepares.
//!
//! Received changes are applied in batches under the lock of the vBucket. They are writes in all other respects: their
//! memory is accounted for, and they are written to the log. When there is no memory, changes are deferred and stay with
//! the caller.
//!
//! Acknowledgements advance in two places: when changes are received, and when they are persisted. The caller gets the
//! former as a result; the latter are passed to the [`ReplicaSink`].

use super::receiver_state::ReplicaSink;
use super::signals::StreamSignals;
use crate::dcp::component::Dcp;
use kedge_bucket_core::{BucketCore, BucketPhase, DiskWriters as _, Total};
use kedge_types::{DurabilityLevel, Seqno, Status, VbId};
use kedge_vbucket::{
    DcpSnapshot, FailoverTable, NodeName, ReceiveError, Received, ResumePoint, VBucket,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The outcome of [`Dcp::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveOutcome {
    /// True if the remaining changes were deferred for lack of memory. The caller retries after
    /// [`ReplicaSink::memory_available`].
    pub deferred: bool,
    /// The seqno up to which prepares are to be acknowledged.
    pub ack: Option<Seqno>,
}

/// The error of changes that could not be applied. The caller must end the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The vBucket does not exist or is not ready.
    Status(Status),
    /// The changes do not continue the vBucket's state.
    Wrong(ReceiveError),
}

impl ApplyError {
    /// Returns the error as a status of the protocol.
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

impl Dcp {
    /// Sets the receiver of acknowledgements and of notifications about memory.
    pub fn set_replica_sink(&self, sink: Arc<dyn ReplicaSink>) {
        *self.signals.receiver.sink.write() = Some(sink);
    }

    pub(super) fn replica_sink(&self) -> Option<Arc<dyn ReplicaSink>> {
        self.signals.receiver.sink.read().clone()
    }

    /// Returns the position at which an inbound stream of a vBucket must start.
    ///
    /// # Errors
    /// `NotMyVbucket` if the vBucket does not exist; `TemporaryFailure` while it is not ready.
    pub fn resume_point(&self, vb: VbId) -> Result<ResumePoint, Status> {
        let resume = self.receiver_step(vb, |vbucket| Ok(vbucket.history().resume_point()));
        resume.map_err(ApplyError::status)
    }

    /// Begins an inbound stream that the producer has accepted. `from` is the position that was requested, and `failover` the
    /// producer's failover table. The [`ReplicaSink`] receives the acknowledgement that is due at once, if any.
    ///
    /// # Errors
    /// [`ApplyError`]; `TemporaryFailure` if the vBucket is no longer at `from`.
    pub fn begin_passive_stream(
        &self,
        vb: VbId,
        from: &ResumePoint,
        failover: FailoverTable,
    ) -> Result<(), ApplyError> {
        let ack = self.receiver_step(vb, |vbucket| {
            if vbucket.history().resume_point() != *from {
                return Err(Status::TemporaryFailure.into());
            }
            vbucket.begin_stream(failover)?;
            Ok::<_, ApplyError>(vbucket.take_ack())
        })?;
        // The producer has forgotten the acknowledgements of earlier streams, and there may be no further change.
        self.forward_acks(&mut ack.map(|seqno| (vb, seqno)).into_iter().collect());
        Ok(())
    }

    /// Ends the inbound stream of a vBucket, if there is one.
    pub fn end_passive_stream(&self, vb: VbId) {
        // A vBucket that does not exist has no stream.
        let _ = self.receiver_step(vb, |vbucket| {
            vbucket.end_stream();
            Ok(())
        });
    }

    /// Begins a snapshot in the inbound stream of a vBucket.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub fn receive_snapshot(&self, vb: VbId, snapshot: DcpSnapshot) -> Result<(), ApplyError> {
        self.receiver_step(vb, |vbucket| Ok(vbucket.begin_snapshot(snapshot)?))
    }

    /// Applies changes of the inbound stream of a vBucket, and removes the applied ones from `changes`. The caller calls
    /// [`Dcp::flush_received`] at the end of its batch.
    ///
    /// # Errors
    /// [`ApplyError`] of the first change that is left in `changes`. The changes before it have been applied.
    pub fn receive(
        &self,
        vb: VbId,
        changes: &mut Vec<Received>,
    ) -> Result<ReceiveOutcome, ApplyError> {
        let now = self.core.setup.clock.now();
        let (mut taken, mut deferred, mut waits_for_disk) = (0, false, false);
        let result: Result<_, ApplyError> = self.receiver_step(vb, |vbucket| {
            for change in changes.iter() {
                let bytes = bytes_of(change);
                if self.core.quota.admit(bytes) == Err(Status::TemporaryFailure) {
                    deferred = true;
                    break;
                }
                vbucket.receive(now, change.clone())?;
                taken += 1;
            }
            waits_for_disk = vbucket.waits_for_disk();
            Ok(vbucket.take_ack())
        });
        let flush_wanted = waits_for_disk || changes[..taken].iter().any(needs_disk);
        changes.drain(..taken);
        self.core.totals.add(Total::ReceivedItems, taken as u64);
        let receiver = &self.signals.receiver;
        if flush_wanted {
            if self.core.is_direct() {
                self.persistence.queues().on_waiting(vb);
            }
            receiver.flush_wanted.store(true, Ordering::SeqCst);
        }
        if deferred {
            self.core.totals.add(Total::ReceivedLater, 1);
            receiver.waits_for_memory.store(true, Ordering::SeqCst);
            self.residency.pager().make_room();
            // Memory may have become available in the meantime.
            self.signals.wake_receivers_if_room(&self.core);
        }
        Ok(ReceiveOutcome {
            deferred,
            ack: result?,
        })
    }

    /// Requests the flush of received changes, at the end of a batch. With `lead`, this thread may write the log itself if
    /// the log is idle; callers set it when they have nothing else to do. Acknowledgements are passed to the sink; if this
    /// thread wrote the log, before the function returns.
    pub fn flush_received(&self, lead: bool) {
        let receiver = &self.signals.receiver;
        let flush_wanted = &receiver.flush_wanted;
        if flush_wanted.load(Ordering::Relaxed) && flush_wanted.swap(false, Ordering::SeqCst) {
            self.persistence.writers().write_now(lead);
        }
    }

    /// Handles acknowledgements: `node` has prepared everything up to these seqnos. Entries are ignored if the vBucket is not
    /// active here or has not reached the seqno.
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

    /// Forgets the acknowledgements of a node for a vBucket, at the start and the end of its stream. The node repeats them in
    /// its next stream.
    pub fn forget_acks(&self, vb: VbId, node: &NodeName) {
        if let Some(vbucket) = self.core.vbuckets.get(vb.index()) {
            vbucket.lock().durability_mut().forget_acks(node);
        }
    }

    /// Runs a step of a vBucket that receives a stream.
    fn receiver_step<R>(
        &self,
        vb: VbId,
        step: impl FnOnce(&mut VBucket) -> Result<R, ApplyError>,
    ) -> Result<R, ApplyError> {
        self.core.change_vbucket(vb, |vbucket| Ok(step(vbucket)))?
    }

    /// Notifies the sink that memory is available, if changes were deferred.
    pub(super) fn notify_receivers(&self) {
        let waits_for_memory = &self.signals.receiver.waits_for_memory;
        if waits_for_memory.load(Ordering::SeqCst)
            && self.core.phase() == BucketPhase::Open
            && self.core.quota.admit(0).is_ok()
            && waits_for_memory.swap(false, Ordering::SeqCst)
            && let Some(sink) = self.replica_sink()
        {
            sink.memory_available();
        }
    }

    /// Passes the acknowledgements of persisted changes to the sink, if there is one.
    pub(crate) fn forward_acks(&self, acks: &mut Vec<(VbId, Seqno)>) {
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
    /// Wakes the task that notifies receivers, if memory is available and changes were deferred. It is cheap otherwise, and
    /// may be called under any lock.
    #[inline]
    pub(crate) fn wake_receivers_if_room(&self, core: &BucketCore) {
        if self.receiver.waits_for_memory.load(Ordering::Relaxed) && core.quota.admit(0).is_ok() {
            core.wake_parked(&self.cursors);
        }
    }
}

/// Returns whether the acknowledgement of a change requires its persistence.
fn needs_disk(change: &Received) -> bool {
    matches!(change, Received::Prepare(item) if item.level() == Some(DurabilityLevel::PersistToMajority))
}

fn bytes_of(change: &Received) -> usize {
    match change {
        Received::Document(item) | Received::Prepare(item) => item.heap_bytes(),
        _ => 0,
    }
}
