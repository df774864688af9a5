//! The thread `kedge-repl`: one event loop, and all connections to peers.
//!
//! A turn: wait for sockets, messages or a timeout; serve each link that has work; let the buckets with new changes
//! write their logs; send the resulting acknowledgements.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kedge_bucket::{Bucket, VbState};
use kedge_cluster::{MoveStart, TakenVbucket};
use kedge_node::coordination::PeerAddress;
use kedge_node::inbox::Inbox;
use kedge_node::registry::BucketRegistry;
use kedge_tls::ClientStream;
use kedge_types::{Status, SystemClock, VbId};
use mio::{Events, Interest, Poll, Token};

use super::backoff::RetryBackoff;
use super::dial::{DialError, dial};
use super::link::{BucketLink, LinkAction, LinkError, LinkStage, LiveConnection};
use super::status::{LinkTotals, ReplicationStatus};
use super::streams::LinkStreams;
use super::{BucketNotifier, Heir, LinkMessage, NodeIdentity, ReplicationSource};

/// The token of the inbox's waker; links have their numbers as tokens.
pub(super) const WAKER: Token = Token(usize::MAX);
/// The largest number of events of one poll.
const EVENTS: usize = 256;
/// The interval of checks for added and removed buckets, while there is a plan for one.
const LOOK_NS: u64 = 1_000_000_000;
/// The least duration of a connection whose loss is followed by a quick reconnect.
const LASTED_NS: u64 = 500_000_000;
/// The number of changes in a turn up to which this thread may write the log itself: with more, further ones are on
/// their way, and should be read meanwhile.
const LEAD_ITEMS_MAX: usize = 8;

/// A bucket with replicated vBuckets.
struct LinkTarget {
    id: u64,
    bucket: Option<Arc<Bucket>>,
}

pub(super) struct LinkThread {
    poll: Poll,
    inbox: Arc<Inbox<LinkMessage>>,
    registry: Arc<BucketRegistry>,
    clock: Arc<SystemClock>,
    status_board: Arc<ReplicationStatus>,
    identity: Option<Arc<NodeIdentity>>,
    heir: Option<Heir>,
    targets: BTreeMap<String, LinkTarget>,
    links: BTreeMap<u64, BucketLink>,
    /// The link of each vBucket of a bucket.
    routes: HashMap<(u64, VbId), u64>,
    next_id: u64,
    generation: u64,
    look_ns: u64,
    /// The links to serve in this turn.
    due: BTreeSet<u64>,
    messages: Vec<LinkMessage>,
    stopping: bool,
}

impl LinkThread {
    pub(super) fn new(
        poll: Poll,
        inbox: Arc<Inbox<LinkMessage>>,
        registry: Arc<BucketRegistry>,
        clock: Arc<SystemClock>,
        status_board: Arc<ReplicationStatus>,
    ) -> Self {
        Self {
            poll,
            inbox,
            registry,
            clock,
            status_board,
            identity: None,
            heir: None,
            targets: BTreeMap::new(),
            links: BTreeMap::new(),
            routes: HashMap::new(),
            next_id: 0,
            generation: 0,
            look_ns: 0,
            due: BTreeSet::new(),
            messages: Vec::new(),
            stopping: false,
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.mono_ns()
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        while !self.stopping {
            let timeout = self.timeout();
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                // Nothing can be replicated without it.
                panic!("the poll of the replication's thread failed: {error}");
            }
            self.inbox.awake();
            for event in events.iter().filter(|event| event.token() != WAKER) {
                let id = event.token().0 as u64;
                if let Some(link) = self.links.get_mut(&id)
                    && let LinkStage::Live(live) = &mut link.stage
                {
                    live.on_event(event);
                    self.due.insert(id);
                }
            }
            self.take_turn();
        }
        let all: Vec<u64> = self.links.keys().copied().collect();
        all.into_iter().for_each(|id| self.forget(id));
    }

    /// Returns the timeout of the poll: zero while there is work.
    fn timeout(&self) -> Option<Duration> {
        if !self.due.is_empty() || !self.inbox.may_sleep() {
            return Some(Duration::ZERO);
        }
        let links = self.links.values().filter_map(BucketLink::deadline_ns);
        let look = (!self.targets.is_empty()).then_some(self.look_ns);
        let next = links.chain(look).min()?;
        Some(Duration::from_nanos(next.saturating_sub(self.now_ns())))
    }

