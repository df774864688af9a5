//! Drops of collections whose documents are only on disk.

use super::*;
use crate::collections::{follow, get, items, key_in, live_in_files, set};
use kedge_bucket::{CompactionRequest, MemoryChange};

#[test]
fn documents_on_disk_are_dropped_with_their_collection() {
    for policy in POLICIES {
        let disk = SimDisk::new(8);
        let site = small(&disk, policy, 1 << 30);
        let open = site.open();
        follow(&open, 1, &[8, 10]);
        for n in 0..40 {
            for id in [0, 8, 10] {
                set(&open, id, &format!("k{n}"), &value(id)).unwrap();
            }
        }
        open.evict_all();
        assert_eq!(items(&open.bucket), [(0, 40), (8, 40), (10, 40)]);
        let fetched = open.fetched();
        follow(&open, 2, &[10]);
        for n in 0..40 {
            let read = get(&open, 8, &format!("k{n}"));
            assert_eq!(read, Err(Status::UnknownCollection));
        }
        assert_eq!(open.fetched(), fetched, "nobody looks into the file");
        assert_eq!(items(&open.bucket), [(0, 40), (10, 40)]);
        until("they are not counted any more", || {
            open.figure("curr_items") == 80
        });
        open.bucket.persistence().apply().unwrap();
        let before = live_in_files(&open);
        let ticket = open
            .bucket
            .persistence()
            .compactions()
            .compact(&CompactionRequest::default())
            .unwrap();
        assert!(ticket.wait().is_complete());
        assert_eq!(live_in_files(&open), before - 40, "they left the files");
        let check = |open: &Open| {
            assert_eq!(items(&open.bucket), [(0, 40), (10, 40)]);
            assert_eq!(open.figure("curr_items"), 80);
            for id in [0, 10] {
                assert_eq!(get(open, id, "k7").unwrap(), value(id));
                assert_eq!(get(open, id, "not there"), Err(Status::KeyNotFound));
            }
            let read = get(open, 8, "k7");
            assert_eq!(read, Err(Status::UnknownCollection));
        };
        check(&open);
        disk.crash(1);
        open.bucket.shutdown();
        let again = site.open();
        check(&again);
        again.bucket.shutdown();
    }
}

#[test]
fn waiting_read_fails_when_its_collection_is_dropped() {
    for policy in POLICIES {
        let mut site = small(&SimDisk::new(9), policy, 1 << 30);
        let (open, steps) = site.open_with_manual_tasks();
        follow(&open, 1, &[8]);
        for n in 0..40 {
            set(&open, 8, &format!("k{n}"), &value(n)).unwrap();
        }
        open.bucket.persistence().apply().unwrap();
        let none = BucketChange {
            quota_bytes: Some(1 << 20),
            memory: MemoryChange {
                high_wat_percent: Some(2),
                low_wat_percent: Some(1),
                ..MemoryChange::default()
            },
            ..BucketChange::default()
        };
        open.bucket.update(&none).unwrap();
        steps.pass(SEC * 60);
        let mut parked = Vec::new();
        for (n, cookie) in (0..40).zip(1..) {
            let key = key_in(8, &format!("k{n}"));
            let wanted = Read {
                cookie: Cookie(cookie),
                ..read(&key)
            };
            let outcome = open.bucket.documents().get(open.ctx(), &wanted, |_| ());
            if outcome == Ok(Outcome::Parked) {
                parked.push(cookie);
            }
        }
        assert!(!parked.is_empty(), "{policy:?}");
        follow(&open, 2, &[]);
        steps.run();
        for cookie in parked {
            match open.sink.wait_any(cookie) {
                Completion::Read { result } => {
                    assert_eq!(result.map(drop), Err(Status::UnknownCollection));
                }
                other => panic!("{other:?}"),
            }
        }
        open.bucket.shutdown();
    }
}
