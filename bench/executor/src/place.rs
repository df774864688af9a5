//! The core of a thread.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the cores that this process may use, in order.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("a process can ask for its cores");
    (0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect()
}

/// Pins the calling thread to one core.
pub fn pin_to(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("a thread can stay on a core it may use");
}
