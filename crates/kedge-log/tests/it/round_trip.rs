//! Appended records are replayed, whatever the sizes, closes and releases.

use kedge_disk::SimDisk;
use kedge_log::{Batch, LogError, Lsn, MAX_PAYLOAD_BYTES, RecoveryMode};
use kedge_types::VbId;
use proptest::prelude::*;

use super::IS_ENCRYPTED;
use super::support::{
    HEADER_BYTES, Rec, TestKeys, append, config_with, fill, open, open_with, prepare, records,
};

#[test]
fn empty_log_can_be_reopened() {
    let disk = SimDisk::new(1);
    let opened = open(&disk).expect("open");
    assert!(opened.report.is_new);
    assert_eq!(opened.log.next_lsn(), Lsn(0));
    for _ in 0..3 {
        let opened = open(&disk).expect("open");
        assert!(!opened.report.is_new);
        assert_eq!(opened.records, []);
        assert_eq!(opened.report.segments, 1);
        opened.log.close().expect("close");
    }
}

#[test]
fn append_does_one_write_and_one_sync() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    let before = (disk.operations(), log.stats().syncs);
    let end = append(&mut log, &records(1, 10, 100)).expect("append");
    assert_eq!(disk.operations() - before.0, 2);
    let stats = log.stats();
    assert_eq!(stats.syncs - before.1, 1);
    assert_eq!((stats.appended_batches, stats.appended_records), (1, 10));
    assert_eq!(stats.appended_bytes, HEADER_BYTES + 10 * (12 + 100));
    assert_eq!(stats.plain_segments, u64::from(!IS_ENCRYPTED));
    assert_eq!(stats.data_bytes, stats.appended_bytes);
    assert_eq!(end, Lsn(stats.appended_bytes));
    assert_eq!(
        (stats.size_bytes, stats.segments, stats.spare_bytes),
        (8192, 1, 0)
    );
}

#[test]
fn batch_is_reusable_and_an_empty_one_does_no_io() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    let mut batch = Batch::new();
    let before = disk.operations();
    assert_eq!(log.append(&mut batch).expect("append"), Lsn(0));
    assert_eq!(disk.operations(), before);
    let mut expected = Vec::new();
    for n in 0..5 {
        let records = records(n, n + 1, 10 + n);
        fill(&mut batch, &records);
        assert_eq!(batch.records() as usize, records.len());
        let bytes = batch.len_bytes() - 56 + HEADER_BYTES;
        let next = log.next_lsn();
        assert_eq!(log.append(&mut batch).expect("append"), Lsn(next.0 + bytes));
        assert!(batch.is_empty());
        expected.extend(records);
    }
    batch
        .push_with(9, VbId(3), |out| out.extend_from_slice(b"written"))
        .expect("push");
    batch.clear();
    batch
        .push_with(9, VbId(3), |_| ())
        .expect("an empty payload");
    log.append(&mut batch).expect("append");
    expected.push((9, 3, Vec::new()));
    drop(log);
    let opened = open(&disk).expect("open");
    assert_eq!(opened.records, expected);
    assert_eq!(opened.lsns[0], Lsn(0));
    assert!(opened.lsns.is_sorted());
}

#[test]
fn oversized_record_leaves_the_batch_unchanged() {
    let mut batch = Batch::new();
    batch.push(1, VbId(1), &[b"small"]).expect("push");
    let bytes = batch.len_bytes();
    // The same part many times: the sum is rejected before anything is copied.
    let part = vec![0; 1 << 20];
    let parts = vec![part.as_slice(); (MAX_PAYLOAD_BYTES >> 20) as usize + 1];
    let error = batch.push(1, VbId(1), &parts).expect_err("too large");
    assert!(matches!(error, LogError::RecordTooLarge { bytes } if bytes > MAX_PAYLOAD_BYTES));
    assert_eq!((batch.len_bytes(), batch.records()), (bytes, 1));
}

