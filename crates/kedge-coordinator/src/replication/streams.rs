//! The streams of a link: from the events of frames to the bucket.

mod files;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use kedge_bucket::{ApplyError, Bucket, COPY_CHANGE_COST_BYTES, Received, RollbackReport, VbState};
use kedge_cluster::MoveStart;
use kedge_node::coordination::{PeerAddress, StreamPhase, StreamStatus};
use kedge_node::inbox::Inbox;
use kedge_replication::{Consumer, ConsumerEvent, StreamFlags};
use kedge_types::{Seqno, Status, VbId};

use super::backoff::RetryBackoff;
use super::status::{LinkStatusCell, LinkTotals};
use super::{LinkMessage, NodeIdentity};

/// The number of changes of a vBucket after which they are passed to the bucket.
const BATCH_MAX: usize = 512;

/// The phase of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowPhase {
    /// The stream is requested at this time, in nanoseconds of the monotonic clock.
    Waiting(u64),
    /// Other files are being copied first.
    WaitingForFiles,
    /// The file of the peer is being copied.
    Copying,
    Asked,
    Streaming,
    RollingBack,
    TakenOver,
}

struct FollowedStream {
    /// The start of the move if this node takes it over.
    takeover: Option<MoveStart>,
    /// True if it is a new copy.
    copy: bool,
    /// The number of the attempt, with its owners.
    asked: u64,
    attempt: Arc<()>,
    phase: FollowPhase,
    backoff: RetryBackoff,
    /// True if it was rolled back since it last followed.
    went_back: bool,
    /// True if a copy of the peer's file was tried.
    tried_file: bool,
}

impl FollowedStream {
    /// Returns a check that this attempt is still the current one.
    fn still(&self) -> impl Fn() -> bool + Clone + Send + 'static {
        let attempt = Arc::downgrade(&self.attempt);
        move || attempt.strong_count() > 0
    }
}

/// Received data that was not passed to the bucket yet.
enum ReceivedInput {
    /// Consecutive changes of one vBucket.
    Changes(VbId, Vec<Received>),
    /// Anything else.
    Event(VbId, ConsumerEvent),
}

impl ReceivedInput {
    fn vb(&self) -> VbId {
        match self {
            Self::Changes(vb, _) | Self::Event(vb, _) => *vb,
        }
    }
}

/// The way back to the peer.
pub(super) struct PeerWriter<'l> {
    pub(super) consumer: &'l mut Consumer,
    pub(super) out: &'l mut Vec<u8>,
}

/// The vBuckets of a link.
pub(super) struct LinkStreams {
    link: u64,
    peer: PeerAddress,
    inbox: Arc<Inbox<LinkMessage>>,
    board: LinkStatusCell,
    totals: Arc<LinkTotals>,
    streams: BTreeMap<VbId, FollowedStream>,
    /// Received data, in order.
    queue: VecDeque<ReceivedInput>,
    /// The number of requested streams.
    attempts: u64,
    /// A buffer for the next changes.
    spare: Vec<Received>,
    /// The number of changes that the bucket accepted since the last query.
    count: usize,
    /// The bytes of new copies that were received since the last query, with what each change costs beyond its size.
    copied: u64,
    /// The time before which no stream is requested.
    next_ns: Option<u64>,
    /// True if new copies may be filled with files.
    pub(super) from_files: bool,
    /// This node, as the peer knows it; `None` before the first connection.
    pub(super) identity: Option<Arc<NodeIdentity>>,
}

impl LinkStreams {
    pub(super) fn new(
        link: u64,
        peer: PeerAddress,
        inbox: Arc<Inbox<LinkMessage>>,
        board: LinkStatusCell,
        totals: Arc<LinkTotals>,
    ) -> Self {
        Self {
            link,
            peer,
            inbox,
            board,
            totals,
            streams: BTreeMap::new(),
            queue: VecDeque::new(),
            attempts: 0,
            spare: Vec::new(),
            count: 0,
            copied: 0,
            next_ns: None,
            from_files: false,
            identity: None,
        }
    }

