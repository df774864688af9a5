//! Backfills of streams.

use super::*;
use crate::collections::{follow, set};
use kedge_bucket::{
    BucketChange, CompactionChange, CompactionRate, CompactionRequest, Cookie, NodeName, Outcome,
    SnapshotKind, Topology, VbRole, VbState, Write,
};
use kedge_disk::SimDisk;
use kedge_executor::Pool;
use kedge_replication::Values;
use kedge_types::{CollectionId, Durability, DurabilityLevel};

const VB: VbId = VbId(1);

/// Returns a site with a log and one without.
fn places(seed: u64) -> [(TestSite, SimDisk); 2] {
    [true, false].map(|commit_log| {
        let disk = SimDisk::new(seed);
        let mut site = sim(&disk);
        site.config.commit_log = commit_log;
        (site, disk)
    })
}

/// Writes `names` and makes them durable, so that memory no longer has the changes.
fn check(open: &Open, client: &Client, names: &[String]) {
    assert_eq!(client.ended, None);
    let high = open.bucket.vbucket_figures(VB).unwrap().high_seqno;
    assert_eq!(client.copy.last, high.get());
    assert!(client.copy.snapshot.unwrap().end <= high);
    assert_eq!(client.copy.values(), values(open, names.iter().cloned()));
}

#[test]
fn backfill_reads_only_the_requested_part_of_values() {
    for (mut site, _) in places(9) {
        let (open, steps) = site.open_with_manual_tasks();
        let names = names_in(VB, 20);
        let value = "x".repeat(50_000);
        write_all(&open, &names, &value);
        open.bucket.persistence().apply().unwrap();
        let line = TestConnection::new(&open);
        let mut bytes = Vec::new();
        for values in [Values::None, Values::Xattrs, Values::Whole] {
            let connection = line.connection.clone().with_values(values);
            let before = open.figure("ep_storage_read_bytes");
            let opened = connection.open_stream(&request(&open, VB, 0)).unwrap();
            let mut client = Client::new(opened.stream, 0);
            client.drain();
            while client.copy.last < 20 {
                steps.run();
                client.drain();
            }
            bytes.push(open.figure("ep_storage_read_bytes") - before);
            let read = client.copy.values();
            assert_eq!(read.len(), 20);
            // The documents have no extended attributes.
            let expected = match values {
                Values::Whole => &value[..],
                Values::None | Values::Xattrs => "",
            };
            assert!(read.values().all(|read| read == expected));
        }
        let [none, xattrs, whole] = bytes[..] else {
            panic!("{bytes:?}");
        };
        // The values are compressed in the file.
        assert!(none * 10 < whole && xattrs * 10 < whole, "{bytes:?}");
    }
}

#[test]
fn stream_backfills_changes_that_are_not_in_memory() {
    for (mut site, _) in places(1) {
        let (open, steps) = site.open_with_manual_tasks();
        let names = names_in(VB, 10);
        write_all(&open, &names[..8], "1");
        write_all(&open, &names[2..4], "2");
        let doomed = key(&names[0]);
        done(open.bucket.documents().delete(open.ctx(), &write(&doomed))).unwrap();
        write_all(&open, &names_in(VbId(2), 3), "of another vBucket");
        let before = open.figure("ep_apply_commits");
        let line = TestConnection::new(&open);
        let mut client = line.open(&open, VB, 0);
        assert_eq!(client.read(), SourceState::Idle);
        open.set(&names[8], b"after it was opened").unwrap();
        steps.run();
        assert!(line.ear.take().contains(&VB));
        let applied = open.figure("ep_apply_commits") - before;
        assert_eq!(applied, u64::from(site.config.commit_log), "this one only");
        client.drain();
        open.set(&names[9], b"from memory").unwrap();
        client.drain();
        check(&open, &client, &names);
        let tombstone = &client.copy.documents[doomed.as_bytes()];
        assert_eq!(*tombstone, (11, None));
        assert_eq!(open.figure("ep_dcp_backfills"), 1);
        open.bucket.shutdown();
    }
}

