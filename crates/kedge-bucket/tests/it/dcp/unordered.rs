//! OSO backfills: streams that read collections in key order.

use super::*;
use crate::collections::{follow, key_in, set};
use kedge_disk::{Disk as _, Rng, SimDisk};
use kedge_types::CollectionId;

const VB: VbId = VbId(1);

/// Requests everything of some collections, with OSO snapshots allowed.
fn of_collections(open: &Open, ids: &[u32]) -> StreamRequest {
    StreamRequest {
        filter: Filter::Collections(ids.iter().copied().map(CollectionId).collect()),
        unordered: true,
        sync_writes: false,
        ..request(open, VB, 0)
    }
}

fn high(open: &Open) -> u64 {
    let figures = open.bucket.vbucket_figures(VB).unwrap();
    figures.high_seqno.get()
}

/// Returns the live documents of these collections that a stream has sent, by stored key.
fn live(copy: &Copy, ids: &[u32]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let is_of = |key: &[u8]| {
        let id = kedge_types::decode_leb128(key).unwrap().0;
        ids.contains(&id)
    };
    let documents = copy.documents.iter().filter(|(key, _)| is_of(key));
    documents
        .filter_map(|(key, (_, value))| Some((key.clone(), value.clone()?)))
        .collect()
}

/// A writer with a model of the documents.
struct Writer {
    random: Rng,
    names: Vec<String>,
    there: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Writer {
    fn step(&mut self, open: &Open) {
        let id = [0, 8, 10, 300][self.random.below(4) as usize];
        let name = &self.names[self.random.below(self.names.len() as u64) as usize];
        let key = key_in(id, name);
        if self.random.below(4) > 0 {
            let value = format!("{}{}", self.random.below(1_000), "x".repeat(100));
            set(open, id, name, value.as_bytes()).unwrap();
            self.there.insert(key.as_bytes().to_vec(), value.into());
            return;
        }
        let deleted = done(open.bucket.documents().delete(open.ctx(), &write(&key)));
        let was_there = self.there.remove(key.as_bytes()).is_some();
        assert_eq!(deleted.is_ok(), was_there, "{deleted:?}");
    }

    fn of(&self, ids: &[u32]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let is_of = |key: &&Vec<u8>| ids.contains(&kedge_types::decode_leb128(key).unwrap().0);
        let found = self.there.iter().filter(|(key, _)| is_of(key));
        found
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

#[test]
fn oso_backfill_sends_collections_in_key_order_and_then_follows_changes() {
    for seed in 0..12 {
        let disk = SimDisk::new(seed);
        let mut site = sim(&disk);
        site.config.commit_log = seed % 2 == 0;
        site.config.memory.dcp_backfill_bytes_max = 8_000;
        let (open, steps) = site.open_with_manual_tasks();
        follow(&open, 1, &[8, 10, 300]);
        let mut writer = Writer {
            random: Rng::new(seed),
            names: names_in(VB, 30),
            there: BTreeMap::new(),
        };
        (0..200).for_each(|_| writer.step(&open));
        // The changes leave memory.
        open.bucket.persistence().sync().unwrap();
        let line = TestConnection::new(&open);
        let ids = [8, 300];
        let mut client = line.try_open(&of_collections(&open, &ids)).unwrap();
        client.at_once = 1 + seed as usize % 5;
        let mut turns = 0;
        while turns < 60 || client.copy.last < high(&open) {
            if turns < 60 {
                writer.step(&open);
            }
            steps.run();
            client.read();
            turns += 1;
            assert!(turns < 5_000, "seed {seed}");
        }
        let copy = &client.copy;
        assert_eq!(live(copy, &ids), writer.of(&ids), "seed {seed}");
        assert_eq!((copy.unordered_ends, client.ended), (1, None));
        let keys: Vec<&[u8]> = copy.unordered.iter().map(|(key, _)| &key[..]).collect();
        // Collection 8, then 300: first the creation event, then the documents.
        let (eight, other) = keys.split_at(
            keys.iter()
                .position(|key| key[..2] == [1, 0] && key[2] == 0xac)
                .unwrap(),
        );
        assert_eq!(eight[0], b"\x01\x00\x08_collection");
        assert!(eight[1..].iter().all(|key| key[0] == 8));
        assert!(other[1..].iter().all(|key| key[..2] == [0xac, 2]));
        assert!(eight[1..].is_sorted() && other[1..].is_sorted());
        assert!(eight.len() > 5 && other.len() > 5);
        // The items are not in seqno order, and nothing else was read.
        assert!(!copy.unordered.is_sorted_by_key(|(_, seqno)| *seqno));
        assert_eq!(open.figure("ep_dcp_oso_backfills"), 1);
        let read = open.figure("ep_dcp_backfilled_items");
        assert_eq!(read, keys.len() as u64);
        open.bucket.shutdown();
    }
}

#[test]
fn oso_is_not_used_for_whole_buckets_sync_writes_or_resumed_streams() {
    let (open, steps) = sim(&SimDisk::new(1)).open_with_manual_tasks();
    follow(&open, 1, &[8]);
    let name = &names_in(VB, 1)[0];
    set(&open, 8, name, b"v").unwrap();
    set(&open, 0, name, b"v").unwrap();
    let line = TestConnection::new(&open);
    let asked = of_collections(&open, &[8]);
    let see = |request: &StreamRequest| {
        let mut client = line.try_open(request).unwrap();
        steps.run();
        client.drain();
        assert_eq!(client.copy.last, 4, "{request:?}");
        (client.copy.unordered_ends, client.copy.markers > 0)
    };
    assert_eq!(see(&asked), (0, true), "memory has it");
    open.bucket.persistence().sync().unwrap();
    let on = |seqno| StreamRequest {
        start: Seqno(seqno),
        snap_start: Seqno(seqno),
        snap_end: Seqno(seqno),
        ..asked.clone()
    };
    for request in [
        StreamRequest {
            unordered: false,
            ..asked.clone()
        },
        StreamRequest {
            sync_writes: true,
            ..asked.clone()
        },
        StreamRequest {
            filter: Filter::Everything,
            ..asked.clone()
        },
        on(1),
    ] {
        assert_eq!(see(&request), (0, true), "{request:?}");
    }
    assert_eq!(open.figure("ep_dcp_oso_backfills"), 0);
    assert_eq!(see(&asked), (1, false));
    open.bucket.shutdown();
}

/// Opens a stream of a collection with `count` documents of `bytes` bytes, and reads a part of its backfill.
fn open_during_backfill(
    site: &mut TestSite,
    count: usize,
    bytes: usize,
) -> (Open, Steps, TestConnection, Client) {
    site.config.memory.dcp_backfill_bytes_max = 8_000;
    let (open, steps) = site.open_with_manual_tasks();
    follow(&open, 1, &[8]);
    let mut random = Rng::new(7);
    for name in names_in(VB, count) {
        // Incompressible values.
        let value: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
        set(&open, 8, &name, &value).unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    let line = TestConnection::new(&open);
    let mut client = line.try_open(&of_collections(&open, &[8])).unwrap();
    steps.run();
    client.read();
    assert!(client.copy.is_unordered && !client.copy.unordered.is_empty());
    assert_eq!(client.copy.last, 0, "it is at no seqno");
    (open, steps, line, client)
}

#[test]
fn stream_interrupted_in_an_oso_snapshot_restarts_at_zero() {
    let (open, steps, line, client) = open_during_backfill(&mut sim(&SimDisk::new(2)), 40, 200);
    let figures = &open.bucket.dcp().stream_figures()[0];
    assert_eq!((figures.last_sent, figures.cursor_drops), (Seqno(0), 0));
    assert_eq!(open.figure("ep_storage_scans"), 1);
    drop(client);
    steps.run();
    assert_eq!(open.figure("ep_storage_scans"), 0);
    let mut client = line.try_open(&of_collections(&open, &[8])).unwrap();
    while client.copy.unordered_ends == 0 {
        steps.run();
        client.drain();
    }
    assert_eq!(live(&client.copy, &[8]).len(), 40);
    assert_eq!(client.copy.last, high(&open));
    open.bucket.shutdown();
}

#[test]
fn vbucket_change_or_read_error_ends_a_stream_during_an_oso_backfill() {
    let (open, steps, _line, mut client) =
        open_during_backfill(&mut sim(&SimDisk::new(3)), 40, 200);
    open.bucket.states().delete_vbucket(VB).unwrap();
    client.drain();
    assert_eq!(client.ended, Some(EndReason::StateChanged));
    steps.run();
    assert_eq!(open.figure("ep_storage_scans"), 0);
    open.bucket.shutdown();

    let disk = SimDisk::new(4);
    let mut site = sim(&disk);
    let (open, steps, _line, mut client) = open_during_backfill(&mut site, 400, 3_000);
    let names = disk.list(&site.dir).unwrap();
    let file = names.iter().find(|name| name.starts_with("1.couch."));
    let file = site.dir.join(file.unwrap());
    for offset in (0..disk.len(&file).unwrap()).step_by(512) {
        disk.make_unreadable(&file, offset);
    }
    while client.ended.is_none() {
        steps.run();
        client.drain();
    }
    assert_eq!(client.ended, Some(EndReason::BackfillFailed));
    assert_eq!(client.copy.unordered_ends, 0);
    assert_eq!(open.figure("ep_dcp_backfill_failures"), 1);
    assert_eq!(open.figure("ep_storage_scans"), 0);
    open.bucket.shutdown();
}

#[test]
fn oso_backfill_excludes_changes_after_the_end_seqno() {
    let (open, steps) = sim(&SimDisk::new(5)).open_with_manual_tasks();
    follow(&open, 1, &[8]);
    let names = names_in(VB, 3);
    for name in &names[..2] {
        set(&open, 8, name, b"1").unwrap();
    }
    let end = high(&open);
    open.bucket.persistence().sync().unwrap();
    let line = TestConnection::new(&open);
    let to_latest = StreamRequest {
        flags: StreamFlags::TO_LATEST,
        ..of_collections(&open, &[8])
    };
    let mut client = line.try_open(&to_latest).unwrap();
    set(&open, 8, &names[1], b"2").unwrap();
    set(&open, 8, &names[2], b"2").unwrap();
    open.bucket.persistence().apply().unwrap();
    steps.run();
    client.drain();
    assert_eq!((client.copy.last, client.ended), (end, Some(EndReason::Ok)));
    let seqnos = client.copy.unordered.iter().map(|(_, seqno)| *seqno);
    assert!(seqnos.max().unwrap() <= end);
    assert_eq!(live(&client.copy, &[8]).len(), 1);
    open.bucket.shutdown();
}

#[test]
fn oso_backfill_of_a_dropped_collection_sends_only_its_drop_event() {
    let (open, steps) = sim(&SimDisk::new(6)).open_with_manual_tasks();
    follow(&open, 1, &[8]);
    for name in names_in(VB, 5) {
        set(&open, 8, &name, b"1").unwrap();
    }
    open.bucket.persistence().sync().unwrap();
    let line = TestConnection::new(&open);
    let mut client = line.try_open(&of_collections(&open, &[8])).unwrap();
    follow(&open, 2, &[]);
    open.bucket.persistence().apply().unwrap();
    steps.run();
    client.drain();
    let event = (b"\x01\x00\x08_collection".to_vec(), high(&open));
    assert_eq!(client.copy.unordered, [event]);
    assert_eq!(
        (client.copy.unordered_ends, client.copy.last),
        (1, high(&open))
    );
    open.bucket.shutdown();
}

#[test]
fn collection_with_most_of_the_documents_is_read_in_seqno_order() {
    let (open, steps) = sim(&SimDisk::new(7)).open_with_manual_tasks();
    follow(&open, 1, &[8]);
    let names = names_in(VB, 1_100);
    for name in &names {
        set(&open, 8, name, b"1").unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    let line = TestConnection::new(&open);
    let see = || {
        let mut client = line.try_open(&of_collections(&open, &[8])).unwrap();
        client.at_once = 100;
        for _ in 0..1_000 {
            steps.run();
            client.drain();
            if client.copy.last == high(&open) {
                break;
            }
        }
        assert_eq!(live(&client.copy, &[8]).len(), names.len());
        client.copy.unordered_ends
    };
    assert_eq!((see(), open.figure("ep_dcp_oso_backfills")), (0, 0));
    for name in &names {
        set(&open, 0, name, b"1").unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    assert_eq!((see(), open.figure("ep_dcp_oso_backfills")), (1, 1));
    open.bucket.shutdown();
}
