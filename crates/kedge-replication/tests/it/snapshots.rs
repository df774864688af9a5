//! Snapshots and documents as each kind of client sees them.

use crate::pair::{features, history, producer};
use crate::script::{
    Script, abort, commit, disk, document, dropped, in_collection, item, memory, meta, prepare,
    stream, tombstone,
};
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpControl, DcpHeader, DcpMessage, DcpStreamRequest, OpenFlags, ParsePeer, PeerFrame,
    StreamFlags, SystemEventPayload, parse_peer,
};
use kedge_protocol::binary::{Feature, Features};
use kedge_replication::{EndReason, FillResult, Producer, ProducerAction, StreamItem};
use kedge_types::{CollectionId, Datatype, ScopeId, Seqno, VbUuid};
use kedge_vbucket::{Change, DcpSnapshot, Deletion, ItemMeta, OpenCollection};

/// A client of one stream.
pub(crate) struct Client {
    producer: Producer,
    script: Script,
}

impl Client {
    fn new(flags: OpenFlags, features: Features, controls: &[(&str, &str)]) -> Self {
        Self::asking(flags, features, controls, b"", 0)
    }

    pub(crate) fn asking(
        flags: OpenFlags,
        features: Features,
        controls: &[(&str, &str)],
        filter: &[u8],
        start: u64,
    ) -> Self {
        let mut client = Self {
            producer: producer(flags, features),
            script: Script::new(),
        };
        for (key, value) in [("enable_noop", "true")].iter().chain(controls) {
            client.ask(DcpBody::Control(DcpControl {
                key: key.as_bytes(),
                value: value.as_bytes(),
            }));
        }
        let seqno = Seqno(start);
        let todo = client.ask(DcpBody::StreamRequest(DcpStreamRequest {
            flags: StreamFlags(0),
            start: seqno,
            end: DcpStreamRequest::NO_END,
            vb_uuid: VbUuid(7),
            snap_start: seqno,
            snap_end: seqno,
            filter,
        }));
        let ProducerAction::OpenStream(id, mut request) = todo else {
            panic!("{todo:?}");
        };
        // What the source knows: the default collection is open in the default scope.
        let open = OpenCollection::new(CollectionId::DEFAULT, ScopeId(0), Seqno(0));
        request.filter.resolve(&[open], &[ScopeId(0)]).unwrap();
        client.producer.filter_is(id, request.filter);
        let mut out = Vec::new();
        client
            .producer
            .stream_opened(0, stream(0), &history(), &mut out);
        client
    }

    fn ask(&mut self, body: DcpBody<'_>) -> ProducerAction {
        let mut bytes = Vec::new();
        let head = DcpHeader::default();
        DcpMessage { head, body }.encode(&mut bytes);
        let ParsePeer::Frame {
            frame: PeerFrame::Request(request),
            ..
        } = parse_peer(&bytes, 1 << 20)
        else {
            panic!("it is a request");
        };
        let mut out = Vec::new();
        self.producer.on_request(0, &request, &mut out).unwrap()
    }

    /// The messages for what the stream says next, as text.
    pub(crate) fn sees(&mut self, items: &[StreamItem]) -> Vec<String> {
        told(&self.gets(items))
    }

    /// The bytes for what the stream says next, when it says `step` of it at once, and there is room for so much each
    /// time.
    pub(crate) fn gets_in_pieces(
        &mut self,
        items: &[StreamItem],
        step: usize,
        rooms: &[usize],
    ) -> Vec<u8> {
        self.script.step = step;
        self.script.say(stream(0), items.iter().cloned());
        self.producer.ready(stream(0).vb);
        let mut out = Vec::new();
        for room in rooms.iter().cycle() {
            let filled = self.producer.fill(0, &mut self.script, &mut out, *room);
            if filled == FillResult::Idle {
                break;
            }
        }
        out
    }

    /// The bytes for what the stream says next.
    pub(crate) fn gets(&mut self, items: &[StreamItem]) -> Vec<u8> {
        self.script.say(stream(0), items.iter().cloned());
        self.producer.ready(stream(0).vb);
        let mut out = Vec::new();
        self.producer.fill(0, &mut self.script, &mut out, 1 << 20);
        out
    }
}

