//! The shared state of the streams of one connection: the receiver of notifications, and the backfills.

use super::backfill::{Backfill, BackfillTask};
use super::copy_pace::CopyPace;
use super::signals::StreamNotify;
use super::stream::VbStream;
use crate::dcp::component::Dcp;
use crate::tasks::DCP_BACKFILL;
use kedge_bucket_core::{BucketError, BucketPhase, Parker, add_task};
use kedge_replication::{Filter, StreamFlags, StreamRequest, Values, rollback_point};
use kedge_sync::{RankedMutex, ranks::NewBackfills};
use kedge_types::{CollectionId, ScopeId, Seqno, Status};
use kedge_vbucket::{FailoverTable, VBucket, VbState};
use std::collections::VecDeque;
use std::sync::Arc;

/// The result of opening a stream.
#[derive(Debug)]
pub struct OpenedStream {
    /// The failover table of the vBucket.
    pub failover: FailoverTable,
    /// The filter of the request, with a scope resolved to its collections.
    pub filter: Filter,
    /// The stream.
    pub stream: VbStream,
}

/// The error of a stream request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRefused {
    /// The receiver must roll back to this seqno first.
    Rollback(Seqno),
    /// Any other error.
    Status(Status),
}

impl From<Status> for StreamRefused {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// The outbound side of one connection. Its streams take turns in reading files, and share the memory limit
/// `dcp_backfill_bytes_max` for items that were read and not sent. Streams remain readable after this value is dropped.
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
    backfills: Arc<BackfillQueue>,
}

/// The queue of the task that executes the backfills of a connection.
#[derive(Debug, Default)]
pub(super) struct BackfillQueue {
    pub(super) new: RankedMutex<NewBackfills, VecDeque<Backfill>>,
    pub(super) parker: Arc<Parker>,
    /// The rate at which the receiver takes new copies.
    pub(super) copy_pace: CopyPace,
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
    /// Registers a connection that reads streams. `name` is the connection's name in statistics.
    ///
    /// # Errors
    /// [`BucketError::Executor`] if the bucket is shutting down.
    pub fn connect_streams(
        self: &Arc<Self>,
        name: &str,
        notify: Arc<dyn StreamNotify>,
    ) -> Result<StreamConnection, BucketError> {
        let backfills = Arc::new(BackfillQueue::default());
        let description = "reads files for DCP streams";
        let task = add_task(
            self,
            &DCP_BACKFILL,
            description,
            BackfillTask::new(&backfills),
        )?;
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
    /// Sets the part of values that the streams opened from now on need. Backfills read no other parts.
    #[must_use]
    pub fn with_values(self, values: Values) -> Self {
        Self { values, ..self }
    }

    /// Limits the rate of backfills for new copies, in bytes per second; 0 is no limit.
    pub fn limit_copies(&self, bytes_per_sec: u64) {
        self.connection.backfills.copy_pace.limit(bytes_per_sec);
    }

    /// Opens a stream. The caller checks whether the connection already has a stream of the vBucket.
    ///
    /// # Errors
    /// [`StreamRefused::Rollback`] if the receiver has changes that are not part of the vBucket's history.
    /// `UnknownCollection` or `UnknownScope` if the filter names a collection or scope that is not open in the vBucket.
    /// `NotMyVbucket` if the vBucket does not exist or is not in the requested state, or if the consumer of a takeover is not
    /// the next active. `OutOfRange` if the seqnos of the request contradict each other. `TemporaryFailure` while the bucket
    /// or the vBucket is not ready.
    pub fn open_stream(&self, request: &StreamRequest) -> Result<OpenedStream, StreamRefused> {
        let dcp = &self.dcp;
        if dcp.core.phase() != BucketPhase::Open {
            return Err(Status::TemporaryFailure.into());
        }
        let vbucket = dcp.core.vbuckets.get(request.vb.index());
        let mut vbucket = vbucket.ok_or(Status::NotMyVbucket)?.lock();
        check_state(&vbucket, request.flags)?;
        if request.flags.contains(StreamFlags::TAKEOVER) {
            dcp.check_takeover(&vbucket, request.consumer.as_ref())?;
        }
        let mut request = request.clone();
        // A consumer with a newer manifest than this node would take collections that are unknown here for dropped.
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
        // After an interrupted takeover, another stream sends the remaining changes.
        VbState::Dead
            if takes_over && vbucket.store().is_handed_over() && !vbucket.is_deleted() =>
        {
            Ok(())
        }
        VbState::Active => Ok(()),
        VbState::Replica | VbState::Pending if !needs_active => Ok(()),
        _ => Err(Status::NotMyVbucket),
    }
}

/// Returns the high seqno of the filter's collections; `None` if the filter does not list collections or if one of them is
/// not open.
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
