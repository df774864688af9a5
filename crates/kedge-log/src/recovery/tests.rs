//! Tails that no history of this version produces by itself, but that recovery must withstand.

use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, SimDisk};
use kedge_types::VbId;

use crate::batch::{Batch, BatchPosition};
use crate::format::{BatchHeader, PAGE_BYTES};
use crate::{CorruptionKind, Log, LogConfig, LogError, Lsn, RecoveryMode};

const DIR: &str = "/log";
const SALT: u64 = 77;

fn open(disk: &SimDisk) -> Result<(Log, Vec<Vec<u8>>), LogError> {
    let config = LogConfig {
        first_segment_bytes: 1 << 16,
        salt: SALT,
        ..LogConfig::default()
    };
    let mut payloads = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let dir = Path::new(DIR);
    let mode = RecoveryMode::Strict;
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
    let file = log.file.as_ref().expect("an open segment");
    let place = BatchPosition {
        lsn,
        durable,
        epoch,
        salt: SALT,
    };
    let offset = log.current.offset(lsn);
    batch
        .with_bytes(&place, 0, |bytes| file.write_at(bytes, offset))
        .expect("write");
}

/// Returns the position of the next page that starts at least one page after `lsn`.
fn page_after(log: &Log, lsn: Lsn) -> Lsn {
    let offset = log.current.offset(lsn);
    Lsn(lsn.0 + (offset.next_multiple_of(PAGE_BYTES) + PAGE_BYTES - offset))
}

#[test]
fn batches_after_a_cut_never_come_back() {
    // Two appends were in flight: the first was lost, and the second survived. Recovery cuts at the first. Then a batch
    // is appended that ends exactly where the stale one starts.
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk).expect("open");
    log.append(&mut batch(b"kept")).expect("append");
    let cut = log.next;
    let stale_at = page_after(&log, cut);
    plant(&log, &mut batch(b"stale"), stale_at, cut, log.epoch);
    drop(log);

    let (mut log, found) = open(&disk).expect("a torn tail");
    assert_eq!(found, [b"kept"]);
    let room = stale_at.0 - log.next.0;
    let mut filler = batch(&vec![b'n'; room as usize - 56 - 12]);
    assert_eq!(filler.len_bytes(), room);
    assert_eq!(log.append(&mut filler).expect("append"), stale_at);

    // Otherwise the test would be vacuous.
    let mut bytes = vec![0; 200];
    let file = log.file.as_ref().expect("an open segment");
    file.read_at(&mut bytes, log.current.offset(stale_at))
        .expect("read");
    let stale = BatchHeader::decode(&bytes, SALT, stale_at).expect("it is still there");
    assert_eq!(stale.epoch + 1, log.epoch);

    drop(log);
    for _ in 0..3 {
        let (log, found) = open(&disk).expect("open");
        assert_eq!(found.len(), 2);
        assert_eq!(found[1][0], b'n');
        drop(log);
    }
}

#[test]
fn epochs_are_unique_even_if_only_stale_batches_show_them() {
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk).expect("open");
    let later = page_after(&log, log.next);
    plant(&log, &mut batch(b"stale"), later, Lsn(0), 41);
    drop(log);
    let (log, found) = open(&disk).expect("open");
    assert_eq!((found.len(), log.epoch), (0, 42));
}

#[test]
fn largest_epoch_is_rejected() {
    // A batch with the last epoch but one used to be accepted. The marker of the open then had the last epoch, which is
    // invalid for readers: appends after it were acknowledged, and gone at the next open.
    for epoch in [super::COUNT_MAX, u64::MAX - 1] {
        let disk = SimDisk::new(1);
        let (log, _) = open(&disk).expect("open");
        let at = log.next;
        plant(&log, &mut batch(b"hostile"), at, at, epoch);
        drop(log);
        match open(&disk) {
            Err(LogError::Corrupt { problem, .. }) => assert_eq!(problem, CorruptionKind::Counts),
            Err(error) => panic!("{error}"),
            Ok((log, found)) => panic!("epoch {}, {found:?}", log.epoch),
        }
    }
}

#[test]
fn later_header_with_a_durable_position_beyond_a_break_proves_damage() {
    for (durable, is_damage) in [(0, false), (8, true)] {
        let disk = SimDisk::new(1);
        let (log, _) = open(&disk).expect("open");
        let break_at = log.next;
        let later = page_after(&log, break_at);
        let durable = Lsn(break_at.0 + durable);
        plant(&log, &mut batch(b"later"), later, durable, log.epoch);
        drop(log);
        let result = open(&disk).map(|(_, found)| found);
        match result {
            Ok(found) => assert!(!is_damage && found.is_empty()),
            Err(LogError::Corrupt { offset, .. }) => assert!(is_damage && offset == PAGE_BYTES),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn batch_header_over_records_of_another_batch_is_rejected() {
    // The sector of the header reached the disk and the others did not. Below are bytes of an earlier use of the file:
    // records of the same sizes, each of them sound.
    let disk = SimDisk::new(1);
    let (log, _) = open(&disk).expect("open");
    let mut old = batch(&[b'o'; 600]);
    plant(&log, &mut old, log.next, log.next, log.epoch);
    let mut new = batch(&[b'n'; 600]);
    let file = log.file.as_ref().expect("an open segment");
    let place = BatchPosition {
        lsn: log.next,
        durable: log.next,
        epoch: log.epoch,
        salt: SALT,
    };
    let offset = log.current.offset(log.next);
    new.with_bytes(&place, 0, |bytes| file.write_at(&bytes[..56], offset))
        .expect("write");
    drop(log);
    assert_eq!(open(&disk).expect("open").1, Vec::<Vec<u8>>::new());
}
