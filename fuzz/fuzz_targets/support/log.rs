//! What the targets about logs share: opening one, and using it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::{Disk, SimDisk};
use kedge_log::{Batch, Log, LogConfig, LogError, RecoveryMode, SegmentKey, SegmentKeys};
use kedge_types::VbId;

pub const OWNER: [u8; 16] = [1; 16];
pub const KEY_ID: &str = "key";
pub const KEY: [u8; 32] = [3; 32];

/// One key, which is active or not.
#[derive(Debug)]
struct OneKey {
    is_active: bool,
}

impl SegmentKeys for OneKey {
    fn active(&self) -> Option<SegmentKey> {
        self.is_active.then(|| SegmentKey::new(KEY_ID, KEY.into()))
    }

    fn find(&self, id: &str) -> Option<SegmentKey> {
        (id == KEY_ID).then(|| SegmentKey::new(KEY_ID, KEY.into()))
    }
}

pub fn dir() -> &'static Path {
    Path::new("/log")
}

pub fn segment(number: usize) -> PathBuf {
    dir().join(format!("{number:020}.log"))
}

/// Opens a log whose new segments are encrypted, or plain.
pub fn open(
    disk: &SimDisk,
    mode: RecoveryMode,
    is_encrypted: bool,
) -> Result<(Log, u64), LogError> {
    let keys = OneKey {
        is_active: is_encrypted,
    };
    let config = LogConfig {
        keys: Arc::new(keys),
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
pub fn open_and_use(disk: &SimDisk, is_encrypted: bool) {
    for mode in [RecoveryMode::Strict, RecoveryMode::Salvage] {
        let disk = disk.fork();
        let Ok((mut log, records)) = open(&disk, mode, is_encrypted) else {
            continue;
        };
        append(&mut log, b"one more");
        drop(log);
        let (_, again) = open(&disk, RecoveryMode::Strict, is_encrypted).expect("it opens again");
        assert_eq!(again, records + 1);
    }
}
