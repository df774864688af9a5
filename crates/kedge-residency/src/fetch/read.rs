//! The task that reads for those who wait, and lets them go on.

use super::keys::Listed;
use super::{Lane, Op, PendingOp};
use crate::residency::Residency;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::TaskBody;
use kedge_bucket_core::Timing;
use kedge_bucket_core::{Counter, Total};
use kedge_bucket_core::{Phase, sync_write_timing};
use kedge_executor::Next;
use kedge_types::{Now, Status, VbId};
use kedge_vbucket::{Completion, Cookie, DocOp, FetchTicket, Fetched, Item, StepOutcome, VBucket};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A run goes on with the next vBucket for so long; then the tasks of others have their turn.
const TURN: Duration = Duration::from_millis(10);
/// So often a document may have changed between the look at the file and the step before its command is given up.
const ATTEMPTS_MAX: u32 = 100;
/// Failures are said no more often than this; all are counted.
const SAY_AGAIN_NS: u64 = 1_000_000_000;

/// Commands that wait for the same key, in the order in which they came.
pub(super) type Group = Vec<PendingOp>;

/// What was found of a key.
pub(super) type Found = Result<Option<Item>, Status>;

/// What a batch came to.
#[derive(Default)]
pub(super) struct Resumed {
    completions: Vec<(Cookie, Completion)>,
    again: Vec<PendingOp>,
    /// Some wait for their SyncWrites now.
    parked: bool,
    /// Of those some for the disk.
    needs_disk: bool,
}

/// The task.
#[derive(Debug)]
pub(crate) struct Fetcher {
    lane: usize,
}

impl Fetcher {
    pub(crate) fn new(lane: usize) -> Self {
        Self { lane }
    }
}