#[test]
fn disk_snapshot_marker_describes_the_file() {
    for (mut site, _) in places(2) {
        let (open, steps) = site.open_with_manual_tasks();
        let names = names_in(VB, 4);
        write_all(&open, &names[..3], "1");
        open.persist(&names[3], b"durable", 1).unwrap();
        open.bucket.persistence().writers().request_flush(false);
        steps.run();
        open.sink.wait(1).unwrap();
        open.bucket.persistence().sync().unwrap();
        write_all(&open, &names[..1], "2");
        let mut client = TestConnection::new(&open).open(&open, VB, 2);
        steps.run();
        client.drain();
        let snapshot = client.copy.snapshot.unwrap();
        assert_eq!(snapshot.kind, SnapshotKind::Disk);
        assert_eq!((snapshot.start, snapshot.end), (Seqno(2), Seqno(6)));
        assert_eq!(snapshot.max_visible, Some(Seqno(6)));
        assert_eq!(snapshot.high_completed, Some(Seqno(4)));
        assert_eq!(snapshot.high_prepared, Some(Seqno(4)));
        assert_eq!(snapshot.purge, Some(Seqno(0)));
        assert!(snapshot.checkpoint);
        // Key 2 has seqno 3, the commit is sent as a document with seqno 5, key 0 has seqno 6; the prepare was committed.
        let seqnos: Vec<u64> = client.copy.documents.values().map(|it| it.0).collect();
        assert_eq!(seqnos.iter().sum::<u64>(), 3 + 5 + 6);
        assert!(client.copy.prepares.is_empty());
        open.bucket.shutdown();
    }
}

#[test]
fn backfill_sends_pending_prepares_whose_commits_follow_from_memory() {
    for (mut site, _) in places(3) {
        site.topology = None;
        let (open, steps) = site.open_with_manual_tasks();
        let names = names_in(VB, 3);
        let node = NodeName::new;
        let chain = vec![node("a"), node("b")];
        let role = VbRole {
            topology: Some(Topology::new(vec![chain]).unwrap()),
            ..VbState::Active.into()
        };
        open.bucket.states().set_vbucket(VB, role).unwrap();
        write_all(&open, &names[..2], "1");
        let prepare = |name: &str, cookie, timeout_ms| {
            let key = key(name);
            let write = Write {
                durability: Some(Durability {
                    level: DurabilityLevel::Majority,
                    timeout_ms: Some(timeout_ms),
                }),
                cookie: Cookie(cookie),
                ..write(&key)
            };
            assert_eq!(open.store(&write, b"durable"), Ok(Outcome::Parked));
        };
        prepare(&names[0], 1, 60_000);
        prepare(&names[2], 2, 60_000);
        open.bucket.persistence().sync().unwrap();
        let line = TestConnection::new(&open);
        let mut client = line.open(&open, VB, 0);
        steps.run();
        client.drain();
        assert_eq!((client.copy.prepares.len(), client.copy.last), (2, 4));
        assert_eq!(client.copy.documents.len(), 2);
        let replica = node("b").unwrap();
        open.bucket.dcp().acknowledge(&replica, &[(VB, Seqno(3))]);
        assert!(open.sink.wait(1).is_ok());
        assert!(open.sink.get(2).is_none());
        client.drain();
        assert_eq!((client.copy.prepares.len(), client.copy.last), (1, 5));
        steps.pass(SEC * 61);
        assert_eq!(open.sink.wait(2), Err(Status::SyncWriteAmbiguous));
        client.drain();
        assert_eq!((client.copy.prepares.len(), client.copy.last), (0, 6));
        // The abort replaces the prepare.
        open.bucket.persistence().sync().unwrap();
        let mut late = line.open(&open, VB, 1);
        steps.run();
        late.drain();
        assert_eq!(late.copy.last, 6);
        assert_eq!(
            (late.copy.prepares.len(), late.copy.documents.len()),
            (0, 2)
        );
        check(&open, &client, &names);
        open.bucket.shutdown();
    }
}

