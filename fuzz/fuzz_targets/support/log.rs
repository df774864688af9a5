//! What the targets about logs share: opening one, and using it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::{Disk, SimDisk};
use kedge_log::{Batch, Log, LogConfig, LogError, RecoveryMode};
use kedge_types::VbId;

pub const OWNER: [u8; 16] = [1; 16];

pub fn dir() -> &'static Path {
    Path::new("/log")
}

pub fn segment(number: usize) -> PathBuf {
    dir().join(format!("{number:020}.log"))
}

pub fn open(disk: &SimDisk, mode: RecoveryMode) -> Result<(Log, u64), LogError> {
    let config = LogConfig {
        first_segment_bytes: 8192,
        segment_bytes: 16384,
        ..LogConfig::default()
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut records = 0;
    let (log, _) = Log::open::<LogError>(disk, dir(), OWNER, config, mode, &mut |_| {
        records += 1;
        Ok(())
    })?;
    Ok((log, records))
}

pub fn append(log: &mut Log, payload: &[u8]) {
    let mut batch = Batch::new();
    batch.push(1, VbId(2), &[payload]).expect("a small record");
    log.append(&mut batch)
        .expect("a log that opens can be used");
}

/// A log that opens, in either mode, takes one more record, and has it and all others when it is opened again.
pub fn open_and_use(disk: &SimDisk) {
    for mode in [RecoveryMode::Strict, RecoveryMode::Salvage] {
        let disk = disk.fork();
        let Ok((mut log, records)) = open(&disk, mode) else {
            continue;
        };
        append(&mut log, b"one more");
        drop(log);
        let (_, again) = open(&disk, RecoveryMode::Strict).expect("it opens again");
        assert_eq!(again, records + 1);
    }
}
