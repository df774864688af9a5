//! Admission of writes to memory: writes for which there is no room wait until appliers and item pager have made some.
//!
//! A write gets a temporary failure only when nothing can be evicted, when too many writes wait, or when it waits longer
//! than [`MEMORY_WAIT_MS_MAX`].
//!
//! Invariants:
//! * Writes are resumed in the order in which they came; no write passes one that waits.
//! * While a write waits, the quota knows the bytes that the first one needs, and the task is awake, about to be, or
//!   snoozes.

use crate::fetch::BackgroundFetcher;
use crate::pager::ItemPager;
use crate::parked::{Admission, PendingOp, Resumption, may_resume};
use crate::signals::MemorySignals;
use kedge_bucket_core::{
    BucketCore, BucketPhase, Component, Counter, Ctx, DiskWriters, TaskBody, Timing,
};
use kedge_executor::Next;
use kedge_types::limits::MEMORY_WAIT_MS_MAX;
use kedge_types::{Now, Status};
use std::sync::Arc;
use std::time::Duration;

/// Longest time of a run, after which other tasks of the pool run.
const SLICE: Duration = Duration::from_millis(3);

/// The admission of writes to memory.
#[derive(Debug)]
pub(crate) struct MemoryAdmission {
    core: Arc<BucketCore>,
    signals: Arc<MemorySignals>,
    writers: Arc<dyn DiskWriters>,
    pager: Arc<ItemPager>,
    fetcher: Arc<BackgroundFetcher>,
}

impl Component for MemoryAdmission {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

/// The reason for which no write can go on.
enum Idle {
    /// No write waits.
    Nothing,
    /// The first write still has to wait, at most for this long.
    Waits(Duration),
}

/// The task.
#[derive(Debug)]
pub(crate) struct AdmitWrites;

impl TaskBody<MemoryAdmission> for AdmitWrites {
    fn run(&mut self, admission: &MemoryAdmission, _: Duration) -> Next {
        let (core, signals) = (&admission.core, &admission.signals);
        let parker = &signals.admission;
        parker.clear();
        let began_ns = core.setup.clock.now().mono_ns;
        let mut resumption = Resumption::default();
        let next = loop {
            let now = core.setup.clock.now();
            if now.mono_ns.saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                break Next::Again;
            }
            match admission.next_admissible(now) {
                Ok((op, room)) => admission.resume(now, op, room, &mut resumption),
                Err(Idle::Nothing) => {
                    parker.park();
                    if signals.writes.waiting() == 0 {
                        break Next::Sleep;
                    }
                    parker.clear();
                }
                Err(Idle::Waits(rest)) => {
                    admission.pager.make_room();
                    parker.park();
                    if !signals.has_admissible_write(core) {
                        break Next::Snooze(rest);
                    }
                    parker.clear();
                }
            }
        };
        resumption.hand_over(core);
        next
    }
}

impl MemoryAdmission {
    pub(crate) fn new(
        core: &Arc<BucketCore>,
        signals: &Arc<MemorySignals>,
        writers: &Arc<dyn DiskWriters>,
        pager: &Arc<ItemPager>,
        fetcher: &Arc<BackgroundFetcher>,
    ) -> Self {
        Self {
            core: Arc::clone(core),
            signals: Arc::clone(signals),
            writers: Arc::clone(writers),
            pager: Arc::clone(pager),
            fetcher: Arc::clone(fetcher),
        }
    }

    /// Decides whether a write of `bytes` goes on: there is room for it, and none waits.
    ///
    /// # Errors
    /// `NoMemory` when it could never fit, `TemporaryFailure` when waiting would not help.
    pub(crate) fn admit(&self, bytes: usize) -> Result<Admission, Status> {
        match self.core.quota.admit(bytes) {
            Ok(()) if self.signals.writes.waiting() == 0 => Ok(Admission::Now),
            Err(Status::TemporaryFailure) if self.signals.is_waiting_in_vain(&self.core) => {
                Err(Status::TemporaryFailure)
            }
            Ok(()) | Err(Status::TemporaryFailure) => Ok(Admission::Later(bytes)),
            Err(other) => Err(other),
        }
    }

