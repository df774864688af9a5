//! The server's allocator with counters: allocated bytes and their peak.
//!
//! The requested bytes are counted. The additions to the counters are not atomic, which would cost more than an
//! allocation: only one thread of the benchmark allocates.

#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering};

use mimalloc::MiMalloc;

static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);
static LOWEST_BYTES: AtomicU64 = AtomicU64::new(0);
static RISE_BYTES: AtomicU64 = AtomicU64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The global allocator.
#[derive(Debug)]
pub struct CountingAllocator;

/// Allocation counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    /// Bytes that are in use.
    pub live_bytes: u64,
    /// The largest rise of the bytes in use above their previous minimum, since [`restart_rise`]: so a release at the
    /// start of the work does not hide its later demand.
    pub rise_bytes: u64,
    /// The number of allocations; a reallocation counts as another one.
    pub count: u64,
}

/// Returns the current counters.
#[must_use]
pub fn allocated() -> Allocated {
    Allocated {
        live_bytes: LIVE_BYTES.load(Ordering::Relaxed),
        rise_bytes: RISE_BYTES.load(Ordering::Relaxed),
        count: ALLOCATIONS.load(Ordering::Relaxed),
    }
}

/// Restarts the measurement of the rise from the bytes in use.
pub fn restart_rise() {
    LOWEST_BYTES.store(LIVE_BYTES.load(Ordering::Relaxed), Ordering::Relaxed);
    RISE_BYTES.store(0, Ordering::Relaxed);
}

fn took(bytes: usize) {
    let live = LIVE_BYTES.load(Ordering::Relaxed) + bytes as u64;
    LIVE_BYTES.store(live, Ordering::Relaxed);
    let rise = live.saturating_sub(LOWEST_BYTES.load(Ordering::Relaxed));
    if rise > RISE_BYTES.load(Ordering::Relaxed) {
        RISE_BYTES.store(rise, Ordering::Relaxed);
    }
    ALLOCATIONS.store(ALLOCATIONS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn gave_back(bytes: usize) {
    // Wrapping: the counters lag behind concurrent allocations of a runtime thread.
    let live = LIVE_BYTES
        .load(Ordering::Relaxed)
        .wrapping_sub(bytes as u64);
    LIVE_BYTES.store(live, Ordering::Relaxed);
    if live < LOWEST_BYTES.load(Ordering::Relaxed) {
        LOWEST_BYTES.store(live, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to mimalloc unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the rules of `alloc`, which are mimalloc's.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as for `alloc`.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        gave_back(layout.size());
        // SAFETY: `at` came from mimalloc with this layout, as everything from this allocator does.
        unsafe { MiMalloc.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Old and new may both exist for a moment, while one is copied to the other.
        took(bytes);
        gave_back(layout.size());
        // SAFETY: as for `dealloc`, and the caller keeps the rules of `realloc`.
        unsafe { MiMalloc.realloc(at, layout, bytes) }
    }
}
