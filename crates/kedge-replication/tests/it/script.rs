//! Streams that say what they are told to say.

use kedge_replication::{EndReason, Source, SourceState, StreamId, StreamItem};
use kedge_types::{
    Cas, CollectionId, Datatype, DocKey, DurabilityLevel, Expiry, ManifestUid, RevSeqno, ScopeId,
    Seqno, VbId,
};
use kedge_vbucket::{
    Change, DcpSnapshot, Deletion, Item, ItemMeta, SnapshotKind, SystemEvent, SystemEventKind,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The scripted steps of streams, and their ends.
#[derive(Debug, Default)]
pub(crate) struct Script {
    streams: BTreeMap<StreamId, (VecDeque<StreamItem>, Option<EndReason>)>,
    ended: BTreeSet<StreamId>,
    /// Steps that a stream gives at once, at most.
    pub(crate) step: usize,
    pub(crate) closed: Vec<StreamId>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self {
            step: usize::MAX,
            ..Self::default()
        }
    }

    pub(crate) fn say(&mut self, stream: StreamId, items: impl IntoIterator<Item = StreamItem>) {
        self.streams.entry(stream).or_default().0.extend(items);
    }

    pub(crate) fn end(&mut self, stream: StreamId, reason: EndReason) {
        self.streams.entry(stream).or_default().1 = Some(reason);
    }
}

impl Source for Script {
    fn read(
        &mut self,
        stream: StreamId,
        max_items: usize,
        _max_bytes: usize,
        out: &mut Vec<StreamItem>,
    ) -> SourceState {
        assert!(
            !self.ended.contains(&stream),
            "a stream is not read beyond its end"
        );
        let Some((items, end)) = self.streams.get_mut(&stream) else {
            return SourceState::Idle;
        };
        let count = items.len().min(max_items).min(self.step);
        out.extend(items.drain(..count));
        match end {
            _ if !items.is_empty() => SourceState::More,
            Some(reason) => {
                self.ended.insert(stream);
                SourceState::Ended(*reason)
            }
            None => SourceState::Idle,
        }
    }

    fn close(&mut self, stream: StreamId) {
        self.closed.push(stream);
    }
}

/// The only stream of a vBucket.
pub(crate) fn stream(vb: u16) -> StreamId {
    StreamId {
        vb: VbId(vb),
        sid: 0,
    }
}

pub(crate) fn key_in(collection: u32, key: &str) -> DocKey {
    DocKey::new(CollectionId(collection), key.as_bytes()).unwrap()
}

pub(crate) fn meta(seqno: u64) -> ItemMeta {
    ItemMeta {
        cas: Cas(0x1000 + seqno),
        seqno: Seqno(seqno),
        rev: RevSeqno(seqno),
        flags: 7,
        expiry: Expiry(0),
        datatype: Datatype::RAW,
        deleted: None,
        level: None,
    }
}

pub(crate) fn item(meta: &ItemMeta, key: &str, value: &[u8]) -> Item {
    Item::new(meta, key_in(0, key).as_bytes(), &[value])
}

pub(crate) fn document(seqno: u64, key: &str) -> StreamItem {
    let value = format!("value {seqno}");
    StreamItem::Change(Change::Document(item(&meta(seqno), key, value.as_bytes())))
}

pub(crate) fn in_collection(collection: u32, seqno: u64, key: &str) -> StreamItem {
    let key = key_in(collection, key);
    let item = Item::new(&meta(seqno), key.as_bytes(), &[b"v"]);
    StreamItem::Change(Change::Document(item))
}

pub(crate) fn tombstone(seqno: u64, key: &str, deleted: Deletion) -> StreamItem {
    let meta = ItemMeta {
        deleted: Some(deleted),
        expiry: Expiry(1_700_000_000),
        ..meta(seqno)
    };
    StreamItem::Change(Change::Document(item(&meta, key, b"")))
}

pub(crate) fn prepare(seqno: u64, key: &str) -> StreamItem {
    let meta = ItemMeta {
        level: Some(DurabilityLevel::Majority),
        ..meta(seqno)
    };
    let value = format!("prepared {seqno}");
    StreamItem::Change(Change::Prepare(item(&meta, key, value.as_bytes())))
}

pub(crate) fn commit(prepared: u64, seqno: u64, key: &str) -> StreamItem {
    let value = format!("prepared {prepared}");
    StreamItem::Change(Change::Commit {
        item: item(&meta(seqno), key, value.as_bytes()),
        prepared: Seqno(prepared),
    })
}

pub(crate) fn abort(prepared: u64, seqno: u64, key: &str) -> StreamItem {
    let meta = ItemMeta {
        deleted: Some(Deletion::Explicit),
        ..meta(seqno)
    };
    StreamItem::Change(Change::Abort {
        item: item(&meta, key, b""),
        prepared: Seqno(prepared),
    })
}

/// A collection of the default scope is gone.
pub(crate) fn dropped(seqno: u64, collection: CollectionId) -> StreamItem {
    let event = SystemEvent {
        kind: SystemEventKind::CollectionDropped,
        uid: ManifestUid(seqno),
        scope: ScopeId(0),
        collection,
        name: String::new(),
        max_ttl: None,
        history: false,
        start: Seqno(0),
    };
    StreamItem::Change(Change::System(event.item(Cas(1), Seqno(seqno))))
}

pub(crate) fn memory(start: u64, end: u64, max_visible: u64) -> StreamItem {
    StreamItem::Marker(DcpSnapshot {
        max_visible: Some(Seqno(max_visible)),
        ..DcpSnapshot::new(SnapshotKind::Memory, Seqno(start), Seqno(end))
    })
}

pub(crate) fn disk(start: u64, end: u64, max_visible: u64) -> StreamItem {
    StreamItem::Marker(DcpSnapshot {
        max_visible: Some(Seqno(max_visible)),
        high_completed: Some(Seqno(end - 1)),
        high_prepared: Some(Seqno(end)),
        purge: Some(Seqno(1)),
        checkpoint: true,
        ..DcpSnapshot::new(SnapshotKind::Disk, Seqno(start), Seqno(end))
    })
}
