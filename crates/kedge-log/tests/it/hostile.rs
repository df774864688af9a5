//! Files with arbitrary contents cause an error or open as a log, and never a panic.

use kedge_disk::{Disk, SimDisk, replace_file};
use kedge_log::RecoveryMode;
use proptest::prelude::*;

use super::IS_ENCRYPTED;
use super::support::{
    TestKeys, append, config_with, dir, open, open_with, records, salvage, segment_path,
};

/// Opens in both modes. Either result is fine.
fn try_everything(disk: &SimDisk) {
    for mode in [open, salvage] {
        let disk = disk.fork();
        if let Ok(opened) = mode(&disk) {
            let mut log = opened.log;
            append(&mut log, &records(1, 1, 100)).expect("a log that opens can be used");
            drop(log);
            let again = open(&disk).expect("and opens again");
            assert_eq!(again.records.len(), opened.records.len() + 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_files_never_panic(files in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 1..4)) {
        let disk = SimDisk::new(1);
        disk.create_dir_all(dir()).expect("create");
        for (number, bytes) in files.iter().enumerate() {
            replace_file(&disk, &segment_path(number as u64 + 1), bytes).expect("write");
        }
        try_everything(&disk);
    }

    #[test]
    fn damaged_logs_never_panic(
        batches in prop::collection::vec((1..4_usize, 0..3000_usize), 1..12),
        is_closed in any::<bool>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..=255_u8), 1..6),
        cut in any::<Option<(prop::sample::Index, prop::sample::Index)>>(),
        removed in any::<Option<prop::sample::Index>>(),
        last_key in prop::option::of(1..3_u8),
    ) {
        let disk = SimDisk::new(1);
        let keys = TestKeys::new(IS_ENCRYPTED.then_some(1));
        let config = config_with(keys.clone());
        let mut log = open_with(&disk, config, RecoveryMode::Strict).expect("open").log;
        for (n, (count, payload_bytes)) in batches.into_iter().enumerate() {
            if n == 4 {
                keys.activate(last_key);
                log.use_active_key().expect("a new segment");
            }
            append(&mut log, &records(n, count, payload_bytes)).expect("append");
        }
        if is_closed {
            log.close().expect("close");
        }
        let names = disk.list(dir()).expect("list");
        for (file, offset, mask) in flips {
            let path = dir().join(file.get(&names));
            // Half of them near the headers, where they do the most harm.
            let len = disk.len(&path).expect("length") as usize;
            let offset = offset.index(if mask % 2 == 0 { len } else { 4500 });
            disk.flip(&path, offset as u64, mask);
        }
        if let Some((file, len)) = cut {
            let path = dir().join(file.get(&names));
            let file = disk.open(&path).expect("open");
            file.set_len(len.index(file.len().expect("length") as usize) as u64).expect("cut");
        }
        if let Some(file) = removed {
            disk.remove(&dir().join(file.get(&names))).expect("remove");
        }
        try_everything(&disk);
    }
}
