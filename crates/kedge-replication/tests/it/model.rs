//! A model test: what any kind of client receives of any history, compared with what it should receive.

use crate::pair::features;
use crate::script::meta;
use crate::snapshots::Client;
use kedge_protocol::binary::Feature;
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpMessage, OpenFlags, ParsePeer, PeerFrame, parse_peer,
};
use kedge_replication::StreamItem;
use kedge_types::{CollectionId, DocKey, DurabilityLevel, Seqno};
use kedge_vbucket::{Change, DcpSnapshot, Item, ItemMeta, SnapshotKind};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Collections of the keys: only the first is the default one.
const COLLECTIONS: [u32; 2] = [0, 9];

/// A change of the vBucket, and which key it is of.
#[derive(Clone, Debug)]
struct ConsumerStep {
    key: usize,
    change: Change,
}

impl ConsumerStep {
    fn seqno(&self) -> u64 {
        self.change.item().unwrap().seqno().get()
    }

    fn is_visible(&self) -> bool {
        matches!(self.change, Change::Document(_) | Change::Commit { .. })
    }

    fn collection(&self) -> u32 {
        COLLECTIONS[self.key % 2]
    }
}

/// A history from random choices: of each a key, and whether to write or to prepare, to commit or to abort.
fn history(choices: &[(usize, bool)]) -> Vec<ConsumerStep> {
    let mut prepared: BTreeMap<usize, u64> = BTreeMap::new();
    let mut steps = Vec::new();
    for (&(key, durable), seqno) in choices.iter().zip(1..) {
        let collection = CollectionId(COLLECTIONS[key % 2]);
        let name = DocKey::new(collection, format!("k{key}").as_bytes()).unwrap();
        let new = |meta: &ItemMeta| Item::new(meta, name.as_bytes(), &[b"v"]);
        let change = match (prepared.remove(&key), durable) {
            (Some(prepared), true) => Change::Commit {
                item: new(&meta(seqno)),
                prepared: Seqno(prepared),
            },
            (Some(prepared), false) => Change::Abort {
                item: new(&meta(seqno)),
                prepared: Seqno(prepared),
            },
            (None, true) => {
                prepared.insert(key, seqno);
                Change::Prepare(new(&ItemMeta {
                    level: Some(DurabilityLevel::Majority),
                    ..meta(seqno)
                }))
            }
            (None, false) => Change::Document(new(&meta(seqno))),
        };
        steps.push(ConsumerStep { key, change });
    }
    steps
}

/// A run of the history as a disk has it: the newest document of each key, prepares that have not ended, and aborts.
fn deduplicated(run: &[ConsumerStep]) -> Vec<ConsumerStep> {
    let mut kept = Vec::new();
    for (at, step) in run.iter().enumerate() {
        let later = || run[at + 1..].iter().filter(|later| later.key == step.key);
        let stays = match step.change {
            Change::Prepare(_) => later().next().is_none(),
            Change::Abort { .. } => true,
            _ => !later().any(ConsumerStep::is_visible),
        };
        if stays {
            let mut step = step.clone();
            if let Change::Commit { item, .. } = &step.change {
                step.change = Change::Document(item.clone());
            }
            kept.push(step);
        }
    }
    kept
}

/// The source's knowledge of what is visible in a snapshot.
#[derive(Clone, Copy, Debug)]
enum Knows {
    All,
    Nothing,
    /// The visible seqno of the middle of the snapshot.
    Half,
}

fn knows() -> impl Strategy<Value = Knows> {
    prop::sample::select(vec![Knows::All, Knows::All, Knows::Nothing, Knows::Half])
}

/// The stream of a history that is cut into snapshots, and the changes that are in it.
fn stream_of(
    steps: &[ConsumerStep],
    cuts: &[(usize, bool, Knows)],
) -> (Vec<StreamItem>, Vec<ConsumerStep>) {
    let (mut items, mut sent) = (Vec::new(), Vec::new());
    let mut rest = steps;
    let mut visible = 0;
    for &(len, on_disk, knows) in cuts.iter().cycle() {
        let (run, behind) = rest.split_at(len.min(rest.len()));
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            break;
        };
        let (kind, kept) = if on_disk {
            (SnapshotKind::Disk, deduplicated(run))
        } else {
            (SnapshotKind::Memory, run.to_vec())
        };
        let last_visible = |steps: &[ConsumerStep], before| {
            let last = steps.iter().rfind(|step| step.is_visible());
            last.map_or(before, ConsumerStep::seqno)
        };
        let half = last_visible(&kept[..kept.len() / 2], visible);
        visible = last_visible(&kept, visible);
        let max_visible = match knows {
            Knows::All => Some(visible),
            Knows::Nothing => None,
            Knows::Half => Some(half),
        };
        items.push(StreamItem::Marker(DcpSnapshot {
            max_visible: max_visible.map(Seqno),
            ..DcpSnapshot::new(kind, Seqno(first.seqno()), Seqno(last.seqno()))
        }));
        items.extend(
            kept.iter()
                .map(|step| StreamItem::Change(step.change.clone())),
        );
        if kept.last().map(ConsumerStep::seqno) != Some(last.seqno()) {
            items.push(StreamItem::SeqnoAdvanced(Seqno(last.seqno())));
        }
        sent.extend(kept);
        rest = behind;
    }
    (items, sent)
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    sync_writes: bool,
    collections: bool,
    filter: Option<&'static str>,
}

