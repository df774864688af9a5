//! Memory of items: slabs of equal blocks, in size classes with little waste.
//!
//! General allocators have four size classes per doubling, so that a block is up to a quarter larger than requested. Here
//! a class is at most 8 bytes, or a sixteenth, above the previous one. And an item can leave a slab that has few others
//! ([`relocate`]), which no general allocator offers.
//!
//! Invariants:
//! * A block is free, in use, or fresh: never used. The fresh ones are the last ones of a slab.
//! * Each slab belongs to one [`Shard`], whose lock protects it. The list of a shard has the slabs with a free or fresh
//!   block, and no others.
//! * A slab without a block in use goes back to the slots.

mod slots;

use slots::{SLOT_BYTES, give_slot_back, slab_of, start_of, take_slot};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The alignment of every block in bytes.
pub(super) const BLOCK_ALIGN: usize = 8;
/// The size of the largest block in a slab, in bytes. Larger ones come from the global allocator.
const BLOCK_BYTES_MAX: usize = 4096;
/// The size of a block up to which classes are 8 bytes apart, in bytes.
const LINEAR_BYTES_MAX: usize = 512;
const LINEAR_CLASSES: usize = LINEAR_BYTES_MAX / BLOCK_ALIGN;
/// The number of classes per doubling above that, as a power of two.
const STEP_BITS: u32 = 4;
const CLASSES: usize =
    LINEAR_CLASSES + ((BLOCK_BYTES_MAX / LINEAR_BYTES_MAX).ilog2() as usize) * (1 << STEP_BITS);
/// The number of locks, and of lists of slabs, of each class. Threads are spread over them.
const SHARDS: usize = 4;
/// The offset that is no block's.
const NO_BLOCK: u16 = u16::MAX;
/// A shard is sparse if more than one in this number of its blocks is not in use, and they would fill [`SPARE_SLABS`].
const SPARSE_ONE_IN: usize = 16;
const SPARE_SLABS: usize = 2;
/// The number of slabs that are looked at for the one to which an item moves.
const TARGETS_MAX: usize = 4;

/// A slab: [`SLOT_BYTES`] of memory with the blocks of one class. Offsets are in units of [`BLOCK_ALIGN`].
#[derive(Debug)]
#[repr(C, align(32))]
struct Slab {
    /// The neighbours in the list of the shard, which is a ring.
    next: *mut Slab,
    prev: *mut Slab,
    /// The number of blocks in use.
    used: u16,
    /// The offset of the first free block. A free block begins with the offset of the next one.
    free: u16,
    /// The offset of the first fresh block.
    fresh: u16,
    class: u8,
    shard: u8,
}

/// The slabs of a class that the threads of a shard allocate from.
#[repr(align(64))]
struct Shard(Mutex<Slabs>);

struct Slabs {
    /// The first slab of the list.
    open: *mut Slab,
    /// The number of slabs, those without a free block included.
    count: usize,
    /// The number of their blocks in use.
    used: usize,
}

// SAFETY: the list and its slabs are accessed only under the lock of the shard.
#[expect(unsafe_code, reason = "a list that is shared between threads")]
unsafe impl Send for Slabs {}

static SHARDS_OF: [[Shard; SHARDS]; CLASSES] =
    [const { [const { Shard(Mutex::new(Slabs::NONE)) }; SHARDS] }; CLASSES];

thread_local! {
    static SHARD: Cell<Option<u8>> = const { Cell::new(None) };
}

/// Returns the shard from which this thread allocates.
fn shard_of_thread() -> u8 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SHARD.with(|shard| {
        shard.get().unwrap_or_else(|| {
            let mine = (NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS) as u8;
            shard.set(Some(mine));
            mine
        })
    })
}

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class(u8);

const _: () = assert!(CLASSES <= u8::MAX as usize);

/// The sizes of a class.
#[derive(Clone, Copy)]
struct Sizes {
    block_bytes: u16,
    /// The number of blocks in a slab.
    blocks: u16,
}

static SIZES: [Sizes; CLASSES] = {
    let mut sizes = [Sizes {
        block_bytes: 0,
        blocks: 0,
    }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let block_bytes = block_bytes(class);
        sizes[class] = Sizes {
            block_bytes: block_bytes as u16,
            blocks: (SLOT_BYTES / block_bytes) as u16,
        };
        class += 1;
    }
    sizes
};

const fn block_bytes(class: usize) -> usize {
    if class < LINEAR_CLASSES {
        return (class + 1) * BLOCK_ALIGN;
    }
    let (doubling, step) = (
        (class - LINEAR_CLASSES) >> STEP_BITS,
        (class - LINEAR_CLASSES) & ((1 << STEP_BITS) - 1),
    );
    (LINEAR_BYTES_MAX << doubling) / (1 << STEP_BITS) * ((1 << STEP_BITS) + step + 1)
}

