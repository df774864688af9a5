//! SyncWrites through the log.

use crate::tools::*;
use kedge_bucket::{
    BucketChange, Cookie, DurabilityFallback, NodeName, Outcome, Topology, VbRole, VbState, Write,
};
use kedge_disk::SimDisk;
use kedge_types::{Durability, DurabilityLevel, Status};
use std::collections::BTreeSet;

#[test]
fn sync_write_of_the_group_commit_leader_completes_when_request_flush_returns() {
    let open = sim(&SimDisk::new(2)).open();
    let mut led = 0;
    for n in 1..=50 {
        open.persist("key", format!("{n}").as_bytes(), n).unwrap();
        open.bucket.persistence().writers().request_flush(true);
        // The writer may be busy with earlier commits; then it writes this one too.
        led += u32::from(open.sink.get(n).is_some());
        open.sink.wait(n).unwrap();
        assert_eq!(open.get("key").unwrap(), format!("{n}").as_bytes());
    }
    assert!(led > 0, "it never led");
    open.bucket.shutdown();
}

#[test]
fn one_sync_completes_all_waiting_sync_writes() {
    let open = sim(&SimDisk::new(3)).open();
    let before = open.figure("ep_log_syncs");
    for n in 1..=1_000 {
        open.persist(&format!("key-{n}"), b"value", n).unwrap();
    }
    open.bucket.persistence().writers().request_flush(true);
    for n in 1..=1_000 {
        open.sink.wait(n).unwrap();
    }
    let syncs = open.figure("ep_log_syncs") - before;
    assert!(syncs < 100, "{syncs} syncs for 1000 writes");
    open.bucket.shutdown();
}

#[test]
fn minimum_durability_level_of_the_bucket_raises_every_write() {
    let open = sim(&SimDisk::new(4)).open();
    let change = BucketChange {
        durability_min_level: Some(3),
        ..BucketChange::default()
    };
    open.bucket.update(&change).unwrap();
    let k = key("k");
    assert_eq!(
        open.store(
            &Write {
                cookie: Cookie(5),
                ..write(&k)
            },
            b"1"
        ),
        Ok(Outcome::Parked)
    );
    let majority = Some(Durability {
        level: DurabilityLevel::Majority,
        timeout_ms: None,
    });
    let other = key("other");
    let raised = Write {
        cookie: Cookie(6),
        durability: majority,
        ..write(&other)
    };
    assert_eq!(open.store(&raised, b"1"), Ok(Outcome::Parked));
    open.bucket.persistence().writers().request_flush(false);
    open.sink.wait(5).unwrap();
    open.sink.wait(6).unwrap();
    let bad = BucketChange {
        durability_min_level: Some(9),
        ..BucketChange::default()
    };
    assert!(
        open.bucket
            .update(&bad)
            .unwrap_err()
            .contains("durability_min_level")
    );
    open.bucket.shutdown();
}

#[test]
fn durability_fallback_lets_the_active_commit_without_enough_nodes() {
    let open = sim(&SimDisk::new(5)).open();
    let name = |text: &str| NodeName::new(text);
    let role = VbRole {
        topology: Some(Topology::new(vec![vec![name("a"), None]]).unwrap()),
        ..VbRole::from(VbState::Active)
    };
    let k = key("k");
    let vb = write(&k).vb;
    open.bucket.states().set_vbucket(vb, role).unwrap();
    let majority = Some(Durability {
        level: DurabilityLevel::Majority,
        timeout_ms: None,
    });
    let durable = |cookie| Write {
        cookie: Cookie(cookie),
        durability: majority,
        ..write(&k)
    };
    let refused = open.store(&durable(5), b"1");
    assert_eq!(refused, Err(Status::DurabilityImpossible));
    let fallback = |to| BucketChange {
        durability_impossible_fallback: Some(to),
        ..BucketChange::default()
    };
    let enough = fallback(DurabilityFallback::ActiveAck);
    open.bucket.update(&enough).unwrap();
    let stored = open.store(&durable(6), b"1");
    assert!(matches!(stored, Ok(Outcome::Done(_))), "{stored:?}");
    let figures = open.bucket.vbucket_figures(vb).unwrap();
    assert_eq!(figures.durability.committed_not_durable, 1);
    let not_enough = fallback(DurabilityFallback::Disabled);
    open.bucket.update(&not_enough).unwrap();
    let refused = open.store(&durable(7), b"1");
    assert_eq!(refused, Err(Status::DurabilityImpossible));
    open.bucket.shutdown();
}

#[test]
fn shutdown_completes_every_waiter_once() {
    let site = sim(&SimDisk::new(6));
    let open = site.open();
    for n in 1..=20 {
        open.persist(&format!("key-{n}"), b"value", n).unwrap();
    }
    open.bucket.shutdown();
    let done: BTreeSet<_> = (1..=20).filter(|n| open.sink.wait(*n).is_ok()).collect();
    let again = site.open();
    for n in done {
        assert!(
            again.get(&format!("key-{n}")).is_ok(),
            "{n} was acknowledged"
        );
    }
    again.bucket.shutdown();
}
