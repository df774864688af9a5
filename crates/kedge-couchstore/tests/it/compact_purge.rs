//! The purge rules of the key-value engine: the entries that a compaction of a vBucket drops, and its local documents
//! afterwards.

use std::collections::BTreeMap;

use kedge_couchstore::compact::purge::{PURGE_AGE_SECS, Purge, PurgeEvents, PurgePolicy};
use kedge_couchstore::compact::{CompactionHooks, CompactionSettings, KeepAll};
use kedge_couchstore::kv::{
    CollectionStats, DROPPED_COLLECTIONS_NAME, DeleteSource, DiskKey, DroppedCollection,
    DroppedCollections, EntryMeta, SystemEventKind, VBSTATE_NAME, ValueMeta, VbStateDocument,
    VbStateKind,
};
use kedge_couchstore::{
    CreateOptions, EncryptionKey, Entry, Error, LocalChange, Mutation, MutationBody, Snapshot,
    Version, Writer,
};
use kedge_disk::{Disk, SimDisk};
use kedge_types::{Cas, CollectionId, Datatype, DurabilityLevel, Expiry, RevSeqno, Seqno};

use crate::compact::{compact, content, open_target, target};
use crate::support::{create, disk, golden_path};

const NOW: u32 = 1_800_000_000;
const OLD: u32 = NOW - PURGE_AGE_SECS - 1;
const RECENT: u32 = NOW - 60;

const DEFAULT: CollectionId = CollectionId(0);
const FRUIT: CollectionId = CollectionId(9);
const GONE: CollectionId = CollectionId(0x1234);

fn key(collection: CollectionId, name: &str) -> Vec<u8> {
    let key = DiskKey::Document {
        prepared: false,
        collection,
        logical: name.as_bytes(),
    };
    key.encode()
}

fn prepared(collection: CollectionId, name: &str) -> Vec<u8> {
    [&[2][..], &key(collection, name)].concat()
}

fn value(datatype: Datatype) -> ValueMeta {
    ValueMeta {
        flags: [0; 4],
        datatype,
        bytes: 8,
    }
}

fn live(expiry: u32) -> EntryMeta {
    EntryMeta::live(Cas(1), Expiry(expiry), value(Datatype::RAW))
}

fn tombstone(deleted_at: u32) -> EntryMeta {
    EntryMeta::tombstone(
        Cas(1),
        deleted_at,
        DeleteSource::Explicit,
        ValueMeta::default(),
    )
}

fn pending() -> EntryMeta {
    EntryMeta::prepare(
        Cas(1),
        Expiry::NEVER,
        value(Datatype::RAW),
        DurabilityLevel::Majority,
    )
}

/// A vBucket that maintains its local documents like the engine: every change counts relative to the old version.
struct VBucket {
    writer: Writer,
    seqno: u64,
    completed: u64,
    dropped: Vec<DroppedCollection>,
    stats: BTreeMap<CollectionId, (u64, u64)>,
    prepares: (u64, u64),
}

impl VBucket {
    fn new(writer: Writer) -> Self {
        VBucket {
            writer,
            seqno: 0,
            completed: 0,
            dropped: Vec::new(),
            stats: BTreeMap::new(),
            prepares: (0, 0),
        }
    }

    fn put(&mut self, key: &[u8], meta: EntryMeta) -> u64 {
        self.seqno += 1;
        let rev_meta = meta.rev_meta.encode();
        let mutation = Mutation {
            key,
            seqno: Seqno(self.seqno),
            rev: RevSeqno(1),
            deleted: meta.deleted,
            content_meta: meta.content_meta,
            rev_meta: rev_meta.as_slice(),
            body: if meta.deleted {
                MutationBody::Stored(b"")
            } else {
                MutationBody::Compress(b"{\"a\":10}")
            },
        };
        let (collection, is_prepared) = match DiskKey::decode(key).expect("a key") {
            DiskKey::Document {
                collection,
                prepared,
                ..
            } => (Some(collection), prepared),
            DiskKey::SystemEvent { .. } => (None, false),
        };
        let stats = collection.map(|collection| self.stats.entry(collection).or_default());
        let mut none = (0, 0);
        let stats = stats.unwrap_or(&mut none);
        let (seqno, prepares) = (self.seqno, &mut self.prepares);
        let save = self.writer.save(&[mutation], &mut |change| {
            let rest = (key.len() + rev_meta.as_slice().len()) as u64;
            let bytes = u64::from(change.disk_bytes) + rest;
            stats.1 += bytes;
            stats.0 = seqno;
            if is_prepared && !meta.deleted {
                *prepares = (prepares.0 + 1, prepares.1 + bytes);
            }
            if let Some(old) = change.old {
                let bytes = u64::from(old.disk_bytes()) + (key.len() + old.rev_meta().len()) as u64;
                stats.1 -= bytes;
                if is_prepared && !old.is_deleted() {
                    *prepares = (prepares.0 - 1, prepares.1 - bytes);
                }
            }
        });
        save.expect("save");
        self.seqno
    }

