//! What a piece of work took.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::alloc::{allocated, restart_rise};
use crate::counted::{CountedDisk, Io};

/// What a piece of work took, all of it together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Taken {
    /// Processor time of the process, user and system, of all its threads.
    pub cpu: Duration,
    /// From start to end.
    pub wall: Duration,
    /// The most that was allocated at a time beyond the least that was there before it, in bytes.
    pub peak_bytes: u64,
    /// Allocations.
    pub allocations: u64,
    /// What was asked of the disk.
    pub io: Io,
}

/// Runs `work` and says what it took.
pub fn measure<R>(disk: &CountedDisk, work: impl FnOnce() -> R) -> (R, Taken) {
    restart_rise();
    let (memory, io) = (allocated(), disk.observer().io());
    let (cpu, start) = (process_cpu(), Instant::now());
    let result = work();
    let (wall, cpu) = (start.elapsed(), process_cpu().saturating_sub(cpu));
    let after = allocated();
    let taken = Taken {
        cpu,
        wall,
        peak_bytes: after.rise_bytes,
        allocations: after.count - memory.count,
        io: disk.observer().io().since(&io),
    };
    (result, taken)
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or(0),
        time.tv_nsec.try_into().unwrap_or(0),
    )
}
