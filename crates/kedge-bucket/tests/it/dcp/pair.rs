//! Two buckets, one with replicas of the other, connected by a pump instead of a network connection.

use super::*;
use kedge_bucket::{
    ApplyError, Bucket, BucketError, Cookie, NodeName, Outcome, Received, ReplicaSink, SystemEvent,
    Topology, VbRole, VbState, Write,
};
use kedge_disk::SimDisk;
use kedge_types::{Durability, DurabilityLevel};
use std::sync::atomic::{AtomicBool, Ordering};

/// A recorder of acknowledgements and of notifications about memory.
#[derive(Default)]
struct Acks {
    acks: Mutex<Vec<(VbId, Seqno)>>,
    room: AtomicBool,
}

impl ReplicaSink for Acks {
    fn acknowledge(&self, acks: &mut Vec<(VbId, Seqno)>) {
        self.acks.lock().unwrap().append(acks);
    }

    fn memory_available(&self) {
        self.room.store(true, Ordering::SeqCst);
    }
}

/// One bucket of a pair.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) disk: SimDisk,
    pub(crate) site: TestSite,
    pub(crate) up: Option<(Open, Steps)>,
    line: Option<TestConnection>,
    acks: Arc<Acks>,
}

impl Node {
    pub(crate) fn new(name: &str, seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let mut site = sim(&disk);
        site.topology = None;
        Self {
            name: NodeName::new(name).unwrap(),
            site,
            disk,
            up: None,
            line: None,
            acks: Arc::default(),
        }
    }

    pub(crate) fn open(&self) -> &Open {
        &self.up.as_ref().expect("it is up").0
    }

    pub(crate) fn steps(&self) -> &Steps {
        &self.up.as_ref().expect("it is up").1
    }

    /// # Errors
    /// The error of a start during which the power failed.
    pub(crate) fn start(&mut self) -> Result<(), BucketError> {
        let steps = self.site.manual_tasks();
        let sink = Arc::new(Sink::default());
        let bucket = Bucket::open(self.site.setup(&sink))?;
        steps.run();
        bucket.wait_loaded()?;
        self.acks = Arc::default();
        bucket
            .dcp()
            .set_replica_sink(Arc::clone(&self.acks) as Arc<dyn ReplicaSink>);
        let open = self.site.opened(bucket, sink);
        self.line = Some(TestConnection::new(&open));
        self.up = Some((open, steps));
        Ok(())
    }

    /// Returns whether the node can continue.
    pub(crate) fn is_well(&self) -> bool {
        let is_well = |up: &(Open, Steps)| up.0.sink.fatal().is_empty();
        self.up.as_ref().is_some_and(is_well) && self.site.disk.exists(&self.site.dir).is_ok()
    }

    /// Ends the process, with a power loss unless it was `killed`.
    pub(crate) fn crash(&mut self, seed: u64, killed: bool) {
        self.line = None;
        self.up = None;
        if killed {
            self.disk.kill_process();
        } else {
            self.disk.crash(seed);
        }
        self.site.executor.shutdown();
    }

    pub(crate) fn shutdown(&mut self) {
        self.line = None;
        if let Some((open, _)) = self.up.take() {
            open.bucket.shutdown();
        }
        self.site.executor.shutdown();
    }
}

/// The stream of one vBucket.
struct Link {
    stream: VbStream,
    /// The items that were read and deferred by the replica.
    left: Vec<StreamItem>,
}

/// Two nodes. All vBuckets are active on one of them, and replicas on the other.
pub(crate) struct Pair {
    pub(crate) nodes: [Node; 2],
    /// The index of the active node.
    pub(crate) active: usize,
    links: [Option<Link>; 4],
    /// The maximum number of changes per read.
    pub(crate) at_once: usize,
    /// The number of rollbacks of streams.
    pub(crate) rollbacks: u32,
    leads: bool,
    /// True if empty replicas are filled with files before they follow.
    pub(crate) from_files: bool,
    /// The number of replicas that were filled with files.
    pub(crate) files: std::cell::Cell<u32>,
}