    fn drop_collection(&mut self, collection: CollectionId) {
        let event = DiskKey::SystemEvent {
            kind: SystemEventKind::Collection,
            subject: collection.get(),
        };
        let meta = EntryMeta::event(Cas(1), SystemEventKind::Collection, Some(OLD), 0);
        let end = self.put(&event.encode(), meta);
        self.dropped.push(DroppedCollection {
            start: Seqno(1),
            end: Seqno(end),
            collection,
        });
        self.stats.remove(&collection);
        let name = CollectionStats::name(collection);
        self.writer
            .save_locals(&[(name.as_bytes(), None)])
            .expect("save");
    }

    fn commit(&mut self) -> Snapshot {
        let mut locals: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for (collection, (high_seqno, disk_bytes)) in &self.stats {
            let stats = CollectionStats {
                items: 1,
                high_seqno: Seqno(*high_seqno),
                disk_bytes: Some(*disk_bytes),
            };
            let name = CollectionStats::name(*collection);
            locals.push((name.into_bytes(), Some(stats.encode())));
        }
        let mut state = VbStateDocument::new(VbStateKind::Active);
        state.completed_seqno = Seqno(self.completed);
        (state.on_disk_prepares, state.on_disk_prepare_bytes) = self.prepares;
        locals.push((VBSTATE_NAME.to_vec(), Some(state.encode())));
        let dropped = DroppedCollections {
            entries: self.dropped.clone(),
        };
        let dropped = (!self.dropped.is_empty()).then(|| dropped.encode());
        locals.push((DROPPED_COLLECTIONS_NAME.to_vec(), dropped));
        let changes: Vec<LocalChange<'_>> = locals
            .iter()
            .map(|(name, value)| (&**name, value.as_deref()))
            .collect();
        self.writer.save_locals(&changes).expect("save");
        self.writer.commit(1).expect("commit");
        self.writer.snapshot()
    }
}

#[derive(Default)]
struct Heard {
    expired: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    dropped: u64,
    copied: u64,
}

impl PurgeEvents for Heard {
    fn expired(&mut self, entry: &Entry, body: Option<&[u8]>) {
        self.expired
            .push((entry.key().to_vec(), body.map(<[u8]>::to_vec)));
    }

    fn dropped(&mut self, _: &Entry) {
        self.dropped += 1;
    }

    fn copied(&mut self, _: &Entry) {
        self.copied += 1;
    }
}

/// Returns the keys that a compaction by these rules keeps, and its purge seqno.
fn kept(disk: &SimDisk, source: &Snapshot, policy: PurgePolicy) -> (Vec<Vec<u8>>, u64) {
    let mut purge = Purge::new(source, policy, ()).expect("rules");
    drop(
        compact(disk, source, &CompactionSettings::default(), &mut purge).map(|compaction| {
            compaction.finish().expect("finish");
        }),
    );
    let copy = content(&open_target(disk));
    disk.remove(target()).expect("remove");
    let keys = copy.docs.into_iter().map(|doc| doc.key).collect();
    (keys, copy.purge_seqno.0)
}

