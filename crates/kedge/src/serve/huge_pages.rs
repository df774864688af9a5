//! Huge pages, once there is something to put on them.
//!
//! The allocator asks for huge pages. Under a load they are worth having: GETs over a million items are about an
//! eighth faster. But each kind of allocation of each thread begins on a page of its own, and when these are 2 MiB
//! each, a server without any documents has 16 MiB resident of which it uses two. So they are turned off at the
//! start and on again when memory is used in earnest.

use rustix::param::page_size;
use rustix::thread::disable_transparent_huge_pages;

/// Resident memory from which huge pages are used, in bytes: far above an idle server, far below a busy one.
const FROM_BYTES: u64 = 48 << 20;

/// Whether huge pages are turned off, and may be turned on later.
#[derive(Debug)]
pub(super) struct HugePages {
    off: bool,
}

impl HugePages {
    /// Turns huge pages off for this process.
    pub(super) fn off_until_needed() -> Self {
        // A system that does not know of this wastes some memory, and nothing else.
        Self {
            off: disable_transparent_huge_pages(true).is_ok(),
        }
    }

    /// Whether [`HugePages::look`] has to be called again.
    pub(super) const fn wants_another_look(&self) -> bool {
        self.off
    }

    /// Turns huge pages on if enough memory is resident.
    pub(super) fn look(&mut self) {
        if self.off && resident_bytes().is_none_or(|bytes| bytes >= FROM_BYTES) {
            self.off = disable_transparent_huge_pages(false).is_err();
        }
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