#[test]
fn error_of_the_receiver_ends_the_replay() {
    #[derive(Debug)]
    enum Mine {
        Log(LogError),
        Enough(u64),
    }
    impl From<LogError> for Mine {
        fn from(error: LogError) -> Self {
            Mine::Log(error)
        }
    }
    let disk = SimDisk::new(1);
    append(&mut open(&disk).expect("open").log, &records(1, 5, 10)).expect("append");
    let mut seen = 0;
    let result = kedge_log::Log::open::<Mine>(
        std::sync::Arc::new(disk.clone()),
        super::support::dir(),
        super::support::OWNER,
        super::support::config(),
        RecoveryMode::Strict,
        &mut |_| {
            seen += 1;
            if seen == 3 {
                Err(Mine::Enough(seen))
            } else {
                Ok(())
            }
        },
    );
    assert!(matches!(result, Err(Mine::Enough(3))));
    let result: Result<_, Mine> = Err(LogError::PreviousIo.into());
    assert!(matches!(
        result,
        Err::<(), _>(Mine::Log(LogError::PreviousIo))
    ));
    assert_eq!(open(&disk).expect("open").records.len(), 5);
}

/// A step of a random history.
#[derive(Debug, Clone)]
enum Step {
    Append {
        count: usize,
        payload_bytes: usize,
    },
    Mark,
    Prepare,
    /// Releases a fraction (in 1/8) of the retained log.
    Release(u64),
    /// Activates a key, or encrypts nothing any more.
    ChangeKey {
        active: Option<u8>,
        begins_segment: bool,
    },
    Reopen {
        clean: bool,
        crash: Option<u64>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let sizes = prop_oneof![8 => 0..200_usize, 2 => 1000..5000_usize, 1 => 16000..40000_usize];
    prop_oneof![
        10 => (1..6_usize, sizes)
            .prop_map(|(count, payload_bytes)| Step::Append { count, payload_bytes }),
        1 => Just(Step::Mark),
        3 => Just(Step::Prepare),
        1 => (0..9_u64).prop_map(Step::Release),
        1 => (prop::option::of(1..4_u8), any::<bool>())
            .prop_map(|(active, begins_segment)| Step::ChangeKey { active, begins_segment }),
        2 => (any::<bool>(), any::<Option<u64>>())
            .prop_map(|(clean, crash)| Step::Reopen { clean, crash }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Compared with a list: after any history, every open replays everything since the release.
    #[test]
    fn every_history_is_replayed(steps in prop::collection::vec(step(), 1..60)) {
        let disk = SimDisk::new(1);
        let keys = TestKeys::new(IS_ENCRYPTED.then_some(1));
        let open = |disk| open_with(disk, config_with(keys.clone()), RecoveryMode::Strict);
        let mut log = open(&disk).expect("open").log;
        let mut history: Vec<(Lsn, Rec)> = Vec::new();
        let mut released = Lsn(0);
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Append { count, payload_bytes } => {
                    let records = records(n, count, payload_bytes);
                    let end = append(&mut log, &records).expect("append");
                    history.extend(records.into_iter().map(|record| (end, record)));
                }
                Step::Mark => log.write_marker().expect("end marker"),
                Step::Prepare => drop(prepare(&log.preallocator()).expect("prepare")),
                Step::Release(eighths) => {
                    let first = log.first_lsn().0;
                    released = Lsn(first + (log.next_lsn().0 - first) * eighths / 8);
                    log.release_before(released);
                    prop_assert!(log.first_lsn() <= released);
                }
                Step::ChangeKey { active, begins_segment } => {
                    keys.activate(active);
                    if begins_segment {
                        log.use_active_key().expect("a new segment");
                        prop_assert!(!log.use_active_key().expect("nothing to do"));
                    }
                }
                Step::Reopen { clean, crash } => {
                    if clean {
                        log.close().expect("close");
                    } else {
                        drop(log);
                    }
                    if let Some(seed) = crash {
                        disk.crash(seed);
                    }
                    let opened = open(&disk).expect("open");
                    log = opened.log;
                    let found = opened.records.len();
                    prop_assert!(found <= history.len());
                    let (gone, kept) = history.split_at(history.len() - found);
                    prop_assert!(gone.iter().all(|(end, _)| *end <= released));
                    prop_assert!(kept.iter().map(|(_, record)| record).eq(&opened.records));
                }
            }
        }
    }
}