#[test]
fn backfill_buffer_is_bounded() {
    for (mut site, _) in places(4) {
        site.config.memory.dcp_backfill_bytes_max = 80_000;
        let (open, steps) = site.open_with_manual_tasks();
        let value = "v".repeat(3_000);
        let all: Vec<Vec<String>> = all_vbuckets().map(|vb| names_in(vb, 40)).collect();
        for names in &all {
            write_all(&open, names, &value);
        }
        let line = TestConnection::new(&open);
        let mut clients: Vec<Client> = all_vbuckets().map(|vb| line.open(&open, vb, 0)).collect();
        let mut turns = 0;
        while clients.iter().any(|client| client.copy.last < 40) {
            steps.run();
            let figures = open.bucket.dcp().stream_figures();
            let buffered: u64 = figures.iter().map(|it| it.buffered_bytes).sum();
            // Each stream may exceed its share by one document.
            assert!(buffered <= 4 * (10_000 + 3_200), "{buffered}");
            for client in &mut clients {
                client.at_once = 2;
                client.read();
            }
            turns += 1;
            assert!(turns < 1_000);
        }
        let spread = clients.iter().map(|client| client.copy.last);
        assert!(spread.clone().max().unwrap() - spread.min().unwrap() < 10);
        open.bucket.shutdown();
    }
}

#[test]
fn disk_only_stream_ends_after_the_backfill() {
    for (mut site, _) in places(5) {
        let (open, steps) = site.open_with_manual_tasks();
        let names = names_in(VB, 5);
        write_all(&open, &names[..3], "1");
        open.set(&names[3], b"not on disk yet").unwrap();
        let line = TestConnection::new(&open);
        let on_disk = |start| StreamRequest {
            flags: StreamFlags::DISK_ONLY,
            ..request(&open, VB, start)
        };
        let mut client = line.try_open(&on_disk(0)).unwrap();
        let mut nothing = line.try_open(&on_disk(3)).unwrap();
        steps.run();
        client.drain();
        nothing.drain();
        assert_eq!((client.copy.last, client.ended), (3, Some(EndReason::Ok)));
        assert_eq!((nothing.copy.last, nothing.ended), (3, Some(EndReason::Ok)));
        let early = StreamRequest {
            end: Seqno(2),
            ..on_disk(1)
        };
        let mut early = line.try_open(&early).unwrap();
        steps.run();
        early.drain();
        assert_eq!((early.copy.last, early.ended), (2, Some(EndReason::Ok)));
        assert_eq!(early.copy.snapshot.unwrap().end, Seqno(2));
        open.bucket.shutdown();
    }
}

/// Opens a stream and reads a part of its backfill.
fn open_during_backfill(site: &mut TestSite) -> (Open, Steps, TestConnection, Client, Vec<String>) {
    site.config.memory.dcp_backfill_bytes_max = 8_000;
    let (open, steps) = site.open_with_manual_tasks();
    let names = names_in(VB, 40);
    write_all(&open, &names, &"1".repeat(200));
    let line = TestConnection::new(&open);
    let mut client = line.open(&open, VB, 0);
    steps.run();
    client.read();
    assert!((1..=3).contains(&client.copy.last));
    (open, steps, line, client, names)
}

#[test]
fn compaction_does_not_interrupt_a_backfill() {
    for (mut site, _) in places(6) {
        let (open, steps, _line, mut client, names) = open_during_backfill(&mut site);
        write_all(&open, &names, "2");
        open.bucket.persistence().apply().unwrap();
        let ticket = open
            .bucket
            .persistence()
            .compactions()
            .compact(&CompactionRequest::default())
            .unwrap();
        steps.run();
        assert!(ticket.report().is_some());
        for _ in 0..100 {
            client.drain();
            steps.run();
        }
        assert_eq!(open.figure("ep_dcp_backfills"), 1, "the file as it was");
        check(&open, &client, &names);
        open.bucket.shutdown();
    }
}

#[test]
fn vbucket_change_ends_a_stream_during_its_backfill() {
    for (mut site, _) in places(7) {
        let (open, steps, line, mut client, names) = open_during_backfill(&mut site);
        open.bucket.states().delete_vbucket(VB).unwrap();
        client.drain();
        assert_eq!(client.ended, Some(EndReason::StateChanged));
        steps.run();
        open.bucket
            .states()
            .set_vbucket(VB, VbState::Active)
            .unwrap();
        write_all(&open, &names, "2");
        let mut client = line.open(&open, VB, 0);
        steps.run();
        client.read();
        open.bucket.flush_all(open.ctx()).unwrap();
        client.drain();
        assert_eq!(client.ended, Some(EndReason::Rollback));
        let mut client = line.open(&open, VB, 0);
        steps.run();
        client.drain();
        assert_eq!((client.copy.last, client.ended), (0, None));
        drop(client);
        steps.run();
        assert_eq!(open.figure("ep_storage_scans"), 0);
        open.bucket.shutdown();
    }
}