fn told(mut bytes: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    while let ParsePeer::Frame { frame, consumed } = parse_peer(bytes, 1 << 20) {
        let PeerFrame::Request(request) = frame else {
            panic!("{frame:?}");
        };
        messages.push(text(&DcpMessage::decode(&request).unwrap().body));
        bytes = &bytes[consumed..];
    }
    messages
}

fn text(body: &DcpBody<'_>) -> String {
    let key = |key: &[u8]| key.escape_ascii().to_string();
    match body {
        DcpBody::SnapshotMarker(marker) => {
            let mut text = format!("{}..{} {:#x}", marker.start, marker.end, marker.flags.0);
            if let Some(visible) = marker.visible {
                let (seen, done) = (visible.max_visible, visible.high_completed);
                text += &format!(" visible {seen} completed {done}");
                if let Some(disk) = visible.disk {
                    let (purge, prepared) = (disk.purge, disk.high_prepared);
                    text += &format!(" purge {purge} prepared {prepared}");
                }
            }
            text
        }
        DcpBody::Mutation(m) => format!("{} sets {}", m.seqno, key(m.key)),
        DcpBody::Deletion(d) => match d.delete_time {
            Some(time) => format!("{} deletes {} at {time}", d.seqno, key(d.key)),
            None => format!("{} deletes {}", d.seqno, key(d.key)),
        },
        DcpBody::Expiration(e) => {
            format!("{} expires {} at {}", e.seqno, key(e.key), e.delete_time)
        }
        DcpBody::Prepare(p) => format!("{} prepares {}", p.seqno, key(p.key)),
        DcpBody::Commit(c) => format!("{} commits {} {}", c.seqno, key(c.key), c.prepared),
        DcpBody::Abort(a) => format!("{} aborts {} {}", a.seqno, key(a.key), a.prepared),
        DcpBody::SeqnoAdvanced(s) => format!("{} advances", s.seqno),
        DcpBody::OsoSnapshot(which) => format!("unordered {which:?}"),
        DcpBody::SystemEvent(event) => {
            let payload = SystemEventPayload::parse(event).unwrap();
            let subject = payload.collection.map_or(payload.scope, CollectionId::get);
            format!("{} {:?} {subject}", event.seqno, event.kind)
        }
        DcpBody::StreamEnd(end) => format!("ended {:?}", end.reason),
        other => panic!("{other:?}"),
    }
}

const SYNC: &[(&str, &str)] = &[("enable_sync_writes", "true")];

fn legacy() -> Features {
    features().without(Feature::Collections)
}

#[test]
fn replica_receives_prepares_and_other_clients_do_not() {
    let items = [
        memory(1, 3, 1),
        document(1, "a"),
        prepare(2, "b"),
        prepare(3, "c"),
        memory(4, 4, 4),
        commit(2, 4, "b"),
        memory(5, 5, 4),
        abort(3, 5, "c"),
        memory(6, 7, 7),
        prepare(6, "d"),
        document(7, "a"),
    ];
    let mut replica = Client::new(OpenFlags::default(), features(), SYNC);
    assert_eq!(
        replica.sees(&items),
        [
            "1..3 0x1 visible 1 completed 0",
            r"1 sets \x00a",
            r"2 prepares \x00b",
            r"3 prepares \x00c",
            "4..4 0x1 visible 4 completed 0",
            r"4 commits \x00b 2",
            "5..5 0x1 visible 4 completed 0",
            r"5 aborts \x00c 3",
            "6..7 0x1 visible 7 completed 0",
            r"6 prepares \x00d",
            r"7 sets \x00a",
        ]
    );
    let mut client = Client::new(OpenFlags::default(), features(), &[]);
    assert_eq!(
        client.sees(&items),
        [
            "1..1 0x1",
            r"1 sets \x00a",
            "4..4 0x1",
            r"4 sets \x00b",
            "6..7 0x1",
            r"7 sets \x00a",
        ]
    );
    let mut old = Client::new(OpenFlags::default(), legacy(), &[]);
    let seen = old.sees(&items);
    assert_eq!(&seen[..2], ["1..1 0x1", "1 sets a"]);
    assert_eq!(seen.len(), 6);
}