#[test]
fn tombstones_are_purged_by_age_seqno_and_position() {
    let disk = disk(1);
    let mut vb = VBucket::new(create(&disk));
    let names = [
        "old", "recent", "undated", "abort", "old too", "fruit", "end",
    ];
    vb.put(&key(DEFAULT, "old"), tombstone(OLD));
    vb.put(&key(DEFAULT, "recent"), tombstone(RECENT));
    vb.put(&key(DEFAULT, "undated"), tombstone(0));
    vb.put(
        &prepared(DEFAULT, "abort"),
        EntryMeta::abort(Cas(1), OLD, Seqno(1)),
    );
    vb.put(&key(DEFAULT, "old too"), tombstone(OLD));
    // The highest of its collection.
    vb.put(&key(FRUIT, "fruit"), tombstone(OLD));
    vb.put(&key(DEFAULT, "end"), tombstone(OLD));
    let source = vb.commit();
    let usual = PurgePolicy::at(NOW);
    let check = |policy: PurgePolicy, expected: &[&str], purged: u64| {
        let (keys, purge_seqno) = kept(&disk, &source, policy);
        let found: Vec<_> = names
            .iter()
            .filter(|name| keys.iter().any(|key| key.ends_with(name.as_bytes())))
            .filter(|name| **name != "old" || keys.contains(&key(DEFAULT, "old")))
            .collect();
        assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{policy:?}");
        assert_eq!(keys.len(), expected.len());
        assert_eq!(purge_seqno, purged, "{policy:?}");
    };
    check(usual, &["recent", "fruit", "end"], 5);
    let policy = PurgePolicy {
        keeps_undated_tombstones: true,
        ..usual
    };
    check(policy, &["recent", "undated", "fruit", "end"], 5);
    let policy = PurgePolicy {
        purge_up_to: Some(Seqno(2)),
        ..usual
    };
    let rest = ["recent", "undated", "abort", "old too", "fruit", "end"];
    check(policy, &rest, 1);
    let policy = PurgePolicy {
        purge_before: 0,
        ..usual
    };
    check(policy, &names, 0);
    let policy = PurgePolicy {
        purge_before: 0,
        drops_all_tombstones: true,
        ..usual
    };
    check(policy, &["fruit", "end"], 5);
}

#[test]
fn dropped_collections_and_completed_prepares_are_purged() {
    let disk = disk(1);
    let mut vb = VBucket::new(create(&disk));
    vb.put(&key(DEFAULT, "a"), live(0));
    vb.put(&key(GONE, "a"), live(0));
    vb.put(&key(GONE, "b"), tombstone(RECENT));
    vb.put(&prepared(GONE, "c"), pending());
    vb.put(&prepared(DEFAULT, "done"), pending());
    vb.completed = vb.put(&prepared(FRUIT, "done"), pending());
    vb.put(&prepared(FRUIT, "open"), pending());
    vb.drop_collection(GONE);
    vb.put(&key(FRUIT, "last"), live(0));
    let source = vb.commit();
    let mut purge = Purge::new(&source, PurgePolicy::at(NOW), Heard::default()).expect("rules");
    let compaction =
        compact(&disk, &source, &CompactionSettings::default(), &mut purge).expect("compact");
    let report = *purge.report();
    assert_eq!(report.of_dropped_collections, 3);
    assert_eq!(report.prepares, 2);
    // The event that dropped the collection is old, too.
    assert_eq!(
        (report.tombstones, report.expired, report.not_understood),
        (1, 0, 0)
    );
    assert_eq!((purge.events().dropped, purge.events().copied), (3, 3));
    compaction.finish().expect("finish");
    let copy = content(&open_target(&disk));
    let keys: Vec<_> = copy.docs.iter().map(|doc| doc.key.clone()).collect();
    assert_eq!(
        keys,
        [
            key(DEFAULT, "a"),
            prepared(FRUIT, "open"),
            key(FRUIT, "last")
        ]
    );
    // Neither changes the purge seqno, but the event does.
    assert_eq!(copy.purge_seqno, Seqno(8));
    assert_counts(&open_target(&disk));
    let list = open_target(&disk).local(DROPPED_COLLECTIONS_NAME);
    assert_eq!(list.expect("a local document"), None);
}