#[test]
fn closed_stream_releases_its_file() {
    for (mut site, _) in places(8) {
        let (open, steps, line, client, _) = open_during_backfill(&mut site);
        assert_eq!(open.figure("ep_storage_scans"), 1);
        drop(client);
        steps.run();
        assert_eq!(open.figure("ep_storage_scans"), 0);
        let waits = line.open(&open, VB, 0);
        drop(waits);
        steps.run();
        assert_eq!(open.bucket.dcp().stream_figures(), []);
        let tasks = |open: &Open| open.runs("dcp_backfill").is_some();
        assert!(tasks(&open));
        drop(line);
        steps.run();
        assert!(!tasks(&open));
        open.bucket.shutdown();
    }
}

/// Purges all tombstones of the files.
fn purge(open: &Open, steps: &Steps) {
    let all = CompactionRequest {
        drop_deletes: true,
        ..CompactionRequest::default()
    };
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(&all)
        .unwrap();
    steps.run();
    assert!(ticket.report().is_some());
}

#[test]
fn stream_behind_the_purge_seqno_is_rolled_back() {
    for (mut site, _) in places(9) {
        site.config.memory.dcp_cursor_percent = 0;
        let (open, steps) = site.open_with_manual_tasks();
        let names = names_in(VB, 4);
        let line = TestConnection::new(&open);
        let mut client = line.open(&open, VB, 0);
        write_all(&open, &names, "1");
        client.drain();
        let doomed = key(&names[0]);
        done(open.bucket.documents().delete(open.ctx(), &write(&doomed))).unwrap();
        write_all(&open, &names[1..], "2");
        open.bucket.persistence().apply().unwrap();
        purge(&open, &steps);
        assert_eq!(open.figure("ep_cursors_dropped"), 1);
        client.drain();
        steps.run();
        client.drain();
        assert_eq!(client.ended, Some(EndReason::Rollback));
        let refused = line.try_open(&request(&open, VB, 4)).err();
        assert_eq!(refused, Some(StreamRefused::Rollback(Seqno(0))));
        let careless = StreamRequest {
            flags: StreamFlags::IGNORE_PURGED_TOMBSTONES,
            ..request(&open, VB, 4)
        };
        let mut client = line.try_open(&careless).unwrap();
        steps.run();
        client.drain();
        assert_eq!((client.copy.last, client.ended), (8, None));
        open.bucket.shutdown();
    }
}

#[test]
fn purged_tombstones_of_other_collections_do_not_roll_back_a_stream() {
    for (mut site, _) in places(13) {
        let (open, steps) = site.open_with_manual_tasks();
        follow(&open, 1, &[8]);
        let names = names_in(VB, 3);
        set(&open, 8, &names[0], b"1").unwrap();
        let high = open.bucket.vbucket_figures(VB).unwrap().high_seqno.get();
        write_all(&open, &names, "1");
        let doomed = key(&names[0]);
        done(open.bucket.documents().delete(open.ctx(), &write(&doomed))).unwrap();
        write_all(&open, &names[1..], "2");
        open.bucket.persistence().apply().unwrap();
        purge(&open, &steps);
        let line = TestConnection::new(&open);
        let from = |id, seqno| StreamRequest {
            filter: Filter::Collections(vec![CollectionId(id)]),
            ..request(&open, VB, seqno)
        };
        let refused = |request| line.try_open(&request).err();
        let anew = Some(StreamRefused::Rollback(Seqno(0)));
        assert_eq!(refused(request(&open, VB, high)), anew);
        assert_eq!(refused(from(0, high)), anew);
        // The collection had one more change.
        assert_eq!(refused(from(8, high - 1)), anew);
        let mut client = line.try_open(&from(8, high)).unwrap();
        steps.run();
        client.drain();
        let figures = open.bucket.vbucket_figures(VB).unwrap();
        assert_eq!(client.copy.last, figures.high_seqno.get());
        assert_eq!(client.ended, None);
        // A collection that changes before its file is read makes the stream start again.
        let mut late = line.try_open(&from(8, high)).unwrap();
        set(&open, 8, &names[0], b"2").unwrap();
        open.bucket.persistence().sync().unwrap();
        steps.run();
        late.drain();
        assert_eq!(late.ended, Some(EndReason::Rollback));
        open.bucket.shutdown();
    }
}