#[test]
fn stream_without_collections_ends_when_the_default_collection_is_dropped() {
    let items = [
        memory(1, 4, 4),
        document(1, "a"),
        in_collection(9, 2, "b"),
        dropped(3, CollectionId(9)),
        document(4, "c"),
        memory(5, 6, 6),
        dropped(5, CollectionId::DEFAULT),
        in_collection(9, 6, "b"),
    ];
    for controls in [&[][..], SYNC] {
        let mut old = Client::new(OpenFlags::default(), legacy(), controls);
        let seen = old.sees(&items);
        let seen: Vec<&str> = seen
            .iter()
            .map(|text| text.split(" visible").next().unwrap())
            .collect();
        let expected = [
            "1..4 0x1",
            "1 sets a",
            "4 sets c",
            "5..6 0x1",
            "ended FilterEmpty",
        ];
        assert_eq!(seen, expected);
    }
    // With collections it is an event as any other.
    let mut new = Client::new(OpenFlags::default(), features(), &[]);
    let seen = new.sees(&items);
    assert_eq!(seen.last().unwrap(), r"6 sets \tb");
}

#[test]
fn seqno_advanced_closes_a_snapshot_with_an_invisible_end() {
    // The source does not know what is visible.
    let unsaid = |start, end| match memory(start, end, 0) {
        StreamItem::Marker(snapshot) => StreamItem::Marker(DcpSnapshot {
            max_visible: None,
            ..snapshot
        }),
        other => other,
    };
    let items = [
        unsaid(1, 2),
        document(1, "a"),
        prepare(2, "b"),
        disk(3, 9, 9),
        document(4, "a"),
        StreamItem::SeqnoAdvanced(Seqno(7)),
        document(8, "b"),
        StreamItem::SeqnoAdvanced(Seqno(9)),
    ];
    let mut client = Client::new(OpenFlags::default(), features(), &[]);
    assert_eq!(
        client.sees(&items),
        [
            "1..2 0x1",
            r"1 sets \x00a",
            "2 advances",
            "3..9 0x6",
            r"4 sets \x00a",
            r"8 sets \x00b",
            "9 advances",
        ]
    );
    let mut old = Client::new(OpenFlags::default(), legacy(), &[]);
    let seen = old.sees(&items);
    assert!(
        !seen.iter().any(|text| text.ends_with("advances")),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 5);
}

/// A replica in the middle of a snapshot does not know what else will be visible in it.
#[test]
fn marker_is_repeated_when_more_is_visible_than_announced() {
    let items = [
        disk(1, 9, 2),
        document(2, "a"),
        prepare(3, "b"),
        document(5, "c"),
        document(7, "d"),
        StreamItem::SeqnoAdvanced(Seqno(9)),
        memory(10, 11, 9),
        document(11, "a"),
    ];
    let mut client = Client::new(OpenFlags::default(), features(), &[]);
    assert_eq!(
        client.sees(&items),
        [
            "1..2 0x6",
            r"2 sets \x00a",
            "3..9 0x2",
            r"5 sets \x00c",
            r"7 sets \x00d",
            "9 advances",
            "10..11 0x1",
            r"11 sets \x00a",
        ]
    );
}

#[test]
fn backfilling_streams_are_counted() {
    let mut client = Client::new(OpenFlags::default(), features(), &[]);
    let backfilling = |client: &Client| client.producer.figures().backfilling;
    client.sees(&[disk(1, 9, 9), document(2, "a")]);
    assert_eq!(backfilling(&client), 1);
    client.sees(&[document(9, "a")]);
    assert_eq!(backfilling(&client), 0);
    client.sees(&[disk(10, 19, 19), document(12, "a")]);
    client.script.end(stream(0), EndReason::StateChanged);
    client.sees(&[]);
    assert_eq!(backfilling(&client), 0, "it ended");
}

