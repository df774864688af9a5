//! Round trips of all kinds of items through a file.

use std::path::Path;

use kedge_couchstore::kv::FileAudit;
use kedge_couchstore::{BodyForm, CreateOptions, Options, Writer};
use kedge_disk::{Disk, SimDisk};
use kedge_types::{Cas, Datatype, DurabilityLevel, RevSeqno};
use kedge_vbucket::Aborted;
use proptest::prelude::*;

use super::*;

const U48_MAX: u64 = (1 << 48) - 1;

fn deletions() -> impl Strategy<Value = Option<Deletion>> {
    prop_oneof![
        Just(None),
        Just(Some(Deletion::Explicit)),
        Just(Some(Deletion::Expired))
    ]
}

fn levels() -> impl Strategy<Value = DurabilityLevel> {
    (1u8..=3).prop_map(|level| DurabilityLevel::from_wire(level).expect("a level"))
}

/// Values that match their datatype.
fn values() -> impl Strategy<Value = (Datatype, Vec<u8>)> {
    let compressed = |plain: &[u8]| {
        // Raw Snappy: the length, and one literal.
        let len = plain.len() as u8;
        [&[len, (len - 1) << 2], plain].concat()
    };
    prop_oneof![
        Just((Datatype::RAW, Vec::new())),
        proptest::collection::vec(any::<u8>(), 1..300).prop_map(|value| (Datatype::RAW, value)),
        (0u32..1000).prop_map(|n| (Datatype::JSON, format!("{{\"n\":{n}}}").into_bytes())),
        proptest::collection::vec(any::<u8>(), 1..60)
            .prop_map(move |plain| (Datatype::SNAPPY, compressed(&plain))),
        (0u32..1000).prop_map(move |n| {
            let json = format!("[{n}]");
            (
                Datatype::JSON.union(Datatype::SNAPPY),
                compressed(json.as_bytes()),
            )
        }),
        (0u8..10).prop_map(|n| {
            let pair = [b"_sync\0".as_slice(), &[b'0' + n], b"\0"].concat();
            let mut value = (pair.len() as u32 + 4).to_be_bytes().to_vec();
            value.extend_from_slice(&(pair.len() as u32).to_be_bytes());
            value.extend_from_slice(&pair);
            value.extend_from_slice(b"document");
            (Datatype::XATTR, value)
        }),
    ]
}

prop_compose! {
    fn metas()(
        cas in any::<u64>(),
        seqno in 1..=U48_MAX,
        rev in 0..=U48_MAX,
        flags in any::<u32>(),
        expiry in any::<u32>(),
        deleted in deletions(),
        level in levels(),
    ) -> ItemMeta {
        ItemMeta {
            cas: Cas(cas),
            seqno: Seqno(seqno),
            rev: RevSeqno(rev),
            flags,
            expiry: Expiry(expiry),
            datatype: Datatype::RAW,
            deleted,
            level: Some(level),
        }
    }
}

prop_compose! {
    fn items()(
        meta in metas(),
        collection in prop_oneof![Just(&[0][..]), Just(&[8][..]), Just(&[0xb4, 0x24][..])],
        key in proptest::collection::vec(any::<u8>(), 1..=246),
        (datatype, value) in values(),
        kind in 0u8..4,
        prepared in 1..=U48_MAX,
    ) -> FileChange {
        let key = [collection, &key].concat();
        let item = |meta: ItemMeta| {
            // Deletions have a value only with extended attributes.
            let has_value = meta.deleted.is_none() || datatype.contains(Datatype::XATTR);
            let value = if has_value { &value[..] } else { &[] };
            let datatype = datatype_of_value(datatype, value.len());
            Item::new(&ItemMeta { datatype, ..meta }, &key, &[value])
        };
        let aborted = |meta: ItemMeta| Item::new(&meta, &key, &[]);
        match kind {
            0 => FileChange::Prepare(item(meta)),
            1 => FileChange::Abort(Box::new(Aborted {
                item: aborted(ItemMeta { deleted: Some(Deletion::Explicit), level: None, ..meta }),
                prepared: Seqno(prepared),
            })),
            // Committed, so the level is not kept.
            _ => FileChange::Document(item(ItemMeta { level: None, ..meta })),
        }
    }
}