impl Pair {
    pub(crate) fn new(seed: u64, with: impl Fn(&mut kedge_bucket::BucketConfig)) -> Self {
        let mut nodes = [Node::new("a", seed), Node::new("b", seed + 1_000)];
        for node in &mut nodes {
            with(&mut node.site.config);
            node.start().unwrap();
        }
        let mut pair = Self {
            nodes,
            active: 0,
            links: [const { None }; 4],
            at_once: 16,
            rollbacks: 0,
            leads: false,
            from_files: false,
            files: std::cell::Cell::new(0),
        };
        pair.set_states();
        pair
    }

    pub(crate) fn active(&self) -> &Node {
        &self.nodes[self.active]
    }

    pub(crate) fn replica(&self) -> &Node {
        &self.nodes[1 - self.active]
    }

    /// Sets the states of the vBuckets on the running nodes.
    pub(crate) fn set_states(&mut self) {
        let [active, replica] = [self.active(), self.replica()].map(|node| node.name.clone());
        let replica = self.replica().up.is_some().then_some(replica);
        for vb in all_vbuckets() {
            let chain = vec![Some(active.clone()), replica.clone()];
            let role = VbRole {
                state: VbState::Active,
                topology: Some(Topology::new(vec![chain]).unwrap()),
                takeover: false,
                unless_dead: false,
            };
            for (node, role) in [
                (self.active(), role),
                (self.replica(), VbState::Replica.into()),
            ] {
                if let Some((open, _)) = &node.up {
                    // This fails only when the power fails.
                    let set = open.bucket.states().set_vbucket(vb, role);
                    assert!(set.is_ok() || !node.is_well(), "{set:?}");
                }
            }
        }
    }

    /// Ends all streams.
    pub(crate) fn disconnect(&mut self) {
        self.links = [const { None }; 4];
        if let Some((open, _)) = &self.active().up {
            let replica = &self.replica().name;
            all_vbuckets().for_each(|vb| open.bucket.dcp().forget_acks(vb, replica));
        }
        if let Some((open, _)) = &self.replica().up {
            all_vbuckets().for_each(|vb| open.bucket.dcp().end_passive_stream(vb));
        }
    }

    /// Opens the stream of a vBucket, and rolls the replica back if required.
    fn connect(&mut self, vb: VbId) {
        let (active, replica) = (self.active(), self.replica());
        let bucket = &replica.open().bucket;
        let line = active.line.as_ref().expect("it is up");
        bucket.dcp().end_passive_stream(vb);
        let Ok(mut resume) = bucket.dcp().resume_point(vb) else {
            return;
        };
        if self.from_files && resume.start == Seqno(0) {
            // Whatever fails, the stream sends the changes.
            if copy_file(active, vb)
                .and_then(|file| install(replica, vb, &file))
                .is_ok()
            {
                self.files.set(self.files.get() + 1);
            }
            match bucket.dcp().resume_point(vb) {
                Ok(then) => resume = then,
                Err(_) => return,
            }
        }
        let request = StreamRequest {
            start: resume.start,
            uuid: resume.uuid,
            snap_start: resume.snap_start,
            snap_end: resume.snap_end,
            ..request(active.open(), vb, 0)
        };
        active.open().bucket.dcp().forget_acks(vb, &replica.name);
        match line.connection.open_stream(&request) {
            Ok(opened) => {
                if bucket
                    .dcp()
                    .begin_passive_stream(vb, &resume, opened.failover)
                    .is_ok()
                {
                    let stream = opened.stream;
                    let left = Vec::new();
                    self.links[vb.index()] = Some(Link { stream, left });
                }
            }
            Err(StreamRefused::Rollback(to)) => {
                if bucket.persistence().rollbacks().rollback(vb, to).is_err() {
                    assert!(!replica.is_well());
                    return;
                }
                self.rollbacks += 1;
                self.connect(vb);
            }
            Err(StreamRefused::Status(_)) => {}
        }
    }

