//! DCP streams: outbound, and between two buckets.

mod backfill;
mod handover;
mod history;
mod memory;
mod out;
pub(crate) mod pair;
mod unique_keys;
mod unordered;

use crate::tools::*;
use kedge_bucket::{
    Change, EndReason, Item, SnapshotKind, SourceState, StreamConnection, StreamItem, StreamNotify,
    StreamRefused, StreamRequest, VbStream,
};
use kedge_replication::{Filter, StreamFlags};
use kedge_types::{Seqno, Status, VbId, VbUuid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// A recorder of notifications about streams.
#[derive(Default)]
pub(crate) struct ReadyNotifications {
    ready: Mutex<Vec<VbId>>,
}

impl StreamNotify for ReadyNotifications {
    fn ready(&self, vb: VbId) {
        self.ready.lock().unwrap().push(vb);
    }
}

impl ReadyNotifications {
    /// Returns the notifications since the last call.
    pub(crate) fn take(&self) -> Vec<VbId> {
        std::mem::take(&mut *self.ready.lock().unwrap())
    }
}

/// Requests all changes after `start`, which is on the newest branch, without an end.
pub(crate) fn request(open: &Open, vb: VbId, start: u64) -> StreamRequest {
    let log = open.bucket.failover_log(open.ctx(), vb);
    StreamRequest {
        vb,
        flags: StreamFlags(0),
        start: Seqno(start),
        end: Seqno(u64::MAX),
        uuid: log.map_or(VbUuid(0), |log| log[0].0),
        snap_start: Seqno(start),
        snap_end: Seqno(start),
        purge_seen: None,
        manifest_seen: None,
        filter: Filter::Everything,
        unordered: false,
        sync_writes: true,
        consumer: None,
    }
}

/// The state of a stream's receiver, as a client would have it.
#[derive(Debug, Default)]
pub(crate) struct Copy {
    /// The documents and tombstones by key.
    pub(crate) documents: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>,
    pub(crate) prepares: BTreeMap<Vec<u8>, u64>,
    pub(crate) last: u64,
    /// The start, end and kind of the last snapshot.
    pub(crate) snapshot: Option<kedge_bucket::DcpSnapshot>,
    pub(crate) markers: u32,
    /// The keys and seqnos of items in OSO snapshots.
    pub(crate) unordered: Vec<(Vec<u8>, u64)>,
    pub(crate) is_unordered: bool,
    pub(crate) unordered_ends: u32,
    pub(crate) states: Vec<kedge_bucket::VbState>,
    /// True if the stream started in the middle of a history, so that the first prepares may be missing.
    pub(crate) is_late: bool,
    /// True if the receiver does not get prepares, commits and aborts.
    pub(crate) documents_only: bool,
    /// The keys of the snapshot; those of prepares in a disk snapshot are separate.
    keys: BTreeSet<(bool, Vec<u8>)>,
    /// The numbers of snapshots whose markers allow repeated keys, and of those that repeated one.
    pub(crate) repeating: (u32, u32),
    is_repeated: bool,
}

impl Copy {
    fn next_change(&mut self, item: &Item) {
        let seqno = item.seqno().get();
        if self.is_unordered {
            self.unordered.push((item.key().to_vec(), seqno));
        } else {
            self.next(seqno);
        }
    }

    /// Checks that a snapshot repeats a key only if its marker says so. An unordered one, from the disk, repeats none.
    fn next_key(&mut self, change: &Change) {
        let Some(item) = change.item() else {
            return;
        };
        let is_prepare = matches!(change, Change::Prepare(_) | Change::Abort { .. });
        let snapshot = self.snapshot.filter(|_| !self.is_unordered);
        if (snapshot.is_none() && !self.is_unordered) || (is_prepare && self.documents_only) {
            return;
        }
        let is_of_disk = snapshot.is_none_or(|it| it.kind == SnapshotKind::Disk);
        let is_apart = is_prepare && is_of_disk;
        let is_new = self.keys.insert((is_apart, item.key().to_vec()));
        assert!(
            is_new || snapshot.is_some_and(|it| it.repeats_keys),
            "{} stands twice in {snapshot:?}",
            item.key().escape_ascii()
        );
        if !is_new && !std::mem::replace(&mut self.is_repeated, true) {
            self.repeating.1 += 1;
        }
    }

    fn next(&mut self, seqno: u64) {
        let snapshot = self.snapshot.expect("a marker comes first");
        let range = snapshot.start.get()..=snapshot.end.get();
        assert!(range.contains(&seqno), "{seqno} is not in {snapshot:?}");
        assert!(seqno > self.last, "{seqno} follows {}", self.last);
        self.last = seqno;
    }

    pub(crate) fn take(&mut self, item: StreamItem) {
        match item {
            StreamItem::Marker(snapshot) => {
                assert!(snapshot.end.get() > self.last, "{snapshot:?}");
                assert!(!self.is_unordered, "{snapshot:?}");
                self.snapshot = Some(snapshot);
                self.markers += 1;
                self.keys.clear();
                self.is_repeated = false;
                self.repeating.0 += u32::from(snapshot.repeats_keys);
            }
            StreamItem::Change(change) => {
                let item = change.item().expect("only changes with items").clone();
                self.next_change(&item);
                self.next_key(&change);
                let key = item.key().to_vec();
                match change {
                    Change::Document(_) => {
                        self.prepares.remove(&key);
                        self.put(&item);
                    }
                    Change::Commit { prepared, .. } => {
                        let found = self.prepares.remove(&key);
                        let is_there = found == Some(prepared.get());
                        let is_earlier = self.is_late && found.is_none();
                        assert!(is_there || is_earlier, "a commit has its prepare");
                        self.put(&item);
                    }
                    Change::Prepare(_) => {
                        let before = self.prepares.insert(key, self.last);
                        assert_eq!(before, None, "a key has one prepare");
                    }
                    Change::Abort { prepared, .. } => {
                        let found = self.prepares.remove(&key);
                        assert!(found.is_none_or(|found| found == prepared.get()));
                    }
                    Change::System(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            StreamItem::UnorderedBegin => {
                assert_eq!((self.last, self.is_unordered), (0, false));
                self.is_unordered = true;
                self.keys.clear();
            }
            StreamItem::UnorderedEnd(upto) => {
                assert!(self.is_unordered);
                self.is_unordered = false;
                self.unordered_ends += 1;
                self.last = upto.get();
            }
            StreamItem::SeqnoAdvanced(seqno) => self.next(seqno.get()),
            StreamItem::State(state) => self.states.push(state),
        }
    }

    fn put(&mut self, item: &Item) {
        let value = (!item.is_deleted()).then(|| item.value().to_vec());
        self.documents
            .insert(item.key().to_vec(), (item.seqno().get(), value));
    }

    /// Returns names, seqnos and the beginnings of values.
    pub(crate) fn brief(&self) -> Vec<String> {
        let text = |(key, (seqno, value)): (&Vec<u8>, &(u64, Option<Vec<u8>>))| {
            let value = value.as_deref().unwrap_or_default();
            let first = value.get(..8).unwrap_or(value);
            format!("{}@{seqno}={}", key.escape_ascii(), first.escape_ascii())
        };
        self.documents.iter().map(text).collect()
    }

    /// Returns the values of the documents by name.
    pub(crate) fn values(&self) -> BTreeMap<String, String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        self.documents
            .iter()
            .filter_map(|(key, (_, value))| Some((text(&key[1..]), text(value.as_ref()?))))
            .collect()
    }
}

/// A stream and the state of its receiver.
pub(crate) struct Client {
    pub(crate) stream: VbStream,
    pub(crate) copy: Copy,
    pub(crate) ended: Option<EndReason>,
    /// The maximum number of changes per read.
    pub(crate) at_once: usize,
}

impl Client {
    pub(crate) fn new(stream: VbStream, start: u64) -> Self {
        let copy = Copy {
            last: start,
            ..Copy::default()
        };
        Self {
            stream,
            copy,
            ended: None,
            at_once: 3,
        }
    }

    /// Reads once.
    pub(crate) fn read(&mut self) -> SourceState {
        let mut items = Vec::new();
        let state = self.stream.read(self.at_once, 1 << 20, &mut items);
        for item in items {
            self.copy.take(item);
        }
        if let SourceState::Ended(reason) = state {
            self.ended = Some(reason);
        }
        state
    }

    /// Reads until the stream is idle.
    pub(crate) fn drain(&mut self) {
        while self.read() == SourceState::More {}
    }
}

/// Stores `value` in documents and makes it durable.
fn write_all(open: &Open, names: &[String], value: &str) {
    for name in names {
        open.set(name, value.as_bytes()).unwrap();
    }
    open.bucket.persistence().sync().unwrap();
}

/// A connection to a bucket with manually run tasks.
pub(crate) struct TestConnection {
    pub(crate) ear: Arc<ReadyNotifications>,
    pub(crate) connection: StreamConnection,
}

impl TestConnection {
    pub(crate) fn new(open: &Open) -> Self {
        let ear = Arc::new(ReadyNotifications::default());
        let connection = open
            .bucket
            .dcp()
            .connect_streams("test", Arc::clone(&ear) as Arc<dyn StreamNotify>)
            .unwrap();
        Self { ear, connection }
    }

    pub(crate) fn try_open(&self, request: &StreamRequest) -> Result<Client, StreamRefused> {
        let opened = self.connection.open_stream(request)?;
        let mut client = Client::new(opened.stream, request.start.get());
        client.copy.documents_only = !request.sync_writes;
        Ok(client)
    }

    pub(crate) fn open(&self, open: &Open, vb: VbId, start: u64) -> Client {
        self.try_open(&request(open, vb, start)).unwrap()
    }
}

/// Returns the values in a vBucket by name.
pub(crate) fn values(open: &Open, names: impl Iterator<Item = String>) -> BTreeMap<String, String> {
    names
        .filter_map(|name| match open.get(&name) {
            Ok(value) => Some((name, String::from_utf8(value).unwrap())),
            Err(Status::KeyNotFound) => None,
            Err(error) => panic!("{error:?}"),
        })
        .collect()
}

/// Returns names of keys in one vBucket.
pub(crate) fn names_in(vb: VbId, count: usize) -> Vec<String> {
    (0..)
        .map(|n| format!("key-{n}"))
        .filter(|name| key(name).vbucket(4) == vb)
        .take(count)
        .collect()
}
