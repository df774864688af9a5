//! The memory of slow streams' cursors, and its limit.

use super::*;
use crate::tools::Steps;
use kedge_disk::SimDisk;

const VB: VbId = VbId(1);

#[test]
fn dropping_the_slowest_cursors_loses_no_changes() {
    for commit_log in [true, false] {
        let mut site = sim(&SimDisk::new(1));
        site.config.commit_log = commit_log;
        site.config.quota_bytes = 10 << 20;
        site.config.memory.dcp_cursor_percent = 2;
        let bound = 10 * (1 << 20) / 100 * 2;
        let (open, steps) = site.open_with_manual_tasks();
        let names = names_in(VB, 100);
        let others = names_in(VbId(2), 10);
        let line = TestConnection::new(&open);
        let mut slow = line.open(&open, VB, 0);
        let mut fast = line.open(&open, VB, 0);
        let mut other = line.open(&open, VbId(2), 0);
        for round in 0..6 {
            let value = format!("{round:04}").repeat(250);
            for name in &names {
                open.set(name, value.as_bytes()).unwrap();
            }
            for name in others.iter().filter(|_| round == 0) {
                open.set(name, value.as_bytes()).unwrap();
            }
            fast.drain();
            open.bucket.persistence().sync().unwrap();
            assert_eq!(open.figure("ep_checkpoint_memory"), 0);
            steps.run();
            let kept = open.figure("ep_cursor_memory");
            assert!(kept <= bound, "{kept}");
        }
        assert_eq!(open.figure("ep_cursors_dropped"), 1);
        assert_eq!(fast.copy.last, 600);
        for _ in 0..20 {
            for client in [&mut slow, &mut fast, &mut other] {
                client.drain();
            }
            steps.run();
        }
        assert_eq!(slow.copy.values(), fast.copy.values());
        assert_eq!(slow.copy.values(), values(&open, names.into_iter()));
        assert_eq!(other.copy.values(), values(&open, others.into_iter()));
        assert_eq!(open.figure("ep_dcp_streams_back_to_file"), 1);
        let drops = open.bucket.dcp().stream_figures();
        let drops: u64 = drops.iter().map(|figures| figures.cursor_drops).sum();
        assert_eq!(drops, 1);
        assert_eq!(open.figure("ep_cursor_memory"), 0);
        open.bucket.shutdown();
    }
}

/// Runs `then` on a bucket whose cursors may keep no memory, with a client in the middle of a backfill, while the cursor
/// after it keeps a change of every document.
fn run_during_backfill(seed: u64, then: impl FnOnce(Open, Steps, Client, &[String])) {
    let mut site = sim(&SimDisk::new(seed));
    site.config.memory.dcp_cursor_percent = 0;
    site.config.memory.dcp_backfill_bytes_max = 4_000;
    let (open, steps) = site.open_with_manual_tasks();
    let names = names_in(VB, 30);
    write_all(&open, &names, "1");
    let line = TestConnection::new(&open);
    let mut client = line.open(&open, VB, 0);
    steps.run();
    client.read();
    assert!(client.copy.last < 10);
    write_all(&open, &names, "2");
    assert!(open.figure("ep_cursor_memory") > 0);
    then(open, steps, client, &names);
}

#[test]
fn cursor_can_be_dropped_during_a_backfill() {
    run_during_backfill(2, |open, steps, mut client, names| {
        steps.run();
        assert_eq!(open.figure("ep_cursors_dropped"), 1);
        for _ in 0..50 {
            client.drain();
            steps.run();
        }
        assert_eq!(open.figure("ep_dcp_backfills"), 2);
        assert_eq!(client.copy.last, 60);
        assert_eq!(client.copy.values(), values(&open, names.iter().cloned()));
        open.bucket.shutdown();
    });
}

#[test]
fn cursor_of_an_ended_stream_does_not_keep_the_task_busy() {
    run_during_backfill(4, |open, steps, client, _| {
        drop(client);
        // This ends only if no task repeats its work forever.
        steps.run();
        assert_eq!(open.figure("ep_cursor_memory"), 0);
        open.bucket.shutdown();
    });
}

#[test]
fn streams_that_keep_up_use_no_cursor_memory() {
    let mut site = sim(&SimDisk::new(3));
    site.config.memory.dcp_cursor_percent = 0;
    let (open, steps) = site.open_with_manual_tasks();
    let line = TestConnection::new(&open);
    let mut client = line.open(&open, VB, 0);
    let before = open.figure("mem_used");
    for name in names_in(VB, 50) {
        open.set(&name, b"1").unwrap();
        client.drain();
        open.bucket.persistence().sync().unwrap();
        steps.run();
    }
    let documents = open.figure("mem_used") - before;
    assert_eq!(open.figure("ep_cursor_memory"), 0);
    assert_eq!(open.figure("ep_cursors_dropped"), 0);
    open.bucket.persistence().apply().unwrap();
    drop(client);
    assert!(open.figure("mem_used") - before <= documents);
    open.bucket.shutdown();
}
