//! Fetches of which it is known where their documents are: the thread whose command waits has them read for itself, beside
//! what else it does, and no other has to be woken for it.
//!
//! Invariant: such a command is in `located` of its thread, or in a [`Fetch`] that the thread has, or it was handed to a
//! lane. Each ends once, whatever becomes of its vBucket or its bucket.

use super::read::Resumed;
use super::{Op, PendingOp};
use crate::residency::Residency;
use kedge_bucket_core::StartedRead;
use kedge_bucket_core::Total;
use kedge_disk::RingFile;
use kedge_storage::Located;
use kedge_types::limits::FRONT_END_READ_BYTES_MAX;
use kedge_types::{Now, Status, VbId};
use kedge_vbucket::{DocOp, FetchTicket};
use std::io;
use std::ops::Range;

/// A document that a thread reads for a command that waits; it goes back with [`Residency::end_fetch`].
#[derive(Debug)]
#[must_use = "a command waits for it"]
pub struct Fetch {
    vb: VbId,
    ticket: FetchTicket,
    pending: PendingOp,
    located: Located,
    /// When it was asked for.
    before: Now,
    begun: StartedRead,
}

impl Op {
    /// Whether it does nothing but read a value, so that it may pass by others that wait.
    fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Document(
                DocOp::Get
                    | DocOp::GetWithTombstones
                    | DocOp::GetReplica
                    | DocOp::GetReplicaWithTombstones
            )
        )
    }
}

impl Residency {
    /// Leaves a command to its own thread, if that reads for itself, it is known where, and there is room: tasks make some
    /// before they read. Gives it back otherwise.
    pub(super) fn locate(&self, thread: u16, vb: VbId, pending: PendingOp) -> Option<PendingOp> {
        let is_its_own = pending.op.only_reads()
            && self.core.setup.completions.reads_for_itself(thread)
            && self.core.quota.used() <= self.core.quota.limit();
        if !is_its_own {
            return Some(pending);
        }
        let ticket = self.core.vbuckets[vb.index()].lock().store().fetch_ticket();
        let storage = self.core.storage().ok();
        let located = storage.and_then(|storage| storage.locate(vb, pending.key.as_bytes()));
        let is_small = |located: &Located| {
            let place = located.place();
            place.end - place.start <= FRONT_END_READ_BYTES_MAX
        };
        let Some(located) = located.filter(is_small) else {
            return Some(pending);
        };
        let of_thread = &self.signals.fetches.located[usize::from(thread)];
        of_thread.lock().push(Fetch {
            vb,
            ticket,
            pending,
            located,
            before: self.core.setup.clock.now(),
            begun: self.core.io_stats.begin_read(),
        });
        None
    }

    /// What a thread is to read for commands of its own.
    pub fn take_fetches(&self, thread: u16, into: &mut Vec<Fetch>) {
        into.append(&mut self.signals.fetches.located[usize::from(thread)].lock());
    }

    /// Hands a fetch to the tasks that read: its thread cannot do it now.
    pub fn give_up_fetch(&self, fetch: Fetch) {
        self.read_by_task(fetch.vb, fetch.into_pending());
    }

    /// Hands a command, which was told to wait already, to the tasks.
    fn read_by_task(&self, vb: VbId, pending: PendingOp) {
        let (cookie, failed) = (pending.cookie, pending.op.failed(Status::TemporaryFailure));
        if self.queue_for_fetch::<()>(vb, pending).is_err() {
            self.core
                .setup
                .completions
                .complete(&mut vec![(cookie, failed)]);
        }
    }

    /// What a fetch is about was read, or could not be: its command goes on.
    pub fn end_fetch(&self, fetch: Fetch, read: io::Result<Vec<u8>>) {
        let Fetch {
            vb,
            ticket,
            pending,
            located,
            before,
            begun,
        } = fetch;
        begun.end(read.as_ref().ok().map(Vec::len));
        let found = located.item(read).map_err(|error| {
            self.on_fetch_failed(vb, &error.to_string());
            Status::Internal
        });
        let now = self.core.setup.clock.now();
        let groups = [vec![pending]];
        self.note_waits(&groups[0], before);
        self.note_read(&groups, before, now);
        self.core.totals.add(Total::FetchedByFrontEnds, 1);
        let all = groups.into_iter().zip([found]);
        for again in self.go_on(vb, now, ticket, all, Resumed::default()) {
            self.read_by_task(vb, again);
        }
    }
}

impl Fetch {
    /// Its command, for which somebody else reads, or nobody.
    pub(super) fn into_pending(self) -> PendingOp {
        self.pending
    }

    /// The file to be read.
    #[must_use]
    pub fn file(&self) -> &RingFile {
        self.located.file()
    }

    /// Which of its bytes.
    #[must_use]
    pub fn place(&self) -> Range<u64> {
        self.located.place()
    }
}
