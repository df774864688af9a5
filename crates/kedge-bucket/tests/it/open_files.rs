//! The number of files that stay open, limited by settings of the bucket and the node.

use crate::tools::*;
use kedge_bucket::{Bucket, BucketSetup};
use kedge_disk::SimDisk;
use std::sync::Arc;

/// Opens a bucket on a node that allows the given number of open files.
fn open_on_node(site: &mut TestSite, open_files_max: u32) -> Open {
    let steps = site.manual_tasks();
    let sink = Arc::new(Sink::default());
    let setup = BucketSetup {
        open_files_max,
        ..site.setup(&sink)
    };
    let open = site.opened(Bucket::open(setup).unwrap(), sink);
    steps.run();
    open
}

#[test]
fn number_of_open_files_is_limited_by_bucket_and_node() {
    for (keep_files_open, of_bucket, of_node, stay) in [
        (false, 9, 9, 0),
        (true, 1, 9, 1),
        (true, 9, 2, 2),
        (true, 9, 9, 4),
    ] {
        let mut site = sim(&SimDisk::new(1));
        site.config.keep_files_open = keep_files_open;
        site.config.max_open_files = of_bucket;
        let open = open_on_node(&mut site, of_node);
        // A file that was just created is opened again when it is needed.
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
fn cached_tree_nodes_use_at_most_an_eighth_of_the_quota() {
    let mut site = sim(&SimDisk::new(2));
    let open = open_on_node(&mut site, 9);
    for n in 0..20_000 {
        open.set(&format!("a-key-of-some-length-{n}"), b"1")
            .unwrap();
    }
    open.bucket.shutdown();
    // A start without memory for all documents reads tree nodes instead, and keeps as many as allowed.
    for quota_bytes in [2 << 20, 3 << 20] {
        site.config.quota_bytes = quota_bytes;
        let open = open_on_node(&mut site, 9);
        let (bytes, most) = (open.figure("ep_storage_open_files_bytes"), quota_bytes / 8);
        assert!((most / 4 * 3..=most).contains(&bytes), "{bytes} of {most}");
        open.bucket.shutdown();
    }
}