#[test]
fn read_error_of_a_backfill_ends_the_stream() {
    for (mut site, disk) in places(10) {
        site.config.keep_files_open = false;
        let (open, steps) = site.open_with_manual_tasks();
        write_all(&open, &names_in(VB, 5), "1");
        open.bucket.persistence().apply().unwrap();
        let dir = site.dir.clone();
        let names = site.disk.list(&dir).unwrap();
        let file = names.iter().find(|name| name.starts_with("1.couch."));
        site.disk.remove(&dir.join(file.unwrap())).unwrap();
        let line = TestConnection::new(&open);
        let mut client = line.open(&open, VB, 0);
        steps.run();
        client.drain();
        assert_eq!(client.ended, Some(EndReason::BackfillFailed));
        assert_eq!(open.figure("ep_dcp_backfill_failures"), 1);
        drop(disk);
        open.bucket.shutdown();
    }
}

#[test]
fn stream_resumes_within_a_partial_snapshot_until_its_end() {
    for (mut site, _) in places(11) {
        let (open, steps) = site.open_with_manual_tasks();
        let names = names_in(VB, 6);
        write_all(&open, &names[..4], "1");
        open.persist(&names[4], b"durable", 1).unwrap();
        open.bucket.persistence().writers().request_flush(false);
        steps.run();
        open.bucket.persistence().sync().unwrap();
        write_all(&open, &names[..2], "2");
        let line = TestConnection::new(&open);
        for from_memory in [false, true] {
            // Seqnos 7 and 8 replaced 1 and 2; the prepare at 5 was committed at 6.
            let mut client = line.open(&open, VB, 0);
            steps.run();
            client.at_once = 3;
            client.read();
            let (last, snapshot) = (client.copy.last, client.copy.snapshot.unwrap());
            assert_eq!((last, snapshot.end), (4, Seqno(8)));
            let other = from_memory.then(|| line.open(&open, VB, 8));
            let again = StreamRequest {
                snap_start: snapshot.start,
                snap_end: snapshot.end,
                ..request(&open, VB, last)
            };
            let opened = line.connection.open_stream(&again).unwrap();
            client.stream = opened.stream;
            open.set(&names[5], b"3").unwrap();
            steps.run();
            client.at_once = 1;
            client.read();
            let snapshot = client.copy.snapshot.unwrap();
            assert_eq!(snapshot.kind, SnapshotKind::Disk);
            assert!(snapshot.end >= Seqno(8));
            client.drain();
            check(&open, &client, &names);
            drop(other);
            let gone = key(&names[5]);
            done(open.bucket.documents().delete(open.ctx(), &write(&gone))).unwrap();
            write_all(&open, &names[..2], "2");
            if !from_memory {
                open.bucket.flush_all(open.ctx()).unwrap();
                write_all(&open, &names[..4], "1");
                open.persist(&names[4], b"durable", 2).unwrap();
                open.bucket.persistence().writers().request_flush(false);
                steps.run();
                open.bucket.persistence().sync().unwrap();
                write_all(&open, &names[..2], "2");
            }
        }
        open.bucket.shutdown();
    }
}

#[test]
fn backfills_of_a_connection_run_concurrently_and_independently() {
    let (open, steps) = sim(&SimDisk::new(12)).open_with_manual_tasks();
    let all: Vec<Vec<String>> = all_vbuckets().map(|vb| names_in(vb, 5)).collect();
    for names in &all {
        write_all(&open, names, "1");
    }
    let line = TestConnection::new(&open);
    let clients: Vec<Client> = all_vbuckets().map(|vb| line.open(&open, vb, 0)).collect();
    // None of the vBuckets is applied yet, because the task sleeps.
    assert!(steps.run_one(Pool::AuxIo));
    let waiting = open.runs("dcp_backfill");
    steps.run();
    assert!(open.runs("dcp_backfill") > waiting);
    assert_eq!(open.figure("ep_apply_commits"), 4);
    for mut client in clients {
        client.drain();
        assert_eq!(client.copy.last, 5);
    }
    open.bucket.shutdown();
}