    /// Transfers pending items of one vBucket. Returns whether there were any.
    pub(crate) fn pump(&mut self, vb: VbId) -> bool {
        if !self.active().is_well() || !self.replica().is_well() {
            return false;
        }
        if self.links[vb.index()].is_none() {
            self.connect(vb);
        }
        let Some(mut link) = self.links[vb.index()].take() else {
            return false;
        };
        let mut items = std::mem::take(&mut link.left);
        let mut state = SourceState::More;
        if items.is_empty() {
            state = link.stream.read(self.at_once, 64 << 10, &mut items);
        }
        let moved = !items.is_empty() || matches!(state, SourceState::Ended(_));
        let left = self.give(vb, items);
        match (left, state) {
            (Ok(left), SourceState::More | SourceState::Idle) => {
                link.left = left;
                self.links[vb.index()] = Some(link);
            }
            (Ok(_), SourceState::Ended(_)) => {}
            (Err(why), _) => {
                let is_well = self.replica().is_well();
                assert!(!is_well, "{why:?}");
            }
        }
        self.deliver_acks();
        moved
    }

    /// Passes items to the replica. Returns the deferred ones.
    fn give(&self, vb: VbId, items: Vec<StreamItem>) -> Result<Vec<StreamItem>, ApplyError> {
        let bucket = &self.replica().open().bucket;
        let mut items = items.into_iter();
        let mut batch = Vec::new();
        loop {
            let next = items.next();
            if let Some(StreamItem::Change(change)) = &next {
                batch.push((received(change), change.clone()));
                continue;
            }
            let mut changes: Vec<Received> = batch.iter().map(|(it, _)| it.clone()).collect();
            let before = changes.len();
            let outcome = bucket.dcp().receive(vb, &mut changes)?;
            batch.drain(..before - changes.len());
            if let Some(ack) = outcome.ack {
                let active = &self.active().open().bucket;
                active.dcp().acknowledge(&self.replica().name, &[(vb, ack)]);
            }
            if outcome.deferred {
                let left = batch.into_iter().map(|(_, it)| StreamItem::Change(it));
                return Ok(left.chain(next).chain(items).collect());
            }
            match next {
                Some(StreamItem::Marker(snapshot)) => {
                    bucket.dcp().receive_snapshot(vb, snapshot)?;
                }
                Some(StreamItem::SeqnoAdvanced(seqno)) => {
                    let mut advance = vec![Received::Advance(seqno)];
                    bucket.dcp().receive(vb, &mut advance)?;
                }
                Some(other) => panic!("{other:?}"),
                None => break,
            }
        }
        bucket.dcp().flush_received(self.leads);
        Ok(Vec::new())
    }

    /// Delivers the acknowledgements of changes that the replica has persisted.
    pub(crate) fn deliver_acks(&self) {
        if self.replica().up.is_none() || self.active().up.is_none() {
            return;
        }
        let acks = std::mem::take(&mut *self.replica().acks.acks.lock().unwrap());
        let active = &self.active().open().bucket;
        active.dcp().acknowledge(&self.replica().name, &acks);
    }

    /// Transfers pending items of all vBuckets. Returns whether there were any.
    fn pump_all(&mut self) -> bool {
        let moved: Vec<bool> = all_vbuckets().map(|vb| self.pump(vb)).collect();
        moved.contains(&true)
    }

    /// Runs both nodes until nothing is transferred any more.
    pub(crate) fn quiet(&mut self) {
        let mut still = 0;
        for _ in 0..10_000 {
            let moved = self.pump_all();
            self.pass(MS);
            still = if moved { 0 } else { still + 1 };
            match still {
                // Longer than any internal delay.
                3 => self.pass(SEC * 2),
                6 => return,
                _ => {}
            }
        }
        panic!("it never assert_idle");
    }

    pub(crate) fn pass(&self, time: std::time::Duration) {
        for node in &self.nodes {
            if let Some((_, steps)) = &node.up {
                steps.pass(time);
            }
        }
        self.deliver_acks();
    }

