//! The allocator of the binary: mimalloc. Cheap per allocation, and economical with memory under the mixed sizes of a
//! cache.

/// Returns the allocator's unused memory to the system.
pub(super) fn return_memory() {
    #[cfg(feature = "mimalloc")]
    #[expect(unsafe_code, reason = "the function is foreign")]
    // SAFETY: the documentation of mimalloc allows the call on any thread at any time.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}

#[cfg(feature = "mimalloc")]
mod global {
    use std::alloc::{GlobalAlloc, Layout};

    use libmimalloc_sys as mi;

    #[global_allocator]
    static ALLOCATOR: Allocator = Allocator;

    /// The greatest alignment that each block of mimalloc has: sizes of blocks are multiples of it.
    const BLOCK_ALIGN: usize = 8;

    /// mimalloc without over-allocation. Its functions with an alignment reserve `size + alignment - 1` bytes whenever the
    /// current page has no free block, even if each block has the alignment. A size just below one of mimalloc's size
    /// classes then costs a block of the next one.
    struct Allocator;

    // SAFETY: every block comes from mimalloc and has at least the requested size. Blocks of the functions without an
    // alignment are aligned to `BLOCK_ALIGN`. mimalloc frees and reallocates blocks of both kinds.
    #[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
    unsafe impl GlobalAlloc for Allocator {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: mimalloc accepts any size, and any alignment that is a power of two.
            unsafe {
                match layout.align() <= BLOCK_ALIGN {
                    true => mi::mi_malloc(layout.size()).cast(),
                    false => mi::mi_malloc_aligned(layout.size(), layout.align()).cast(),
                }
            }
        }

        #[inline]
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as for `alloc`.
            unsafe {
                match layout.align() <= BLOCK_ALIGN {
                    true => mi::mi_zalloc(layout.size()).cast(),
                    false => mi::mi_zalloc_aligned(layout.size(), layout.align()).cast(),
                }
            }
        }

        #[inline]
        unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
            // SAFETY: the caller passes a block of this allocator, so it is mimalloc's.
            unsafe { mi::mi_free(block.cast()) }
        }

        #[inline]
        unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            // SAFETY: as for `dealloc`; the size and the alignment are as for `alloc`.
            unsafe {
                match layout.align() <= BLOCK_ALIGN {
                    true => mi::mi_realloc(block.cast(), new_size).cast(),
                    false => mi::mi_realloc_aligned(block.cast(), new_size, layout.align()).cast(),
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Returns how many bytes beyond `size` the last of many blocks has. The first ones come from pages that have
        /// free blocks, where mimalloc does not over-allocate.
        #[expect(unsafe_code, reason = "calls an allocator")]
        fn excess(size: usize, align: usize) -> usize {
            let layout = Layout::from_size_align(size, align).unwrap();
            let count = 1_000;
            // SAFETY: the layout is not empty, and each block is freed once, with its layout.
            unsafe {
                let blocks: Vec<_> = (0..count).map(|_| Allocator.alloc(layout)).collect();
                assert!(
                    blocks
                        .iter()
                        .all(|block| block.addr().is_multiple_of(align))
                );
                let largest = blocks.iter().map(|block| mi::mi_usable_size(block.cast()));
                let largest = largest.max().unwrap();
                blocks
                    .iter()
                    .for_each(|block| Allocator.dealloc(*block, layout));
                largest - size
            }
        }

        #[test]
        fn block_just_below_a_size_class_is_not_of_the_next_class() {
            for size in [319, 320, 1_279, 1_280, 2_560] {
                assert!(excess(size, 8) < 8, "{size}");
            }
        }

        #[test]
        fn every_alignment_is_kept() {
            for align in [1, 2, 4, 8, 16, 64, 4_096] {
                for size in [1, 3, 8, 24, 40, 100, 5_000] {
                    excess(size, align);
                }
            }
        }
    }
}
