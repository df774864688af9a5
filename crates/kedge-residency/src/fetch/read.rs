//! The task that reads for operations that wait, and resumes them.

use super::component::BackgroundFetcher;
use super::keys::FileAnswer;
use crate::parked::{PendingOp, Resumption, may_resume};
use kedge_bucket_core::{BucketError, TaskBody, Timing, Total};
use kedge_executor::Next;
use kedge_types::{Now, Status, VbId};
use kedge_vbucket::{Completion, DocOp, FetchTicket, Fetched, Item, VBucket};
use std::collections::HashMap;
use std::time::Duration;

/// Longest time of a run, after which other tasks of the pool run.
const SLICE: Duration = Duration::from_millis(10);
/// Largest number of keys of one read of a file, which is a turn of a vBucket.
const BATCH_MAX: usize = 128;
/// Largest number of reads for one operation: its document may change between a read and the step.
const ATTEMPTS_MAX: u32 = 100;

/// Operations that wait for the same key, in the order in which they came.
pub(super) type KeyGroup = Vec<PendingOp>;

/// The document of a key in the file, or the failure of its read.
pub(super) type FetchResult = Result<Option<Item>, Status>;

/// The task of a lane.
#[derive(Debug)]
pub(crate) struct ReadForLane {
    lane: usize,
}

impl ReadForLane {
    pub(crate) fn new(lane: usize) -> Self {
        Self { lane }
    }
}

impl TaskBody<BackgroundFetcher> for ReadForLane {
    fn run(&mut self, fetcher: &BackgroundFetcher, _: Duration) -> Next {
        let (parked, parker) = (&fetcher.parked, &fetcher.parkers[self.lane]);
        parker.clear();
        let now_ns = || fetcher.core.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        loop {
            let taken = parked.lock(self.lane).take(BATCH_MAX);
            let Some((vb, waiting)) = taken else {
                parker.park();
                if parked.lock(self.lane).is_empty() {
                    return Next::Sleep;
                }
                parker.clear();
                continue;
            };
            fetcher.pager.make_room_for_fetch();
            let again = fetcher.fetch_batch(vb, waiting);
            if !again.is_empty() {
                parked.lock(self.lane).put_back(vb, again);
            }
            if now_ns().saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}

impl BackgroundFetcher {
    /// Reads for operations of one vBucket and resumes them. Returns those that have to be read for again.
    fn fetch_batch(&self, vb: VbId, waiting: Vec<PendingOp>) -> Vec<PendingOp> {
        let ticket = self.core.vbuckets[vb.index()].lock().store().fetch_ticket();
        let before = self.core.setup.clock.now();
        self.note_waits(&waiting, before);
        let mut resumption = Resumption::default();
        let (waiting, mut again) = self.answer_from_file(waiting, &mut resumption);
        let groups = by_key(waiting);
        let keys: Vec<&[u8]> = groups.iter().map(|group| group[0].key.as_bytes()).collect();
        let found = self.read_keys(vb, &keys);
        let now = self.core.setup.clock.now();
        self.note_read(&groups, before, now);
        let groups = groups.into_iter().zip(found);
        again.extend(self.resume_all(vb, now, ticket, groups, resumption));
        again
    }

    /// Resumes operations of one vBucket with the documents that were found for each group. Returns the operations that
    /// have to be read for again.
    pub(super) fn resume_all(
        &self,
        vb: VbId,
        now: Now,
        ticket: FetchTicket,
        groups: impl Iterator<Item = (KeyGroup, FetchResult)>,
        mut resumption: Resumption,
    ) -> Vec<PendingOp> {
        let mut again = Vec::new();
        let mut vbucket = self.core.vbuckets[vb.index()].lock();
        let ((), done) = self.core.account(now, &mut vbucket, |vbucket| {
            for (group, found) in groups {
                let group = self.without_refused(now, vbucket, group, &mut resumption);
                if !group.is_empty() {
                    let failed = self.put_found(vbucket, ticket, &group[0], found);
                    again.extend(self.resume(vbucket, now, group, failed, &mut resumption));
                }
            }
        });
        drop(vbucket);
        resumption.after_steps(&self.core, &*self.writers, vb, now, done);
        resumption.hand_over(&self.core);
        again
    }

    /// Completes operations that are answered from the file. Returns the others, and those that have to be read for again.
    fn answer_from_file(
        &self,
        waiting: Vec<PendingOp>,
        resumption: &mut Resumption,
    ) -> (Vec<PendingOp>, Vec<PendingOp>) {
        let (asks, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|op| op.op.asks_the_file());
        let mut again = Vec::new();
        for op in asks {
            let completion = match self.ask_the_file(&op) {
                Ok(FileAnswer::Keys(keys)) => Completion::Keys { result: Ok(keys) },
                Ok(FileAnswer::Figures(figures)) => Completion::Key {
                    result: Ok(figures),
                },
                Ok(FileAnswer::Document(key)) => {
                    again.push(PendingOp {
                        key: *key,
                        op: DocOp::Get.into(),
                        ..op
                    });
                    continue;
                }
                Err(status) => op.op.failed(status),
            };
            self.parked.release(&op);
            resumption.complete(&self.core, &op, completion);
        }
        (others, again)
    }

    /// Reads the documents of keys from the vBucket's file. A document that cannot be read does not affect the others.
    pub(super) fn read_keys(&self, vb: VbId, keys: &[&[u8]]) -> Vec<FetchResult> {
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
                self.on_read_failed(vb, &error.to_string());
                vec![Err(Status::Internal)]
            }
        }
    }