    /// Checks that both nodes have the same contents.
    pub(crate) fn check_equal(&mut self) {
        self.quiet();
        for vb in all_vbuckets() {
            let figures = |node: &Node| node.open().bucket.vbucket_figures(vb).unwrap();
            let (active, replica) = (figures(self.active()), figures(self.replica()));
            let streams = self.active().open().bucket.dcp().stream_figures();
            let high = (active.high_seqno, replica.high_seqno);
            assert_eq!(high.0, high.1, "{vb}: {streams:?}");
            assert_eq!(active.visible_seqno, replica.visible_seqno, "{vb}");
            assert_eq!(active.documents, replica.documents, "{vb}");
            assert_eq!(active.failover, replica.failover, "{vb}");
            let [active, replica] = [self.active(), self.replica()].map(|node| whole(node, vb));
            assert!(
                active.documents == replica.documents,
                "{vb}: {:?} and {:?}",
                active.brief(),
                replica.brief()
            );
            assert_eq!(active.prepares, replica.prepares, "{vb}");
        }
    }

    /// Writes a document. The clock of the active advances until there is memory.
    fn set_with_retry(&self, name: &str, value: &[u8]) {
        let (open, steps) = (self.active().open(), self.active().steps());
        let (key, cookie) = (key(name), open.next_cookie());
        let write = Write {
            cookie: Cookie(cookie),
            ..write(&key)
        };
        if open.store(&write, value) == Ok(Outcome::Parked) {
            while open.sink.get(cookie).is_none() {
                steps.pass(MS * 10);
            }
            open.sink.wait(cookie).unwrap();
        }
    }

    /// Begins a SyncWrite.
    pub(crate) fn prepare(
        &self,
        name: &str,
        value: &[u8],
        level: DurabilityLevel,
        cookie: u64,
    ) -> Result<(), Status> {
        let key = key(name);
        let write = Write {
            durability: Some(Durability {
                level,
                timeout_ms: Some(60_000),
            }),
            cookie: Cookie(cookie),
            ..write(&key)
        };
        let outcome = self.active().open().store(&write, value)?;
        assert_eq!(outcome, Outcome::Parked);
        Ok(())
    }
}

/// Runs an operation of a node that calls back with its result.
pub(crate) fn result_of<T: Send + 'static>(
    node: &Node,
    begin: impl FnOnce(Box<dyn FnOnce(Result<T, Status>) + Send>),
) -> Result<T, Status> {
    let (done, result) = std::sync::mpsc::channel();
    begin(Box::new(move |result| {
        let _ = done.send(result);
    }));
    node.steps().run();
    result.try_recv().unwrap_or(Err(Status::TemporaryFailure))
}

/// Reads the file of an active vBucket in parts.
pub(crate) fn copy_file(from: &Node, vb: VbId) -> Result<Vec<u8>, Status> {
    let copies = from.open().bucket.copies();
    let prepared = result_of(from, |done| copies.prepare(vb, done))?;
    let mut file = Vec::new();
    while (file.len() as u64) < prepared.bytes {
        let at = file.len() as u64;
        let length = (prepared.bytes - at).min(5_000);
        let part = result_of(from, |done| {
            copies.read_part(vb, prepared.id, at, length, done);
        })?;
        assert_eq!(part.checksum, crc32c::crc32c(&part.bytes));
        file.extend(part.bytes);
    }
    copies.release(vb, prepared.id)?;
    Ok(file)
}

/// Installs a file as that of a replica.
pub(crate) fn install(to: &Node, vb: VbId, file: &[u8]) -> Result<Seqno, Status> {
    install_if(to, vb, file, true)
}

/// Installs a file as that of a replica, unless it is not wanted any more.
pub(crate) fn install_if(
    to: &Node,
    vb: VbId,
    file: &[u8],
    is_wanted: bool,
) -> Result<Seqno, Status> {
    let copies = to.open().bucket.copies();
    let mut copy = copies.begin(vb)?;
    for part in file.chunks(7_000) {
        copy.append(part).map_err(|_| Status::TemporaryFailure)?;
    }
    result_of(to, |done| copies.install(vb, copy, move || is_wanted, done))
}

