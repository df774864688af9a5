//! Collections of a bucket: persistence, drops, and removal of their documents.

use crate::crash::seeds;
use crate::dcp::pair::Pair;
use crate::tools::*;
use kedge_bucket::{
    Bucket, CompactionRequest, Completion, Cookie, Mutated, Outcome, Read, StreamNotify,
    StreamRefused, StreamRequest, Write,
};
use kedge_disk::{Fault, Rng, SimDisk};
use kedge_replication::Filter;
use kedge_types::{
    Collection, CollectionId, DocKey, Durability, DurabilityLevel, Manifest, ManifestUid, Scope,
    ScopeId, Status, VbId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns a manifest with these collections in the scope 9, which always exists.
fn manifest(uid: u64, ids: &[u32]) -> Manifest {
    let mut manifest = Manifest {
        uid: ManifestUid(uid),
        ..Manifest::default()
    };
    let collection = |id: &u32| Collection {
        id: CollectionId(*id),
        name: format!("c{id}"),
        max_ttl: None,
        history: false,
    };
    manifest.scopes.push(Scope {
        id: ScopeId(9),
        name: "shop".to_owned(),
        collections: ids.iter().map(collection).collect(),
    });
    manifest
}

pub(crate) fn follow(open: &Open, uid: u64, ids: &[u32]) {
    open.bucket
        .collections()
        .set_manifest(Arc::new(manifest(uid, ids)));
}

pub(crate) fn key_in(collection: u32, name: &str) -> DocKey {
    DocKey::new(CollectionId(collection), name.as_bytes()).unwrap()
}

pub(crate) fn set(
    open: &Open,
    collection: u32,
    name: &str,
    value: &[u8],
) -> Result<Mutated, Status> {
    done(open.store(&write(&key_in(collection, name)), value))
}

pub(crate) fn get(open: &Open, collection: u32, name: &str) -> Result<Vec<u8>, Status> {
    let key = key_in(collection, name);
    let cookie = open.next_cookie();
    let wanted = Read {
        cookie: Cookie(cookie),
        ..read(&key)
    };
    let outcome = open
        .bucket
        .documents()
        .get(open.ctx(), &wanted, |it| it.item.value().to_vec())?;
    match outcome {
        Outcome::Done(value) => Ok(value),
        Outcome::Parked => match open.sink.wait_any(cookie) {
            Completion::Read { result } => result.map(|(item, _)| item.value().to_vec()),
            other => panic!("{other:?}"),
        },
    }
}

pub(crate) fn items(bucket: &Bucket) -> Vec<(u32, u64)> {
    let figures = bucket.collections().figures();
    let item = |it: &kedge_bucket::CollectionFigures| (it.collection.get(), it.items);
    figures.iter().map(item).collect()
}

pub(crate) fn live_in_files(open: &Open) -> u64 {
    let figures = |vb| open.bucket.file_figures(vb).unwrap();
    all_vbuckets().filter_map(figures).map(|it| it.live).sum()
}

fn documents(open: &Open) -> usize {
    let figures = |vb| open.bucket.vbucket_figures(vb).unwrap();
    all_vbuckets().map(|vb| figures(vb).documents).sum()
}

/// Simulates a power loss, and opens the bucket again.
fn crash(site: &mut TestSite, disk: &SimDisk, up: (Open, Steps)) -> (Open, Steps) {
    drop(up);
    disk.crash(7);
    site.executor.shutdown();
    site.open_with_manual_tasks()
}

#[test]
fn collections_survive_restarts_and_dropped_collections_do_not() {
    for commit_log in [true, false] {
        let disk = SimDisk::new(1);
        let mut site = sim(&disk);
        site.config.commit_log = commit_log;
        let mut up = site.open_with_manual_tasks();
        assert_eq!(
            set(&up.0, 8, "k", b"1"),
            Err(Status::UnknownCollection),
            "before there is one"
        );
        follow(&up.0, 1, &[8, 10]);
        for n in 0..20 {
            for id in [0, 8, 10] {
                set(&up.0, id, &format!("k{n}"), format!("{id}-{n}").as_bytes()).unwrap();
            }
        }
        up.0.bucket.persistence().sync().unwrap();
        // From the log alone, or from the files without a log.
        up = crash(&mut site, &disk, up);
        assert_eq!(items(&up.0.bucket), [(0, 20), (8, 20), (10, 20)]);
        assert_eq!(get(&up.0, 8, "k7").unwrap(), b"8-7");
        up.0.bucket.persistence().apply().unwrap();
        // From the files.
        up = crash(&mut site, &disk, up);
        assert_eq!(items(&up.0.bucket), [(0, 20), (8, 20), (10, 20)]);
        assert_eq!(get(&up.0, 10, "k3").unwrap(), b"10-3");
        assert_eq!(get(&up.0, 0, "k3").unwrap(), b"0-3");

        follow(&up.0, 2, &[10]);
        assert_eq!(get(&up.0, 8, "k7"), Err(Status::UnknownCollection));
        assert_eq!(items(&up.0.bucket), [(0, 20), (10, 20)]);
        up.1.run();
        assert_eq!(documents(&up.0), 40, "they left memory");
        up.0.bucket.persistence().sync().unwrap();
        // The files have the collection, and the log has its drop.
        up = crash(&mut site, &disk, up);
        assert_eq!(get(&up.0, 8, "k7"), Err(Status::UnknownCollection));
        assert_eq!(get(&up.0, 10, "k7").unwrap(), b"10-7");
        up.1.run();
        assert_eq!(documents(&up.0), 40);

        up.0.bucket.persistence().apply().unwrap();
        let before = live_in_files(&up.0);
        let ticket =
            up.0.bucket
                .persistence()
                .compactions()
                .compact(&CompactionRequest::default())
                .unwrap();
        up.1.run();
        assert!(ticket.report().is_some());
        assert_eq!(live_in_files(&up.0), before - 20, "they left the files");
        up = crash(&mut site, &disk, up);
        assert_eq!(items(&up.0.bucket), [(0, 20), (10, 20)]);
        assert_eq!(documents(&up.0), 40);
        // A new collection of the same name has another id and no documents.
        follow(&up.0, 3, &[10, 11]);
        assert_eq!(get(&up.0, 11, "k7"), Err(Status::KeyNotFound));
        up.0.bucket.shutdown();
        site.executor.shutdown();
    }
}

#[test]
fn collection_drop_triggers_a_compaction() {
    let disk = SimDisk::new(2);
    let mut site = sim(&disk);
    site.config.apply_max_lag_ms = 10;
    let (open, steps) = site.open_with_manual_tasks();
    follow(&open, 1, &[8]);
    for n in 0..20 {
        set(&open, 8, &format!("k{n}"), b"value").unwrap();
    }
    steps.pass(SEC * 5);
    let full = live_in_files(&open);
    follow(&open, 2, &[]);
    steps.pass(SEC * 60);
    assert!(open.figure("ep_compactions") > 0);
    // The drops removed the creation events, and a compaction the documents.
    assert!(live_in_files(&open) <= full - 20);
    open.bucket.shutdown();
}

#[test]
fn sync_write_in_a_dropped_collection_aborts_and_later_ones_continue() {
    let disk = SimDisk::new(3);
    let mut site = sim(&disk);
    let (open, steps) = site.open_with_manual_tasks();
    follow(&open, 1, &[8]);
    let durability = Some(Durability {
        level: DurabilityLevel::PersistToMajority,
        timeout_ms: None,
    });
    // Two SyncWrites of the same vBucket, in order.
    let keys = [key_in(8, "k"), key_in(0, "k")];
    for (cookie, key) in (1..).zip(&keys) {
        let write = Write {
            durability,
            cookie: Cookie(cookie),
            ..write(key)
        };
        assert_eq!(open.store(&write, b"v"), Ok(Outcome::Parked));
    }
    follow(&open, 2, &[]);
    assert_eq!(open.sink.wait(1), Err(Status::UnknownCollection));
    open.bucket.persistence().writers().request_flush(false);
    steps.run();
    assert!(open.sink.wait(2).is_ok());
    assert_eq!(open.get("k").unwrap(), b"v");
    let (open, _steps) = crash(&mut site, &disk, (open, steps));
    assert_eq!(open.get("k").unwrap(), b"v");
    open.bucket.shutdown();
}

#[test]
fn maximum_ttl_of_a_collection_limits_expiries() {
    let disk = SimDisk::new(4);
    let mut site = sim(&disk);
    site.config.max_ttl_secs = 1_000;
    let (open, _steps) = site.open_with_manual_tasks();
    let mut rules = manifest(1, &[8, 10, 11]);
    for (at, rule) in [Some(10), Some(0), None].into_iter().enumerate() {
        rules.scopes[1].collections[at].max_ttl = rule;
    }
    open.bucket.collections().set_manifest(Arc::new(rules));
    let now = open.ctx().now.unix_secs();
    for (id, ttl) in [(8, 10), (10, 0), (11, 1_000), (0, 1_000)] {
        set(&open, id, "k", b"v").unwrap();
        let key = key_in(id, "k");
        let meta = done(open.bucket.documents().get_meta(open.ctx(), &read(&key))).unwrap();
        let expected = if ttl == 0 { 0 } else { now + ttl };
        assert_eq!(u64::from(meta.expiry.0), expected, "collection {id}");
    }
    open.bucket.shutdown();
}

struct NoNotifications;

impl StreamNotify for NoNotifications {
    fn ready(&self, _: VbId) {}
}

#[test]
fn stream_of_an_unknown_collection_or_scope_is_rejected() {
    let disk = SimDisk::new(5);
    let mut site = sim(&disk);
    let (open, _steps) = site.open_with_manual_tasks();
    follow(&open, 4, &[8]);
    let streams = open
        .bucket
        .dcp()
        .connect_streams("test", Arc::new(NoNotifications))
        .unwrap();
    let ask = |filter: Filter, seen: Option<u64>| {
        let request = StreamRequest {
            filter,
            manifest_seen: seen.map(ManifestUid),
            ..crate::dcp::request(&open, VbId(0), 0)
        };
        match streams.open_stream(&request) {
            Ok(opened) => Ok(opened.filter),
            Err(StreamRefused::Status(status)) => Err(status),
            Err(other) => panic!("{other:?}"),
        }
    };
    let ids = |ids: &[u32]| Filter::Collections(ids.iter().copied().map(CollectionId).collect());
    let scope = |id, ids: &[u32]| Filter::Scope {
        scope: ScopeId(id),
        collections: ids.iter().copied().map(CollectionId).collect(),
    };
    assert_eq!(ask(ids(&[0, 8]), Some(4)), Ok(ids(&[0, 8])));
    assert_eq!(ask(ids(&[8, 10]), None), Err(Status::UnknownCollection));
    assert_eq!(ask(scope(9, &[]), None), Ok(scope(9, &[8])));
    assert_eq!(ask(scope(10, &[]), None), Err(Status::UnknownScope));
    assert_eq!(
        ask(Filter::Everything, Some(5)),
        Err(Status::TemporaryFailure)
    );
    open.bucket.shutdown();
}

#[test]
fn replica_keeps_the_collections_of_its_active_after_failover() {
    let mut pair = Pair::new(6, |config| config.apply_max_lag_ms = 10);
    let open = pair.active().open();
    follow(open, 1, &[8, 10]);
    for n in 0..20 {
        for id in [0, 8, 10] {
            set(open, id, &format!("k{n}"), b"v").unwrap();
        }
    }
    pair.quiet();
    follow(pair.active().open(), 2, &[10]);
    set(pair.active().open(), 10, "new", b"v").unwrap();
    pair.quiet();
    let replica = pair.replica().open();
    assert_eq!(documents(replica), 41, "swept there, too");
    // The other node is active now, and knows the manifest as all nodes do.
    pair.disconnect();
    pair.active = 1 - pair.active;
    follow(pair.active().open(), 2, &[10]);
    pair.set_states();
    let open = pair.active().open();
    assert_eq!(items(&open.bucket), [(0, 20), (10, 21)]);
    assert_eq!(get(open, 8, "k1"), Err(Status::UnknownCollection));
    assert_eq!(get(open, 10, "k1").unwrap(), b"v");
    pair.quiet();
    for node in &mut pair.nodes {
        node.shutdown();
    }
}

/// The values that a key may have after a crash: the last acknowledged one, or any later one.
#[derive(Clone, Copy, Default)]
struct Expected {
    acknowledged: u64,
    written: u64,
}

/// Creates and drops collections, of which at least one exists. Writes are acknowledged when they are durable. The power fails.
fn run(seed: u64) {
    eprintln!("seed {seed}");
    let disk = SimDisk::new(seed);
    let mut site = sim(&disk);
    site.config.apply_max_lag_ms = seed % 3;
    site.config.num_shards = 2;
    site.config.commit_log = !seed.is_multiple_of(4);
    let mut random = Rng::new(seed);
    let (mut uid, mut next_id, mut ids) = (1, 9, vec![8]);
    let mut expected: BTreeMap<(u32, String), Expected> = BTreeMap::new();
    let mut version = 0;
    for round in 0..4 {
        let open = site.open();
        // The owner of the manifest persists it before the bucket gets it.
        follow(&open, uid, &ids);
        check(&open, &ids, &mut expected, seed);
        if round == 3 {
            open.bucket.shutdown();
            return;
        }
        disk.fail_after(random.below(80), Fault::PowerLoss);
        let has_ended = || !open.sink.fatal().is_empty() || site.disk.exists(&site.dir).is_err();
        let mut cookie = 0;
        while !has_ended() {
            if random.below(3) == 0 {
                if ids.len() > 1 && random.below(2) == 0 {
                    let gone = ids.remove(random.below(ids.len() as u64) as usize);
                    expected.retain(|(id, _), _| *id != gone);
                } else if ids.len() < 4 {
                    ids.push(next_id);
                    next_id += 1;
                }
                uid += 1;
                follow(&open, uid, &ids);
            }
            let mut waiting = Vec::new();
            for _ in 0..=random.below(4) {
                let id = ids[random.below(ids.len() as u64) as usize];
                let name = format!("key-{}", random.below(6));
                (version, cookie) = (version + 1, cookie + 1);
                let key = key_in(id, &name);
                let write = Write {
                    durability: Some(Durability {
                        level: DurabilityLevel::PersistToMajority,
                        timeout_ms: None,
                    }),
                    cookie: Cookie(cookie),
                    ..write(&key)
                };
                match open.store(&write, format!("{version}").as_bytes()) {
                    Ok(_) => {
                        let entry = expected.entry((id, name.clone())).or_default();
                        entry.written = version;
                        waiting.push((cookie, (id, name), version));
                    }
                    Err(Status::SyncWriteInProgress | Status::TemporaryFailure) => {}
                    Err(other) => panic!("{other:?}, seed {seed}"),
                }
            }
            open.bucket
                .persistence()
                .writers()
                .request_flush(random.below(2) == 0);
            for (cookie, key, version) in waiting {
                until("a completion or the end", || {
                    open.sink.get(cookie).is_some() || has_ended()
                });
                if open.sink.get(cookie).is_some() && open.sink.wait(cookie).is_ok() {
                    expected.get_mut(&key).unwrap().acknowledged = version;
                }
            }
        }
        open.bucket.shutdown();
        disk.crash(seed + round);
    }
}

fn check(open: &Open, ids: &[u32], expected: &mut BTreeMap<(u32, String), Expected>, seed: u64) {
    let mut counts: BTreeMap<u32, u64> = ids.iter().map(|id| (*id, 0)).collect();
    counts.insert(0, 0);
    for ((id, name), expected) in expected {
        let found = match get(open, *id, name) {
            Ok(value) => {
                *counts.get_mut(id).unwrap() += 1;
                std::str::from_utf8(&value).unwrap().parse().unwrap()
            }
            Err(Status::KeyNotFound) => 0,
            Err(other) => panic!("{other:?}, seed {seed}"),
        };
        let range = expected.acknowledged..=expected.written;
        assert!(
            range.contains(&found),
            "{name} in {id} holds {found}, not {range:?}, seed {seed}"
        );
        // The values found are durable and must not be lost later.
        (expected.acknowledged, expected.written) = (found, found);
    }
    let counted: BTreeMap<u32, u64> = items(&open.bucket).into_iter().collect();
    assert_eq!(counted, counts, "seed {seed}");
}

#[test]
fn collection_changes_survive_power_loss_at_any_operation() {
    for seed in seeds(60) {
        run(seed);
    }
}
