use super::*;
use proptest::prelude::*;

#[test]
fn class_wastes_at_most_eight_bytes_or_a_sixteenth() {
    for size in 1..=BLOCK_BYTES_MAX {
        let class = Class::of(size);
        assert!(usize::from(class.0) < CLASSES);
        let bytes = class.block_bytes();
        assert!(
            bytes >= size && bytes.is_multiple_of(BLOCK_ALIGN),
            "{size}: {bytes}"
        );
        assert!(
            bytes - size < BLOCK_ALIGN.max(size / 16 + 1),
            "{size}: {bytes}"
        );
    }
    assert_eq!(usize::from(Class::of(BLOCK_BYTES_MAX).0), CLASSES - 1);
}

#[test]
fn slab_wastes_at_most_a_sixteenth_of_itself() {
    for class in Class::all() {
        let used = class.blocks() * class.block_bytes();
        assert!(
            SLOT_BYTES - used < SLOT_BYTES / 16,
            "{}",
            class.block_bytes()
        );
    }
}

/// Returns the number of slabs of the class in all shards, that of their blocks in use, and that of the slabs in lists.
#[expect(unsafe_code, reason = "reads slabs")]
fn count(class: Class) -> (usize, usize, usize) {
    let (mut count, mut used, mut listed) = (0, 0, 0);
    for shard in 0..SHARDS as u8 {
        let slabs = class.shard(shard);
        count += slabs.count;
        used += slabs.used;
        let mut slab = slabs.open;
        // SAFETY: slabs in the list of the locked shard are live, and the list is a ring.
        while let Some(head) = unsafe { slab.as_ref() } {
            assert_eq!((head.class, head.shard), (class.0, shard));
            listed += 1;
            slab = if head.next == slabs.open {
                null_mut()
            } else {
                head.next
            };
        }
    }
    (count, used, listed)
}

/// Sizes in whose classes no other test has blocks.
const OWN_SIZE: usize = 4000;
const RELOCATED_SIZE: usize = 3500;

#[test]
#[expect(unsafe_code, reason = "frees blocks")]
fn slabs_without_a_block_in_use_are_freed() {
    let class = Class::of(OWN_SIZE);
    let per_slab = class.blocks();
    let blocks: Vec<_> = (0..per_slab * 3 + 1).map(|_| allocate(OWN_SIZE)).collect();
    assert_eq!(
        count(class),
        (4, per_slab * 3 + 1, 1),
        "full slabs are in no list"
    );
    let (kept, freed): (Vec<_>, Vec<_>) = blocks
        .into_iter()
        .enumerate()
        .partition(|(n, _)| *n == per_slab + 1);
    // SAFETY: each block is freed once.
    freed
        .into_iter()
        .for_each(|(_, block)| unsafe { free(block, OWN_SIZE) });
    assert_eq!(
        count(class),
        (1, 1, 1),
        "one slab is left with the kept block"
    );
    // SAFETY: as above.
    kept.into_iter()
        .for_each(|(_, block)| unsafe { free(block, OWN_SIZE) });
    assert_eq!(count(class), (0, 0, 0));
}

/// Moves what may move. Returns the number of blocks that did.
#[expect(unsafe_code, reason = "moves blocks")]
fn relocate_all(blocks: &mut [NonNull<u8>]) -> usize {
    let mut moved = 0;
    for block in blocks {
        // SAFETY: the block is in use, and is freed once, when nothing refers to it any more.
        unsafe {
            if let Some(new) = relocate(*block, RELOCATED_SIZE) {
                assert_ne!(slab_of(new), slab_of(*block));
                free(std::mem::replace(block, new), RELOCATED_SIZE);
                moved += 1;
            }
        }
    }
    moved
}

