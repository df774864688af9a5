//! Writes for which memory has no room wait here until the appliers and the item pager have made some.
//!
//! A write that does not fit has changed nothing. It is kept as a [`Pending`], as a command is that waits for the disk,
//! and its step runs once it fits: the client's command is not executed anew. A temporary failure is the last resort: when
//! nothing can leave memory, when too many wait, or when it takes longer than [`MEMORY_WAIT_MS_MAX`].
//!
//! Invariants:
//! * Writes go on in the order in which they came; while one waits, none that came later goes before it.
//! * While one waits, the quota knows how much the first needs, and the task is awake, about to be, or has its time.
//! * Each ends once: in the task, or when the bucket ends. Once closed, the queue takes no more.

use crate::fetch::{AdmissionLimiter, PendingOp};
use crate::residency::Residency;
use crate::signals::MemorySignals;
use kedge_bucket_core::BucketCore;
use kedge_bucket_core::Counter;
use kedge_bucket_core::Outcome;
use kedge_bucket_core::Timing;
use kedge_bucket_core::{Ctx, Phase};
use kedge_bucket_core::{Parker, TaskBody};
use kedge_executor::Next;
use kedge_sync::{RankedMutex, ranks::MemoryAdmission};
use kedge_types::limits::MEMORY_WAIT_MS_MAX;
use kedge_types::{Now, Status, VbId};
use kedge_vbucket::{Completion, Cookie, StepOutcome, VBucket};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A run goes on with the next write for so long; then other tasks have their turn.
const TURN: Duration = Duration::from_millis(3);

/// The writes that wait for memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryAdmissionQueue {
    queue: RankedMutex<MemoryAdmission, Queue>,
    limiter: AdmissionLimiter,
    pub(crate) parker: Parker,
    /// Nothing may leave memory, nor will when what waits for the disk is there.
    hopeless: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    writes: VecDeque<QueuedWrite>,
    closed: bool,
}

/// A write that waits.
#[derive(Debug)]
struct QueuedWrite {
    vb: VbId,
    /// Memory that it needs.
    bytes: usize,
    pending: PendingOp,
}

impl QueuedWrite {
    fn deadline_ns(&self) -> u64 {
        self.pending.since_ns + MEMORY_WAIT_MS_MAX * 1_000_000
    }
}

/// The admission of a write to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It goes on at once.
    Now,
    /// It has to wait until there are so many bytes.
    Later(usize),
}

/// Why no write can go on.
enum Idle {
    /// None waits.
    Nothing,
    /// The first still has to, at most for this long.
    Waits(Duration),
}

/// The task.
#[derive(Debug)]
pub(crate) struct AdmitWrites;

impl TaskBody<Residency> for AdmitWrites {
    fn run(&mut self, residency: &Residency, _: Duration) -> Next {
        let parker = &residency.signals.memory_queue.parker;
        parker.clear();
        let began_ns = residency.core.setup.clock.now().mono_ns;
        let mut completions = Vec::new();
        let next = loop {
            let now = residency.core.setup.clock.now();
            if now.mono_ns.saturating_sub(began_ns) >= TURN.as_nanos() as u64 {
                break Next::Again;
            }
            match residency.next_admissible(now) {
                Ok((held, room)) => residency.end_admitted(now, held, room, &mut completions),
                Err(Idle::Nothing) => {
                    parker.park();
                    if residency.signals.memory_queue.limiter.waiting() == 0 {
                        break Next::Sleep;
                    }
                    parker.clear();
                }
                Err(Idle::Waits(rest)) => {
                    residency.make_room();
                    parker.park();
                    if !residency.signals.may_release(&residency.core) {
                        break Next::Snooze(rest);
                    }
                    parker.clear();
                }
            }
        };
        residency.hand_over(&mut completions);
        next
    }
}

impl MemorySignals {
    fn is_waiting_in_vain(&self, core: &BucketCore) -> bool {
        core.quota.withholds_writes() || self.memory_queue.hopeless.load(Ordering::Relaxed)
    }

    /// Memory was given back, or waiting has become vain. Cheap unless a write waits.
    pub fn note_first_queued_write(&self, core: &BucketCore) {
        if self.memory_queue.parker.is_asleep() && self.may_release(core) {
            core.wake_parked(&self.memory_queue.parker);
        }
    }

    fn may_release(&self, core: &BucketCore) -> bool {
        self.memory_queue.limiter.waiting() > 0
            && (core.quota.has_what_is_wanted() || self.is_waiting_in_vain(core))
    }
}

impl Residency {
    /// Writes that wait for memory.
    pub fn waiting_for_memory(&self) -> usize {
        self.signals.memory_queue.limiter.waiting()
    }

    /// Whether there is room for a write of `bytes`, and nobody waits for it.
    ///
    /// # Errors
    /// `NoMemory` when it could never fit, `TemporaryFailure` when waiting would not help.
    pub fn room_for(&self, bytes: usize) -> Result<Admission, Status> {
        match self.core.quota.admit(bytes) {
            Ok(()) if self.signals.memory_queue.limiter.waiting() == 0 => Ok(Admission::Now),
            Err(Status::TemporaryFailure) if self.signals.is_waiting_in_vain(&self.core) => {
                Err(Status::TemporaryFailure)
            }
            Ok(()) | Err(Status::TemporaryFailure) => Ok(Admission::Later(bytes)),
            Err(other) => Err(other),
        }
    }

