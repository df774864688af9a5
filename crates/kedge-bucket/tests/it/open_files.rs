//! Files stay open as long as settings of the bucket and the node let them.

use crate::tools::*;
use kedge_bucket::{Bucket, BucketSetup};
use kedge_disk::SimDisk;
use std::sync::Arc;

/// Opens a bucket on a node that lets it keep so many files open.
fn open_on_node(place: &mut Place, open_files_max: u32) -> Open {
    let steps = place.by_hand();
    let sink = Arc::new(Sink::default());
    let setup = BucketSetup {
        open_files_max,
        ..place.setup(&sink)
    };
    let open = place.opened(Bucket::open(setup).unwrap(), sink);
    steps.run();
    open
}

#[test]
fn no_more_stay_open_than_bucket_and_node_let() {
    for (keep_files_open, of_bucket, of_node, stay) in [
        (false, 9, 9, 0),
        (true, 1, 9, 1),
        (true, 9, 2, 2),
        (true, 9, 9, 4),
    ] {
        let mut place = sim(&SimDisk::new(1));
        place.config.keep_files_open = keep_files_open;
        place.config.max_open_files = of_bucket;
        let open = open_on_node(&mut place, of_node);
        // A file that was just made is opened when it is needed again.
        for value in [b"1", b"2"] {
            for n in 0..40 {
                open.set(&format!("key-{n}"), value).unwrap();
            }
            open.bucket.persistence().apply().unwrap();
        }
        assert_eq!(open.figure("ep_apply_commits"), 8);
        let figures = ["ep_storage_open_files", "ep_storage_handles"];
        assert_eq!(figures.map(|name| open.figure(name)), [stay; 2]);
        open.bucket.shutdown();
    }
}

#[test]
fn their_nodes_take_an_eighth_of_the_quota_at_most() {
    let mut place = sim(&SimDisk::new(2));
    let open = open_on_node(&mut place, 9);
    for n in 0..20_000 {
        open.set(&format!("a-key-of-some-length-{n}"), b"1")
            .unwrap();
    }
    open.bucket.shutdown();
    // A start that has no room for all documents reads nodes instead, and keeps those that it may.
    for quota_bytes in [2 << 20, 3 << 20] {
        place.config.quota_bytes = quota_bytes;
        let open = open_on_node(&mut place, 9);
        let (bytes, most) = (open.figure("ep_storage_open_files_bytes"), quota_bytes / 8);
        assert!((most / 4 * 3..=most).contains(&bytes), "{bytes} of {most}");
        open.bucket.shutdown();
    }
}
