//! Reads that front-end threads do for their own operations, as the places of the documents are known: beside their other
//! work, without waking another thread.
//!
//! Invariant: such an operation is in `located` of its thread, or in a [`Fetch`] that the thread has, or it was handed to
//! a lane.

use super::component::BackgroundFetcher;
use super::located::Fetch;
use crate::parked::{Op, PendingOp, Resumption};
use kedge_bucket_core::Total;
use kedge_storage::LocatedDocument;
use kedge_types::Status;
use kedge_types::limits::FRONT_END_READ_BYTES_MAX;
use kedge_vbucket::DocOp;
use std::io;

/// Returns whether an operation only reads a value, so that it may pass others that wait.
fn only_reads(op: &Op) -> bool {
    matches!(
        op,
        Op::Document(
            DocOp::Get
                | DocOp::GetWithTombstones
                | DocOp::GetReplica
                | DocOp::GetReplicaWithTombstones
        )
    )
}

impl BackgroundFetcher {
    /// Leaves an operation to its own thread, if that thread reads for itself, the place is known, and there is room: only
    /// tasks make room before they read. Otherwise returns the operation.
    pub(super) fn locate(&self, thread: u16, op: PendingOp) -> Option<PendingOp> {
        let is_own = only_reads(&op.op)
            && self.core.setup.completions.reads_for_itself(thread)
            && self.core.quota.used() <= self.core.quota.limit();
        if !is_own {
            return Some(op);
        }
        let vbucket = &self.core.vbuckets[op.vb.index()];
        let ticket = vbucket.lock().store().fetch_ticket();
        let storage = self.core.storage().ok();
        let located = storage.and_then(|storage| storage.locate(op.vb, op.key.as_bytes()));
        let is_small = |located: &LocatedDocument| {
            let place = located.place();
            place.end - place.start <= FRONT_END_READ_BYTES_MAX
        };
        let Some(located) = located.filter(is_small) else {
            return Some(op);
        };
        self.located[usize::from(thread)].lock().push(Fetch {
            ticket,
            op,
            located,
            before: self.core.setup.clock.now(),
            started: self.core.io_stats.begin_read(),
        });
        None
    }

    /// Moves the reads that a thread is to do for its own operations into `into`.
    pub fn take_fetches(&self, thread: u16, into: &mut Vec<Fetch>) {
        into.append(&mut self.located[usize::from(thread)].lock());
    }

    /// Hands a fetch to the tasks that read, as its thread cannot do it now.
    pub fn give_up_fetch(&self, fetch: Fetch) {
        self.queue_or_fail(fetch.into_op());
    }

    /// Resumes the operation of a fetch, which was read, or could not be.
    pub fn end_fetch(&self, fetch: Fetch, read: io::Result<Vec<u8>>) {
        let Fetch {
            ticket,
            op,
            located,
            before,
            started,
        } = fetch;
        let vb = op.vb;
        started.end(read.as_ref().ok().map(Vec::len));
        let found = located.item(read).map_err(|error| {
            self.on_read_failed(vb, &error.to_string());
            Status::Internal
        });
        let now = self.core.setup.clock.now();
        let groups = [vec![op]];
        self.note_waits(&groups[0], before);
        self.note_read(&groups, before, now);
        self.core.totals.add(Total::FetchedByFrontEnds, 1);
        let all = groups.into_iter().zip([found]);
        for again in self.resume_all(vb, now, ticket, all, Resumption::default()) {
            self.queue_or_fail(again);
        }
    }
}
