//! Address space for slabs: regions of equal slots, each with the memory of one slab.
//!
//! A region begins with the metadata of its slabs, so that these are not spread over the memory of the items. Its address is
//! a multiple of its size, so the slab of a block follows from the block's address.
//!
//! Invariants:
//! * A slot is in use by one slab, or in one of the two stacks, or was never used.
//! * Regions are never unmapped. Slots in the stack of cold ones have no memory, only addresses.

use super::Slab;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The size of a slot in bytes.
pub(super) const SLOT_BYTES: usize = 64 << 10;
const REGION_BYTES: usize = 16 << 20;
const SLOTS: usize = REGION_BYTES / SLOT_BYTES;
/// The first slot of a region with a slab. The metadata is before it.
const FIRST_SLOT: usize = 1;
/// The number of free slots that keep their memory for the next slabs: 2 MiB.
const WARM_SLOTS_MAX: usize = 32;

const _: () = assert!(SLOTS * size_of::<Slab>() <= FIRST_SLOT * SLOT_BYTES);

struct Slots {
    /// Free slots that have memory.
    warm: Vec<*mut Slab>,
    /// Free slots without memory.
    cold: Vec<*mut Slab>,
    /// The youngest region, and the number of its slots that were used.
    region: *mut Slab,
    begun: usize,
}

// SAFETY: a free slot belongs to the holder of the lock.
#[expect(unsafe_code, reason = "slots are taken by any thread")]
unsafe impl Send for Slots {}

static FREE: Mutex<Slots> = Mutex::new(Slots {
    warm: Vec::new(),
    cold: Vec::new(),
    region: null_mut(),
    begun: SLOTS,
});

fn free_slots() -> MutexGuard<'static, Slots> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a slot for a slab. Neither the metadata nor the memory is initialised.
pub(super) fn take_slot() -> *mut Slab {
    let mut free = free_slots();
    let used = free.warm.pop();
    used.or_else(|| free.cold.pop())
        .unwrap_or_else(|| free.begin_slot())
}

/// Gives a slot back to which no pointer is left.
pub(super) fn give_slot_back(slab: *mut Slab) {
    let mut free = free_slots();
    if free.warm.len() < WARM_SLOTS_MAX {
        return free.warm.push(slab);
    }
    drop(free);
    return_memory(slab);
    free_slots().cold.push(slab);
}

#[expect(unsafe_code, reason = "gives memory back to the system")]
fn return_memory(slab: *mut Slab) {
    // SAFETY: the slot is mapped and in no use, so its content may be lost.
    let _ = unsafe {
        let start = start_of(slab).as_ptr();
        // An error, as of memory that is locked, leaves the slot as it is.
        madvise(start.cast(), SLOT_BYTES, Advice::LinuxDontNeed)
    };
}

impl Slots {
    /// Returns a slot that was never used.
    #[expect(
        unsafe_code,
        reason = "the metadata of slabs is at the start of the region"
    )]
    fn begin_slot(&mut self) -> *mut Slab {
        if self.begun == SLOTS {
            self.region = map_region();
            self.begun = FIRST_SLOT;
        }
        let slot = self.begun;
        self.begun += 1;
        // SAFETY: the region begins with the metadata of all its slots.
        unsafe { self.region.add(slot) }
    }
}

/// Maps a region at a multiple of its size.
#[expect(unsafe_code, reason = "maps memory")]
fn map_region() -> *mut Slab {
    let failed = || handle_alloc_error(Layout::new::<[u8; REGION_BYTES]>());
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let (read, size) = (ProtFlags::READ | ProtFlags::WRITE, 2 * REGION_BYTES);
    // SAFETY: the system chooses an address where nothing is mapped. What is unmapped is inside the mapping and outside the
    // region.
    unsafe {
        let Ok(mapping) = mmap_anonymous(null_mut(), size, read, flags) else {
            failed()
        };
        let mapping = mapping.cast::<u8>();
        let before = mapping.align_offset(REGION_BYTES);
        let region = mapping.add(before);
        let after = size - REGION_BYTES - before;
        let unmap = |start: *mut u8, size: usize| {
            // Address space that cannot be unmapped costs no memory.
            let _ = (size > 0).then(|| munmap(start.cast(), size));
        };
        unmap(mapping, before);
        unmap(region.add(REGION_BYTES), after);
        region.cast()
    }
}

/// Returns the slab of a block.
///
/// # Safety
/// The block is in a slab.
#[inline]
#[expect(unsafe_code, reason = "computes addresses inside a region")]
pub(super) unsafe fn slab_of(block: NonNull<u8>) -> *mut Slab {
    let slot = (block.addr().get() % REGION_BYTES) / SLOT_BYTES;
    // SAFETY: the caller vouches that the block is in a region, which begins with the metadata of all its slots.
    unsafe { region_of(block.as_ptr()).add(slot) }
}

/// Returns the start of the memory of a slab.
///
/// # Safety
/// The slab is in a region.
#[inline]
#[expect(unsafe_code, reason = "computes addresses inside a region")]
pub(super) unsafe fn start_of(slab: *mut Slab) -> NonNull<u8> {
    let slot = (slab.addr() % REGION_BYTES) / size_of::<Slab>();
    // SAFETY: the caller vouches for the slab, and a region has as many slots as slabs.
    unsafe {
        let start = region_of(slab.cast()).cast::<u8>().add(slot * SLOT_BYTES);
        NonNull::new_unchecked(start)
    }
}

fn region_of(address: *mut u8) -> *mut Slab {
    address.map_addr(|it| it - it % REGION_BYTES).cast()
}
