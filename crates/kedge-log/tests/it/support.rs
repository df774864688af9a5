//! A small log on a simulated disk, with distinguishable records.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::{Disk, SimDisk};
use kedge_log::{
    Batch, Log, LogConfig, LogError, Lsn, PreallocationStep, RecoveryMode, RecoveryReport,
    SegmentPreallocator,
};
use kedge_types::VbId;

pub(crate) const OWNER: [u8; 16] = *b"owner of the log";
pub(crate) const DIR: &str = "/bucket/log";

pub(crate) type Rec = (u8, u16, Vec<u8>);

pub(crate) fn config() -> LogConfig {
    LogConfig {
        first_segment_bytes: 8192,
        segment_bytes: 16384,
        max_spares: 1,
        salt: 0x5a17,
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
