//! The disk space of the log: preallocation and removal of segments.

use kedge_bucket_core::{BucketCore, Parker};
use kedge_log::{LogError, PreallocationStep, SegmentPreallocator};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The rate at which segments are filled with zeros, one step at a time. Filling a whole segment at once would delay
/// the syncs of the log. A log that grows faster than this is under a load with long syncs, and writing every byte
/// twice would only take disk bandwidth from it.
const FILL_BYTES_PER_SEC: u64 = 16 << 20;
/// The minimum rate at which surplus segments are removed, one step at a time. Removal is slow for the same reason, and
/// because the log may still reuse the segments.
const REMOVE_BYTES_PER_SEC: u64 = 16 << 20;
/// The time within which the remaining surplus is to be removed. It raises the rate, so that surplus segments do not
/// accumulate.
const REMOVE_SECS: u64 = 16;
/// The minimum time between two checks of released segments.
const RENAME_PAUSE: Duration = Duration::from_millis(10);
/// The pause after a segment could not be preallocated.
const RETRY: Duration = Duration::from_secs(1);

/// The preallocator of the log's segments, and the parker of its task.
pub(crate) struct LogSpace {
    core: Arc<BucketCore>,
    /// Set by recovery, if there is a log.
    pub(crate) preallocator: OnceLock<SegmentPreallocator>,
    pub(crate) parker: Parker,
}

impl LogSpace {
    pub(crate) fn new(core: Arc<BucketCore>) -> Self {
        Self {
            core,
            preallocator: OnceLock::new(),
            parker: Parker::default(),
        }
    }

    /// Wakes the task if the preallocator has work, after the log grew or released segments.
    pub(crate) fn on_log_changed(&self) {
        if self.parker.is_asleep()
            && self
                .preallocator
                .get()
                .is_some_and(SegmentPreallocator::is_needed)
            && let Some(task) = self.parker.unpark()
        {
            self.core.setup.executor.wake(task);
        }
    }

    /// Runs one step of the preallocator, and returns the pause before the next one.
    pub(crate) fn run_step(&self, preallocator: &SegmentPreallocator) -> Duration {
        match preallocator.step() {
            Ok(step) => pause_after(step),
            Err(error @ LogError::SyncFailed(_)) => {
                self.core.fail(&error.to_string());
                RETRY
            }
            Err(error) => {
                tracing::warn!(
                    bucket = self.core.name(),
                    %error,
                    "a log segment could not be preallocated: it will be retried"
                );
                RETRY
            }
        }
    }

    /// Wakes the task, which frees spare segments while the disk is full.
    pub(crate) fn on_disk_full(&self) {
        if let Some(task) = self.parker.task() {
            self.core.setup.executor.wake(task);
        }
    }

    /// Resumes preallocation when the disk has free space again.
    pub(crate) fn on_disk_space_available(&self) {
        if let Some(preallocator) = self.preallocator.get() {
            preallocator.go_on();
        }
        self.on_log_changed();
    }

    /// Removes the segments that the log does not use now. Returns the number of freed bytes.
    pub(crate) fn free_spare_segments(&self) -> u64 {
        let Some(preallocator) = self.preallocator.get() else {
            return 0;
        };
        match preallocator.give_up_space() {
            Ok(0) => 0,
            Ok(bytes) => {
                tracing::warn!(
                    bucket = self.core.name(),
                    bytes,
                    "the disk is full: spare log segments are removed"
                );
                bytes
            }
            Err(error @ LogError::SyncFailed(_)) => {
                self.core.fail(&error.to_string());
                0
            }
            Err(error) => {
                tracing::warn!(bucket = self.core.name(), %error, "spare log segments could not be removed");
                0
            }
        }
    }
}

fn pause_after(step: PreallocationStep) -> Duration {
    let (bytes, per_sec) = match step {
        // A released segment was only renamed, which is cheap.
        PreallocationStep::Nothing | PreallocationStep::Renamed => return RENAME_PAUSE,
        PreallocationStep::Filled(bytes) => (bytes, FILL_BYTES_PER_SEC),
        PreallocationStep::Cut { bytes, left } => {
            (bytes, REMOVE_BYTES_PER_SEC.max(left / REMOVE_SECS))
        }
    };
    Duration::from_nanos(bytes * 1_000_000_000 / per_sec)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns the time to remove `left` bytes if no further segments are released.
    fn removal(mut left: u64) -> Duration {
        let bytes = 2 * MIB;
        let mut time = Duration::ZERO;
        while left > 0 {
            left -= bytes;
            time += pause_after(PreallocationStep::Cut { bytes, left });
        }
        time
    }

    #[test]
    fn segment_removal_is_slow_but_keeps_up_with_the_log() {
        let secs = |mib| removal(mib * MIB).as_secs();
        assert_eq!([64, 256, 512, 1024].map(secs), [4, 16, 27, 38]);
        // Once 8 GiB are left, removal outpaces a log that grows by 400 MiB/s.
        let (bytes, left) = (2 * MIB, 8192 * MIB);
        let pause = pause_after(PreallocationStep::Cut { bytes, left });
        assert!(bytes as f64 / pause.as_secs_f64() > 400.0 * MIB as f64);
    }

    #[test]
    fn filling_a_segment_takes_four_seconds() {
        let pause = pause_after(PreallocationStep::Filled(MIB / 2));
        assert_eq!(pause * 128, Duration::from_secs(4));
    }
}