impl Class {
    /// Returns the smallest class for `size` bytes, which are at least 1 and at most [`BLOCK_BYTES_MAX`].
    #[inline]
    fn of(size: usize) -> Self {
        if size <= LINEAR_BYTES_MAX {
            return Self(((size - 1) / BLOCK_ALIGN) as u8);
        }
        let doubling = (size - 1).ilog2();
        let step = (size - 1) >> (doubling - STEP_BITS);
        let above = (doubling - LINEAR_BYTES_MAX.ilog2()) as usize;
        // `step` has its highest bit at 1 << STEP_BITS.
        Self((LINEAR_CLASSES + (above << STEP_BITS) + step - (1 << STEP_BITS)) as u8)
    }

    #[inline]
    fn block_bytes(self) -> usize {
        usize::from(SIZES[usize::from(self.0)].block_bytes)
    }

    /// Returns the number of blocks in a slab.
    #[inline]
    fn blocks(self) -> usize {
        usize::from(SIZES[usize::from(self.0)].blocks)
    }

    fn shard(self, shard: u8) -> MutexGuard<'static, Slabs> {
        let slabs = &SHARDS_OF[usize::from(self.0)][usize::from(shard)].0;
        slabs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES).map(|class| Self(class as u8))
    }
}

/// Allocates `size` bytes, which are not 0.
#[expect(unsafe_code, reason = "hands out blocks of slabs")]
pub(super) fn allocate(size: usize) -> NonNull<u8> {
    if size > BLOCK_BYTES_MAX {
        return allocate_large(size);
    }
    let class = Class::of(size);
    let shard = shard_of_thread();
    let mut slabs = class.shard(shard);
    if slabs.open.is_null() {
        slabs.add(class, shard);
    }
    // SAFETY: the list is not empty, and its lock is held.
    unsafe { slabs.take_block(class) }
}

/// Frees a block of `size` bytes.
///
/// # Safety
/// The block is the result of [`allocate`] or [`relocate`] with this size, and is not used any more.
#[expect(unsafe_code, reason = "takes blocks of slabs back")]
pub(super) unsafe fn free(block: NonNull<u8>, size: usize) {
    if size > BLOCK_BYTES_MAX {
        // SAFETY: a block of this size is an allocation of its own with this layout.
        return unsafe { dealloc(block.as_ptr(), large_layout(size)) };
    }
    let class = Class::of(size);
    // SAFETY: the block is in a slab of this class, which lives as long as a block is in use. Class and shard are never
    // written after the slab's creation. Everything else happens under its lock.
    let empty = unsafe {
        let slab = slab_of(block);
        debug_assert_eq!((*slab).class, class.0, "the size is that of the block");
        let mut slabs = class.shard((*slab).shard);
        slabs.put_block(class, slab, block)
    };
    if let Some(slab) = empty {
        give_slot_back(slab);
    }
}

/// Allocates a second block of `size` bytes for what is in `block`, if memory is saved when it moves there: its slab has
/// fewer blocks in use than the average one of a sparse shard.
///
/// # Safety
/// The block is in use, and the result of [`allocate`] or `relocate` with this size.
#[expect(unsafe_code, reason = "hands out blocks of slabs")]
pub(super) unsafe fn relocate(block: NonNull<u8>, size: usize) -> Option<NonNull<u8>> {
    if size > BLOCK_BYTES_MAX {
        return None;
    }
    let class = Class::of(size);
    // SAFETY: as in `free`.
    unsafe {
        let slab = slab_of(block);
        let mut slabs = class.shard((*slab).shard);
        if !slabs.is_sparse(class) || slabs.is_dense(slab) {
            return None;
        }
        slabs.open = slabs.target(slab)?;
        Some(slabs.take_block(class))
    }
}

/// The memory of items up to the size of the largest block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabFigures {
    /// The size of all slabs in bytes.
    pub bytes: usize,
    /// The bytes of blocks that are in use.
    pub used_bytes: usize,
    /// True if items can move so that slabs become free.
    pub is_sparse: bool,
}

/// Returns the figures of the slabs of this process.
#[must_use]
pub fn slab_figures() -> SlabFigures {
    let mut figures = SlabFigures::default();
    for class in Class::all() {
        for shard in 0..SHARDS as u8 {
            let slabs = class.shard(shard);
            figures.bytes += slabs.count * SLOT_BYTES;
            figures.used_bytes += slabs.used * class.block_bytes();
            figures.is_sparse |= slabs.is_sparse(class);
        }
    }
    figures
}

impl Slabs {
    const NONE: Self = Self {
        open: null_mut(),
        count: 0,
        used: 0,
    };

    /// Returns whether so many blocks are not in use that slabs become free if items move.
    fn is_sparse(&self, class: Class) -> bool {
        let blocks = self.count * class.blocks();
        let free = blocks - self.used;
        free > SPARE_SLABS * class.blocks() && free * SPARSE_ONE_IN > blocks
    }

    /// Returns whether a slab has more blocks in use than the average one.
    ///
    /// # Safety
    /// The slab is one of these, and the lock is held.
    #[expect(unsafe_code, reason = "accesses slabs behind pointers")]
    unsafe fn is_dense(&self, slab: *mut Slab) -> bool {
        // SAFETY: the caller vouches for the slab.
        let used = usize::from(unsafe { (*slab).used });
        used * self.count > self.used
    }

