//! Snapshots that are not in the order of seqnos.

use crate::pair::features;
use crate::script::{document, dropped, in_collection, memory, meta, tombstone};
use crate::snapshots::Client;
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpMessage, OpenFlags, OsoSnapshot, ParsePeer, PeerFrame, parse_peer,
};
use kedge_replication::StreamItem;
use kedge_types::{CollectionId, DocKey, Seqno};
use kedge_vbucket::{Change, Deletion, Item};
use proptest::collection::vec;
use proptest::prelude::*;

fn client(value: &str, flags: OpenFlags) -> Client {
    let controls = [("enable_out_of_order_snapshots", value)];
    Client::asking(flags, features(), &controls, FILTER, 0)
}

const FILTER: &[u8] = br#"{"collections":["0"]}"#;
const BEGIN: StreamItem = StreamItem::UnorderedBegin;

fn end(upto: u64) -> StreamItem {
    StreamItem::UnorderedEnd(Seqno(upto))
}

#[test]
fn oso_snapshot_is_followed_by_changes_in_seqno_order() {
    let items = [
        BEGIN,
        document(5, "a"),
        in_collection(9, 7, "of another"),
        tombstone(2, "b", Deletion::Explicit),
        document(3, "c"),
        end(7),
        memory(8, 9, 9),
        document(8, "a"),
        in_collection(9, 9, "of another"),
    ];
    let unordered = [
        "unordered Start",
        r"5 sets \x00a",
        r"2 deletes \x00b",
        r"3 sets \x00c",
    ];
    let rest = ["unordered End", "8..9 0x1", r"8 sets \x00a", "9 advances"];
    let mut plain = client("true", OpenFlags::default());
    assert_eq!(plain.sees(&items), [&unordered[..], &rest].concat());
    let told = [&unordered[..], &["7 advances"], &rest].concat();
    let mut advances = client("true_with_seqno_advanced", OpenFlags::default());
    assert_eq!(advances.sees(&items), told);
    // Deletions are left out as in what comes from the disk otherwise.
    let mut skips = client("true", OpenFlags::SKIP_DELETES);
    let seen = skips.sees(&items);
    assert!(
        !seen.iter().any(|text| text.contains("deletes")),
        "{seen:?}"
    );
    assert_eq!(seen.len(), 7);
}

#[test]
fn oso_snapshot_sends_no_superfluous_seqno_advanced() {
    let mut client = client("true_with_seqno_advanced", OpenFlags::default());
    let items = [BEGIN, document(7, "a"), document(3, "b"), end(7)];
    assert_eq!(client.sees(&items).len(), 4);
    let mut empty = self::client("true_with_seqno_advanced", OpenFlags::default());
    let told = ["unordered Start", "4 advances", "unordered End"];
    assert_eq!(empty.sees(&[BEGIN, end(4)]), told);
}

#[test]
fn stream_ends_after_the_oso_snapshot_when_its_collection_was_dropped() {
    let dropped = dropped(6, CollectionId::DEFAULT);
    let mut client = client("true", OpenFlags::default());
    assert_eq!(
        client.sees(&[BEGIN, dropped, end(6), memory(7, 7, 7)]),
        [
            "unordered Start",
            "6 CollectionDropped 0",
            "unordered End",
            "ended FilterEmpty",
        ]
    );
}

/// The received parts of an out-of-order snapshot.
#[derive(Debug, Default)]
struct Got {
    seqnos: Vec<u64>,
    advanced: Option<u64>,
    /// The seqnos received after it.
    ordered: Vec<u64>,
    marker: Option<(u64, u64)>,
    /// True if it has begun, and true if it has ended.
    state: (bool, bool),
}

fn read(mut bytes: &[u8]) -> Got {
    let mut got = Got::default();
    while let ParsePeer::Frame { frame, consumed } = parse_peer(bytes, 1 << 20) {
        let PeerFrame::Request(request) = frame else {
            panic!("{frame:?}");
        };
        bytes = &bytes[consumed..];
        match (DcpMessage::decode(&request).unwrap().body, got.state) {
            (DcpBody::OsoSnapshot(OsoSnapshot::Start), (false, false)) => got.state.0 = true,
            (DcpBody::OsoSnapshot(OsoSnapshot::End), (true, false)) => got.state.1 = true,
            (DcpBody::Mutation(mutation), (true, false)) => {
                assert_eq!(got.advanced, None, "it is the last before the end");
                got.seqnos.push(mutation.seqno.get());
            }
            (DcpBody::SeqnoAdvanced(advanced), (true, false)) => {
                got.advanced = Some(advanced.seqno.get());
            }
            (DcpBody::SnapshotMarker(marker), (true, true)) => {
                got.marker = Some((marker.start.get(), marker.end.get()));
            }
            (DcpBody::Mutation(mutation), (true, true)) => {
                let (start, end) = got.marker.expect("a snapshot has begun");
                let seqno = mutation.seqno.get();
                assert!((start..=end).contains(&seqno));
                assert!(got.ordered.last().is_none_or(|last| *last < seqno));
                got.ordered.push(seqno);
            }
            (DcpBody::SeqnoAdvanced(_), (true, true)) => {}
            (other, state) => panic!("{other:?} at {state:?}"),
        }
    }
    got
}

fn at(seqno: u64, is_wanted: bool) -> StreamItem {
    let collection = CollectionId(if is_wanted { 0 } else { 9 });
    let key = DocKey::new(collection, format!("k{seqno}").as_bytes()).unwrap();
    StreamItem::Change(Change::Document(Item::new(
        &meta(seqno),
        key.as_bytes(),
        &[b"v"],
    )))
}

proptest! {
    #[test]
    fn oso_stream_delivers_each_document_once_then_all_changes(
        order in Just((1_u64..60).collect::<Vec<_>>()).prop_shuffle(),
        wanted in vec(any::<bool>(), 60),
        behind in vec(any::<bool>(), 1..20),
        step in 1_usize..40,
        rooms in vec(1_usize..400, 1..10),
        advances in any::<bool>(),
    ) {
        let is_wanted = |seqno: &u64| wanted[*seqno as usize];
        let mut items = vec![BEGIN];
        items.extend(order.iter().map(|seqno| at(*seqno, is_wanted(seqno))));
        items.push(end(59));
        let last = 59 + behind.len() as u64;
        items.push(memory(60, last, last));
        items.extend((60..).zip(&behind).map(|(seqno, is_wanted)| at(seqno, *is_wanted)));

        let value = if advances { "true_with_seqno_advanced" } else { "true" };
        let bytes = client(value, OpenFlags::default()).gets_in_pieces(&items, step, &rooms);
        let got = read(&bytes);
        prop_assert_eq!(got.state, (true, true));
        let expected: Vec<u64> = order.iter().copied().filter(is_wanted).collect();
        let highest = expected.iter().copied().max().unwrap_or(0);
        prop_assert_eq!(&got.seqnos, &expected);
        prop_assert_eq!(got.advanced, (advances && highest < 59).then_some(59));
        let expected = (60..).zip(&behind).filter(|(_, wanted)| **wanted);
        let expected: Vec<u64> = expected.map(|(seqno, _)| seqno).collect();
        prop_assert_eq!(got.ordered, expected);
    }
}
