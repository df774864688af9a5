//! The account of a bucket's memory.

use crate::settings::MemoryConfig;
use kedge_types::Status;
use kedge_vbucket::MemoryUse;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Writes are refused above this part of the quota.
const MUTATION_RATIO: f64 = MemoryConfig::MUTATION_PERCENT as f64 / 100.0;
/// Part of the quota that changes which wait for the log may use.
const CHECKPOINT_RATIO: f64 = 0.2;

/// Part of the quota that changes which wait to be applied may use; above it they are applied early.
const PINNED_RATIO: f64 = 0.1;

/// Part of the quota, and number of bytes, above which changes that wait for the disk cause backpressure. A slow disk writes
/// that many bytes within the time that a shutdown may take.
const BEHIND_RATIO: f64 = 0.1;
const BEHIND_BYTES_MAX: u64 = 256 << 20;

/// Live bytes against the quota. Items, the slots of the hash tables, and the checkpoints count; the overhead of the
/// allocator and buffers of connections do not.
#[derive(Debug)]
pub struct Quota {
    used: AtomicI64,
    checkpoints: AtomicI64,
    pinned: AtomicI64,
    cursors: AtomicI64,
    limit: AtomicU64,
    /// The bytes above which writes are refused.
    mutation_limit: AtomicU64,
    /// The bytes of changes waiting for the log above which writes are refused.
    checkpoint_limit: AtomicU64,
    /// The bytes of changes waiting for the log above which writers need backpressure.
    behind_limit: AtomicU64,
    /// The high watermark, above which documents are evicted.
    high: AtomicU64,
    /// The low watermark, down to which they are evicted.
    low: AtomicU64,
    /// Bytes that the first write in the memory admission queue needs; 0 when none waits.
    wanted: AtomicU64,
    /// Documents cannot leave memory before their changes are in the files.
    room_wanted: AtomicBool,
    disk_full: AtomicBool,
    /// True if the system refuses files to the log, for another reason than a full disk.
    disk_refuses: AtomicBool,
}

impl Quota {
    /// Returns an account without bytes.
    pub fn new(limit: u64, memory: &MemoryConfig) -> Self {
        let quota = Self {
            used: AtomicI64::new(0),
            checkpoints: AtomicI64::new(0),
            pinned: AtomicI64::new(0),
            cursors: AtomicI64::new(0),
            limit: AtomicU64::new(0),
            mutation_limit: AtomicU64::new(0),
            checkpoint_limit: AtomicU64::new(0),
            behind_limit: AtomicU64::new(0),
            high: AtomicU64::new(0),
            low: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            room_wanted: AtomicBool::new(false),
            disk_full: AtomicBool::new(false),
            disk_refuses: AtomicBool::new(false),
        };
        quota.set_limit(limit, memory);
        quota
    }