const KINDS: [Kind; 6] = {
    let plain = Kind {
        sync_writes: false,
        collections: true,
        filter: None,
    };
    let sync_writes = true;
    let collections = false;
    let filter = Some(r#"{"collections":["0"]}"#);
    [
        plain,
        Kind {
            sync_writes,
            ..plain
        },
        Kind {
            collections,
            ..plain
        },
        Kind {
            sync_writes,
            collections,
            ..plain
        },
        Kind { filter, ..plain },
        Kind {
            sync_writes,
            filter,
            ..plain
        },
    ]
};

impl Kind {
    fn client(self) -> Client {
        let mut features = features();
        if !self.collections {
            features = features.without(Feature::Collections);
        }
        let controls: &[_] = if self.sync_writes {
            &[("enable_sync_writes", "true")]
        } else {
            &[]
        };
        let filter = self.filter.unwrap_or("").as_bytes();
        Client::asking(OpenFlags::default(), features, controls, filter, 0)
    }

    fn is_to_see(self, step: &ConsumerStep) -> bool {
        let all_collections = self.collections && self.filter.is_none();
        (self.sync_writes || step.is_visible()) && (all_collections || step.collection() == 0)
    }
}

/// Checks the messages of a client, and gives the seqnos of the changes.
fn check_messages(kind: Kind, mut bytes: &[u8]) -> Vec<u64> {
    let mut snapshot = None;
    let mut last = 0;
    let mut seen = Vec::new();
    let is_told_ends = kind.collections || kind.sync_writes;
    while let ParsePeer::Frame { frame, consumed } = parse_peer(bytes, 1 << 20) {
        let PeerFrame::Request(request) = frame else {
            panic!("{frame:?}");
        };
        bytes = &bytes[consumed..];
        let seqno = match DcpMessage::decode(&request).unwrap().body {
            DcpBody::SnapshotMarker(marker) => {
                let (start, end) = (marker.start.get(), marker.end.get());
                assert!(last < start && start <= end, "{last} {start} {end}");
                if let Some((_, end)) = snapshot.filter(|_| is_told_ends) {
                    assert_eq!(last, end, "the snapshot before is complete");
                }
                snapshot = Some((start, end));
                continue;
            }
            DcpBody::Mutation(mutation) => mutation.seqno,
            DcpBody::Prepare(prepare) => prepare.seqno,
            DcpBody::Commit(commit) => commit.seqno,
            DcpBody::Abort(abort) => abort.seqno,
            DcpBody::SeqnoAdvanced(advanced) => {
                last = advanced.seqno.get();
                assert!(is_told_ends);
                assert_eq!(snapshot.unwrap().1, last);
                continue;
            }
            other => panic!("{other:?}"),
        };
        let (start, end) = snapshot.expect("a snapshot has begun");
        assert!(
            (start..=end).contains(&seqno.get()),
            "{seqno} {start} {end}"
        );
        assert!(last < seqno.get(), "{last} {seqno}");
        last = seqno.get();
        seen.push(last);
    }
    if let Some((_, end)) = snapshot.filter(|_| is_told_ends) {
        assert_eq!(last, end, "the last snapshot is complete");
    }
    seen
}

proptest! {
    #[test]
    fn every_kind_of_client_receives_its_view_of_a_history(
        choices in vec((0_usize..6, any::<bool>()), 0..60),
        cuts in vec((1_usize..12, any::<bool>(), knows()), 1..10),
    ) {
        let (items, sent) = stream_of(&history(&choices), &cuts);
        for kind in KINDS {
            let bytes = kind.client().gets(&items);
            let expected = sent.iter().filter(|step| kind.is_to_see(step));
            let expected: Vec<u64> = expected.map(ConsumerStep::seqno).collect();
            prop_assert_eq!(check_messages(kind, &bytes), expected, "{:?}", kind);
        }
    }
}

/// A client without SyncWrites and collections never waits for the rest of a snapshot that does not come.
#[test]
fn old_client_receives_complete_snapshots() {
    let choices: Vec<(usize, bool)> = (0..40).map(|n| (n % 3 * 2, n % 4 < 2)).collect();
    let cuts = [(1, false), (5, false), (3, true)].map(|(len, disk)| (len, disk, Knows::All));
    let (items, _) = stream_of(&history(&choices), &cuts);
    let kind = KINDS[2];
    let mut bytes = &kind.client().gets(&items)[..];
    let (mut last, mut end) = (0, 0);
    while let ParsePeer::Frame {
        frame: PeerFrame::Request(request),
        consumed,
    } = parse_peer(bytes, 1 << 20)
    {
        match DcpMessage::decode(&request).unwrap().body {
            DcpBody::SnapshotMarker(marker) => {
                assert_eq!(last, end);
                end = marker.end.get();
            }
            DcpBody::Mutation(mutation) => last = mutation.seqno.get(),
            other => panic!("{other:?}"),
        }
        bytes = &bytes[consumed..];
    }
    assert!(end > 30);
    assert_eq!(last, end);
}
