//! The defragmenter: memory between documents is given back.

use super::*;
use kedge_bucket::MemoryChange;
use kedge_vbucket::slab_figures;

/// The size of a value that no other test has, so that no other document fills the blocks that become free.
const VALUE_BYTES: usize = 3_300;
const DOCUMENTS: u32 = 1_500;
/// One document in this number stays.
const STAYS: u32 = 5;

fn name(n: u32) -> String {
    format!("key-{n}")
}

impl Open {
    fn defragmenter(&self) -> [u64; 2] {
        ["num_visited", "num_moved"].map(|name| self.figure(&format!("ep_defragmenter_{name}")))
    }

    /// Leaves a few documents in each slab.
    fn scatter(&self) {
        for n in 0..DOCUMENTS {
            self.set(&name(n), &noise(VALUE_BYTES)).unwrap();
        }
        self.bucket.persistence().apply().unwrap();
        for n in (0..DOCUMENTS).filter(|n| n % STAYS > 0) {
            self.delete(&name(n));
        }
        self.bucket.persistence().apply().unwrap();
    }
}

#[test]
fn documents_move_until_their_slabs_are_full() {
    let (open, steps) = sim(&SimDisk::new(1)).open_with_manual_tasks();
    steps.pass(SEC * 60);
    open.scatter();
    let before = slab_figures();
    assert!(before.is_sparse);
    steps.pass(SEC * 9);
    assert_eq!(open.defragmenter()[1], 0, "not at once");
    steps.pass(SEC * 60);
    let [visited, moved] = open.defragmenter();
    assert!(visited >= u64::from(DOCUMENTS), "{visited} visited");
    assert!(
        moved > u64::from(DOCUMENTS / STAYS / 2),
        "{moved} of {} moved",
        DOCUMENTS / STAYS
    );
    for n in (0..DOCUMENTS).filter(|n| n % STAYS == 0) {
        assert_eq!(open.get(&name(n)).unwrap(), noise(VALUE_BYTES));
    }
    let runs = open.runs("defragmenter");
    steps.pass(SEC * 3_600);
    assert_eq!(open.runs("defragmenter"), runs, "nothing has changed");
    open.bucket.shutdown();
}

#[test]
fn defragmenter_begins_when_it_is_enabled() {
    let mut site = sim(&SimDisk::new(2));
    site.config.memory.defragmenter_enabled = false;
    site.config.memory.defragmenter_interval_secs = 1;
    let (open, steps) = site.open_with_manual_tasks();
    open.scatter();
    steps.pass(SEC * 60);
    assert_eq!(open.defragmenter(), [0; 2]);
    let enable = BucketChange {
        memory: MemoryChange {
            defragmenter_enabled: Some(true),
            ..MemoryChange::default()
        },
        ..BucketChange::default()
    };
    open.bucket.update(&enable).unwrap();
    steps.pass(SEC * 10);
    assert!(open.defragmenter()[1] > 0);
    open.bucket.shutdown();
}
