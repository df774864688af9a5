//! What the streams of one connection share: who is told, and the memory for what is read from files.

use super::StreamNotify;
use super::backfill::{Backfill, Backfills};
use super::stream::VbStream;
use crate::dcp::component::Dcp;
use crate::tasks::DCP_BACKFILL;
use kedge_bucket_core::BucketError;
use kedge_bucket_core::BucketPhase;
use kedge_bucket_core::Parker;
use kedge_bucket_core::add_task;
use kedge_replication::{Filter, StreamFlags, StreamRequest, Values, rollback_point};
use kedge_sync::{RankedMutex, ranks::NewBackfills};
use kedge_types::{CollectionId, ScopeId, Seqno, Status};
use kedge_vbucket::{FailoverTable, VBucket, VbState};
use std::collections::VecDeque;
use std::sync::Arc;

/// A stream that was opened.
#[derive(Debug)]
pub struct OpenedStream {
    /// The vBucket's history.
    pub failover: FailoverTable,
    /// The filter of the request, which knows the collections of its scope.
    pub filter: Filter,
    /// What is to be read.
    pub stream: VbStream,
}

/// Why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRefused {
    /// The receiver has to go back to this seqno first.
    Rollback(Seqno),
    /// Anything else.
    Status(Status),
}

impl From<Status> for StreamRefused {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Streams of one connection. They take turns when they have to read files, and have `dcp_backfill_bytes_max` of memory
/// together for what was read and not given out. Streams may be read on after it was dropped.
#[derive(Clone, Debug)]
pub struct StreamConnection {
    dcp: Arc<Dcp>,
    connection: Arc<Connection>,
    values: Values,
}

pub(super) struct Connection {
    pub(super) name: String,
    pub(super) notify: Arc<dyn StreamNotify>,
    executor: kedge_executor::Executor,
    backfills: Arc<Queue>,
}

/// The way to the task that reads files.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) new: RankedMutex<NewBackfills, VecDeque<Backfill>>,
    pub(super) parker: Arc<Parker>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn begin_backfill(&self, dcp: &Dcp, backfill: Backfill) {
        self.backfills.new.lock().push_back(backfill);
        self.wake_backfills(dcp);
    }

    pub(super) fn wake_backfills(&self, dcp: &Dcp) {
        if let Some(task) = self.backfills.parker.unpark() {
            dcp.core.setup.executor.wake(task);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(task) = self.backfills.parker.task() {
            self.executor.cancel(task);
        }
    }
}

impl Dcp {
    /// Begins a connection that streams are read for; `name` is for statistics.
    ///
    /// # Errors
    /// [`BucketError::Executor`] when the bucket ends.
    pub fn connect_streams(
        self: &Arc<Self>,
        name: &str,
        notify: Arc<dyn StreamNotify>,
    ) -> Result<StreamConnection, BucketError> {
        let backfills = Arc::new(Queue::default());
        let does = "reads files for streams";
        let task = add_task(self, &DCP_BACKFILL, does, Backfills::new(&backfills))?;
        backfills.parker.set_task(task);
        self.core.setup.executor.wake(task);
        Ok(StreamConnection {
            dcp: Arc::clone(self),
            connection: Arc::new(Connection {
                name: name.to_owned(),
                notify,
                executor: self.core.setup.executor.clone(),
                backfills,
            }),
            values: Values::Whole,
        })
    }
}

impl StreamConnection {
    /// Streams that are opened from now on need these values only: what comes from files has no others, and they are not
    /// read.
    #[must_use]
    pub fn with_values(self, values: Values) -> Self {
        Self { values, ..self }
    }

