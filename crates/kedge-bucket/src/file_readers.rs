//! The wait queue of backfills and range scans for the files of vBuckets.
//!
//! A reader requests a vBucket's file at a seqno. If the file has not reached it, the log applier applies the vBucket next
//! (without a log, the flusher flushes it). The file is delivered between two batches, so the reader sees it at a
//! consistent point, however often it is written.
//!
//! Invariants:
//! * A file is delivered only to readers of its own history. After a flush, a deletion or a rollback, the previous file
//!   exists until the change is applied. Its seqnos may be high enough, but they belong to another history.
//! * A reader whose history has ended is notified instead of waiting.

use kedge_bucket_core::{BucketCore, BucketError, Parker};
use kedge_persistence::Persistence;
use kedge_storage::FileView;
use kedge_sync::{
    RankedMutex,
    ranks::{FileArrival, FileWaiters},
};
use kedge_types::{Seqno, VbId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The result of a request for a file.
#[derive(Clone, Debug)]
pub(crate) enum FileDelivery {
    /// The file, which has reached the requested seqno.
    File(Arc<FileView>),
    /// The vBucket has another history now, so the file will never be delivered.
    HistoryEnded,
}

/// A pending request for a file, shared by the reader and the wait queue.
#[derive(Debug, Default)]
pub(crate) struct FileRequest {
    delivery: RankedMutex<FileArrival, Option<FileDelivery>>,
    /// True if the reader has abandoned the request.
    abandoned: AtomicBool,
}

impl FileRequest {
    fn deliver(&self, delivery: FileDelivery) {
        *self.delivery.lock() = Some(delivery);
    }

    pub(crate) fn take(&self) -> Option<FileDelivery> {
        self.delivery.lock().take()
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// An entry of the wait queue.
#[derive(Debug)]
struct FileWaiter {
    vb: VbId,
    /// The history of the vBucket that the file must belong to.
    history: u32,
    /// The seqno that the file must have reached.
    target: Seqno,
    request: Arc<FileRequest>,
    /// The parker of the reader's task.
    parker: Arc<Parker>,
}

/// The queue of readers that wait for files.
#[derive(Debug)]
struct FileWaitQueue {
    awaited: Box<[AtomicBool]>,
    /// The number of vBuckets whose files are awaited.
    count: AtomicUsize,
    waiters: RankedMutex<FileWaiters, Vec<FileWaiter>>,
}

impl FileWaitQueue {
    fn new(vbuckets: u16) -> Self {
        Self {
            awaited: (0..vbuckets).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicUsize::new(0),
            waiters: RankedMutex::default(),
        }
    }

    fn set_awaited(&self, vb: VbId, is: bool) {
        let was = self.awaited[vb.index()].swap(is, Ordering::SeqCst);
        match (was, is) {
            (false, true) => drop(self.count.fetch_add(1, Ordering::SeqCst)),
            (true, false) => drop(self.count.fetch_sub(1, Ordering::SeqCst)),
            _ => {}
        }
    }
}

impl FileWaitQueue {
    /// Returns whether a reader waits for the file of `vb`, or of any vBucket.
    pub(crate) fn has_waiter(&self, vb: Option<VbId>) -> bool {
        match vb {
            Some(vb) => self.awaited[vb.index()].load(Ordering::SeqCst),
            None => self.count.load(Ordering::SeqCst) > 0,
        }
    }
}

/// The component that provides vBuckets' files to backfills and range scans.
#[derive(Debug)]
pub(crate) struct FileReaders {
    pub(crate) core: Arc<BucketCore>,
    pub(crate) persistence: Arc<Persistence>,
    files: FileWaitQueue,
}

impl FileReaders {
    pub(crate) fn new(core: &Arc<BucketCore>, persistence: &Arc<Persistence>) -> Self {
        Self {
            files: FileWaitQueue::new(core.vbucket_count()),
            core: Arc::clone(core),
            persistence: Arc::clone(persistence),
        }
    }

    /// Returns whether a reader waits for the file of `vb`, or of any vBucket.
    pub(crate) fn has_waiter(&self, vb: Option<VbId>) -> bool {
        self.files.has_waiter(vb)
    }
}

impl FileReaders {
    /// Returns the vBucket's file at a consistent point of `history`, if it has reached `target`.
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
        // A history never returns, so one that is the same before and after was the same in between.
        let fits = |view: &FileView| view.is_consistent() && view.high_seqno() >= target && is_of();
        Ok(view.filter(fits).map(Arc::new))
    }

    /// Requests the vBucket's file at a consistent point of `history` and at least at `target`. If the file is not available
    /// now, it is delivered later, and the task of `parker` is woken.
    pub(crate) fn request_file(
        &self,
        vb: VbId,
        history: u32,
        target: Seqno,
        parker: &Arc<Parker>,
    ) -> Result<Arc<FileRequest>, BucketError> {
        let request = Arc::new(FileRequest::default());
        if let Some(view) = self.view_at(vb, history, target)? {
            request.deliver(FileDelivery::File(view));
            return Ok(request);
        }
        let files = &self.files;
        let mut waiters = files.waiters.lock();
        waiters.push(FileWaiter {
            vb,
            history,
            target,
            request: Arc::clone(&request),
            parker: Arc::clone(parker),
        });
        files.set_awaited(vb, true);
        drop(waiters);
        // The file may have reached the seqno between the check and the insertion.
        self.deliver_file(vb);
        if self.files.has_waiter(Some(vb)) {
            self.persistence.applier().request_apply(vb);
        }
        Ok(request)
    }

    /// Delivers the vBucket's file to waiting readers, and notifies readers of earlier histories. It is called after a batch
    /// has been committed to the file, and after a change of the history.
    pub(crate) fn deliver_file(&self, vb: VbId) {
        if !self.files.has_waiter(Some(vb)) {
            return;
        }
        let history = self.core.vbuckets[vb.index()].lock().history_id();
        let view = match self.view_at(vb, history, Seqno(0)) {
            Ok(view) => view,
            Err(error) => {
                tracing::error!(bucket = self.core.name(), vbucket = %vb, %error, "the file of a vBucket could not be read for a waiting backfill or range scan");
                None
            }
        };
        let files = &self.files;
        let mut waiters = files.waiters.lock();
        let has = |waiter: &FileWaiter| {
            let is_there = |view: &Arc<FileView>| view.high_seqno() >= waiter.target;
            waiter.history == history && view.as_ref().is_some_and(is_there)
        };
        // A reader that was added since may belong to a later history than the one examined above.
        let has_ended = |waiter: &FileWaiter| {
            waiter.history != history
                && waiter.history != self.core.vbuckets[vb.index()].lock().history_id()
        };
        let is_done = |waiter: &FileWaiter| {
            has(waiter) || has_ended(waiter) || waiter.request.abandoned.load(Ordering::Relaxed)
        };
        let ready: Vec<FileWaiter> = waiters
            .extract_if(.., |waiter| waiter.vb == vb && is_done(waiter))
            .collect();
        let is_awaited = waiters.iter().any(|waiter| waiter.vb == vb);
        files.set_awaited(vb, is_awaited);
        drop(waiters);
        for waiter in ready {
            let view = view.clone().filter(|_| has(&waiter));
            waiter
                .request
                .deliver(view.map_or(FileDelivery::HistoryEnded, FileDelivery::File));
            if let Some(task) = waiter.parker.unpark() {
                self.core.setup.executor.wake(task);
            }
        }
    }
}