    pub(super) fn vbuckets(&self) -> impl Iterator<Item = VbId> {
        self.streams.keys().copied()
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    pub(super) fn count_bytes(&self, bytes: u64) {
        LinkTotals::add(&self.totals.bytes, bytes);
    }

    /// Returns the number of changes that the bucket accepted since the last call.
    pub(super) fn take_count(&mut self) -> usize {
        std::mem::take(&mut self.count)
    }

    fn show(&self, vb: VbId, change: impl FnOnce(&mut StreamStatus)) {
        change(self.board.lock().vbuckets.entry(vb).or_default());
    }

    fn set(&mut self, vb: VbId, phase: FollowPhase) {
        let Some(stream) = self.streams.get_mut(&vb) else {
            return;
        };
        stream.phase = phase;
        let shown = match phase {
            FollowPhase::Waiting(at) => {
                self.next_ns = Some(self.next_ns.map_or(at, |next| next.min(at)));
                StreamPhase::Waiting
            }
            FollowPhase::WaitingForFiles => StreamPhase::Waiting,
            FollowPhase::Copying => StreamPhase::Copying,
            FollowPhase::Asked => StreamPhase::Asked,
            FollowPhase::Streaming => {
                stream.backoff.reset();
                stream.went_back = false;
                StreamPhase::Streaming
            }
            FollowPhase::RollingBack => StreamPhase::RollingBack,
            FollowPhase::TakenOver => StreamPhase::TakenOver,
        };
        self.show(vb, |status| status.phase = shown);
    }

    /// Returns the start of the move if a vBucket is taken over.
    pub(super) fn takeover(&self, vb: VbId) -> Option<MoveStart> {
        self.streams.get(&vb)?.takeover
    }

    /// Sets the vBuckets that are new copies.
    pub(super) fn set_copies(&mut self, copies: &BTreeSet<VbId>) {
        for (vb, stream) in &mut self.streams {
            stream.copy = copies.contains(vb);
        }
    }

    /// Returns whether a vBucket is a new copy.
    pub(super) fn has_copies(&self) -> bool {
        self.streams.values().any(|stream| stream.copy)
    }

    /// Returns the bytes of new copies since the last call.
    pub(super) fn take_copied(&mut self) -> u64 {
        let copied = std::mem::take(&mut self.copied);
        LinkTotals::add(&self.totals.copy_bytes, copied);
        copied
    }

    /// Starts following a vBucket, or taking it over.
    pub(super) fn add(&mut self, vb: VbId, takeover: Option<MoveStart>, now_ns: u64) {
        if self.streams.contains_key(&vb) {
            return;
        }
        let stream = FollowedStream {
            takeover,
            copy: false,
            asked: 0,
            attempt: Arc::default(),
            phase: FollowPhase::Waiting(now_ns),
            backoff: RetryBackoff::default(),
            went_back: false,
            tried_file: false,
        };
        self.streams.insert(vb, stream);
        self.set(vb, FollowPhase::Waiting(now_ns));
    }

    /// Stops following a vBucket.
    pub(super) fn remove(
        &mut self,
        vb: VbId,
        bucket: Option<&Bucket>,
        back: Option<PeerWriter<'_>>,
    ) {
        if self.streams.remove(&vb).is_none() {
            return;
        }
        self.queue.retain(|item| item.vb() != vb);
        if let Some(PeerWriter { consumer, out }) = back {
            consumer.close_stream(vb, out);
        }
        if let Some(bucket) = bucket {
            bucket.dcp().end_passive_stream(vb);
        }
        self.board.lock().vbuckets.remove(&vb);
        self.resume_waiting_for_files(0);
    }

    /// Returns whether all received data was passed to the bucket.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Handles the loss of the connection, and with it of every stream.
    pub(super) fn on_lost(&mut self, bucket: Option<&Bucket>, now_ns: u64) {
        self.queue.clear();
        let vbuckets: Vec<VbId> = self.vbuckets().collect();
        for vb in vbuckets {
            let phase = self.streams[&vb].phase;
            if matches!(phase, FollowPhase::Asked | FollowPhase::Streaming) {
                if let Some(bucket) = bucket {
                    bucket.dcp().end_passive_stream(vb);
                }
                if let Some(stream) = self.streams.get_mut(&vb) {
                    stream.attempt = Arc::default();
                }
                self.set(vb, FollowPhase::Waiting(now_ns));
            }
        }
    }

    /// Requests the streams that are due.
    pub(super) fn ask(
        &mut self,
        bucket: &Arc<Bucket>,
        now_ns: u64,
        consumer: &mut Consumer,
        out: &mut Vec<u8>,
    ) {
        if self.next_ns.is_none_or(|at| at > now_ns) {
            return;
        }
        self.next_ns = None;
        let mut due = Vec::new();
        for (vb, stream) in &self.streams {
            match stream.phase {
                FollowPhase::Waiting(at) if at <= now_ns => due.push(*vb),
                FollowPhase::Waiting(at) => {
                    self.next_ns = Some(self.next_ns.map_or(at, |next| next.min(at)));
                }
                _ => {}
            }
        }
        for vb in due {
            match bucket.dcp().resume_point(vb) {
                Ok(from) if self.begin_file(bucket, vb, from.start) => {}
                Ok(from) => {
                    // A pending vBucket gets missing data from another copy, whatever its state there.
                    let flags = match bucket.vbucket_state(vb) {
                        _ if self.takeover(vb).is_some() => StreamFlags::TAKEOVER,
                        Ok(VbState::Pending) => StreamFlags::default(),
                        _ => StreamFlags::ACTIVE_ONLY,
                    };
                    consumer.add_stream(vb, &from, flags, out);
                    self.set(vb, FollowPhase::Asked);
                    self.begin_attempt(vb);
                }
                Err(status) => self.try_later(vb, now_ns, status.name()),
            }
        }
    }

    fn begin_attempt(&mut self, vb: VbId) {
        self.attempts += 1;
        if let Some(stream) = self.streams.get_mut(&vb) {
            stream.asked = self.attempts;
            stream.attempt = Arc::default();
        }
    }

    fn try_later(&mut self, vb: VbId, now_ns: u64, why: &str) {
        let Some(stream) = self.streams.get_mut(&vb) else {
            return;
        };
        let at = stream.backoff.after(now_ns);
        self.set(vb, FollowPhase::Waiting(at));
        self.show(vb, |status| status.last_error = Some(why.to_owned()));
    }

    /// Queues the event of a frame of that many bytes; [`LinkStreams::flush`] processes it.
    pub(super) fn on_event(&mut self, event: ConsumerEvent, bytes: usize) {
        let vb = match &event {
            ConsumerEvent::Nothing => return,
            ConsumerEvent::Received { vb, .. }
            | ConsumerEvent::Snapshot { vb, .. }
            | ConsumerEvent::Begins { vb, .. }
            | ConsumerEvent::Rollback { vb, .. }
            | ConsumerEvent::Refused { vb, .. }
            | ConsumerEvent::SetState { vb, .. }
            | ConsumerEvent::Ended { vb, .. } => *vb,
        };
        let ConsumerEvent::Received { received, .. } = event else {
            self.queue.push_back(ReceivedInput::Event(vb, event));
            return;
        };
        if self.streams.get(&vb).is_some_and(|stream| stream.copy) {
            self.copied += bytes as u64 + COPY_CHANGE_COST_BYTES;
        }
        match self.queue.back_mut() {
            Some(ReceivedInput::Changes(of, changes)) if *of == vb && changes.len() < BATCH_MAX => {
                changes.push(received);
            }
            _ => {
                let mut changes = std::mem::take(&mut self.spare);
                changes.push(received);
                self.queue.push_back(ReceivedInput::Changes(vb, changes));
            }
        }
    }

    /// Passes received data to the bucket, as far as that has memory for it. False if it has none.
    pub(super) fn flush(
        &mut self,
        bucket: &Arc<Bucket>,
        now_ns: u64,
        consumer: &mut Consumer,
        out: &mut Vec<u8>,
    ) -> bool {
        let back = &mut PeerWriter { consumer, out };
        while let Some(item) = self.queue.pop_front() {
            let vb = item.vb();
            let Some(phase) = self.streams.get(&vb).map(|stream| stream.phase) else {
                continue;
            };
            match item {
                ReceivedInput::Event(_, event) => self.act(bucket, now_ns, phase, event, back),
                ReceivedInput::Changes(_, changes) if phase == FollowPhase::Streaming => {
                    if let Some(left) = self.receive(bucket, now_ns, vb, changes, back) {
                        self.queue.push_front(ReceivedInput::Changes(vb, left));
                        return false;
                    }
                }
                ReceivedInput::Changes(..) => {}
            }
        }
        true
    }

    fn act(
        &mut self,
        bucket: &Arc<Bucket>,
        now_ns: u64,
        phase: FollowPhase,
        event: ConsumerEvent,
        back: &mut PeerWriter<'_>,
    ) {
        match event {
            ConsumerEvent::Nothing | ConsumerEvent::Received { .. } => {}
            ConsumerEvent::Snapshot { vb, snapshot } if phase == FollowPhase::Streaming => {
                let end = snapshot.end;
                match bucket.dcp().receive_snapshot(vb, snapshot) {
                    Ok(()) => self.show(vb, |status| status.announced = end),
                    Err(why) => self.give_up(bucket, now_ns, vb, why, back),
                }
            }
            ConsumerEvent::Snapshot { .. } => {}
            ConsumerEvent::Begins { vb, from, failover } => {
                match bucket.dcp().begin_passive_stream(vb, &from, failover) {
                    Ok(()) => self.set(vb, FollowPhase::Streaming),
                    Err(why) => self.give_up(bucket, now_ns, vb, why, back),
                }
            }
            ConsumerEvent::Rollback { vb, to } => self.roll_back(bucket, vb, to),
            ConsumerEvent::Refused { vb, status } => {
                let name = Status::from_wire(status).map(Status::name);
                let why = name.map_or_else(|| format!("{status:#06x}"), ToOwned::to_owned);
                tracing::debug!(peer = %self.peer, vbucket = %vb, why, "a stream was refused");
                self.try_later(vb, now_ns, &why);
            }
            ConsumerEvent::SetState { vb, state } => self.begin_state(bucket, vb, state),
            ConsumerEvent::Ended { vb, .. } if phase == FollowPhase::TakenOver => {
                bucket.dcp().end_passive_stream(vb);
            }
            ConsumerEvent::Ended { vb, reason } => {
                bucket.dcp().end_passive_stream(vb);
                tracing::info!(
                    bucket = bucket.name(),
                    peer = %self.peer,
                    vbucket = %vb,
                    ?reason,
                    "a stream ended"
                );
                self.try_later(vb, now_ns, &format!("it ended: {reason:?}"));
            }
        }
    }

    /// Begins a step of a takeover. The vBucket is pending in both steps: it becomes active when the map says so, but
    /// first all received data must be on disk.
    fn begin_state(&self, bucket: &Arc<Bucket>, vb: VbId, state: VbState) {
        let Some(stream) = self.streams.get(&vb) else {
            return;
        };
        let (asked, still) = (stream.asked, stream.still());
        let (link, inbox) = (self.link, self.inbox.clone());
        bucket
            .states()
            .begin_takeover_step(vb, still, move |result| {
                inbox.send([LinkMessage::StateSet {
                    link,
                    vb,
                    asked,
                    state,
                    result,
                }]);
            });
    }

    /// Handles the result of that. Returns the start of the move if the vBucket was taken over completely.
    pub(super) fn on_state_set(
        &mut self,
        vb: VbId,
        asked: u64,
        state: VbState,
        result: Result<(), Status>,
        back: Option<PeerWriter<'_>>,
    ) -> Option<MoveStart> {
        let stream = self.streams.get(&vb);
        let is_it = |stream: &&FollowedStream| {
            stream.asked == asked && stream.phase == FollowPhase::Streaming
        };
        let takeover = stream.filter(is_it)?.takeover;
        if let Some(PeerWriter { consumer, out }) = back {
            consumer.state_is_set(vb, result.err().unwrap_or(Status::Success), out);
        }
        if result.is_err() || state != VbState::Active {
            return None;
        }
        tracing::info!(peer = %self.peer, vbucket = %vb, "a vBucket was taken over");
        LinkTotals::add(&self.totals.takeovers, 1);
        self.set(vb, FollowPhase::TakenOver);
        takeover
    }

    fn roll_back(&mut self, bucket: &Arc<Bucket>, vb: VbId, to: Seqno) {
        tracing::warn!(
            bucket = bucket.name(),
            peer = %self.peer,
            vbucket = %vb,
            %to,
            "a vBucket goes back to what it shares with its active"
        );
        self.set(vb, FollowPhase::RollingBack);
        self.show(vb, |status| status.rollbacks += 1);
        LinkTotals::add(&self.totals.rollbacks, 1);
        let Some(stream) = self.streams.get(&vb) else {
            return;
        };
        let (link, inbox) = (self.link, self.inbox.clone());
        let still = stream.still();
        bucket
            .persistence()
            .rollbacks()
            .submit(vb, to, still, move |result| {
                inbox.send([LinkMessage::RolledBack { link, vb, result }]);
            });
    }

    /// Handles the end of a rollback: the stream is requested again.
    pub(super) fn on_rolled_back(
        &mut self,
        vb: VbId,
        result: Result<RollbackReport, Status>,
        now_ns: u64,
    ) {
        let stream = self.streams.get_mut(&vb);
        let Some(stream) = stream.filter(|stream| stream.phase == FollowPhase::RollingBack) else {
            return;
        };
        // Once should do.
        let next_ns = if stream.went_back {
            stream.backoff.after(now_ns)
        } else {
            now_ns
        };
        stream.went_back = true;
        match result {
            Ok(done) => {
                tracing::info!(peer = %self.peer, vbucket = %vb, to = %done.seqno, "it went back");
                self.set(vb, FollowPhase::Waiting(next_ns));
                let to = done.seqno;
                self.show(vb, |status| {
                    (status.received, status.announced) = (to, to);
                });
            }
            Err(status) => self.try_later(vb, now_ns, status.name()),
        }
    }

    /// Gives up a stream whose changes do not fit the state of the vBucket, or whose vBucket cannot follow another one
    /// now.
    fn give_up(
        &mut self,
        bucket: &Bucket,
        now_ns: u64,
        vb: VbId,
        why: ApplyError,
        back: &mut PeerWriter<'_>,
    ) {
        tracing::warn!(
            bucket = bucket.name(),
            peer = %self.peer,
            vbucket = %vb,
            ?why,
            "what came is not taken; the stream begins anew"
        );
        self.queue.retain(|item| item.vb() != vb);
        back.consumer.close_stream(vb, back.out);
        bucket.dcp().end_passive_stream(vb);
        self.try_later(vb, now_ns, &format!("{why:?}"));
    }

    /// Passes changes to the bucket. Returns those for which it has no memory.
    fn receive(
        &mut self,
        bucket: &Bucket,
        now_ns: u64,
        vb: VbId,
        mut changes: Vec<Received>,
        back: &mut PeerWriter<'_>,
    ) -> Option<Vec<Received>> {
        let count = changes.len();
        let last = changes.last().map(Received::seqno);
        match bucket.dcp().receive(vb, &mut changes) {
            Ok(outcome) => {
                let left = changes
                    .first()
                    .map(|change| Seqno(change.seqno().get() - 1));
                let took = count - changes.len();
                self.count += took;
                LinkTotals::add(&self.totals.items, took as u64);
                {
                    let mut board = self.board.lock();
                    board.items += took as u64;
                    let status = board.vbuckets.entry(vb).or_default();
                    status.received = left.or(last).unwrap_or(status.received);
                }
                if let Some(prepared) = outcome.ack {
                    self.acknowledge(vb, prepared, back.consumer, back.out);
                }
                if outcome.deferred {
                    return Some(changes);
                }
            }
            Err(why) => self.give_up(bucket, now_ns, vb, why, back),
        }
        changes.clear();
        self.spare = changes;
        None
    }

    /// Acknowledges prepares.
    pub(super) fn acknowledge(
        &mut self,
        vb: VbId,
        prepared: Seqno,
        consumer: &mut Consumer,
        out: &mut Vec<u8>,
    ) {
        consumer.acknowledge(vb, prepared, out);
        LinkTotals::add(&self.totals.acks, 1);
        self.show(vb, |status| status.acknowledged = prepared);
    }
}
