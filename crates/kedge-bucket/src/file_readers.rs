//! Waiting until a vBucket's file has what a backfill or a range scan needs.
//!
//! What the log has goes into the files when its time has come; they cannot wait for that, so its vBucket is
//! applied next (flushed, without a log). Whoever brings the changes there hands out the file as it is then, between two
//! batches: so it is seen at a consistent point however often it is written.
//!
//! Invariants:
//! * A file is handed out only to readers of its own history. After a flush, a deletion or a rollback the file of before
//!   stays where it is until it is applied; its seqnos may be high enough, but they are of another history.
//! * A reader whose history has ended waits for nothing: it is told so.

use kedge_bucket_core::BucketCore;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::Parker;
use kedge_persistence::Persistence;
use kedge_storage::FileView;
use kedge_sync::{
    RankedMutex,
    ranks::{FileArrival, FileWaiters},
};
use kedge_types::{Seqno, VbId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A file that is waited for.
#[derive(Clone, Debug)]
pub(crate) enum Arrived {
    /// The file, which has what is needed.
    File(Arc<FileView>),
    /// The vBucket has another history now. The file never comes.
    HistoryEnded,
}

/// Where a file arrives.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    arrived: RankedMutex<FileArrival, Option<Arrived>>,
    /// Nobody waits any more.
    over: AtomicBool,
}

impl Arrival {
    fn set(&self, arrived: Arrived) {
        *self.arrived.lock() = Some(arrived);
    }

    pub(crate) fn take(&self) -> Option<Arrived> {
        self.arrived.lock().take()
    }

    pub(crate) fn give_up(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Waiter {
    vb: VbId,
    /// The vBucket's history that the file has to be of.
    history: u32,
    /// The file has to have everything up to here.
    target: Seqno,
    arrival: Arc<Arrival>,
    /// Who waits.
    parker: Arc<Parker>,
}

/// The files that are waited for.
#[derive(Debug)]
struct Files {
    wanted: Box<[AtomicBool]>,
    /// How many vBuckets' files.
    count: AtomicUsize,
    waiters: RankedMutex<FileWaiters, Vec<Waiter>>,
}

impl Files {
    fn new(vbuckets: u16) -> Self {
        Self {
            wanted: (0..vbuckets).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
            waiters: RankedMutex::default(),
        }
    }

    fn set_wanted(&self, vb: VbId, is: bool) {
        let was = self.wanted[vb.index()].swap(is, Ordering::SeqCst);
        match (was, is) {
            (false, true) => drop(self.count.fetch_add(1, Ordering::SeqCst)),
            (true, false) => drop(self.count.fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

impl Files {
    /// Returns whether a reader waits for the file of `vb`, or of any vBucket.
    pub(crate) fn is_file_wanted(&self, vb: Option<VbId>) -> bool {
        match vb {
            Some(vb) => self.wanted[vb.index()].load(Ordering::SeqCst),
            None => self.count.load(Ordering::SeqCst) > 0,
        }
    }
}

/// Readers of vBuckets' files: backfills and range scans.
#[derive(Debug)]
pub(crate) struct FileReaders {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) persistence: Arc<Persistence>,
    files: Files,
}

impl FileReaders {
    pub(crate) fn new(core: &Arc<BucketCore>, persistence: &Arc<Persistence>) -> Self {
        Self {
            files: Files::new(core.vbucket_count()),
            core: Arc::clone(core),
            persistence: Arc::clone(persistence),
        }
    }

    /// Returns whether a reader waits for the file of `vb`, or of any vBucket.
    pub(crate) fn is_file_wanted(&self, vb: Option<VbId>) -> bool {
        self.files.is_file_wanted(vb)
    }
}

impl FileReaders {
    /// The vBucket's file at a consistent point of `history` that has everything up to `target`, if it has come so far.
    pub(crate) fn view_at(
        &self,
        vb: VbId,
        history: u32,
        target: Seqno,
    ) -> Result<Option<Arc<FileView>>, BucketError> {
        let is_of =
            || self.core.vbuckets[vb.index()].lock().store().file_history() == Some(history);
        if !is_of() {
            return Ok(None);
        }
        let view = self.core.storage()?.view(vb)?;
        // A history that is the same before and after was the same all the time: none comes back.
        let fits = |view: &FileView| view.is_consistent() && view.high_seqno() >= target && is_of();
        Ok(view.filter(fits).map(Arc::new))
    }

    /// Asks for the vBucket's file at a consistent point of `history` that has everything up to `target`. It arrives later,
    /// and `parker`'s task is woken then, if it is not there now.
    pub(crate) fn want_file(
        &self,
        vb: VbId,
        history: u32,
        target: Seqno,
        parker: &Arc<Parker>,
    ) -> Result<Arc<Arrival>, BucketError> {
        let arrival = Arc::new(Arrival::default());
        if let Some(view) = self.view_at(vb, history, target)? {
            arrival.set(Arrived::File(view));
            return Ok(arrival);
        }
        let files = &self.files;
        let mut waiters = files.waiters.lock();
        waiters.push(Waiter {
            vb,
            history,
            target,
            arrival: Arc::clone(&arrival),
            parker: Arc::clone(parker),
        });
        files.set_wanted(vb, true);
        drop(waiters);
        // It may have come so far between the look and now.
        self.offer_file(vb);
        if self.files.is_file_wanted(Some(vb)) {
            self.persistence.applier().request_apply(vb);
        }
        Ok(arrival)
    }

    /// A batch is in the vBucket's file, or the vBucket has another history: hands the file out to readers that wait for
    /// it, and tells those of an earlier history.
    pub(crate) fn offer_file(&self, vb: VbId) {
        if !self.files.is_file_wanted(Some(vb)) {
            return;
        }
        let history = self.core.vbuckets[vb.index()].lock().history_id();
        let view = match self.view_at(vb, history, Seqno(0)) {
            Ok(view) => view,
            Err(error) => {
                tracing::error!(bucket = self.core.name(), vbucket = %vb, %error, "a file cannot be read for a stream");
                None
            }
        };
        let files = &self.files;
        let mut waiters = files.waiters.lock();
        let has = |waiter: &Waiter| {
            let is_there = |view: &Arc<FileView>| view.high_seqno() >= waiter.target;
            waiter.history == history && view.as_ref().is_some_and(is_there)
        };
        // One that came since may be of a later history than the one that was looked at.
        let is_of_past = |waiter: &Waiter| {
            waiter.history != history
                && waiter.history != self.core.vbuckets[vb.index()].lock().history_id()
        };
        let is_done = |waiter: &Waiter| {
            has(waiter) || is_of_past(waiter) || waiter.arrival.over.load(Ordering::Relaxed)
        };
        let arrived: Vec<Waiter> = waiters
            .extract_if(.., |waiter| waiter.vb == vb && is_done(waiter))
            .collect();
        let is_wanted = waiters.iter().any(|waiter| waiter.vb == vb);
        files.set_wanted(vb, is_wanted);
        drop(waiters);
        for waiter in arrived {
            let view = view.clone().filter(|_| has(&waiter));
            waiter
                .arrival
                .set(view.map_or(Arrived::HistoryEnded, Arrived::File));
            if let Some(task) = waiter.parker.unpark() {
                self.core.setup.executor.wake(task);
            }
        }
    }
}