/// Checks that the local documents match the contents of the file.
fn assert_counts(file: &Snapshot) {
    let mut bytes: BTreeMap<CollectionId, u64> = BTreeMap::new();
    let mut prepares = (0, 0);
    for entry in file.scan_seqnos(..).expect("scan") {
        let entry = entry.expect("an entry");
        let own =
            u64::from(entry.disk_bytes()) + (entry.key().len() + entry.rev_meta().len()) as u64;
        if let Ok(DiskKey::Document {
            collection,
            prepared,
            ..
        }) = DiskKey::decode(entry.key())
        {
            *bytes.entry(collection).or_default() += own;
            if prepared && !entry.is_deleted() {
                prepares = (prepares.0 + 1, prepares.1 + own);
            }
        }
    }
    let mut found = BTreeMap::new();
    for local in file.locals().expect("locals") {
        let (name, value) = local.expect("a local document");
        if let Some(collection) = CollectionStats::collection_of(&name) {
            let stats = CollectionStats::decode(&value).expect("statistics");
            found.insert(collection, stats.disk_bytes.expect("a size"));
        }
    }
    bytes.retain(|collection, _| found.contains_key(collection));
    found.retain(|collection, size| *size > 0 || bytes.contains_key(collection));
    assert_eq!(found, bytes);
    let state = file.local(VBSTATE_NAME).expect("get").expect("there");
    let state = VbStateDocument::decode(&state, Seqno(0)).expect("a state");
    assert_eq!(
        (state.on_disk_prepares, state.on_disk_prepare_bytes),
        prepares
    );
}

#[test]
fn expired_documents_are_reported_and_kept() {
    let disk = disk(1);
    let mut vb = VBucket::new(create(&disk));
    vb.put(&key(DEFAULT, "never"), live(0));
    vb.put(&key(DEFAULT, "later"), live(NOW + 1));
    vb.put(&key(DEFAULT, "plain"), live(NOW));
    let with_attributes = EntryMeta::live(Cas(1), Expiry(5), value(Datatype::XATTR));
    vb.put(&key(FRUIT, "attributes"), with_attributes);
    let source = vb.commit();
    let mut purge = Purge::new(&source, PurgePolicy::at(NOW), Heard::default()).expect("rules");
    let compaction =
        compact(&disk, &source, &CompactionSettings::default(), &mut purge).expect("compact");
    compaction.finish().expect("finish");
    assert_eq!(purge.report().expired, 2);
    let expected = [
        (key(DEFAULT, "plain"), None),
        (key(FRUIT, "attributes"), Some(b"{\"a\":10}".to_vec())),
    ];
    assert_eq!(purge.events().expired, expected);
    assert_eq!(content(&open_target(&disk)), content(&source));
}

#[test]
fn undecodable_entries_are_kept() {
    let disk = disk(1);
    let mut vb = VBucket::new(create(&disk));
    let odd: [(&[u8], &[u8]); 3] = [
        (b"\x03reserved", &[0; 18]),
        (b"\0short metadata", &[0; 16]),
        (b"\x02\0prepare without details", &[0; 18]),
    ];
    for (key, rev_meta) in odd {
        vb.seqno += 1;
        let mutation = Mutation {
            key,
            seqno: Seqno(vb.seqno),
            rev: RevSeqno(1),
            deleted: true,
            content_meta: kedge_couchstore::ContentMeta(0),
            rev_meta,
            body: MutationBody::None,
        };
        vb.writer.save(&[mutation], &mut |_| {}).expect("save");
    }
    vb.put(&key(DEFAULT, "last"), live(0));
    let source = vb.commit();
    let mut purge = Purge::new(&source, PurgePolicy::at(NOW), ()).expect("rules");
    let compaction =
        compact(&disk, &source, &CompactionSettings::default(), &mut purge).expect("compact");
    compaction.finish().expect("finish");
    assert_eq!(purge.report().not_understood, 3);
    assert_eq!(content(&open_target(&disk)), content(&source));

    // Documents that the rules need have to be valid.
    for name in [VBSTATE_NAME, DROPPED_COLLECTIONS_NAME, b"|0x9|"] {
        vb.commit();
        vb.writer
            .save_locals(&[(name, Some(b"nonsense"))])
            .expect("save");
        vb.writer.commit(1).expect("commit");
        let error =
            Purge::new(&vb.writer.snapshot(), PurgePolicy::at(NOW), ()).expect_err("nonsense");
        let expected = String::from_utf8_lossy(name);
        assert!(
            matches!(&error, Error::Local { name, .. } if *name == expected),
            "{error}"
        );
        assert!(error.is_damage());
        vb.writer.save_locals(&[(name, None)]).expect("save");
    }
}