impl TaskBody<Residency> for Fetcher {
    fn run(&mut self, residency: &Residency, _: Duration) -> Next {
        let lane = &residency.signals.fetches.lanes()[self.lane];
        lane.parker.clear();
        let now_ns = || residency.core.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        loop {
            let taken = lane.queue.lock().take();
            let Some((vb, waiting)) = taken else {
                lane.parker.park();
                if lane.queue.lock().turns.is_empty() {
                    return Next::Sleep;
                }
                lane.parker.clear();
                continue;
            };
            residency.make_room_for_fetch();
            let again = residency.fetch_batch(vb, waiting);
            put_back(lane, vb, again);
            if now_ns().saturating_sub(began_ns) >= TURN.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}

fn put_back(lane: &Lane, vb: VbId, again: Vec<PendingOp>) {
    if !again.is_empty() {
        lane.queue.lock().put_back(vb, again);
    }
}

impl Residency {
    /// Reads for commands of one vBucket and lets them go on. Returns those that have to be read for again.
    fn fetch_batch(&self, vb: VbId, waiting: Vec<PendingOp>) -> Vec<PendingOp> {
        let ticket = self.core.vbuckets[vb.index()].lock().store().fetch_ticket();
        let before = self.core.setup.clock.now();
        self.note_waits(&waiting, before);
        let mut resumed = Resumed::default();
        let waiting = self.list(vb, before, waiting, &mut resumed);
        let groups = by_key(waiting);
        let keys: Vec<&[u8]> = groups.iter().map(|group| group[0].key.as_bytes()).collect();
        let found = self.read_keys(vb, &keys);
        let now = self.core.setup.clock.now();
        self.note_read(&groups, before, now);
        self.go_on(vb, now, ticket, groups.into_iter().zip(found), resumed)
    }

    /// Lets commands of one vBucket go on, with what was found of the key of each group. Returns those that have to be
    /// read for again.
    pub(super) fn go_on(
        &self,
        vb: VbId,
        now: Now,
        ticket: FetchTicket,
        groups: impl Iterator<Item = (Group, Found)>,
        mut resumed: Resumed,
    ) -> Vec<PendingOp> {
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let ((), mut done) = self.core.account(now, &mut vbucket, |vbucket| {
            for (group, found) in groups {
                self.resume(vbucket, now, ticket, group, found, &mut resumed);
            }
        });
        drop(vbucket);
        self.core.after_step();
        if resumed.parked {
            if resumed.needs_disk {
                self.writers.on_waiting(vb);
            }
            self.core.on_parked();
            self.writers.request_flush(&self.core);
        }
        if !done.is_empty() {
            self.core.deliver(now, &mut done);
        }
        if !resumed.completions.is_empty() {
            self.core
                .setup
                .completions
                .complete(&mut resumed.completions);
        }
        resumed.again
    }

    /// Answers those who ask the file for keys, or of one; gives the others.
    fn list(
        &self,
        vb: VbId,
        now: Now,
        waiting: Vec<PendingOp>,
        resumed: &mut Resumed,
    ) -> Vec<PendingOp> {
        let (asks, others): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|pending| pending.op.asks_the_file());
        for pending in asks {
            match self.ask_the_file(vb, now, &pending) {
                Ok(Listed::Keys(keys)) => {
                    let completion = Completion::Keys { result: Ok(keys) };
                    self.end(&pending, completion, resumed);
                }
                Ok(Listed::Figures(figures)) => {
                    let result = Ok(figures);
                    self.end(&pending, Completion::Key { result }, resumed);
                }
                Ok(Listed::Document(key)) => resumed.again.push(PendingOp {
                    key: *key,
                    op: DocOp::Get.into(),
                    ..pending
                }),
                Err(status) => self.end(&pending, pending.op.failed(status), resumed),
            }
        }
        others
    }

    /// Reads keys from the vBucket's file. One that cannot be read does not keep the others from being.
    pub(super) fn read_keys(&self, vb: VbId, keys: &[&[u8]]) -> Vec<Found> {
        if keys.is_empty() {
            return Vec::new();
        }
        match self.get_many(vb, keys) {
            Ok(items) => items.into_iter().map(Ok).collect(),
            Err(_) if keys.len() > 1 => keys
                .iter()
                .flat_map(|key| self.read_keys(vb, std::slice::from_ref(key)))
                .collect(),
            Err(error) => {
                self.on_fetch_failed(vb, &error.to_string());
                vec![Err(Status::Internal)]
            }
        }
    }

    fn get_many(&self, vb: VbId, keys: &[&[u8]]) -> Result<Vec<Option<Item>>, BucketError> {
        Ok(self.core.storage()?.get_many(vb, keys)?)
    }

    /// Counts documents that could not be read, and logs that now and then.
    pub fn on_fetch_failed(&self, vb: VbId, error: &str) {
        self.core.totals.add(Total::FetchFailures, 1);
        let now_ns = self.core.setup.clock.now().mono_ns;
        let last = self.signals.fetches.said_ns.load(Ordering::Relaxed);
        if last == 0 || now_ns.saturating_sub(last) >= SAY_AGAIN_NS {
            self.signals
                .fetches
                .said_ns
                .store(now_ns, Ordering::Relaxed);
            tracing::error!(
                bucket = self.core.name(),
                vbucket = %vb,
                error,
                "a document cannot be read from the vBucket's file"
            );
        }
    }

    /// Hands a vBucket what was found of a key, and lets those go on who wait for it.
    fn resume(
        &self,
        vbucket: &mut VBucket,
        now: Now,
        ticket: FetchTicket,
        group: Group,
        found: Found,
        resumed: &mut Resumed,
    ) {
        let key = group[0].key;
        let (group, refused): (Group, Group) = group
            .into_iter()
            .partition(|pending| self.may_go_on(vbucket, &pending.op).is_ok());
        for pending in &refused {
            let why = self.may_go_on(vbucket, &pending.op).err();
            let status = why.unwrap_or(Status::TemporaryFailure);
            self.end(pending, pending.op.failed(status), resumed);
        }
        if group.is_empty() {
            return;
        }
        let failed = match found {
            Err(status) => Some(status),
            Ok(item) => match vbucket.store_mut().fetched(ticket, key.as_bytes(), item) {
                Fetched::Known | Fetched::Stale => None,
                Fetched::Lost => {
                    let error = format!("it does not have {key:?}, which was written to it");
                    self.on_fetch_failed(vbucket.id(), &error);
                    Some(Status::Internal)
                }
            },
        };
        for mut pending in group {
            match self.run_again(vbucket, now, &pending) {
                StepOutcome::Done(completion) => self.end(&pending, completion, resumed),
                StepOutcome::Parked => {
                    self.signals.fetches.limiter.end(&pending);
                    resumed.parked = true;
                    resumed.needs_disk |= pending.needs_disk();
                }
                StepOutcome::Fetch => {
                    pending.attempts += 1;
                    let status = match failed {
                        None if pending.attempts < ATTEMPTS_MAX => {
                            resumed.again.push(pending);
                            continue;
                        }
                        None => Status::TemporaryFailure,
                        Some(status) => status,
                    };
                    self.end(&pending, pending.op.failed(status), resumed);
                }
            }
        }
    }

    /// Whether a command that waited goes on in a vBucket.
    pub(crate) fn may_go_on(&self, vbucket: &VBucket, op: &Op) -> Result<(), Status> {
        if self.core.phase() != Phase::Open || vbucket.store().is_rewinding() {
            return Err(Status::TemporaryFailure);
        }
        if !op.role().is_of(vbucket) {
            return Err(Status::NotMyVbucket);
        }
        Ok(())
    }

    /// Runs the step of a command that waited.
    pub(crate) fn run_again(
        &self,
        vbucket: &mut VBucket,
        now: Now,
        pending: &PendingOp,
    ) -> StepOutcome<Completion> {
        let Some(durability) = pending.durability else {
            return pending.run(vbucket, now);
        };
        // Counted before the step, as for any SyncWrite.
        self.core.parked.fetch_add(1, Ordering::SeqCst);
        let ran = pending.run(vbucket, now);
        if !matches!(ran, StepOutcome::Parked) {
            self.core.parked.fetch_sub(1, Ordering::Relaxed);
        }
        let accepted = match &ran {
            StepOutcome::Parked => true,
            StepOutcome::Done(Completion::SyncWrite { result, .. }) => result.is_ok(),
            StepOutcome::Done(Completion::Counter { result }) => result.is_ok(),
            _ => false,
        };
        if accepted {
            self.core.counters.add_shared(Counter::SyncWriteAccepted, 1);
            if matches!(ran, StepOutcome::Done(_)) {
                let timing = sync_write_timing(durability.level);
                self.core.timings.record_us(u16::MAX, timing, 0);
            }
        }
        ran
    }

    fn end(&self, pending: &PendingOp, completion: Completion, resumed: &mut Resumed) {
        self.signals.fetches.limiter.end(pending);
        self.count_fetched(pending, &completion);
        resumed.completions.push((pending.cookie, completion));
    }

    pub(super) fn note_waits(&self, waiting: &[PendingOp], now: Now) {
        for pending in waiting {
            let wait_us = now.mono_ns.saturating_sub(pending.since_ns) / 1_000;
            self.core
                .timings
                .record_us(u16::MAX, Timing::BgWait, wait_us);
            self.core.totals.add(Total::FetchWaitUs, wait_us);
        }
        self.core
            .totals
            .add(Total::FetchSamples, waiting.len() as u64);
    }

    pub(super) fn note_read(&self, groups: &[Group], before: Now, now: Now) {
        if groups.is_empty() {
            return;
        }
        let load_us = now.mono_ns.saturating_sub(before.mono_ns) / 1_000;
        let timings = &self.core.timings;
        timings.record_us(u16::MAX, Timing::BgBatchSize, groups.len() as u64);
        let mut of_metadata = 0;
        for group in groups {
            timings.record_us(u16::MAX, Timing::BgLoad, load_us);
            of_metadata += u64::from(group.iter().all(|pending| pending.op.is_of_metadata()));
        }
        let keys = groups.len() as u64;
        self.core.totals.add(Total::FetchLoadUs, load_us);
        self.core.totals.add(Total::MetaFetched, of_metadata);
        self.core.totals.add(Total::Fetched, keys - of_metadata);
    }
}

/// Those who wait for the same key together, in order.
fn by_key(waiting: Vec<PendingOp>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::with_capacity(waiting.len());
    let mut places: HashMap<Box<[u8]>, usize> = HashMap::with_capacity(waiting.len());
    for pending in waiting {
        let next = groups.len();
        let place = *places.entry(pending.key.as_bytes().into()).or_insert(next);
        if place == next {
            groups.push(Vec::with_capacity(1));
        }
        groups[place].push(pending);
    }
    groups
}
