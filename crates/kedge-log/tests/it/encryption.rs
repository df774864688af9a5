//! Keys: missing, wrong and changing ones, and the traces of plain text.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kedge_disk::{Disk, Fault, Operation, SimDisk, read_file};
use kedge_log::{Log, LogError, PreallocationStep, RecoveryMode, SegmentKey, SegmentKeys};

use crate::encrypted::support::{
    Opened, Rec, TestKeys, append, config, config_with, dir, key, open, open_with, prepare,
    records, segment_path,
};

/// Keys of which the last one is active.
#[derive(Debug)]
struct ListedKeys(Vec<SegmentKey>);

impl SegmentKeys for ListedKeys {
    fn active(&self) -> Option<SegmentKey> {
        self.0.last().cloned()
    }

    fn find(&self, id: &str) -> Option<SegmentKey> {
        self.0.iter().find(|key| key.id() == id).cloned()
    }
}

fn open_with_keys(
    disk: &SimDisk,
    keys: impl SegmentKeys + 'static,
    mode: RecoveryMode,
) -> Result<Opened, LogError> {
    open_with(disk, config_with(Arc::new(keys)), mode)
}

fn open_changing(disk: &SimDisk, keys: &Arc<TestKeys>) -> Opened {
    let keys = Arc::clone(keys);
    open_with(disk, config_with(keys), RecoveryMode::Strict).expect("open")
}

/// The contents of all files of the log.
fn contents(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let names = disk.list(dir()).expect("list").into_iter();
    names
        .map(|name| {
            let bytes = read_file(disk, &dir().join(&name)).expect("read");
            (name, bytes)
        })
        .collect()
}

/// Returns the files with something that only payloads of records contain.
fn files_with_plain_text(disk: &SimDisk) -> Vec<String> {
    let has_text = |bytes: &[u8]| {
        let repeated = |piece: &[u8]| piece[0] != 0 && piece.iter().all(|byte| *byte == piece[0]);
        bytes
            .windows(6)
            .any(|it| it == b"batch " || it == b"record")
            || bytes.windows(8).any(repeated)
    };
    let files = contents(disk).into_iter();
    files
        .filter_map(|(name, bytes)| has_text(&bytes).then_some(name))
        .collect()
}

#[test]
fn no_plain_text_reaches_a_file_of_an_encrypted_log() {
    for active in [Some(1), None] {
        let disk = SimDisk::new(1);
        let keys = TestKeys::new(active);
        let mut log = open_changing(&disk, &keys).log;
        for n in 1..30 {
            append(&mut log, &records(n, 1 + n % 3, 100 * n)).expect("append");
            if n % 4 == 0 {
                prepare(&log.preallocator()).expect("prepare");
            }
            if n % 9 == 0 {
                log.release_before(log.next_lsn());
            }
        }
        log.close().expect("close");
        drop(open_changing(&disk, &keys));
        let found = files_with_plain_text(&disk);
        assert_eq!(found.is_empty(), active.is_some(), "{found:?}");
    }
}

/// Creates a plain log whose released segments are kept for reuse.
fn plain_log_with_spares(disk: &SimDisk, keys: &Arc<TestKeys>) -> Log {
    let mut log = open_changing(disk, keys).log;
    for n in 1..30 {
        append(&mut log, &records(n, 1, 1500)).expect("append");
    }
    log.release_before(log.next_lsn());
    prepare(&log.preallocator()).expect("prepare");
    assert_eq!(log.stats().spares, 1);
    assert_eq!(files_with_plain_text(disk).len(), 2);
    log
}

#[test]
fn plain_text_leaves_with_the_last_plain_segment() {
    for is_reopened in [false, true] {
        let disk = SimDisk::new(1);
        let keys = TestKeys::new(None);
        let mut log = plain_log_with_spares(&disk, &keys);
        keys.activate(Some(1));
        if is_reopened {
            drop(log);
            log = open_changing(&disk, &keys).log;
        } else {
            assert!(log.use_active_key().expect("a new segment"));
        }
        let use_now = log.key_use();
        assert!(use_now.has_plain_segments && use_now.key_ids.contains("k1"));
        for n in 30..60 {
            append(&mut log, &records(n, 1, 1500)).expect("append");
            if n == 40 {
                prepare(&log.preallocator()).expect("prepare");
                assert_eq!(files_with_plain_text(&disk).len(), 1);
            }
        }
        log.release_before(log.next_lsn());
        prepare(&log.preallocator()).expect("prepare");
        assert!(!log.key_use().has_plain_segments);
        assert_eq!(log.stats().plain_segments, 0);
        assert_eq!(files_with_plain_text(&disk), Vec::<String>::new());
        assert_eq!(
            log.stats().spares,
            1,
            "an encrypted segment is kept for reuse"
        );
    }
}