#[test]
fn filtered_stream_leaves_out_other_collections() {
    let items = [
        memory(1, 3, 3),
        in_collection(0, 1, "a"),
        in_collection(9, 2, "b"),
        in_collection(9, 3, "c"),
        memory(4, 4, 4),
        in_collection(9, 4, "d"),
        memory(5, 6, 6),
        in_collection(9, 5, "d"),
        in_collection(0, 6, "d"),
    ];
    let filters = [&br#"{"collections":["0"]}"#[..], br#"{"scope":"0"}"#];
    for filter in filters {
        let mut client = Client::asking(OpenFlags::default(), features(), &[], filter, 0);
        assert_eq!(
            client.sees(&items),
            [
                "1..3 0x1",
                r"1 sets \x00a",
                "3 advances",
                "4..4 0x1",
                "4 advances",
                "5..6 0x1",
                r"6 sets \x00d",
            ]
        );
    }
    let mut all = Client::new(OpenFlags::default(), features(), &[]);
    assert_eq!(all.sees(&items).len(), items.len());
    // One that knows no collections sees the default one, by its keys alone.
    let mut old = Client::new(OpenFlags::default(), legacy(), &[]);
    assert_eq!(
        old.sees(&items),
        ["1..3 0x1", "1 sets a", "4..4 0x1", "5..6 0x1", "6 sets d"]
    );
}

#[test]
fn snapshot_marker_version_depends_on_the_client() {
    let items = [disk(1, 4, 3), memory(5, 6, 6)];
    for (controls, expected) in [
        (&[][..], ["1..3 0x6", "5..6 0x1"]),
        (
            &[("max_marker_version", "2.0")],
            [
                "1..3 0x6 visible 3 completed 3",
                "5..6 0x1 visible 6 completed 0",
            ],
        ),
        (
            &[("max_marker_version", "2.2")],
            [
                "1..3 0x6 visible 3 completed 3 purge 1 prepared 4",
                "5..6 0x1 visible 6 completed 0",
            ],
        ),
        (
            SYNC,
            [
                "1..4 0x6 visible 3 completed 3",
                "5..6 0x1 visible 6 completed 0",
            ],
        ),
        (
            &[
                ("enable_sync_writes", "true"),
                ("max_marker_version", "1.0"),
            ],
            ["1..4 0x6", "5..6 0x1"],
        ),
    ] {
        let mut client = Client::new(OpenFlags::default(), features(), controls);
        assert_eq!(client.sees(&items), expected, "{controls:?}");
    }
}

#[test]
fn deletions_are_encoded_as_the_client_asked() {
    let items = [
        memory(1, 2, 2),
        tombstone(1, "a", Deletion::Explicit),
        tombstone(2, "b", Deletion::Expired),
    ];
    let none = OpenFlags::default();
    let expiry: &[_] = &[("enable_expiry_opcode", "true")];
    for (flags, controls, expected) in [
        (none, &[][..], [r"1 deletes \x00a", r"2 deletes \x00b"]),
        (
            OpenFlags::DELETE_TIMES,
            &[],
            [
                r"1 deletes \x00a at 1700000000",
                r"2 deletes \x00b at 1700000000",
            ],
        ),
        (
            none,
            expiry,
            [
                r"1 deletes \x00a at 1700000000",
                r"2 expires \x00b at 1700000000",
            ],
        ),
    ] {
        let mut client = Client::new(flags, features(), controls);
        assert_eq!(client.sees(&items)[1..], expected, "{flags:?}");
    }
}

#[test]
fn initial_backfill_may_skip_deletions() {
    let items = [
        disk(1, 3, 3),
        document(1, "a"),
        tombstone(3, "b", Deletion::Explicit),
        memory(4, 4, 4),
        tombstone(4, "a", Deletion::Explicit),
    ];
    let flags = OpenFlags::SKIP_DELETES;
    let mut anew = Client::new(flags, features(), &[]);
    assert_eq!(
        anew.sees(&items),
        [
            "1..3 0x6",
            r"1 sets \x00a",
            "3 advances",
            "4..4 0x1",
            r"4 deletes \x00a",
        ]
    );
    // Later disk snapshots, after a fall back, have them.
    let later = [disk(5, 5, 5), tombstone(5, "a", Deletion::Explicit)];
    assert_eq!(anew.sees(&later), ["5..5 0x6", r"5 deletes \x00a"]);
    let mut goes_on = Client::asking(flags, features(), &[], b"", 1);
    let seen = goes_on.sees(&[disk(2, 3, 3), tombstone(3, "b", Deletion::Explicit)]);
    assert_eq!(seen, ["2..3 0x6", r"3 deletes \x00b"]);
}

#[test]
fn stream_end_carries_its_reason() {
    for reason in [EndReason::Ok, EndReason::StateChanged, EndReason::Rollback] {
        let mut client = Client::new(OpenFlags::default(), features(), &[]);
        client.script.end(stream(0), reason);
        let seen = client.sees(&[memory(1, 1, 1), document(1, "a")]);
        assert_eq!(seen.last(), Some(&format!("ended {reason:?}")));
        assert_eq!(seen.len(), 3);
        assert_eq!(client.producer.figures().streams, 0);
        assert!(client.script.closed.is_empty(), "the source knows");
    }
}

/// A source that breaks its word, or a stored value that is not what it says: nothing wrong is sent, the stream ends.
#[test]
fn unsendable_change_ends_the_stream() {
    let broken = {
        let meta = ItemMeta {
            datatype: Datatype::SNAPPY,
            ..meta(1)
        };
        StreamItem::Change(Change::Document(item(&meta, "k", b"\xff\xff\xff")))
    };
    let without_level = StreamItem::Change(Change::Prepare(item(&meta(1), "k", b"")));
    for (items, sent) in [
        (vec![memory(1, 1, 1), broken], 1),
        (vec![memory(1, 1, 1), without_level], 1),
        (vec![document(1, "a")], 0),
        (vec![memory(1, 1, 1), document(2, "a")], 1),
        (vec![memory(1, 3, 3), document(2, "a"), document(1, "a")], 2),
    ] {
        let plain = features().without(Feature::Snappy);
        let mut client = Client::new(OpenFlags::default(), plain, SYNC);
        let seen = client.sees(&items);
        assert_eq!(seen.len(), sent + 1, "{seen:?}");
        assert_eq!(seen[sent], "ended BackfillFailed");
        assert_eq!(client.script.closed, [stream(0)]);
    }
}

#[test]
fn access_frequency_is_sent_to_clients_that_know_it() {
    let nru = |controls: &[(&str, &str)]| {
        let mut client = Client::new(OpenFlags::default(), features(), controls);
        client
            .script
            .say(stream(0), [memory(1, 1, 1), document(1, "a")]);
        client.producer.ready(stream(0).vb);
        let mut out = Vec::new();
        client
            .producer
            .fill(0, &mut client.script, &mut out, 1 << 20);
        // The last of the 31 bytes of extras of the second message.
        out[24 + 20 + 24 + 30]
    };
    assert_eq!(nru(&[]), 0);
    let frequency = item(&meta(1), "a", b"").frequency();
    assert!(frequency > 0);
    assert_eq!(nru(&[("supports_hifi_MFU", "true")]), frequency);
}

/// Snapshots in which a key may stand twice did not say so.
#[test]
fn marker_flags_possible_duplicates() {
    let features = Features::of(&[Feature::Xerror]);
    let mut client = Client::new(OpenFlags::PRODUCER, features, &[]);
    let marker = |snapshot: StreamItem, repeats_keys| match snapshot {
        StreamItem::Marker(snapshot) => StreamItem::Marker(DcpSnapshot {
            repeats_keys,
            ..snapshot
        }),
        other => panic!("{other:?}"),
    };
    let seen = client.sees(&[
        marker(memory(1, 1, 1), false),
        document(1, "k"),
        marker(memory(2, 3, 3), true),
        document(2, "k"),
        document(3, "k"),
        marker(disk(4, 5, 5), true),
        document(5, "k"),
    ]);
    let markers: Vec<_> = seen.iter().filter(|line| line.contains("..")).collect();
    assert_eq!(markers, ["1..1 0x1", "2..3 0x21", "4..5 0x26"]);
}
