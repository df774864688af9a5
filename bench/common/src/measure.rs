//! The cost of a piece of work.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::alloc::{allocated, restart_rise};
use crate::counted::{CountedDisk, IoCounts};

/// The total cost of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkCost {
    /// Processor time of the process, user and system, of all its threads.
    pub cpu: Duration,
    /// The time from start to end.
    pub wall: Duration,
    /// The peak of allocated bytes above the minimum before it.
    pub peak_bytes: u64,
    /// Allocations.
    pub allocations: u64,
    /// The operations on the disk.
    pub io: IoCounts,
}

/// Runs `work` and returns its cost.
pub fn measure<R>(disk: &CountedDisk, work: impl FnOnce() -> R) -> (R, WorkCost) {
    restart_rise();
    let (memory, io) = (allocated(), disk.observer().io());
    let (cpu, start) = (process_cpu(), Instant::now());
    let result = work();
    let (wall, cpu) = (start.elapsed(), process_cpu().saturating_sub(cpu));
    let after = allocated();
    let taken = WorkCost {
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