#[test]
fn released_plain_segment_of_an_encrypted_log_does_not_become_a_spare() {
    for (first, spares) in [(None, 0), (Some(1), 1)] {
        let disk = SimDisk::new(1);
        let keys = TestKeys::new(first);
        let mut log = open_changing(&disk, &keys).log;
        for n in 1..30 {
            append(&mut log, &records(n, 1, 1500)).expect("append");
        }
        keys.activate(Some(2));
        log.use_active_key().expect("a new segment");
        log.release_before(log.next_lsn());
        let step = log.preallocator().step().expect("retire");
        assert_eq!(step, PreallocationStep::Renamed);
        assert_eq!(log.stats().spares, spares);
    }
}

#[test]
fn spare_of_an_encrypted_segment_is_kept_at_an_open_and_one_with_plain_text_is_not() {
    for (first, kept) in [(Some(1), 1), (None, 0)] {
        let disk = SimDisk::new(1);
        let keys = TestKeys::new(first);
        let mut log = open_changing(&disk, &keys).log;
        for n in 1..30 {
            append(&mut log, &records(n, 1, 1500)).expect("append");
        }
        log.release_before(log.next_lsn());
        prepare(&log.preallocator()).expect("prepare");
        assert_eq!(log.stats().spares, 1);
        drop(log);
        keys.activate(Some(2));
        let log = open_changing(&disk, &keys).log;
        // The segment with the new key has taken the spare.
        assert_eq!(log.stats().ready_segments, kept);
        assert_eq!(log.stats().spares, 0);
    }
}

/// Opens a log, whose key is not there, in both modes, and checks that nothing in it changes.
#[track_caller]
fn check_refused(disk: &SimDisk, keys: fn() -> ListedKeys, number: u64, is_missing: bool) {
    let before = contents(disk);
    for mode in [RecoveryMode::Strict, RecoveryMode::Salvage] {
        let error = open_with_keys(disk, keys(), mode)
            .map(drop)
            .expect_err("no key");
        let expected = (segment_path(number), "k1".to_owned());
        match error {
            LogError::MissingKey { file, key_id } if is_missing => {
                assert_eq!((file, key_id), expected);
            }
            LogError::WrongKey { file, key_id } if !is_missing => {
                assert_eq!((file, key_id), expected);
            }
            error => panic!("{error}"),
        }
        assert_eq!(contents(disk), before);
    }
}

#[test]
fn missing_or_wrong_key_is_an_error_of_its_own_and_changes_nothing() {
    // One batch without an end marker behind it: what cannot be read here would look like an unfinished append.
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    append(&mut log, &records(1, 3, 100)).expect("append");
    drop(log);
    check_refused(&disk, || ListedKeys(Vec::new()), 1, true);
    check_refused(&disk, || ListedKeys(vec![key(2)]), 1, true);
    let other_secret = || ListedKeys(vec![SegmentKey::new("k1", [9; 32].into())]);
    check_refused(&disk, other_secret, 1, false);
    // A caller that returns a key of another id.
    #[derive(Debug)]
    struct AnyKey;
    impl SegmentKeys for AnyKey {
        fn active(&self) -> Option<SegmentKey> {
            None
        }
        fn find(&self, _: &str) -> Option<SegmentKey> {
            Some(key(2))
        }
    }
    let error = open_with_keys(&disk, AnyKey, RecoveryMode::Strict).map(drop);
    assert!(matches!(error, Err(LogError::WrongKey { .. })));
    assert_eq!(
        open(&disk).expect("the key is back").records,
        records(1, 3, 100)
    );
}

#[test]
fn missing_key_of_a_later_segment_is_reported() {
    let disk = SimDisk::new(1);
    let keys = TestKeys::new(None);
    let mut log = open_changing(&disk, &keys).log;
    append(&mut log, &records(1, 3, 100)).expect("append");
    keys.activate(Some(1));
    assert!(log.use_active_key().expect("a new segment"));
    append(&mut log, &records(2, 3, 100)).expect("append");
    drop(log);
    check_refused(&disk, || ListedKeys(Vec::new()), 2, true);
    assert_eq!(open_changing(&disk, &keys).records.len(), 6);
}

/// Without a proof, somebody without the key could make an open accept losses.
#[test]
fn segment_header_that_was_changed_without_the_key_is_refused() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    for n in 0..5 {
        append(&mut log, &records(n, 1, 1500)).expect("append");
    }
    log.close().expect("close");
    let path = segment_path(2);
    let mut fields = read_file(&disk, &path).expect("read")[..96].to_vec();
    let forgiven = fields[24..32].to_vec();
    fields[64..72].copy_from_slice(&forgiven);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&fields[..12]), &fields[16..]);
    fields[12..16].copy_from_slice(&crc.to_le_bytes());
    let file = disk.open(&path).expect("open");
    for at in [0, 2048] {
        file.write_at(&fields, at).expect("write");
    }
    let error = open(&disk).map(drop).expect_err("it is not authentic");
    assert!(matches!(error, LogError::WrongKey { file, .. } if file == path));
}

