//! Which files are to be compacted without anyone's asking, and at what time of the day.
//!
//! Functions of figures and times alone.

use super::CompactionConfig;
use kedge_storage::FileFigures;
use serde::{Deserialize, Serialize};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;
/// Minutes of a day.
const MINUTES: u16 = 24 * 60;

/// The part of the day in which files are compacted without anyone's asking. Days are those of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionHours {
    /// Where it begins, in minutes from midnight on, 0 to 1,439.
    pub from_minute: u16,
    /// Where it ends, likewise; before the beginning: on the next day.
    pub to_minute: u16,
    /// Whether what is being compacted at the end is given up, until the next day.
    pub abort_outside: bool,
}

impl CompactionHours {
    pub(super) fn check(self) -> Result<(), String> {
        let (from, to) = (self.from_minute, self.to_minute);
        if from.max(to) >= MINUTES || from == to {
            return Err(format!(
                "minutes {from} and {to} of the day are not two of 0 to {}",
                MINUTES - 1
            ));
        }
        Ok(())
    }

    /// Seconds from `unix_secs` to the next time that this minute of a day begins, 1 to a day.
    fn secs_to(minute: u16, unix_secs: u64) -> u64 {
        let at = u64::from(minute) * MINUTE;
        DAY - (unix_secs % DAY + DAY - at) % DAY
    }

    /// Seconds until it ends; `None` when it is not that time of the day.
    pub(super) fn secs_left(self, unix_secs: u64) -> Option<u64> {
        let to_end = Self::secs_to(self.to_minute, unix_secs);
        let to_begin = Self::secs_to(self.from_minute, unix_secs);
        // Inside, the end comes first.
        (to_end < to_begin).then_some(to_end)
    }

    /// Seconds until it begins, 1 to a day.
    pub(super) fn secs_to_begin(self, unix_secs: u64) -> u64 {
        Self::secs_to(self.from_minute, unix_secs)
    }
}

/// Whether a file, one of `files` of the bucket, has too much garbage: for itself, or more than its part of what all of
/// them may have together.
pub(super) fn is_due(config: &CompactionConfig, files: u16, file: &FileFigures) -> bool {
    let garbage = file.file_bytes.saturating_sub(file.data_bytes);
    if garbage < config.min_bytes {
        return false;
    }
    let percent = config.fragmentation_percent;
    (percent < 100 && file.fragmentation_percent() >= percent)
        || config
            .garbage_bytes
            .is_some_and(|bytes| garbage >= part(bytes, files))
}

/// What one of `files` may have of what all may have together.
fn part(bytes: u64, files: u16) -> u64 {
    bytes.div_ceil(u64::from(files.max(1)))
}

/// How many times as much garbage a file has as makes it due.
pub(super) fn times_due(config: &CompactionConfig, files: u16, file: &FileFigures) -> u64 {
    let percent = u64::from(config.fragmentation_percent);
    let by_share =
        (percent < 100).then(|| file.data_bytes.saturating_mul(percent) / (100 - percent));
    let by_size = config.garbage_bytes.map(|bytes| part(bytes, files));
    let due = by_share.into_iter().chain(by_size).min();
    let garbage = file.file_bytes.saturating_sub(file.data_bytes);
    due.map_or(0, |due| garbage / due.max(config.min_bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_storage::Revision;
    use kedge_types::Seqno;

    const AT_NOON: u64 = 19_000 * DAY + DAY / 2;

    fn hours(from: (u16, u16), to: (u16, u16)) -> CompactionHours {
        CompactionHours {
            from_minute: from.0 * 60 + from.1,
            to_minute: to.0 * 60 + to.1,
            abort_outside: false,
        }
    }

    #[test]
    fn hours_have_an_end_and_begin_again() {
        let day = hours((8, 30), (17, 0));
        let night = hours((22, 0), (5, 0));
        // (what, seconds from noon, seconds left, seconds to the beginning)
        for (what, from_noon, left, to_begin) in [
            (day, 0, Some(5 * 3_600), 20 * 3_600 + 1_800),
            (day, 5 * 3_600 - 1, Some(1), 15 * 3_600 + 1_801),
            (day, 5 * 3_600, None, 15 * 3_600 + 1_800),
            (day, 20 * 3_600 + 1_799, None, 1),
            (day, 20 * 3_600 + 1_800, Some(8 * 3_600 + 1_800), DAY),
            (night, 0, None, 10 * 3_600),
            (night, 10 * 3_600, Some(7 * 3_600), DAY),
            (night, 12 * 3_600, Some(5 * 3_600), 22 * 3_600),
            (night, 17 * 3_600 - 1, Some(1), 17 * 3_600 + 1),
            (night, 17 * 3_600, None, 17 * 3_600),
        ] {
            let now = AT_NOON + from_noon;
            assert_eq!(what.secs_left(now), left, "{what:?} {from_noon}");
            assert_eq!(what.secs_to_begin(now), to_begin, "{what:?} {from_noon}");
        }
        assert_eq!(day.check(), Ok(()));
        assert_eq!(night.check(), Ok(()));
        for wrong in [
            hours((1, 0), (1, 0)),
            hours((24, 0), (1, 0)),
            hours((0, 0), (0, 1_440)),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_may_have_so_much_garbage() {
        const MIB: u64 = 1 << 20;
        let file = |file_bytes, data_bytes| FileFigures {
            revision: Revision(1),
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
        // (share and size that are set, size of the file, of what is of use in it, whether it is due)
        for (set, file_mib, data_mib, due) in [
            (config(30, None), 10, 7, true),
            (config(31, None), 10, 7, false),
            (config(100, None), 10, 0, false),
            // 64 MiB for 16 files.
            (config(100, Some(64 * MIB)), 100, 96, true),
            (config(100, Some(64 * MIB)), 100, 97, false),
            (config(30, Some(64 * MIB)), 10, 7, true),
            // Less than the least in any case.
            (config(100, Some(1)), 10, 10, false),
            (config(100, Some(1)), 10, 9, true),
        ] {
            let file = file(file_mib * MIB, data_mib * MIB);
            assert_eq!(is_due(&set, 16, &file), due, "{set:?} {file:?}");
            assert_eq!(times_due(&set, 16, &file) > 0, due, "{set:?} {file:?}");
        }
    }
}