/// Returns everything that a stream sends of a vBucket, except tombstones, which may be purged on one node only.
pub(crate) fn whole(node: &Node, vb: VbId) -> Copy {
    let request = StreamRequest {
        uuid: VbUuid(0),
        ..request(node.open(), vb, 0)
    };
    let opened = node.line.as_ref().unwrap().connection.open_stream(&request);
    let mut client = Client::new(opened.unwrap().stream, 0);
    client.at_once = 100;
    let high = node.open().bucket.vbucket_figures(vb).unwrap().high_seqno;
    for _ in 0..1_000 {
        client.drain();
        if client.ended.is_some() || client.copy.last >= high.get() {
            break;
        }
        node.steps().pass(MS);
    }
    assert_eq!((client.ended, client.copy.last), (None, high.get()), "{vb}");
    client
        .copy
        .documents
        .retain(|_, (_, value)| value.is_some());
    client.copy
}

fn received(change: &Change) -> Received {
    let key = |item: &Item| item.key().into();
    match change {
        Change::Document(item) => Received::Document(item.clone()),
        Change::Prepare(item) => Received::Prepare(item.clone()),
        Change::Commit { item, prepared } => Received::Commit {
            key: key(item),
            prepared: *prepared,
            seqno: item.seqno(),
        },
        Change::Abort { item, prepared } => Received::Abort {
            key: key(item),
            prepared: *prepared,
            seqno: item.seqno(),
        },
        Change::System(item) => Received::System {
            event: SystemEvent::of_item(item).expect("it is one"),
            seqno: item.seqno(),
        },
        other => panic!("{other:?}"),
    }
}

const VB: VbId = VbId(1);

#[test]
fn replica_receives_the_changes_of_its_active() {
    for commit_log in [true, false] {
        let mut pair = Pair::new(1, |config| config.commit_log = commit_log);
        let names = names_in(VB, 20);
        let open = pair.active().open();
        for name in &names {
            open.set(name, b"1").unwrap();
        }
        pair.check_equal();
        let open = pair.active().open();
        for name in &names[..5] {
            let key = key(name);
            done(open.bucket.documents().delete(open.ctx(), &write(&key))).unwrap();
        }
        for name in &names[10..] {
            open.set(name, b"2").unwrap();
        }
        open.bucket.persistence().apply().unwrap();
        pair.disconnect();
        pair.check_equal();
        assert_eq!(pair.rollbacks, 0);
        let replica = pair.replica().open();
        assert_eq!(replica.figure("ep_dcp_received_items"), 35);
        pair.nodes.iter_mut().for_each(Node::shutdown);
    }
}

#[test]
fn sync_write_commits_when_its_durability_level_is_reached() {
    use DurabilityLevel::{Majority, MajorityAndPersistOnActive, PersistToMajority};
    for commit_log in [true, false] {
        let mut pair = Pair::new(2, |config| config.commit_log = commit_log);
        let name = &names_in(VB, 1)[0];
        let persisted = |node: &Node| {
            node.open()
                .bucket
                .vbucket_figures(VB)
                .unwrap()
                .persisted_seqno
        };
        for (cookie, level) in [Majority, MajorityAndPersistOnActive, PersistToMajority]
            .into_iter()
            .enumerate()
        {
            let cookie = cookie as u64 + 1;
            pair.prepare(name, b"durable", level, cookie).unwrap();
            let high = pair.active().open().bucket.vbucket_figures(VB).unwrap();
            let prepared = high.high_seqno;
            let is_done = |pair: &Pair| pair.active().open().sink.get(cookie).is_some();
            while pair.pump(VB) {}
            assert_eq!(
                is_done(&pair),
                level == Majority,
                "the replica has it in memory"
            );
            if level == Majority {
                assert!(persisted(pair.replica()) < prepared);
                assert!(persisted(pair.active()) < prepared);
            }
            pair.replica().steps().run();
            pair.deliver_acks();
            if level == PersistToMajority {
                let on_disk = persisted(pair.replica());
                assert!(on_disk >= prepared, "the log did not wait for its interval");
            }
            assert_eq!(
                is_done(&pair),
                level == Majority,
                "the active has it in memory only"
            );
            pair.active()
                .open()
                .bucket
                .persistence()
                .writers()
                .request_flush(true);
            pair.active().steps().run();
            assert!(is_done(&pair));
            assert!(pair.active().open().sink.wait(cookie).is_ok());
            pair.check_equal();
        }
        pair.nodes.iter_mut().for_each(Node::shutdown);
    }
}