    fn take_turn(&mut self) {
        self.read_inbox();
        let now_ns = self.now_ns();
        self.look_for_buckets(now_ns);
        let timed = |(id, link): (&u64, &BucketLink)| {
            let is_due = link.deadline_ns().is_some_and(|at| at <= now_ns);
            is_due.then_some(*id)
        };
        let timed: Vec<u64> = self.links.iter().filter_map(timed).collect();
        self.due.extend(timed);
        let mut again = BTreeSet::new();
        let mut items = 0;
        let mut busy = 0;
        while let Some(id) = self.due.pop_first() {
            busy += 1;
            if self.serve(id) == LinkAction::Again {
                again.insert(id);
            }
            let link = self.links.get_mut(&id);
            items += link.map_or(0, |link| link.streams.take_count());
        }
        // While this thread writes a log it reads nothing.
        let lead = busy == 1 && items <= LEAD_ITEMS_MAX && again.is_empty();
        if busy > 0 {
            for bucket in self.targets.values().filter_map(|t| t.bucket.as_ref()) {
                bucket.dcp().flush_received(lead);
            }
            self.read_inbox();
        }
        self.due.extend(again);
    }

    fn read_inbox(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.inbox.take(&mut messages);
        let mut answered = BTreeSet::new();
        for message in messages.drain(..) {
            match message {
                LinkMessage::Acknowledge {
                    bucket,
                    vb,
                    prepared,
                } => {
                    if let Some(id) = self.routes.get(&(bucket, vb))
                        && let Some(link) = self.links.get_mut(id)
                    {
                        link.acknowledge(vb, prepared);
                        answered.insert(*id);
                    }
                }
                LinkMessage::Room { bucket } => self.on_room(bucket),
                LinkMessage::Identity(identity) => self.on_identity(identity),
                LinkMessage::Plan { bucket, sources } => self.on_plan(&bucket, sources),
                LinkMessage::Dialed {
                    link,
                    attempt,
                    result,
                } => self.on_dialed(link, attempt, *result),
                LinkMessage::RolledBack { link, vb, result } => {
                    let now_ns = self.now_ns();
                    if let Some(link) = self.links.get_mut(&link) {
                        link.streams.on_rolled_back(vb, result, now_ns);
                    }
                    self.due.insert(link);
                }
                LinkMessage::StateSet {
                    link,
                    vb,
                    asked,
                    state,
                    result,
                } => self.on_state_set(link, vb, asked, state, result),
                LinkMessage::FileCopied {
                    link,
                    vb,
                    asked,
                    result,
                } => {
                    let now_ns = self.now_ns();
                    if let Some(link) = self.links.get_mut(&link) {
                        link.streams.on_file_copied(vb, asked, result, now_ns);
                    }
                    self.due.insert(link);
                }
                LinkMessage::Heir(heir) => self.heir = Some(heir),
                LinkMessage::Stop => self.stopping = true,
            }
        }
        self.messages = messages;
        for id in answered {
            self.send(id);
        }
    }

