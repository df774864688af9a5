//! Tails that no history of this version produces by itself, but that recovery must withstand.

use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, SimDisk, replace_file};
use kedge_types::VbId;

use crate::batch::{Batch, BatchPosition};
use crate::format::{BatchHeader, PAGE_BYTES};
use crate::keys::{NoKeys, SegmentKey, SegmentKeys};
use crate::seal::BatchSealer;
use crate::segment::{FileName, Segment};
use crate::{CorruptionKind, Log, LogConfig, LogError, Lsn, RecoveryMode};

const DIR: &str = "/log";
const SALT: u64 = 77;

/// The kinds of logs that every test is about: with plain and with encrypted segments.
const KINDS: [LogKind; 2] = [LogKind(false), LogKind(true)];

/// A log, encrypted or not.
#[derive(Debug, Clone, Copy)]
struct LogKind(bool);

#[derive(Debug)]
struct OneKey;

impl SegmentKeys for OneKey {
    fn active(&self) -> Option<SegmentKey> {
        self.find("")
    }

    fn find(&self, _: &str) -> Option<SegmentKey> {
        Some(SegmentKey::new("k", [7; 32].into()))
    }
}

impl LogKind {
    fn header_bytes(self) -> usize {
        if self.0 { 88 } else { 56 }
    }

    fn open(self, disk: &SimDisk) -> Result<(Log, Vec<Vec<u8>>), LogError> {
        self.open_in(disk, RecoveryMode::Strict)
    }

    fn open_in(self, disk: &SimDisk, mode: RecoveryMode) -> Result<(Log, Vec<Vec<u8>>), LogError> {
        let keys: Arc<dyn SegmentKeys> = if self.0 {
            Arc::new(OneKey)
        } else {
            Arc::new(NoKeys)
        };
        open(disk, keys, mode)
    }
}

fn open(
    disk: &SimDisk,
    keys: Arc<dyn SegmentKeys>,
    mode: RecoveryMode,
) -> Result<(Log, Vec<Vec<u8>>), LogError> {
    let config = LogConfig {
        first_segment_bytes: 1 << 16,
        salt: SALT,
        keys,
        ..LogConfig::default()
    };
    let mut payloads = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let dir = Path::new(DIR);
    let (log, _) = Log::open::<LogError>(disk, dir, [1; 16], config, mode, &mut |record| {
        payloads.push(record.payload.to_vec());
        Ok(())
    })?;
    Ok((log, payloads))
}

fn batch(payload: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.push(1, VbId(1), &[payload]).expect("small");
    batch
}

/// Writes a batch with the given position, durable position and epoch.
fn plant(log: &Log, batch: &mut Batch, lsn: Lsn, durable: Lsn, epoch: u64) {
    plant_part(log, batch, lsn, (durable, epoch), usize::MAX);
}

/// Writes at most the first `bytes` of a batch.
fn plant_part(log: &Log, batch: &mut Batch, lsn: Lsn, then: (Lsn, u64), bytes: usize) {
    let file = log.file.as_ref().expect("an open segment");
    let place = BatchPosition {
        lsn,
        durable: then.0,
        epoch: then.1,
        salt: SALT,
    };
    let offset = log.current.offset(lsn);
    let mut sealer = log.current.secret.as_deref().map(BatchSealer::new);
    batch
        .with_bytes(&place, sealer.as_mut(), 0, |all| {
            file.write_at(&all[..all.len().min(bytes)], offset)
        })
        .expect("write");
}

/// Returns the position of the next page that starts at least one page after `lsn`.
fn page_after(log: &Log, lsn: Lsn) -> Lsn {
    let offset = log.current.offset(lsn);
    Lsn(lsn.0 + (offset.next_multiple_of(PAGE_BYTES) + PAGE_BYTES - offset))
}

#[test]
fn batches_after_a_cut_never_come_back() {
    for kind in KINDS {
        // Two appends were in flight: the first was lost, and the second survived. Recovery cuts at the first. Then a
        // batch is appended that ends exactly where the stale one starts.
        let disk = SimDisk::new(1);
        let (mut log, _) = kind.open(&disk).expect("open");
        log.append(&mut batch(b"kept")).expect("append");
        let cut = log.next;
        let stale_at = page_after(&log, cut);
        plant(&log, &mut batch(b"stale"), stale_at, cut, log.epoch);
        drop(log);

        let (mut log, found) = kind.open(&disk).expect("a torn tail");
        assert_eq!(found, [b"kept"]);
        let room = (stale_at.0 - log.next.0) as usize;
        let mut filler = batch(&vec![b'n'; room - kind.header_bytes() - 12]);
        assert_eq!(log.append(&mut filler).expect("append"), stale_at);

        // Otherwise the test would be vacuous.
        let mut bytes = vec![0; kind.header_bytes()];
        let file = log.file.as_ref().expect("an open segment");
        file.read_at(&mut bytes, log.current.offset(stale_at))
            .expect("read");
        let stale = BatchHeader::decode(&bytes, SALT, stale_at).expect("it is still there");
        assert_eq!(stale.epoch + 1, log.epoch);

        drop(log);
        for _ in 0..3 {
            let (log, found) = kind.open(&disk).expect("open");
            assert_eq!(found.len(), 2);
            assert_eq!(found[1][0], b'n');
            drop(log);
        }
    }
}