#[test]
fn majority_sync_write_does_not_shorten_the_log_interval() {
    use DurabilityLevel::{Majority, MajorityAndPersistOnActive};
    for commit_log in [true, false] {
        let mut pair = Pair::new(5, |config| config.commit_log = commit_log);
        pair.pump_all();
        pair.active().steps().pass(SEC);
        let names = names_in(VB, 3);
        let is_persisted = |pair: &Pair| {
            let figures = pair.active().open().bucket.vbucket_figures(VB).unwrap();
            figures.persisted_seqno >= figures.high_seqno
        };
        let request_flush = |pair: &Pair| {
            pair.active()
                .open()
                .bucket
                .persistence()
                .writers()
                .request_flush(true);
            pair.active()
                .open()
                .bucket
                .persistence()
                .writers()
                .request_flush(false);
            pair.active().steps().run();
        };
        pair.prepare(&names[0], b"in memory", Majority, 1).unwrap();
        request_flush(&pair);
        assert!(!is_persisted(&pair), "nobody waits for the disk");
        pair.active().steps().pass(SEC);
        assert!(is_persisted(&pair), "the interval is over");
        pair.prepare(&names[1], b"in memory", Majority, 2).unwrap();
        let level = MajorityAndPersistOnActive;
        pair.prepare(&names[2], b"on disk", level, 3).unwrap();
        request_flush(&pair);
        assert!(is_persisted(&pair), "one of them waits for the disk");
        while pair.pump(VB) {}
        pair.deliver_acks();
        for cookie in 1..=3 {
            assert!(pair.active().open().sink.get(cookie).is_some(), "{cookie}");
        }
        pair.nodes.iter_mut().for_each(Node::shutdown);
    }
}

#[test]
fn receiving_thread_can_write_the_log() {
    let mut pair = Pair::new(3, |_| {});
    pair.leads = true;
    let level = DurabilityLevel::PersistToMajority;
    let name = &names_in(VB, 1)[0];
    pair.pump(VB);
    pair.prepare(name, b"durable", level, 1).unwrap();
    pair.active()
        .open()
        .bucket
        .persistence()
        .writers()
        .request_flush(true);
    while pair.pump(VB) {}
    assert!(
        pair.active().open().sink.wait(1).is_ok(),
        "without any task"
    );
    pair.nodes.iter_mut().for_each(Node::shutdown);
}

#[test]
fn replica_without_memory_applies_backpressure_to_its_stream() {
    for commit_log in [true, false] {
        let mut pair = Pair::new(4, |config| {
            config.commit_log = commit_log;
            config.quota_bytes = 4 << 20;
        });
        let names: Vec<String> = all_vbuckets().flat_map(|vb| names_in(vb, 300)).collect();
        let mut later = 0;
        for round in 0..3 {
            let value = format!("{round:04}").repeat(500);
            for name in &names {
                pair.set_with_retry(name, value.as_bytes());
            }
            // The replica's tasks do not run in the meantime.
            for _ in 0..200 {
                pair.pump_all();
                pair.active().steps().run();
            }
            later = pair.replica().open().figure("ep_dcp_backpressured_items");
            let used = pair.replica().open().figure("mem_used");
            assert!(used <= 4 << 20, "{used}");
            pair.replica().acks.room.store(false, Ordering::SeqCst);
            pair.replica().steps().pass(SEC);
        }
        assert!(later > 0, "it was never full");
        assert!(pair.replica().acks.room.load(Ordering::SeqCst));
        pair.check_equal();
        pair.nodes.iter_mut().for_each(Node::shutdown);
    }
}