/// Opens the site with manual tasks and this throttle. Its vBucket is active, with the replica "b".
fn open_with_replica(site: &mut TestSite, throttle: CompactionRate) -> (Open, Steps) {
    site.topology = None;
    let (open, steps) = site.open_with_manual_tasks();
    let change = BucketChange {
        compaction: CompactionChange {
            throttle: Some(throttle),
            ..CompactionChange::default()
        },
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
    let chain = ["a", "b"].map(NodeName::new).to_vec();
    let role = VbRole {
        topology: Some(Topology::new(vec![chain]).unwrap()),
        ..VbState::Active.into()
    };
    open.bucket.states().set_vbucket(VB, role).unwrap();
    (open, steps)
}

#[test]
fn only_backfills_for_new_copies_are_throttled() {
    const DOCUMENTS: usize = 1_000;
    for (mut site, _) in places(10) {
        let (open, steps) = open_with_replica(&mut site, CompactionRate::BytesPerSec(4 << 20));
        write_all(&open, &names_in(VB, DOCUMENTS), "1");
        open.bucket.persistence().apply().unwrap();
        let begin = |consumer: Option<&str>| {
            let line = TestConnection::new(&open);
            let request = StreamRequest {
                consumer: consumer.and_then(NodeName::new),
                ..request(&open, VB, 0)
            };
            let opened = line.connection.open_stream(&request).unwrap();
            (Client::new(opened.stream, 0), line)
        };
        let read = |(client, _): &mut (Client, TestConnection)| {
            client.drain();
            steps.run();
            client.drain();
            client.copy.last
        };
        for consumer in [Some("b"), None] {
            assert_eq!(read(&mut begin(consumer)), DOCUMENTS as u64, "{consumer:?}");
            assert_eq!(open.figure("ep_dcp_backfill_paused_us"), 0, "{consumer:?}");
        }
        let mut copy = begin(Some("c"));
        let first = read(&mut copy);
        assert!((1..DOCUMENTS as u64 / 2).contains(&first), "{first}");
        assert_eq!(read(&mut copy), first, "it pauses");
        let mut rounds = 0;
        while read(&mut copy) < DOCUMENTS as u64 {
            steps.pass(SEC / 100);
            rounds += 1;
            assert!(rounds < 1_000, "it makes progress");
        }
        assert!(rounds > 4, "{rounds}");
        assert!(open.figure("ep_dcp_backfill_paused_us") > 0);
        open.bucket.shutdown();
    }
}

#[test]
fn receiver_limits_backfills_for_new_copies_and_no_others() {
    const DOCUMENTS: usize = 1_000;
    for (mut site, _) in places(10) {
        let (open, steps) = open_with_replica(&mut site, CompactionRate::Off);
        write_all(&open, &names_in(VB, DOCUMENTS), "1");
        open.bucket.persistence().apply().unwrap();
        let read = |consumer: &str, bytes_per_sec: u64| {
            let line = TestConnection::new(&open);
            line.connection.limit_copies(bytes_per_sec);
            let request = StreamRequest {
                consumer: NodeName::new(consumer),
                ..request(&open, VB, 0)
            };
            let opened = line.connection.open_stream(&request).unwrap();
            let mut client = Client::new(opened.stream, 0);
            let mut rounds = 0;
            while client.copy.last < DOCUMENTS as u64 {
                client.drain();
                steps.pass(SEC / 100);
                steps.run();
                client.drain();
                rounds += 1;
                assert!(rounds < 1_000, "it makes progress");
            }
            rounds
        };
        // Without a limit: a replica, and a new copy.
        let unlimited = (read("b", 4 << 20), read("c", 0));
        assert!(unlimited.0 < 5 && unlimited.1 < 5, "{unlimited:?}");
        assert_eq!(open.figure("ep_dcp_backfill_paused_us"), 0);
        // At least 512 bytes for each document, at 4 MiB/s.
        let limited = read("c", 4 << 20);
        assert!(limited >= 12, "{limited}");
        assert!(open.figure("ep_dcp_backfill_paused_us") > 0);
        open.bucket.shutdown();
    }
}