    fn on_state_set(
        &mut self,
        id: u64,
        vb: VbId,
        asked: u64,
        state: VbState,
        result: Result<(), Status>,
    ) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if let Some(start) = link.state_set(vb, asked, state, result)
            && let Some(heir) = &self.heir
        {
            heir(TakenVbucket {
                bucket: link.name.clone(),
                vb: vb.get(),
                start,
            });
        }
        self.send(id);
    }

    fn send(&mut self, id: u64) {
        if let Some(link) = self.links.get_mut(&id)
            && let LinkStage::Live(live) = &mut link.stage
            && let Err(why) = live.send()
        {
            self.lose(id, &why);
        }
    }

    fn serve(&mut self, id: u64) -> LinkAction {
        let now_ns = self.now_ns();
        let Some(link) = self.links.get_mut(&id) else {
            return LinkAction::Wait;
        };
        match &link.stage {
            LinkStage::Resting(at) if *at <= now_ns => self.begin(id),
            LinkStage::Resting(_) | LinkStage::Dialing(_) => {}
            LinkStage::Live(_) => match link.serve(now_ns) {
                Ok(next) => {
                    self.limit_copies(id, now_ns);
                    return next;
                }
                Err(why) => self.lose(id, &why),
            },
        }
        LinkAction::Wait
    }

    /// Limits the rate at which a peer sends new copies, if it does.
    fn limit_copies(&mut self, id: u64, now_ns: u64) {
        let link = self.links.get(&id);
        let Some(link) = link.filter(|link| link.streams.has_copies() || link.limits_copies())
        else {
            return;
        };
        let senders = self.links.values().filter(|other| {
            let is_live = matches!(other.stage, LinkStage::Live(_));
            is_live && other.name == link.name && other.streams.has_copies()
        });
        let peers = senders.count() as u64;
        if let Some(link) = self.links.get_mut(&id)
            && let Err(why) = link.limit_copies(peers, now_ns)
        {
            self.lose(id, &why);
        }
    }

    /// Starts connecting, on a thread of its own.
    fn begin(&mut self, id: u64) {
        let now_ns = self.now_ns();
        let attempt = self.take_id();
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let Some(identity) = self.identity.clone().filter(|_| link.bucket.is_some()) else {
            // Both are checked periodically.
            link.stage = LinkStage::Resting(now_ns + LOOK_NS);
            return;
        };
        let (peer, bucket, inbox) = (link.peer.clone(), link.name.clone(), self.inbox.clone());
        let spawned = std::thread::Builder::new()
            .name("kedge-dial".to_owned())
            .spawn(move || {
                let result = Box::new(dial(&peer, &bucket, &identity));
                inbox.send([LinkMessage::Dialed {
                    link: id,
                    attempt,
                    result,
                }]);
            });
        match spawned {
            Ok(_) => link.stage = LinkStage::Dialing(attempt),
            Err(error) => {
                link.stage = LinkStage::Dialing(attempt);
                self.on_dialed(id, attempt, Err(error.into()));
            }
        }
    }

    fn on_dialed(&mut self, id: u64, attempt: u64, result: Result<ClientStream, DialError>) {
        let now_ns = self.now_ns();
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        // It may have been given up in the meantime.
        let Some(identity) = &self.identity else {
            return;
        };
        link.streams.identity = Some(Arc::clone(identity));
        if !matches!(link.stage, LinkStage::Dialing(current) if current == attempt) {
            return;
        }
        let live = match result {
            Ok(stream) => LiveConnection::new(stream, link, identity, now_ns),
            Err(why) => {
                let why = why.to_string();
                tracing::debug!(bucket = link.name, peer = %link.peer, why, "cannot replicate yet");
                link.board.lock().last_error = Some(why);
                LinkTotals::add(&self.status_board.totals.failures, 1);
                link.stage = LinkStage::Resting(link.backoff.after(now_ns));
                return;
            }
        };
        let registered = live.and_then(|mut live| {
            let interest = Interest::READABLE | Interest::WRITABLE;
            let registry = self.poll.registry();
            registry.register(live.stream.socket_mut(), Token(id as usize), interest)?;
            Ok(live)
        });
        match registered {
            Ok(live) => {
                tracing::info!(bucket = link.name, peer = %link.peer, "replicating");
                {
                    let mut board = link.board.lock();
                    board.connected = true;
                    board.connects += 1;
                }
                LinkTotals::add(&self.status_board.totals.connects, 1);
                link.stage = LinkStage::Live(Box::new(live));
                self.due.insert(id);
            }
            Err(why) => self.lose(id, &why),
        }
    }

    /// Handles the end of a connection.
    fn lose(&mut self, id: u64, why: &LinkError) {
        let now_ns = self.now_ns();
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        tracing::warn!(bucket = link.name, peer = %link.peer, %why, "replication was interrupted");
        {
            let mut board = link.board.lock();
            board.connected = false;
            board.last_error = Some(why.to_string());
        }
        LinkTotals::add(&self.status_board.totals.failures, 1);
        link.streams.on_lost(link.bucket.as_deref(), now_ns);
        if let LinkStage::Live(live) = &link.stage
            && now_ns.saturating_sub(live.since_ns) >= LASTED_NS
        {
            link.backoff.reset();
        }
        // The socket closes with the stage.
        link.stage = LinkStage::Resting(link.backoff.after(now_ns));
    }

    fn on_room(&mut self, bucket: u64) {
        let name = self.targets.iter().find(|(_, target)| target.id == bucket);
        if let Some((name, _)) = name {
            let links = self.links.iter();
            let of_bucket = links.filter(|(_, link)| link.name == *name);
            let ids: Vec<u64> = of_bucket.map(|(id, _)| *id).collect();
            self.due.extend(ids);
        }
    }

    fn on_identity(&mut self, identity: NodeIdentity) {
        if self.identity.as_deref() == Some(&identity) {
            return;
        }
        self.identity = Some(Arc::new(identity));
        let now_ns = self.now_ns();
        for (id, link) in &mut self.links {
            // A connection in progress has the old name, and is not used.
            link.streams.on_lost(link.bucket.as_deref(), now_ns);
            link.board.lock().connected = false;
            link.stage = LinkStage::Resting(now_ns);
            self.due.insert(*id);
        }
    }

    fn on_plan(&mut self, name: &str, sources: Vec<ReplicationSource>) {
        let now_ns = self.now_ns();
        // For each vBucket, the start of the move if it is taken over.
        let mut wanted: BTreeMap<PeerAddress, BTreeMap<VbId, Option<MoveStart>>> = BTreeMap::new();
        let mut copied = BTreeSet::new();
        let from_files = sources.iter().any(|source| source.from_files);
        let map_epoch = sources.iter().find_map(|source| source.map_epoch);
        for ReplicationSource {
            peer,
            vbuckets,
            takeovers,
            copies,
            from_files: _,
            map_epoch: _,
        } in sources
        {
            copied.extend(copies);
            let vbuckets = vbuckets.into_iter();
            let vbuckets = vbuckets.map(|vb| (vb, takeovers.get(&vb).copied()));
            wanted.entry(peer).or_default().extend(vbuckets);
        }
        let target = self.target(name);
        let of_bucket = self.links.iter().filter(|(_, link)| link.name == name);
        let ids: Vec<u64> = of_bucket.map(|(id, _)| *id).collect();
        // First removed vBuckets, then added ones: a vBucket has at most one stream.
        let mut there = BTreeMap::new();
        for id in ids {
            let Some(link) = self.links.get_mut(&id) else {
                continue;
            };
            let keeps = wanted.get(&link.peer);
            let gone: Vec<VbId> = link
                .streams
                .vbuckets()
                .filter(|vb| {
                    let kept = keeps.and_then(|keeps| keeps.get(vb));
                    kept != Some(&link.streams.takeover(*vb))
                })
                .collect();
            for vb in gone {
                link.remove(vb);
                self.routes.remove(&(target, vb));
            }
            if keeps.is_some_and(|keeps| !keeps.is_empty()) {
                there.insert(link.peer.clone(), id);
                self.due.insert(id);
            } else {
                self.forget(id);
            }
        }
        for (peer, vbuckets) in wanted {
            if vbuckets.is_empty() {
                continue;
            }
            let id = match there.get(&peer) {
                Some(id) => *id,
                None => self.new_link(name, peer),
            };
            if let Some(link) = self.links.get_mut(&id) {
                link.streams.from_files = from_files;
                link.map_epoch = map_epoch;
                for (vb, takeover) in vbuckets {
                    link.streams.add(vb, takeover, now_ns);
                    self.routes.insert((target, vb), id);
                }
                link.streams.set_copies(&copied);
            }
            self.due.insert(id);
        }
    }

    fn new_link(&mut self, name: &str, peer: PeerAddress) -> u64 {
        let id = self.take_id();
        let board = self.status_board.put_up(name, &peer);
        let bucket = self.targets.get(name).and_then(|t| t.bucket.clone());
        let link = BucketLink {
            streams: LinkStreams::new(
                id,
                peer.clone(),
                self.inbox.clone(),
                board.clone(),
                self.status_board.totals.clone(),
            ),
            peer,
            name: name.to_owned(),
            bucket,
            map_epoch: None,
            stage: LinkStage::Resting(self.now_ns()),
            backoff: RetryBackoff::default(),
            board,
        };
        self.links.insert(id, link);
        id
    }

    /// Ends a link.
    fn forget(&mut self, id: u64) {
        if let Some(mut link) = self.links.remove(&id) {
            link.streams.on_lost(link.bucket.as_deref(), 0);
            self.status_board.take_down(&link.board);
        }
    }

    /// Returns the number of a bucket.
    fn target(&mut self, name: &str) -> u64 {
        if let Some(target) = self.targets.get(name) {
            return target.id;
        }
        let id = self.take_id();
        let bucket = self.find(name, id);
        self.targets
            .insert(name.to_owned(), LinkTarget { id, bucket });
        id
    }

    fn find(&self, name: &str, id: u64) -> Option<Arc<Bucket>> {
        let bucket = self.registry.get(name)?;
        bucket.dcp().set_replica_sink(Arc::new(BucketNotifier {
            bucket: id,
            inbox: self.inbox.clone(),
        }));
        Some(bucket)
    }

    /// Checks for buckets that were added or removed.
    fn look_for_buckets(&mut self, now_ns: u64) {
        self.look_ns = now_ns + LOOK_NS;
        let generation = self.registry.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        let names: Vec<(String, u64)> = self
            .targets
            .iter()
            .map(|(name, target)| (name.clone(), target.id))
            .collect();
        for (name, target_id) in names {
            let bucket = self.find(&name, target_id);
            let Some(target) = self.targets.get_mut(&name) else {
                continue;
            };
            let is_same = match (&target.bucket, &bucket) {
                (Some(was), Some(is)) => Arc::ptr_eq(was, is),
                (None, None) => true,
                _ => false,
            };
            if is_same {
                continue;
            }
            target.bucket.clone_from(&bucket);
            for (id, link) in &mut self.links {
                if link.name == name {
                    link.streams.on_lost(link.bucket.as_deref(), now_ns);
                    link.bucket.clone_from(&bucket);
                    link.board.lock().connected = false;
                    link.stage = LinkStage::Resting(now_ns);
                    self.due.insert(*id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
