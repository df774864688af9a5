//! A small log on a simulated disk, with distinguishable records.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use kedge_disk::{Disk, SimDisk};
use kedge_log::{
    Batch, CorruptionKind, Log, LogConfig, LogError, Lsn, PreallocationStep, RecoveryMode,
    RecoveryReport, SegmentKey, SegmentKeys, SegmentPreallocator,
};
use kedge_types::VbId;

use super::IS_ENCRYPTED;

pub(crate) const OWNER: [u8; 16] = *b"owner of the log";
pub(crate) const DIR: &str = "/bucket/log";

pub(crate) type Rec = (u8, u16, Vec<u8>);

/// Size of the header of a batch.
pub(crate) const HEADER_BYTES: u64 = if IS_ENCRYPTED { 88 } else { 56 };
/// The kind of damage to the bytes of a record.
pub(crate) const RECORD_DAMAGE: CorruptionKind = if IS_ENCRYPTED {
    CorruptionKind::BatchSeal
} else {
    CorruptionKind::RecordChecksum
};

/// Keys with the ids "k1", "k2" and so on, one of which is active, or none.
#[derive(Debug)]
pub(crate) struct TestKeys(AtomicU8);

impl TestKeys {
    pub(crate) fn new(active: Option<u8>) -> Arc<Self> {
        Arc::new(Self(AtomicU8::new(active.unwrap_or(0))))
    }

    pub(crate) fn activate(&self, active: Option<u8>) {
        self.0.store(active.unwrap_or(0), Ordering::Relaxed);
    }
}

impl SegmentKeys for TestKeys {
    fn active(&self) -> Option<SegmentKey> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            number => Some(key(number)),
        }
    }

    fn find(&self, id: &str) -> Option<SegmentKey> {
        id.strip_prefix('k')?.parse().ok().map(key)
    }
}

/// Returns the key with the id "k" and the number.
pub(crate) fn key(number: u8) -> SegmentKey {
    SegmentKey::new(format!("k{number}"), [number; 32].into())
}

pub(crate) fn config() -> LogConfig {
    config_with(TestKeys::new(IS_ENCRYPTED.then_some(1)))
}

pub(crate) fn config_with(keys: Arc<dyn SegmentKeys>) -> LogConfig {
    LogConfig {
        first_segment_bytes: 8192,
        segment_bytes: 16384,
        max_spares: 1,
        salt: 0x5a17,
        keys,
    }
}

pub(crate) fn dir() -> &'static Path {
    Path::new(DIR)
}

pub(crate) fn segment_path(number: u64) -> PathBuf {
    dir().join(format!("{number:020}.log"))
}

pub(crate) fn catalog_path() -> PathBuf {
    PathBuf::from(format!("{DIR}.catalog"))
}

pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) report: RecoveryReport,
    pub(crate) records: Vec<Rec>,
    pub(crate) lsns: Vec<Lsn>,
}

pub(crate) fn open_with(
    disk: &SimDisk,
    config: LogConfig,
    mode: RecoveryMode,
) -> Result<Opened, LogError> {
    let mut records = Vec::new();
    let mut lsns = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (log, report) = Log::open::<LogError>(disk, dir(), OWNER, config, mode, &mut |record| {
        records.push((record.kind, record.vb.0, record.payload.to_vec()));
        lsns.push(record.lsn);
        Ok(())
    })?;
    assert_eq!(report.records, records.len() as u64);
    Ok(Opened {
        log,
        report,
        records,
        lsns,
    })
}

pub(crate) fn open(disk: &SimDisk) -> Result<Opened, LogError> {
    open_with(disk, config(), RecoveryMode::Strict)
}

pub(crate) fn salvage(disk: &SimDisk) -> Result<Opened, LogError> {
    open_with(disk, config(), RecoveryMode::Salvage)
}

/// Returns the records of the `n`-th batch of a history. Each payload identifies its record.
pub(crate) fn records(n: usize, count: usize, payload_bytes: usize) -> Vec<Rec> {
    let record = |index: usize| {
        let mut payload = format!("batch {n} record {index} ").into_bytes();
        payload.resize(payload_bytes, (n * 31 + index) as u8);
        ((n % 251) as u8, (n * 7 + index) as u16, payload)
    };
    (0..count).map(record).collect()
}

/// Does all pending background work. Returns `true` if there was any.
pub(crate) fn prepare(preallocator: &SegmentPreallocator) -> Result<bool, LogError> {
    let mut did_something = false;
    while preallocator.step()? != PreallocationStep::Nothing {
        did_something = true;
    }
    Ok(did_something)
}

pub(crate) fn fill(batch: &mut Batch, records: &[Rec]) {
    for (kind, vb, payload) in records {
        // In two parts, as callers join a header and a value.
        let (head, tail) = payload.split_at(payload.len() / 3);
        batch
            .push(*kind, VbId(*vb), &[head, tail])
            .expect("a small record");
    }
}

pub(crate) fn append(log: &mut Log, records: &[Rec]) -> Result<Lsn, LogError> {
    let mut batch = Batch::new();
    fill(&mut batch, records);
    log.append(&mut batch)
}