#[test]
fn epochs_are_unique_even_if_only_stale_batches_show_them() {
    for kind in KINDS {
        let disk = SimDisk::new(1);
        let (log, _) = kind.open(&disk).expect("open");
        let later = page_after(&log, log.next);
        plant(&log, &mut batch(b"stale"), later, Lsn(0), 41);
        drop(log);
        let (log, found) = kind.open(&disk).expect("open");
        assert_eq!((found.len(), log.epoch), (0, 42));
    }
}

#[test]
fn largest_epoch_is_rejected() {
    // A batch with the last epoch but one used to be accepted. The marker of the open then had the last epoch, which is
    // invalid for readers: appends after it were acknowledged, and gone at the next open.
    for epoch in [super::COUNT_MAX, u64::MAX - 1] {
        for kind in KINDS {
            let disk = SimDisk::new(1);
            let (log, _) = kind.open(&disk).expect("open");
            let at = log.next;
            plant(&log, &mut batch(b"hostile"), at, at, epoch);
            drop(log);
            match kind.open(&disk) {
                Err(LogError::Corrupt { problem, .. }) => {
                    assert_eq!(problem, CorruptionKind::Counts);
                }
                Err(error) => panic!("{error}"),
                Ok((log, found)) => panic!("epoch {}, {found:?}", log.epoch),
            }
        }
    }
}

#[test]
fn later_header_with_a_durable_position_beyond_a_break_proves_damage() {
    for (durable, is_damage) in [(0, false), (8, true)] {
        for kind in KINDS {
            let disk = SimDisk::new(1);
            let (log, _) = kind.open(&disk).expect("open");
            let break_at = log.next;
            let later = page_after(&log, break_at);
            let durable = Lsn(break_at.0 + durable);
            plant(&log, &mut batch(b"later"), later, durable, log.epoch);
            drop(log);
            let result = kind.open(&disk).map(|(_, found)| found);
            match result {
                Ok(found) => assert!(!is_damage && found.is_empty()),
                Err(LogError::Corrupt { offset, .. }) => {
                    assert!(is_damage && offset == PAGE_BYTES);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn batch_header_over_records_of_another_batch_is_rejected() {
    for kind in KINDS {
        // The sector of the header reached the disk and the others did not. Below are bytes of an earlier use of the
        // file: records of the same sizes, each of them sound.
        let disk = SimDisk::new(1);
        let (log, _) = kind.open(&disk).expect("open");
        let (at, then) = (log.next, (log.next, log.epoch));
        plant_part(&log, &mut batch(&[b'o'; 600]), at, then, usize::MAX);
        plant_part(
            &log,
            &mut batch(&[b'n'; 600]),
            at,
            then,
            kind.header_bytes(),
        );
        drop(log);
        assert_eq!(kind.open(&disk).expect("open").1, Vec::<Vec<u8>>::new());
    }
}

/// It used to open, and the record that was then appended was damage for the next open.
#[test]
fn segment_that_starts_before_the_end_of_an_earlier_one_is_rejected() {
    for kind in KINDS {
        let disk = SimDisk::new(1);
        let (mut log, _) = kind.open(&disk).expect("open");
        log.append(&mut batch(b"first")).expect("append");
        let third = Segment {
            number: 3,
            ..log.current.clone()
        };
        let path = |number| Path::new(DIR).join(FileName::Segment(number).to_string());
        let mut bytes = vec![0; third.bytes as usize];
        replace_file(&disk, &path(2), &bytes).expect("write");
        let header = log.header_of(&third, Lsn(0)).encode();
        bytes[..header.len()].copy_from_slice(&header);
        replace_file(&disk, &path(3), &bytes).expect("write");
        drop(log);
        let error = kind.open(&disk).map(drop).expect_err("it overlaps");
        let LogError::Corrupt { file, problem, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((file, problem), (path(3), CorruptionKind::SegmentStart));
        let (mut log, found) = kind.open_in(&disk, RecoveryMode::Salvage).expect("salvage");
        assert_eq!(found, [b"first"]);
        log.append(&mut batch(b"second")).expect("append");
        drop(log);
        let (_, found) = kind.open(&disk).expect("it is known");
        assert_eq!(found, [b"first".to_vec(), b"second".to_vec()]);
    }
}