    /// Parks a write until there are `bytes` of memory for it.
    ///
    /// # Errors
    /// `NotMyVbucket`; `TemporaryFailure` when too many wait, or the bucket is not open.
    pub(crate) fn park(&self, ctx: Ctx, mut op: PendingOp, bytes: usize) -> Result<(), Status> {
        let core = &self.core;
        if op.vb.index() >= core.vbuckets.len() {
            return Err(Status::NotMyVbucket);
        }
        if core.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure);
        }
        let writes = &self.signals.writes;
        if writes.admit(&op, core.quota.limit()).is_err() {
            core.counters.add(ctx.thread, Counter::TmpOomErrors, 1);
            return Err(Status::TemporaryFailure);
        }
        op.memory_bytes = bytes;
        let lane = writes.push(0, (), op)?;
        let is_first = lane.waiting(()) == 1;
        if is_first {
            core.quota.set_wanted(bytes);
        }
        drop(lane);
        core.counters
            .add(ctx.thread, Counter::MemoryAdmissionWaits, 1);
        // A write behind others is examined when those have ended.
        if is_first {
            core.wake_parked(&self.signals.admission);
        }
        Ok(())
    }

    /// Takes the first write if it need not wait any more, and says whether there is room for it. The quota learns the
    /// bytes that the next one needs.
    fn next_admissible(&self, now: Now) -> Result<(PendingOp, Result<(), Status>), Idle> {
        let mut lane = self.signals.writes.lock(0);
        let first = lane.front().ok_or(Idle::Nothing)?;
        let deadline_ns = first.since_ns + MEMORY_WAIT_MS_MAX * 1_000_000;
        let left_ns = deadline_ns.saturating_sub(now.mono_ns);
        let room = self.core.quota.admit(first.memory_bytes);
        let waits = room == Err(Status::TemporaryFailure);
        if waits && left_ns > 0 && !self.signals.is_waiting_in_vain(&self.core) {
            return Err(Idle::Waits(Duration::from_nanos(left_ns)));
        }
        let first = lane.take(1).and_then(|(_, mut ops)| ops.pop());
        let wanted = lane.front().map_or(0, |next| next.memory_bytes);
        self.core.quota.set_wanted(wanted);
        Ok((first.ok_or(Idle::Nothing)?, room))
    }

    /// Runs the step of a write that has room, and fails one that gets none.
    fn resume(
        &self,
        now: Now,
        op: PendingOp,
        room: Result<(), Status>,
        resumption: &mut Resumption,
    ) {
        let core = &self.core;
        self.signals.writes.release(&op);
        let wait_us = now.mono_ns.saturating_sub(op.since_ns) / 1_000;
        core.timings
            .record_us(u16::MAX, Timing::MemoryWait, wait_us);
        if let Err(status) = room {
            core.counters.add_shared(Counter::TmpOomErrors, 1);
            resumption.fail(core, &op, status);
            return;
        }
        let mut vbucket = core.vbuckets[op.vb.index()].lock();
        let (has_run, done) = core.account(now, &mut vbucket, |vbucket| {
            if let Err(status) = may_resume(core, now, vbucket, &op.op) {
                resumption.fail(core, &op, status);
                return true;
            }
            resumption.run(core, vbucket, now, &op)
        });
        drop(vbucket);
        resumption.after_steps(core, &*self.writers, op.vb, now, done);
        if !has_run {
            self.fetcher.park_or_fail(op, resumption);
        }
    }

    /// Fails all writes that wait, as the bucket ends and its tasks have.
    pub(crate) fn close(&self) {
        self.signals.writes.close(&self.core, Vec::new());
        self.core.quota.set_wanted(0);
    }
}
