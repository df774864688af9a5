//! Huge pages, once there is something to put on them.
//!
//! The allocator asks for huge pages. Under a load they are worth having: GETs over a million items are about an
//! eighth faster. But each kind of allocation of each thread begins on a page of its own, and when these are 2 MiB
//! each, a server without any documents has 16 MiB resident of which it uses two. So they are turned off at the
//! start and on again when memory is used in earnest.

use std::time::Duration;

use rustix::param::page_size;
use rustix::thread::disable_transparent_huge_pages;

/// Resident memory from which huge pages are used, in bytes: far above an idle server, far below a busy one.
const FROM_BYTES: u64 = 48 << 20;
/// Pause between looks while memory grows.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Pause between looks while nothing happens.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// What is no growth, in bytes.
const STEADY_BYTES: u64 = 256 << 10;

/// Whether huge pages are turned off, and may be turned on later.
#[derive(Debug)]
pub(super) struct HugePages {
    off: bool,
    /// Resident memory at the last look.
    seen_bytes: u64,
    pause: Duration,
}

impl HugePages {
    /// Turns huge pages off for this process.
    pub(super) fn off_until_needed() -> Self {
        // A system that does not know of this wastes some memory, and nothing else.
        Self {
            off: disable_transparent_huge_pages(true).is_ok(),
            seen_bytes: 0,
            pause: PAUSE_MIN,
        }
    }

    /// When [`HugePages::look`] has to be called again, if it has to.
    pub(super) fn next_look(&self) -> Option<Duration> {
        self.off.then_some(self.pause)
    }

    /// Turns huge pages on if enough memory is resident.
    pub(super) fn look(&mut self) {
        let bytes = resident_bytes().unwrap_or(FROM_BYTES);
        if self.off && bytes >= FROM_BYTES {
            self.off = disable_transparent_huge_pages(false).is_err();
        }
        self.note(bytes);
    }

    /// Looks come more rarely while nothing grows: an idle server is to sleep.
    fn note(&mut self, bytes: u64) {
        self.pause = if bytes > self.seen_bytes + STEADY_BYTES {
            PAUSE_MIN
        } else {
            (2 * self.pause).min(PAUSE_MAX)
        };
        self.seen_bytes = bytes;
    }
}

/// Resident memory; `None` where the system does not tell.
fn resident_bytes() -> Option<u64> {
    // proc(5): the second number of /proc/self/statm counts resident pages.
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_often_only_while_memory_grows() {
        let mut pages = HugePages {
            off: true,
            seen_bytes: 0,
            pause: PAUSE_MIN,
        };
        let mut pauses = Vec::new();
        for mib in [10, 10, 10, 10, 10, 10, 9, 10, 10] {
            pages.note(mib << 20);
            pauses.push(pages.next_look().expect("they are off").as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000, 1000, 100, 200]);
        pages.off = false;
        assert_eq!(pages.next_look(), None);
    }

    #[test]
    fn resident_memory_is_known() {
        let before = resident_bytes().expect("proc is mounted");
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = resident_bytes().expect("proc is mounted");
        assert!(
            after - before > 32 << 20,
            "{before} {after} {}",
            block.len()
        );
    }
}
