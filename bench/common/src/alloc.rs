//! The server's allocator with counters: how much is allocated, and how far that rose.
//!
//! Counted are the bytes that were asked for. The counters are not added to atomically, which would cost more than an
//! allocation: only one thread of the benchmark allocates.

#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering};

use mimalloc::MiMalloc;

static LIVE_BYTES: AtomicU64 = AtomicU64::new(0);
static LOWEST_BYTES: AtomicU64 = AtomicU64::new(0);
static RISE_BYTES: AtomicU64 = AtomicU64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// To be the global allocator.
#[derive(Debug)]
pub struct Counting;

/// What was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    /// Bytes that are in use.
    pub live_bytes: u64,
    /// The most by which the bytes in use were above the fewest before that, since [`restart_rise`]: work that begins with
    /// giving back something does not hide in it what it needs.
    pub rise_bytes: u64,
    /// Allocations so far; to change the size of one counts as another.
    pub count: u64,
}

/// What is allocated now.
#[must_use]
pub fn allocated() -> Allocated {
    Allocated {
        live_bytes: LIVE_BYTES.load(Ordering::Relaxed),
        rise_bytes: RISE_BYTES.load(Ordering::Relaxed),
        count: ALLOCATIONS.load(Ordering::Relaxed),
    }
}

/// Lets the rise start anew from what is in use.
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
    // Wrapping: the counters are behind by what a thread of the runtime did at the same time.
    let live = LIVE_BYTES
        .load(Ordering::Relaxed)
        .wrapping_sub(bytes as u64);
    LIVE_BYTES.store(live, Ordering::Relaxed);
    if live < LOWEST_BYTES.load(Ordering::Relaxed) {
        LOWEST_BYTES.store(live, Ordering::Relaxed);
    }
}

// SAFETY: everything is handed to mimalloc as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
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
        // SAFETY: `at` came from mimalloc with this layout, as all that this allocator gives out does.
        unsafe { MiMalloc.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Old and new may both be there for a moment, while one is copied to the other.
        took(bytes);
        gave_back(layout.size());
        // SAFETY: as for `dealloc`, and the caller keeps the rules of `realloc`.
        unsafe { MiMalloc.realloc(at, layout, bytes) }
    }
}