#[test]
#[expect(unsafe_code, reason = "frees blocks")]
fn blocks_leave_sparse_slabs_until_no_slab_is_saved() {
    let class = Class::of(RELOCATED_SIZE);
    let per_slab = class.blocks();
    let mut blocks: Vec<_> = (0..per_slab * 40)
        .map(|_| allocate(RELOCATED_SIZE))
        .collect();
    assert_eq!(relocate_all(&mut blocks), 0, "all slabs are full");
    // One block in five stays, at another place in each slab.
    let mut at = 0;
    blocks.retain(|block| {
        at += 1;
        let stays = at % 5 == 0;
        if !stays {
            // SAFETY: each block is freed once.
            unsafe { free(*block, RELOCATED_SIZE) };
        }
        stays
    });
    assert_eq!(count(class).0, 40);
    assert!(slab_figures().is_sparse);
    let mut passes = 0;
    while relocate_all(&mut blocks) > 0 {
        passes += 1;
        assert!(passes < 10, "it ends");
    }
    let (slabs, used, _) = count(class);
    assert_eq!(used, blocks.len());
    assert!(
        slabs <= used.div_ceil(per_slab) + SPARE_SLABS,
        "{slabs} slabs for {used} blocks"
    );
    for block in blocks {
        // SAFETY: as above.
        unsafe { free(block, RELOCATED_SIZE) };
    }
    assert_eq!(count(class), (0, 0, 0));
}

#[test]
#[expect(unsafe_code, reason = "takes slots")]
fn slots_have_addresses_of_their_own_and_are_used_again() {
    let slots: Vec<_> = (0..600).map(|_| take_slot()).collect();
    let mut starts: Vec<_> = slots
        .iter()
        // SAFETY: the slab is in a region.
        .map(|slab| unsafe { start_of(*slab) })
        .collect();
    for (slab, start) in slots.iter().zip(&starts) {
        // SAFETY: the start is in the slab's slot, which is in no other use; its last byte too.
        unsafe {
            start.add(SLOT_BYTES - 1).write(1);
            assert_eq!(slab_of(start.add(SLOT_BYTES - 1)), *slab);
        }
    }
    starts.sort_unstable();
    assert!(
        starts
            .windows(2)
            .all(|pair| pair[1].addr().get() - pair[0].addr().get() >= SLOT_BYTES)
    );
    slots.iter().for_each(|slab| give_slot_back(*slab));
    let again: Vec<_> = (0..600).map(|_| take_slot()).collect();
    let known = again.iter().filter(|slab| slots.contains(slab)).count();
    // Other tests take slots meanwhile.
    assert!(known > 300, "{known}");
    again.into_iter().for_each(give_slot_back);
}

/// A block with content that shows whether another block overlaps it.
struct Filled {
    block: NonNull<u8>,
    size: usize,
    fill: u8,
}

// SAFETY: a block may be freed on any thread.
#[expect(unsafe_code, reason = "a pointer that moves between threads")]
unsafe impl Send for Filled {}

impl Filled {
    #[expect(unsafe_code, reason = "writes to a block")]
    fn new(size: usize, fill: u8) -> Self {
        let block = allocate(size);
        // SAFETY: the block has this size.
        unsafe { block.as_ptr().write_bytes(fill, size) };
        Self { block, size, fill }
    }

    #[expect(unsafe_code, reason = "reads and frees a block")]
    fn check_and_free(self) {
        assert!(self.block.addr().get().is_multiple_of(BLOCK_ALIGN));
        // SAFETY: the block has this size and is initialised; it is freed once.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.block.as_ptr(), self.size);
            assert!(bytes.iter().all(|byte| *byte == self.fill), "{}", self.size);
            free(self.block, self.size);
        }
    }
}

proptest! {
    #[test]
    fn blocks_do_not_overlap(steps in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>(), prop_oneof![1usize..3_400, BLOCK_BYTES_MAX..6_000]), 1..600)) {
        let mut live: Vec<Filled> = Vec::new();
        for (n, (at, frees, size)) in steps.into_iter().enumerate() {
            if frees && !live.is_empty() {
                live.swap_remove(at.index(live.len())).check_and_free();
            } else {
                // Few sizes, so that blocks are used again.
                let size = if n % 2 == 0 { size } else { size % 4 * 60 + 50 };
                live.push(Filled::new(size, n as u8));
            }
        }
        live.into_iter().for_each(Filled::check_and_free);
    }
}

#[test]
fn blocks_are_freed_on_other_threads() {
    const ROUNDS: usize = 200;
    let (to, from) = std::sync::mpsc::channel::<Filled>();
    let frees = std::thread::spawn(move || from.into_iter().for_each(Filled::check_and_free));
    let allocate: Vec<_> = (0..SHARDS + 1)
        .map(|thread| {
            let to = to.clone();
            std::thread::spawn(move || {
                for n in 0..ROUNDS * 20 {
                    to.send(Filled::new(n % 20 * 100 + 50, (n + thread) as u8))
                        .unwrap();
                }
            })
        })
        .collect();
    drop(to);
    allocate
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    frees.join().unwrap();
}
