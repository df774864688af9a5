//! Events about collections as consumers see them.

use crate::pair::features;
use crate::script::{document, in_collection, memory};
use crate::snapshots::Client;
use kedge_couchstore::kv::{self, CollectionDropped, CollectionOpened, ScopeDropped, ScopeOpened};
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpMessage, DcpSystemEventKind, OpenFlags, ParsePeer, PeerFrame, SystemEventPayload,
    parse_peer,
};
use kedge_replication::StreamItem;
use kedge_types::{Cas, CollectionId, ManifestUid, ScopeId, Seqno};
use kedge_vbucket::{Change, SystemEvent, SystemEventKind};

fn event(seqno: u64, kind: SystemEventKind, max_ttl: Option<u32>) -> StreamItem {
    let event = SystemEvent {
        kind,
        uid: ManifestUid(100 + seqno),
        scope: ScopeId(9),
        collection: CollectionId(if kind.is_of_scope() { 0 } else { 0x1234 }),
        name: if kind.is_drop() { "" } else { "fruit" }.to_owned(),
        max_ttl,
        history: false,
        start: Seqno(0),
    };
    StreamItem::Change(Change::System(event.item(Cas(1), Seqno(seqno))))
}

/// All kinds of events with documents between, as one snapshot.
fn history() -> Vec<StreamItem> {
    vec![
        memory(1, 8, 8),
        event(1, SystemEventKind::ScopeCreated, None),
        event(2, SystemEventKind::CollectionCreated, None),
        in_collection(0x1234, 3, "k"),
        event(4, SystemEventKind::CollectionModified, Some(7)),
        document(5, "k"),
        event(6, SystemEventKind::CollectionDropped, None),
        event(7, SystemEventKind::ScopeDropped, None),
        event(8, SystemEventKind::CollectionCreated, Some(0)),
    ]
}

/// Seqno, what happened, version, name and data of an event.
type Heard = (u64, DcpSystemEventKind, u8, Vec<u8>, Vec<u8>);

fn heard(mut bytes: &[u8]) -> Vec<Heard> {
    let mut events = Vec::new();
    while let ParsePeer::Frame { frame, consumed } = parse_peer(bytes, 1 << 20) {
        let PeerFrame::Request(request) = frame else {
            panic!("{frame:?}");
        };
        if let DcpBody::SystemEvent(it) = DcpMessage::decode(&request).unwrap().body {
            let (name, data) = (it.name.to_vec(), it.data.to_vec());
            if it.version < 2 {
                SystemEventPayload::parse(&it).unwrap();
            }
            events.push((it.seqno.get(), it.kind, it.version, name, data));
        }
        bytes = &bytes[consumed..];
    }
    events
}

#[test]
fn flatbuffer_events_equal_those_of_files_and_include_settings() {
    let controls = [("flatbuffers_system_events", "true")];
    let mut client = Client::asking(OpenFlags::default(), features(), &controls, b"", 0);
    let (scope, collection) = (ScopeId(9), CollectionId(0x1234));
    let name = || "fruit".to_owned();
    let opened = |seqno: u64, max_ttl| CollectionOpened {
        uid: ManifestUid(100 + seqno),
        scope,
        collection,
        max_ttl,
        name: name(),
        ..CollectionOpened::default()
    };
    let expected = [
        (
            1,
            DcpSystemEventKind::ScopeCreated,
            kv::StoredSystemEvent::ScopeOpened(ScopeOpened {
                uid: ManifestUid(101),
                scope,
                name: name(),
            }),
        ),
        (
            2,
            DcpSystemEventKind::CollectionBegan,
            kv::StoredSystemEvent::CollectionOpened(opened(2, None)),
        ),
        (
            4,
            DcpSystemEventKind::CollectionModified,
            kv::StoredSystemEvent::CollectionModified(opened(4, Some(7))),
        ),
        (
            6,
            DcpSystemEventKind::CollectionDropped,
            kv::StoredSystemEvent::CollectionDropped(CollectionDropped {
                uid: ManifestUid(106),
                scope,
                collection,
                is_system: false,
            }),
        ),
        (
            7,
            DcpSystemEventKind::ScopeDropped,
            kv::StoredSystemEvent::ScopeDropped(ScopeDropped {
                uid: ManifestUid(107),
                scope,
                is_system: false,
            }),
        ),
        (
            8,
            DcpSystemEventKind::CollectionBegan,
            kv::StoredSystemEvent::CollectionOpened(opened(8, Some(0))),
        ),
    ];
    let heard = heard(&client.gets(&history()));
    assert_eq!(heard.len(), expected.len());
    for ((seqno, told, version, name, data), (at, kind, event)) in heard.into_iter().zip(expected) {
        assert_eq!((seqno, told, version), (at, kind, 2));
        let (key_kind, _, is_drop) = event.key();
        assert_eq!(name, if is_drop { &b""[..] } else { b"fruit" });
        let decoded = kv::StoredSystemEvent::decode(key_kind, is_drop, &data);
        assert_eq!(decoded.unwrap(), event);
    }
}

#[test]
fn modified_collection_is_sent_only_with_flatbuffers() {
    for controls in [&[][..], &[("flatbuffers_system_events", "false")]] {
        let mut client = Client::asking(OpenFlags::default(), features(), controls, b"", 0);
        let heard = heard(&client.gets(&history()));
        let brief: Vec<_> = heard.iter().map(|it| (it.0, it.1, it.2)).collect();
        let expected = [
            (1, DcpSystemEventKind::ScopeCreated, 0),
            (2, DcpSystemEventKind::CollectionBegan, 0),
            (6, DcpSystemEventKind::CollectionDropped, 0),
            (7, DcpSystemEventKind::ScopeDropped, 0),
            (8, DcpSystemEventKind::CollectionBegan, 1),
        ];
        assert_eq!(brief, expected);
    }
    let mut client = Client::asking(OpenFlags::default(), features(), &[], b"", 0);
    let items = [
        memory(1, 2, 2),
        document(1, "k"),
        event(2, SystemEventKind::CollectionModified, Some(7)),
    ];
    // The snapshot is whole all the same.
    let expected = ["1..2 0x1", r"1 sets \x00k", "2 advances"];
    assert_eq!(client.sees(&items), expected);
}