    /// Sets the quota and the watermarks that follow from it.
    pub fn set_limit(&self, limit: u64, memory: &MemoryConfig) {
        let part = |ratio: f64| (limit as f64 * ratio) as u64;
        let percent = |percent: u8| part(f64::from(percent) / 100.0);
        for (threshold, bytes) in [
            (&self.limit, limit),
            (&self.mutation_limit, part(MUTATION_RATIO)),
            (&self.checkpoint_limit, part(CHECKPOINT_RATIO)),
            (&self.behind_limit, part(BEHIND_RATIO).min(BEHIND_BYTES_MAX)),
            (&self.high, percent(memory.high_wat_percent)),
            (&self.low, percent(memory.low_wat_percent)),
        ] {
            threshold.store(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the high watermark, above which documents are evicted.
    pub fn high(&self) -> u64 {
        self.high.load(Ordering::Relaxed)
    }

    /// Returns the low watermark, down to which documents are evicted.
    pub fn low(&self) -> u64 {
        self.low.load(Ordering::Relaxed)
    }

    /// Returns whether memory is above the high watermark.
    pub fn is_high(&self) -> bool {
        self.used() > self.high()
    }

    /// Returns the bytes that have to be evicted: down to the low watermark, or further when a write that waits needs more
    /// than is free then.
    pub fn above_low(&self) -> u64 {
        let fits = self.mutation_limit().saturating_sub(self.wanted());
        self.used().saturating_sub(self.low().min(fits))
    }

    fn mutation_limit(&self) -> u64 {
        self.mutation_limit.load(Ordering::Relaxed)
    }

    /// Sets the bytes that the first write in the memory admission queue needs; 0 when none waits.
    pub fn set_wanted(&self, bytes: usize) {
        self.wanted.store(bytes as u64, Ordering::SeqCst);
    }

    fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Returns whether a write waits for memory and need not any more.
    pub fn has_what_is_wanted(&self) -> bool {
        let wanted = self.wanted();
        wanted > 0 && self.admit(wanted as usize) != Err(Status::TemporaryFailure)
    }

    /// Returns the bytes of keys that may be read into memory while values are evicted for them.
    pub fn room_for_keys(&self) -> u64 {
        (u64::midpoint(self.high(), self.mutation_limit())).saturating_sub(self.used())
    }

    /// Returns the bytes that may be read into memory before the low watermark.
    pub fn below_low(&self) -> u64 {
        self.low().saturating_sub(self.used())
    }

    /// Sets whether memory is short, and only applying changes to the files would free some.
    pub fn set_room_wanted(&self, wanted: bool) -> bool {
        self.room_wanted.swap(wanted, Ordering::Relaxed)
    }

    /// Returns whether memory is short, and only applying changes to the files would free some.
    pub fn is_room_wanted(&self) -> bool {
        self.room_wanted.load(Ordering::Relaxed)
    }

    /// Sets whether the disk is full. Returns whether it was.
    pub fn set_disk_full(&self, full: bool) -> bool {
        self.disk_full.swap(full, Ordering::Relaxed)
    }

    /// Returns whether the disk is full.
    pub fn disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    /// Sets whether the system refuses files to the log. Returns whether it did before.
    pub fn set_disk_refuses(&self, refuses: bool) -> bool {
        self.disk_refuses.swap(refuses, Ordering::Relaxed)
    }

    /// Returns whether the system refuses files to the log.
    pub fn disk_refuses(&self) -> bool {
        self.disk_refuses.load(Ordering::Relaxed)
    }

    /// Returns whether writes get a temporary failure, as nothing more can be made durable now.
    pub fn withholds_writes(&self) -> bool {
        self.disk_full() || self.disk_refuses()
    }

    /// Accounts for a step of a vBucket that changed its memory by `change`.
    pub fn add(&self, change: &MemoryUse) {
        for (sum, bytes) in [
            (&self.used, change.total),
            (&self.checkpoints, change.checkpoints),
            (&self.pinned, change.pinned),
            (&self.cursors, change.cursors),
        ] {
            if bytes != 0 {
                sum.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    /// Returns the bytes of changes that only cursors of streams keep in memory.
    pub fn cursor_bytes(&self) -> u64 {
        u64::try_from(self.cursors.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the bytes of changes that wait to be applied to the files.
    pub fn pinned_bytes(&self) -> u64 {
        u64::try_from(self.pinned.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns whether memory is short, and applying changes would free some, or allow evictions.
    pub fn is_short_of_applying(&self) -> bool {
        let (limit, pinned) = (self.limit() as f64, self.pinned_bytes() as f64);
        pinned > limit * PINNED_RATIO || (self.is_high() && pinned > limit * PINNED_RATIO / 10.0)
    }

    /// Returns the live bytes.
    pub fn used(&self) -> u64 {
        u64::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the bytes of changes that wait for the disk.
    pub fn checkpoint_bytes(&self) -> u64 {
        u64::try_from(self.checkpoints.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the quota, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns whether so many changes wait for the disk that writers need backpressure.
    pub fn is_behind(&self) -> bool {
        self.checkpoint_bytes() > self.behind_limit.load(Ordering::Relaxed)
    }

    /// Checks that there is room for a write of `bytes`.
    ///
    /// # Errors
    /// `NoMemory` when it could never fit; `TemporaryFailure` when it does not fit now, the disk is full, or too many
    /// changes wait for the disk.
    pub fn admit(&self, bytes: usize) -> Result<(), Status> {
        let (limit, bytes) = (self.mutation_limit(), bytes as u64);
        if bytes > limit {
            return Err(Status::NoMemory);
        }
        let full = self.used() + bytes > limit
            || self.checkpoint_bytes() > self.checkpoint_limit.load(Ordering::Relaxed)
            || self.withholds_writes();
        if full {
            Err(Status::TemporaryFailure)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(quota: &Quota, total: i64, checkpoints: i64, pinned: i64) {
        quota.add(&MemoryUse {
            total,
            checkpoints,
            pinned,
            cursors: 0,
        });
    }

    #[test]
    fn applying_is_urgent_above_a_tenth_of_the_quota_or_a_hundredth_when_memory_is_short() {
        let quota = Quota::new(1_000, &MemoryConfig::default());
        add(&quota, 850, 0, 100);
        assert!(!quota.is_high() && !quota.is_short_of_applying());
        add(&quota, 0, 0, 1);
        assert!(quota.is_short_of_applying());
        add(&quota, 0, 0, -91);
        assert!(!quota.is_short_of_applying());
        add(&quota, 1, 0, 0);
        assert!(quota.is_high() && !quota.is_short_of_applying());
        add(&quota, 0, 0, 1);
        assert!(quota.is_short_of_applying());
        add(&quota, -1, 0, 0);
        assert!(!quota.is_short_of_applying());
    }

    #[test]
    fn admission_tells_writes_that_never_fit_from_those_that_do_not_fit_now() {
        let memory = MemoryConfig::default();
        let quota = Quota::new(1_000, &memory);
        assert_eq!(quota.admit(931), Err(Status::NoMemory));
        assert_eq!(quota.admit(930), Ok(()));
        add(&quota, 900, 0, 0);
        assert_eq!(quota.admit(31), Err(Status::TemporaryFailure));
        assert_eq!(quota.admit(30), Ok(()));
        assert!(!quota.is_behind());
        assert!(quota.is_high());
        assert_eq!((quota.above_low(), quota.below_low()), (150, 0));
        add(&quota, -900, 101, 0);
        assert!(quota.is_behind());
        assert_eq!(quota.admit(1), Ok(()));
        add(&quota, 0, 100, 0);
        assert_eq!(
            quota.admit(1),
            Err(Status::TemporaryFailure),
            "too much waits for the disk"
        );
        add(&quota, 0, -1, 0);
        assert_eq!(quota.admit(1), Ok(()));
        quota.set_disk_full(true);
        assert_eq!(quota.admit(1), Err(Status::TemporaryFailure));
        quota.set_disk_full(false);
        assert_eq!((quota.above_low(), quota.below_low()), (0, 750));
        add(&quota, 700, -200, 0);
        assert!(!quota.has_what_is_wanted(), "nobody waits");
        quota.set_wanted(400);
        assert!(!quota.has_what_is_wanted());
        assert_eq!(quota.above_low(), 170, "below the low watermark");
        add(&quota, -170, 0, 0);
        assert!(quota.has_what_is_wanted());
        quota.set_wanted(0);
        add(&quota, -530, 200, 0);
        quota.set_limit(10_000, &memory);
        assert_eq!(quota.admit(5_000), Ok(()));
    }
}