    /// Opens a stream. Whether there is another of the vBucket is the connection's business.
    ///
    /// # Errors
    /// [`StreamRefused::Rollback`] when the receiver has what is no part of the vBucket's history. `UnknownCollection` or
    /// `UnknownScope` when the filter names what is not open in the vBucket. `NotMyVbucket` when
    /// there is no such vBucket here, or not in the state that was asked for, or it does not move to who asks to take it
    /// over; `OutOfRange` when the seqnos do not fit each
    /// other; `TemporaryFailure` while the bucket or the vBucket is not ready.
    pub fn open_stream(&self, request: &StreamRequest) -> Result<OpenedStream, StreamRefused> {
        let dcp = &self.dcp;
        if dcp.core.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure.into());
        }
        let vbucket = dcp.core.vbuckets.get(request.vb.index());
        let mut vbucket = vbucket.ok_or(Status::NotMyVbucket)?.lock();
        check_state(&vbucket, request.flags)?;
        if request.flags.contains(StreamFlags::TAKEOVER) {
            dcp.may_take_over(&vbucket, request.consumer.as_ref())?;
        }
        let mut request = request.clone();
        // Who knows a newer manifest than the node would take what it does not have yet for dropped.
        let known = vbucket.collections().uid().max(dcp.core.manifest().uid);
        if request.manifest_seen.is_some_and(|seen| seen > known) {
            return Err(Status::TemporaryFailure.into());
        }
        let scopes: Vec<ScopeId> = vbucket
            .collections()
            .scopes()
            .iter()
            .map(|scope| scope.id)
            .collect();
        (request.filter).resolve(vbucket.collections().open(), &scopes)?;
        let filter = request.filter.clone();
        let high = vbucket.high_seqno();
        if request.flags.contains(StreamFlags::FROM_LATEST) {
            (request.start, request.snap_start, request.snap_end) = (high, high, high);
        }
        check_seqnos(&request)?;
        let (table, purge) = (vbucket.failover(), vbucket.history().purge_seqno());
        let filtered = filtered_high(&vbucket, &request.filter);
        rollback_point(table, high, purge, filtered, &request).map_err(StreamRefused::Rollback)?;
        if request.flags.contains(StreamFlags::DISK_ONLY) {
            request.end = request.end.min(vbucket.persisted_seqno());
        }
        if request.flags.contains(StreamFlags::TO_LATEST) {
            request.end = request.end.min(high);
        }
        let failover = vbucket.failover().clone();
        let (mut stream, _) = dcp.core.measure(&mut vbucket, |vbucket| {
            VbStream::new(dcp, &self.connection, request, self.values, vbucket)
        });
        drop(vbucket);
        stream.begin();
        Ok(OpenedStream {
            failover,
            filter,
            stream,
        })
    }
}

fn check_state(vbucket: &VBucket, flags: StreamFlags) -> Result<(), Status> {
    if vbucket.is_quarantined() || vbucket.store().is_rewinding() {
        return Err(Status::TemporaryFailure);
    }
    let takes_over = flags.contains(StreamFlags::TAKEOVER);
    let needs_active = flags.contains(StreamFlags::ACTIVE_ONLY) || takes_over;
    match vbucket.state() {
        // A takeover broke off: another stream has to bring the rest.
        VbState::Dead if takes_over && !vbucket.is_deleted() => Ok(()),
        VbState::Active => Ok(()),
        VbState::Replica | VbState::Pending if !needs_active => Ok(()),
        _ => Err(Status::NotMyVbucket),
    }
}

/// The seqno of the last change in collections that are all open; `None` when a stream is not about such.
pub(super) fn filtered_high(vbucket: &VBucket, filter: &Filter) -> Option<Seqno> {
    let Filter::Collections(ids) = filter else {
        return None;
    };
    let high_of = |id: &CollectionId| {
        let open = vbucket
            .collections()
            .open()
            .iter()
            .find(|open| open.id == *id);
        open.map(|open| open.high_seqno)
    };
    ids.iter()
        .map(high_of)
        .try_fold(Seqno(0), |high, of| Some(high.max(of?)))
}

fn check_seqnos(request: &StreamRequest) -> Result<(), Status> {
    let within = (request.snap_start..=request.snap_end).contains(&request.start);
    if request.start > request.end || !within {
        return Err(Status::OutOfRange);
    }
    Ok(())
}