    /// Returns the slab with the most blocks in use, of the first few, unless `leaving` has more.
    ///
    /// # Safety
    /// The list is not empty, and its lock is held. `leaving` is one of these slabs.
    #[expect(unsafe_code, reason = "accesses slabs behind pointers")]
    unsafe fn target(&self, leaving: *mut Slab) -> Option<*mut Slab> {
        let (mut best, mut at) = (None, self.open);
        // SAFETY: slabs in the list are live, and only the holder of the lock accesses them.
        unsafe {
            let mut most = (*leaving).used;
            for _ in 0..TARGETS_MAX {
                if at != leaving && (*at).used >= most {
                    (best, most) = (Some(at), (*at).used + 1);
                }
                at = (*at).next;
            }
        }
        best
    }

    /// Adds a slab of fresh blocks.
    #[cold]
    #[expect(unsafe_code, reason = "initialises a slab")]
    fn add(&mut self, class: Class, shard: u8) {
        let slab = take_slot();
        // SAFETY: nothing else uses a slot that was taken.
        unsafe {
            slab.write(Slab {
                next: slab,
                prev: slab,
                used: 0,
                free: NO_BLOCK,
                fresh: 0,
                class: class.0,
                shard,
            });
            self.push(slab);
        }
        self.count += 1;
    }

    /// Takes a block of the first slab.
    ///
    /// # Safety
    /// The list is not empty, and its lock is held.
    #[inline]
    #[expect(unsafe_code, reason = "accesses slabs behind pointers")]
    unsafe fn take_block(&mut self, class: Class) -> NonNull<u8> {
        let slab = self.open;
        // SAFETY: slabs in the list are live, and only the holder of the lock accesses them. `free` and `fresh` are
        // offsets of blocks inside the slab. A free block is initialised with the offset of the next one.
        unsafe {
            let is_fresh = (*slab).free == NO_BLOCK;
            let offset = if is_fresh {
                (*slab).fresh
            } else {
                (*slab).free
            };
            let block = start_of(slab).add(usize::from(offset) * BLOCK_ALIGN);
            if is_fresh {
                (*slab).fresh += (class.block_bytes() / BLOCK_ALIGN) as u16;
            } else {
                (*slab).free = block.cast::<u16>().read();
            }
            (*slab).used += 1;
            self.used += 1;
            if (*slab).is_full(class) {
                self.remove(slab);
            }
            block
        }
    }

    /// Puts a block back. Returns its slab if no block of it is in use any more; it is none of these slabs then.
    ///
    /// # Safety
    /// The block is in use and in `slab`, a live slab of this class and shard, and the lock is held.
    #[inline]
    #[expect(unsafe_code, reason = "accesses slabs behind pointers")]
    unsafe fn put_block(
        &mut self,
        class: Class,
        slab: *mut Slab,
        block: NonNull<u8>,
    ) -> Option<*mut Slab> {
        // SAFETY: the caller vouches for slab and block. A full slab is in no list, any other one in this one.
        unsafe {
            if (*slab).is_full(class) {
                self.push(slab);
            }
            (*slab).used -= 1;
            self.used -= 1;
            block.cast::<u16>().write((*slab).free);
            let offset = block.offset_from_unsigned(start_of(slab)) / BLOCK_ALIGN;
            (*slab).free = offset as u16;
            if (*slab).used > 0 {
                return None;
            }
            self.remove(slab);
            self.count -= 1;
            Some(slab)
        }
    }

    /// Adds a slab at the front. It is used next, so that slabs with fewer blocks in use become empty.
    ///
    /// # Safety
    /// The slab is live and in no list, and the lock is held.
    #[expect(unsafe_code, reason = "accesses slabs behind pointers")]
    unsafe fn push(&mut self, slab: *mut Slab) {
        // SAFETY: the caller vouches for the slab; those in the list are live.
        unsafe {
            let (next, prev) = match self.open.as_ref() {
                Some(first) => (self.open, first.prev),
                None => (slab, slab),
            };
            ((*slab).next, (*slab).prev) = (next, prev);
            ((*next).prev, (*prev).next) = (slab, slab);
        }
        self.open = slab;
    }

    /// Removes a slab.
    ///
    /// # Safety
    /// The slab is in this list, and the lock is held.
    #[expect(unsafe_code, reason = "accesses slabs behind pointers")]
    unsafe fn remove(&mut self, slab: *mut Slab) {
        // SAFETY: the neighbours of a slab in the list are in the list, so they are live.
        unsafe {
            let (next, prev) = ((*slab).next, (*slab).prev);
            ((*next).prev, (*prev).next) = (prev, next);
            if self.open == slab {
                self.open = if next == slab { null_mut() } else { next };
            }
        }
    }
}

impl Slab {
    fn is_full(&self, class: Class) -> bool {
        usize::from(self.used) == class.blocks()
    }
}

fn large_layout(size: usize) -> Layout {
    Layout::from_size_align(size, BLOCK_ALIGN).expect("an item is far smaller than isize::MAX")
}

#[expect(unsafe_code, reason = "allocates memory")]
fn allocate_large(size: usize) -> NonNull<u8> {
    let layout = large_layout(size);
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests;