#[test]
fn segments_with_and_without_keys_are_replayed_in_order() {
    for is_reopened in [false, true] {
        let disk = SimDisk::new(1);
        let keys = TestKeys::new(None);
        let mut log = open_changing(&disk, &keys).log;
        let mut all: Vec<Rec> = Vec::new();
        let mut ends = Vec::new();
        for (n, active) in [None, Some(1), Some(2), None, Some(3)]
            .into_iter()
            .enumerate()
        {
            keys.activate(active);
            if is_reopened {
                drop(log);
                log = open_changing(&disk, &keys).log;
            } else {
                assert_eq!(log.use_active_key().expect("a new segment"), n > 0);
            }
            assert_eq!(log.stats().segments, n as u64 + 1);
            let more = records(n, 3, 200);
            ends.push(append(&mut log, &more).expect("append"));
            all.extend(more);
        }
        let keys_of = |log: &Log| {
            let used = log.key_use();
            assert_eq!(Log::key_use_in(&disk, dir()).expect("read"), used);
            let ids: Vec<_> = used.key_ids.into_iter().collect();
            (ids.join(" "), used.has_plain_segments)
        };
        assert_eq!(keys_of(&log), ("k1 k2 k3".to_owned(), true));
        assert_eq!(log.stats().plain_segments, 2);
        drop(log);
        disk.crash(3);
        let opened = open_changing(&disk, &keys);
        assert_eq!(opened.records, all);
        let mut log = opened.log;
        for (end, left) in [
            (ends[0], ("k1 k2 k3", true)),
            (ends[1], ("k2 k3", true)),
            (ends[2], ("k3", true)),
            (ends[3], ("k3", false)),
        ] {
            // An end marker of an open may follow the last batch of the segment.
            let end = log.oldest_end().filter(|it| *it >= end).expect("a segment");
            log.release_before(end);
            prepare(&log.preallocator()).expect("retire");
            let (ids, has_plain) = keys_of(&log);
            assert_eq!((ids.as_str(), has_plain), left);
        }
    }
}

#[test]
fn released_segment_needs_its_key_until_its_file_is_gone() {
    let disk = SimDisk::new(1);
    let keys = TestKeys::new(Some(1));
    let mut log = open_changing(&disk, &keys).log;
    append(&mut log, &records(1, 1, 100)).expect("append");
    keys.activate(Some(2));
    log.use_active_key().expect("a new segment");
    log.release_before(log.next_lsn());
    // A crash now would leave it.
    assert!(log.key_use().key_ids.contains("k1"));
    prepare(&log.preallocator()).expect("retire");
    assert!(!log.key_use().key_ids.contains("k1"));
    drop(log);
    open_with_keys(&disk, ListedKeys(vec![key(2)]), RecoveryMode::Strict)
        .expect("k1 is not needed");
}

#[test]
fn key_use_of_a_directory_without_a_log_is_empty() {
    let disk = SimDisk::new(1);
    let used = Log::key_use_in(&disk, &PathBuf::from("/none")).expect("nothing is there");
    assert!(used.key_ids.is_empty() && !used.has_plain_segments);
}

#[test]
fn change_of_the_key_on_a_full_disk_is_repeated() {
    for is_reopened in [false, true] {
        let disk = SimDisk::new(1);
        let keys = TestKeys::new(None);
        let mut log = open_changing(&disk, &keys).log;
        append(&mut log, &records(1, 1, 100)).expect("append");
        keys.activate(Some(1));
        disk.fail_every(Operation::Allocate, Fault::NoSpace);
        if is_reopened {
            drop(log);
            log = open_changing(&disk, &keys).log;
            assert!(log.is_waiting());
            // It does not write plain text instead.
            let error = append(&mut log, &records(2, 1, 100)).expect_err("no segment");
            assert!(error.is_no_space(), "{error}");
        } else {
            assert!(log.use_active_key().expect_err("no segment").is_no_space());
        }
        assert!(log.key_use().key_ids.is_empty());
        disk.clear_faults();
        assert!(log.use_active_key().expect("a new segment"));
        append(&mut log, &records(3, 1, 100)).expect("append");
        assert!(log.key_use().key_ids.contains("k1"));
        drop(log);
        assert_eq!(open_changing(&disk, &keys).records.len(), 2);
    }
}

#[test]
fn failed_write_leaves_the_records_of_the_batch_readable() {
    let disk = SimDisk::new(1);
    let mut log = open(&disk).expect("open").log;
    let mut batch = kedge_log::Batch::new();
    crate::encrypted::support::fill(&mut batch, &records(1, 2, 300));
    for _ in 0..3 {
        disk.fail_next(Operation::Write, Fault::NoSpace);
        assert!(log.append(&mut batch).expect_err("ordered").is_no_space());
    }
    crate::encrypted::support::fill(&mut batch, &records(2, 1, 30));
    log.append(&mut batch).expect("append");
    drop(log);
    let expected = [records(1, 2, 300), records(2, 1, 30)].concat();
    assert_eq!(open(&disk).expect("open").records, expected);
}

#[test]
fn default_configuration_has_no_keys() {
    let keys = kedge_log::LogConfig::default().keys;
    assert!(keys.active().is_none() && keys.find("k1").is_none());
    assert!(config().keys.active().is_some());
}