    /// A write waits for `bytes` of memory.
    ///
    /// # Errors
    /// `NotMyVbucket`; `TemporaryFailure` when too many wait, or the bucket is not open.
    pub fn hold<R>(
        &self,
        ctx: Ctx,
        vb: VbId,
        bytes: usize,
        pending: PendingOp,
    ) -> Result<Outcome<R>, Status> {
        if vb.index() >= self.core.vbuckets.len() {
            return Err(Status::NotMyVbucket);
        }
        if self.core.phase() != Phase::Open {
            return Err(Status::TemporaryFailure);
        }
        let held = &self.signals.memory_queue;
        let admitted = held.limiter.admit(&pending, self.core.quota.limit());
        if admitted.is_err() {
            self.core.counters.add(ctx.thread, Counter::TmpOomErrors, 1);
            return Err(Status::TemporaryFailure);
        }
        let mut queue = held.queue.lock();
        if queue.closed {
            drop(queue);
            held.limiter.end(&pending);
            return Err(Status::TemporaryFailure);
        }
        let is_first = queue.writes.is_empty();
        if is_first {
            self.core.quota.set_wanted(bytes);
        }
        queue.writes.push_back(QueuedWrite { vb, bytes, pending });
        drop(queue);
        self.core
            .counters
            .add(ctx.thread, Counter::MemoryAdmissionWaits, 1);
        // Behind another it is looked at when that one has ended.
        if is_first {
            self.core.wake_parked(&self.signals.memory_queue.parker);
        }
        Ok(Outcome::Parked)
    }

    /// The pager says whether anything may leave memory. If nothing may, what waits for the disk is the last hope.
    pub(crate) fn set_pageable(&self, something: bool) {
        let hopeless = &self.signals.memory_queue.hopeless;
        if something {
            hopeless.store(false, Ordering::Relaxed);
        } else if self.signals.memory_queue.limiter.waiting() > 0 && !self.has_something_to_write()
        {
            hopeless.store(true, Ordering::Relaxed);
            self.signals.note_first_queued_write(&self.core);
        }
    }

    fn has_something_to_write(&self) -> bool {
        self.core.vbuckets.iter().any(|vbucket| {
            let vbucket = vbucket.lock();
            vbucket.changes().queued() > 0 || vbucket.unapplied().items > 0
        })
    }

    /// The first that waits, if it need not any more, and whether there is room for it. The quota learns what the next
    /// one needs.
    fn next_admissible(&self, now: Now) -> Result<(QueuedWrite, Result<(), Status>), Idle> {
        let mut queue = self.signals.memory_queue.queue.lock();
        let first = queue.writes.front().ok_or(Idle::Nothing)?;
        let left_ns = first.deadline_ns().saturating_sub(now.mono_ns);
        let room = self.core.quota.admit(first.bytes);
        let waits = room == Err(Status::TemporaryFailure);
        if waits && left_ns > 0 && !self.signals.is_waiting_in_vain(&self.core) {
            return Err(Idle::Waits(Duration::from_nanos(left_ns)));
        }
        let first = queue.writes.pop_front().ok_or(Idle::Nothing)?;
        let wanted = queue.writes.front().map_or(0, |next| next.bytes);
        self.core.quota.set_wanted(wanted);
        Ok((first, room))
    }

    /// Runs the step of a write that has room, and fails one that gets none.
    fn end_admitted(
        &self,
        now: Now,
        held: QueuedWrite,
        room: Result<(), Status>,
        completions: &mut Vec<(Cookie, Completion)>,
    ) {
        let QueuedWrite { vb, pending, .. } = held;
        self.signals.memory_queue.limiter.end(&pending);
        let wait_us = now.mono_ns.saturating_sub(pending.since_ns) / 1_000;
        self.core
            .timings
            .record_us(u16::MAX, Timing::MemoryWait, wait_us);
        let failed = |status| (pending.cookie, pending.op.failed(status));
        if let Err(status) = room {
            self.core.counters.add_shared(Counter::TmpOomErrors, 1);
            completions.push(failed(status));
            return;
        }
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let step = |vbucket: &mut VBucket| match self.may_go_on(vbucket, &pending.op) {
            Ok(()) => self.run_again(vbucket, now, &pending),
            Err(status) => StepOutcome::Done(pending.op.failed(status)),
        };
        let (ran, mut done) = self.core.account(now, &mut vbucket, step);
        drop(vbucket);
        self.core.after_step();
        match ran {
            StepOutcome::Done(completion) => {
                self.count_fetched(&pending, &completion);
                completions.push((pending.cookie, completion));
            }
            StepOutcome::Parked => {
                if pending.needs_disk() {
                    self.writers.on_waiting(vb);
                }
                self.core.on_parked();
                self.writers.request_flush(&self.core);
            }
            StepOutcome::Fetch => {
                let refused = failed(Status::TemporaryFailure);
                if self.park_for_fetch::<()>(vb, pending).is_err() {
                    completions.push(refused);
                }
            }
        }
        if !done.is_empty() {
            self.core.deliver(now, &mut done);
        }
    }

    fn hand_over(&self, completions: &mut Vec<(Cookie, Completion)>) {
        if !completions.is_empty() {
            self.core.setup.completions.complete(completions);
        }
    }

    /// The bucket ends, and its tasks have: who still waits is told.
    pub fn end_all_queued_writes(&self) {
        let mut queue = self.signals.memory_queue.queue.lock();
        queue.closed = true;
        let writes = std::mem::take(&mut queue.writes);
        drop(queue);
        self.core.quota.set_wanted(0);
        let mut completions = Vec::with_capacity(writes.len());
        for QueuedWrite { pending, .. } in &writes {
            self.signals.memory_queue.limiter.end(pending);
            completions.push((pending.cookie, pending.op.failed(Status::TemporaryFailure)));
        }
        self.hand_over(&mut completions);
    }
}
