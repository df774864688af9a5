//! The choice of files for automatic compaction, as pure functions of settings and file sizes.

use kedge_bucket_core::CompactionConfig;
use kedge_storage::FileFigures;

/// Returns whether a file, one of `files` of the bucket, has too much garbage: relative to its size, or more than its
/// share of the limit for all files.
pub(super) fn is_due(config: &CompactionConfig, files: u16, file: &FileFigures) -> bool {
    let garbage = file.file_bytes.saturating_sub(file.data_bytes);
    if garbage < config.min_bytes {
        return false;
    }
    let percent = config.fragmentation_percent;
    (percent < 100 && file.fragmentation_percent() >= percent)
        || config
            .garbage_bytes
            .is_some_and(|bytes| garbage >= share(bytes, files))
}

/// Returns the share of one of `files` files in a limit for all of them.
fn share(bytes: u64, files: u16) -> u64 {
    bytes.div_ceil(u64::from(files.max(1)))
}

/// Returns the garbage of a file as a multiple of the amount from which on the file is due.
pub(super) fn garbage_multiple(config: &CompactionConfig, files: u16, file: &FileFigures) -> u64 {
    let percent = u64::from(config.fragmentation_percent);
    let by_share =
        (percent < 100).then(|| file.data_bytes.saturating_mul(percent) / (100 - percent));
    let by_size = config.garbage_bytes.map(|bytes| share(bytes, files));
    let due = by_share.into_iter().chain(by_size).min();
    let garbage = file.file_bytes.saturating_sub(file.data_bytes);
    due.map_or(0, |due| garbage / due.max(config.min_bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_storage::FileRevision;
    use kedge_types::Seqno;

    #[test]
    fn file_is_due_from_a_share_or_an_amount_of_garbage() {
        const MIB: u64 = 1 << 20;
        let file = |file_bytes, data_bytes| FileFigures {
            revision: FileRevision(1),
            file_bytes,
            data_bytes,
            high_seqno: Seqno(1),
            purge_seqno: Seqno(0),
            live: 1,
            deleted: 0,
        };
        let config = |fragmentation_percent, garbage_bytes| CompactionConfig {
            fragmentation_percent,
            garbage_bytes,
            ..CompactionConfig::default()
        };
        // (settings, size of the file, live data in it, whether it is due)
        for (set, file_mib, data_mib, due) in [
            (config(30, None), 10, 7, true),
            (config(31, None), 10, 7, false),
            (config(100, None), 10, 0, false),
            // 64 MiB for 16 files.
            (config(100, Some(64 * MIB)), 100, 96, true),
            (config(100, Some(64 * MIB)), 100, 97, false),
            (config(30, Some(64 * MIB)), 10, 7, true),
            // Less than `min_bytes` is never due.
            (config(100, Some(1)), 10, 10, false),
            (config(100, Some(1)), 10, 9, true),
        ] {
            let file = file(file_mib * MIB, data_mib * MIB);
            assert_eq!(is_due(&set, 16, &file), due, "{set:?} {file:?}");
            assert_eq!(
                garbage_multiple(&set, 16, &file) > 0,
                due,
                "{set:?} {file:?}"
            );
        }
    }
}
