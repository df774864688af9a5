//! The disk space that the log keeps: segments that are made ready ahead of need, or removed.

use kedge_bucket_core::{BucketCore, Parker};
use kedge_log::{LogError, PreallocationStep, SegmentPreallocator};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Segments are filled with zeros no faster than this, a step at a time: a whole one in one go would hold up the syncs of
/// the log meanwhile. A log that grows faster is under a load whose syncs are long for the bytes that they carry; writing
/// every byte twice would only take the disk away from it.
const FILL_BYTES_PER_SEC: u64 = 16 << 20;
/// Segments that are not kept are removed at this rate, a step at a time, for the same reason, and as the log may need them
/// after all.
const REMOVE_BYTES_PER_SEC: u64 = 16 << 20;
/// They go faster while this time would not do for what is left, so that they do not become more and more.
const REMOVE_SECS: u64 = 16;
/// Segments that were given back are looked at no more often than this.
const RENAME_PAUSE: Duration = Duration::from_millis(10);
/// Pause after a segment could not be made ready.
const RETRY: Duration = Duration::from_secs(1);

/// The preallocator of the log's segments, and the way to its task.
pub(crate) struct LogSpace {
    core: Arc<BucketCore>,
    /// From recovery on, if there is a log.
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

    /// The log grew, or gave segments back.
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

    /// Does a part of what the log wants done, and says how long to wait before the next one.
    pub(crate) fn run_step(&self, preallocator: &SegmentPreallocator) -> Duration {
        match preallocator.step() {
            Ok(step) => pause_after(step),
            Err(error @ LogError::SyncFailed(_)) => {
                self.core.fail(&error.to_string());
                RETRY
            }
            Err(error) => {
                tracing::warn!(bucket = self.core.name(), %error, "no log segment could be made ready");
                RETRY
            }
        }
    }

    /// There is no room on the disk: what the log keeps ready for later goes.
    pub(crate) fn on_disk_full(&self) {
        if let Some(task) = self.parker.task() {
            self.core.setup.executor.wake(task);
        }
    }

    /// There is room again.
    pub(crate) fn on_disk_space_available(&self) {
        if let Some(preallocator) = self.preallocator.get() {
            preallocator.go_on();
        }
        self.on_log_changed();
    }

    /// Gives the disk back what the log does not use now. Returns how many bytes that were.
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
                    "the disk is full: log segments that were kept for later are removed"
                );
                bytes
            }
            Err(error @ LogError::SyncFailed(_)) => {
                self.core.fail(&error.to_string());
                0
            }
            Err(error) => {
                tracing::warn!(bucket = self.core.name(), %error, "log segments that are not in use cannot be removed");
                0
            }
        }
    }
}

fn pause_after(step: PreallocationStep) -> Duration {
    let (bytes, per_sec) = match step {
        // What was given back was only renamed, which costs little.
        PreallocationStep::Nothing | PreallocationStep::Renamed => return RENAME_PAUSE,
        PreallocationStep::Filled(bytes) => (bytes, FILL_BYTES_PER_SEC),
        PreallocationStep::Cut { bytes, left } => (bytes, REMOVE_BYTES_PER_SEC.max(left / REMOVE_SECS)),
    };
    Duration::from_nanos(bytes * 1_000_000_000 / per_sec)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// How long it takes to remove so many bytes, if no more come.
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
    fn removal_is_slow_and_keeps_up_with_any_log() {
        let secs = |mib| removal(mib * MIB).as_secs();
        assert_eq!([64, 256, 512, 1024].map(secs), [4, 16, 27, 38]);
        // What a log of 400 MiB/s gives back meanwhile is less than what is removed, once 8 GiB are left.
        let (bytes, left) = (2 * MIB, 8192 * MIB);
        let pause = pause_after(PreallocationStep::Cut { bytes, left });
        assert!(bytes as f64 / pause.as_secs_f64() > 400.0 * MIB as f64);
    }

    #[test]
    fn a_segment_takes_four_seconds_to_fill() {
        let pause = pause_after(PreallocationStep::Filled(MIB / 2));
        assert_eq!(pause * 128, Duration::from_secs(4));
    }
}