/// Runs a vBucket whose tombstones and prepares reappear during catch-up.
fn counts_after_catching_up(settings: &CompactionSettings, disk: &SimDisk, writer: Writer) {
    let mut vb = VBucket::new(writer);
    for n in 0..40 {
        let name = format!("{n}");
        vb.put(
            &key(FRUIT, &name),
            if n % 3 == 0 { tombstone(OLD) } else { live(0) },
        );
        vb.put(&prepared(FRUIT, &name), pending());
        vb.put(&key(GONE, &name), live(0));
    }
    vb.completed = 60;
    vb.drop_collection(GONE);
    vb.put(&key(FRUIT, "last"), live(0));
    let source = vb.commit();
    let mut purge = Purge::new(&source, PurgePolicy::at(NOW), ()).expect("rules");
    let mut compaction = compact(disk, &source, settings, &mut purge).expect("compact");
    assert!(purge.report().tombstones > 10 && purge.report().prepares == 20);
    assert_counts(&open_target(disk));
    for round in 0..3 {
        // Some that are in the target, some that were dropped, some repeatedly, and some new ones.
        for n in (round * 7..45).step_by(5) {
            let name = format!("{n}");
            vb.put(
                &key(FRUIT, &name),
                if round == 1 {
                    tombstone(RECENT)
                } else {
                    live(0)
                },
            );
            match n % 3 {
                0 => vb.put(&prepared(FRUIT, &name), pending()),
                _ => vb.put(
                    &prepared(FRUIT, &name),
                    EntryMeta::abort(Cas(1), RECENT, Seqno(1)),
                ),
            };
        }
        if round == 1 {
            vb.drop_collection(CollectionId(0x77));
        }
        let newest = vb.commit();
        assert_counts(&newest);
        compaction.catch_up(&newest, &mut purge).expect("catch up");
        assert_counts(&open_target(disk));
    }
    compaction.finish().expect("finish");
    // Only collections dropped since still wait for the purge.
    let list = open_target(disk).local(DROPPED_COLLECTIONS_NAME);
    let list = list.expect("a local document").expect("there");
    let list = DroppedCollections::decode(&list).expect("a list").entries;
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].collection, CollectionId(0x77));
}

#[test]
fn counts_stay_correct_during_catch_up() {
    let sealed = || CreateOptions {
        version: Version::V14,
        encryption: Some(EncryptionKey::new("some key", [0x42; 32])),
    };
    let encrypted = CompactionSettings {
        create: sealed(),
        ..CompactionSettings::default()
    };
    for (source, settings) in [
        (CreateOptions::default(), CompactionSettings::default()),
        (CreateOptions::default(), encrypted.clone()),
        (sealed(), CompactionSettings::default()),
        (sealed(), encrypted),
    ] {
        let disk = disk(1);
        let options = kedge_couchstore::Options::default();
        let writer = Writer::create(&disk, crate::support::path(), &source, &options);
        counts_after_catching_up(&settings, &disk, writer.expect("create"));
    }
}

#[test]
fn purge_rules_on_the_rich_sample() {
    let options = kedge_couchstore::Options::default();
    let rich = golden_path("rich.couch.1");
    let source = Snapshot::open(&kedge_disk::PosixDisk, &rich, &options).expect("open");
    let disk = disk(1);
    let mut purge =
        Purge::new(&source, PurgePolicy::at(u32::MAX), Heard::default()).expect("rules");
    let compaction =
        compact(&disk, &source, &CompactionSettings::default(), &mut purge).expect("compact");
    let progress = compaction.finish().expect("finish");
    let report = *purge.report();
    assert_eq!(report.not_understood, 0);
    assert_eq!(
        progress.dropped,
        report.of_dropped_collections + report.tombstones + report.prepares
    );
    assert_eq!(progress.purged, report.tombstones);
    assert!(report.tombstones > 0);
    let copy = content(&open_target(&disk));
    assert!(copy.docs.len() as u64 == progress.kept && progress.kept > 0);
    disk.remove(target()).expect("remove");
    // The hooks are reusable: a file without anything to purge stays unchanged.
    let keep: &mut dyn CompactionHooks = &mut KeepAll;
    compact(&disk, &source, &CompactionSettings::default(), keep)
        .expect("compact")
        .finish()
        .expect("finish");
    assert_eq!(content(&open_target(&disk)), content(&source));
}