    fn get_many(&self, vb: VbId, keys: &[&[u8]]) -> Result<Vec<Option<Item>>, BucketError> {
        Ok(self.core.storage()?.get_many(vb, keys)?)
    }

    /// Fails the operations of a group that may not be resumed in a vBucket, and returns the others.
    fn without_refused(
        &self,
        now: Now,
        vbucket: &VBucket,
        group: KeyGroup,
        resumption: &mut Resumption,
    ) -> KeyGroup {
        let mut others = Vec::with_capacity(group.len());
        for op in group {
            match may_resume(&self.core, now, vbucket, &op.op) {
                Ok(()) => others.push(op),
                Err(status) => {
                    self.parked.release(&op);
                    resumption.fail(&self.core, &op, status);
                }
            }
        }
        others
    }

    /// Hands a vBucket the document that was found for an operation. Returns the failure of the read.
    fn put_found(
        &self,
        vbucket: &mut VBucket,
        ticket: FetchTicket,
        op: &PendingOp,
        found: FetchResult,
    ) -> Option<Status> {
        let item = match found {
            Ok(item) => item,
            Err(status) => return Some(status),
        };
        match vbucket.store_mut().fetched(ticket, op.key.as_bytes(), item) {
            Fetched::Known | Fetched::Stale => None,
            Fetched::Lost => {
                let key = op.key;
                let error = format!("it lacks {key:?}, which was written to it");
                self.on_read_failed(vbucket.id(), &error);
                Some(Status::Internal)
            }
        }
    }

    /// Runs the steps of operations that waited for the same document. Returns those that have to be read for again.
    fn resume(
        &self,
        vbucket: &mut VBucket,
        now: Now,
        group: KeyGroup,
        failed: Option<Status>,
        resumption: &mut Resumption,
    ) -> Vec<PendingOp> {
        let mut again = Vec::new();
        for mut op in group {
            if !resumption.run(&self.core, vbucket, now, &op) {
                op.attempts += 1;
                let may_try_again = op.attempts < ATTEMPTS_MAX;
                if failed.is_none() && may_try_again {
                    again.push(op);
                    continue;
                }
                let status = failed.unwrap_or(Status::TemporaryFailure);
                resumption.fail(&self.core, &op, status);
            }
            self.parked.release(&op);
        }
        again
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

    pub(super) fn note_read(&self, groups: &[KeyGroup], before: Now, now: Now) {
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

/// Groups operations by key, in order.
fn by_key(waiting: Vec<PendingOp>) -> Vec<KeyGroup> {
    let mut groups: Vec<KeyGroup> = Vec::with_capacity(waiting.len());
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