/// Writes a batch to a file and returns its records in the order of seqnos.
fn through_a_file(items: &[FileChange]) -> Vec<FileRecord> {
    let (disk, path) = (SimDisk::new(1), Path::new("/d/0.couch.1"));
    disk.create_dir_all(Path::new("/d")).expect("a directory");
    let options = Options::default();
    let mut writer =
        Writer::create(&disk, path, &CreateOptions::default(), &options).expect("create");
    let batch = EncodedBatch::new(items);
    writer.save(&batch.mutations(), &mut |_| {}).expect("save");
    writer.commit(1).expect("commit");
    let snapshot = writer.snapshot();
    snapshot.check(&mut |_| {}).expect("sound");
    let mut audit = FileAudit::new(snapshot.header().update_seqno());
    let scan = snapshot.scan_seqnos(..).expect("a scan");
    let documents = scan.with_bodies(BodyForm::Plain);
    documents
        .map(|document| {
            let document = document.expect("a document");
            let body = document
                .body
                .expect("every entry has a body, if an empty one");
            audit
                .document(&document.entry, Some(&body))
                .expect("nothing to complain about");
            let record = FileRecord::decode(document.entry, Some(body)).expect("it is understood");
            record.expect("a client's")
        })
        .collect()
}

proptest! {
    #[test]
    fn items_survive_a_round_trip_through_a_file(batch in proptest::collection::vec(items(), 1..20)) {
        let mut batch = batch;
        batch.sort_by_key(|apply| apply.item().seqno());
        batch.dedup_by_key(|apply| apply.item().seqno());
        let mut seen = std::collections::BTreeSet::new();
        batch.retain(|apply| {
            seen.insert((apply.is_committed_namespace(), apply.item().key().to_vec()))
        });
        let records = through_a_file(&batch);
        prop_assert_eq!(records.len(), batch.len());
        for (record, apply) in records.iter().zip(&batch) {
            let item = record.item().expect("with its value");
            prop_assert_eq!(item.key(), apply.item().key());
            prop_assert_eq!(item.value(), apply.item().value());
            prop_assert_eq!(item.meta(), apply.item().meta());
            let kind = match apply {
                FileChange::Document(_) => FileRecordKind::Document,
                FileChange::Prepare(_) => FileRecordKind::Prepare,
                FileChange::Abort(aborted) => FileRecordKind::Abort { prepared: aborted.prepared },
            };
            prop_assert_eq!(record.kind(), kind);
        }
    }
}

#[test]
fn flags_are_stored_as_the_clients_bytes() {
    let meta = ItemMeta {
        seqno: Seqno(1),
        // The bytes 02 00 00 06 as a client sends them.
        flags: 0x0200_0006,
        ..ItemMeta::default()
    };
    let items = [FileChange::Document(Item::new(&meta, b"\0k", &[b"v"]))];
    let batch = EncodedBatch::new(&items);
    let mutations = batch.mutations();
    assert_eq!(mutations[0].rev_meta[12..16], [2, 0, 0, 6]);
    assert_eq!(through_a_file(&items)[0].meta().flags, 0x0200_0006);
}

#[test]
fn short_values_are_stored_uncompressed() {
    let items = [64, 65].map(|bytes: u64| {
        let meta = ItemMeta {
            seqno: Seqno(bytes),
            ..ItemMeta::default()
        };
        let value = vec![b'a'; bytes as usize];
        FileChange::Document(Item::new(&meta, &bytes.to_be_bytes(), &[&value]))
    });
    let batch = EncodedBatch::new(&items);
    let [short, long]: [Mutation<'_>; 2] = batch.mutations().try_into().expect("two");
    assert_eq!(short.body, MutationBody::Stored(&[b'a'; 64]));
    assert!(!short.content_meta.is_compressed());
    assert_eq!(long.body, MutationBody::Compress(&[b'a'; 65]));
    for (record, bytes) in through_a_file(&items).iter().zip([64, 65]) {
        let item = record.item().expect("with its value");
        assert_eq!(item.value(), vec![b'a'; bytes]);
    }
}

#[test]
fn prepares_have_separate_keys() {
    let item = |seqno: u64, key: &[u8]| {
        let meta = ItemMeta {
            seqno: Seqno(seqno),
            level: Some(DurabilityLevel::Majority),
            ..ItemMeta::default()
        };
        Item::new(&meta, key, &[b"v"])
    };
    let items = [
        FileChange::Prepare(item(1, b"\0a")),
        FileChange::Document(item(2, b"\0a")),
        FileChange::Prepare(item(3, b"\0bc")),
    ];
    let batch = EncodedBatch::new(&items);
    let mutations = batch.mutations();
    let keys: Vec<&[u8]> = mutations.iter().map(|mutation| mutation.key).collect();
    assert_eq!(keys, [&b"\x02\0a"[..], b"\0a", b"\x02\0bc"]);
    let records = through_a_file(&items);
    let keys: Vec<&[u8]> = records.iter().map(FileRecord::key).collect();
    assert_eq!(keys, [&b"\0a"[..], b"\0a", b"\0bc"]);
}
