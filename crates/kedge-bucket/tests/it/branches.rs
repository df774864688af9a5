//! Branches of vBuckets and their CAS values across restarts.

use crate::tools::*;
use kedge_bucket::{Topology, VbRole, VbState};
use kedge_disk::SimDisk;
use kedge_types::{Seqno, VbUuid};

/// Makes all vBuckets active, as a node does when it gets the cluster map.
fn activate(open: &Open) {
    for vb in all_vbuckets() {
        let role = VbRole {
            topology: Some(Topology::alone()),
            ..VbState::Active.into()
        };
        open.bucket.states().set_vbucket(vb, role).unwrap();
    }
}

fn began(open: &Open) -> Vec<Vec<Seqno>> {
    let seqnos = |log: Vec<(VbUuid, Seqno)>| log.into_iter().map(|(_, seqno)| seqno).collect();
    branches(open).into_iter().map(seqnos).collect()
}

/// Bug: a vBucket of a new cluster had two branches that began at seqno 0: that of its creation and that of its activation.
/// Clients that resumed on the oldest one were rolled back.
#[test]
fn vbucket_of_a_new_cluster_has_one_branch() {
    for (commit_log, first_state) in [
        (true, None),
        (true, Some(VbState::Replica)),
        // The first start of a cluster: the vBucket waits until the other nodes have reported.
        (true, Some(VbState::Pending)),
        (false, None),
        (false, Some(VbState::Pending)),
    ] {
        let disk = SimDisk::new(1);
        let mut site = sim(&disk);
        site.config.commit_log = commit_log;
        site.topology = None;
        let open = site.open();
        let made = branches(&open);
        if let Some(state) = first_state {
            for vb in all_vbuckets() {
                open.bucket.states().set_vbucket(vb, state).unwrap();
            }
        }
        activate(&open);
        let first = branches(&open);
        assert_eq!(began(&open), [const { [Seqno(0)] }; 4]);
        // The first branch is the same on all nodes.
        assert!(made.iter().zip(&first).all(|(made, now)| made != now));
        open.set("key", b"1").unwrap();
        open.bucket.persistence().sync().unwrap();
        disk.kill_process();
        open.bucket.shutdown();
        // From now on the branch may have been written to, so its end is reported.
        let open = site.open();
        activate(&open);
        assert_eq!(open.get("key").unwrap(), b"1");
        let again = branches(&open);
        let ends_with_first =
            |(again, first): (&Vec<_>, &Vec<_>)| again.len() == 2 && again.ends_with(first);
        assert!(again.iter().zip(&first).all(ends_with_first), "{again:?}");
        let with_data = key("key").vbucket(4).index();
        assert_eq!(began(&open)[with_data], [Seqno(1), Seqno(0)]);
        open.bucket.shutdown();
    }
}

/// Bug: a node's clock was beyond the year 2262 for a while. CAS values contain the time, and after a restart those of the
/// vBucket were limited to that year, so the next write had a lower CAS than the document it replaced.
#[test]
fn cas_values_increase_after_a_clock_from_the_far_future_and_a_restart() {
    for (commit_log, killed) in [(true, false), (true, true), (false, false), (false, true)] {
        let disk = SimDisk::new(2);
        let mut site = sim(&disk);
        site.config.commit_log = commit_log;
        let mut last = Default::default();
        // The clock is in the year 2299, and then correct.
        for unix_ns in [10_400_000_000_000_000_000, 1_700_000_000_000_000_000] {
            let steps = site.manual_tasks();
            steps.clock().set_unix_ns(unix_ns);
            let sink = std::sync::Arc::default();
            let bucket = kedge_bucket::Bucket::open(site.setup(&sink)).unwrap();
            let open = site.opened(bucket, sink);
            steps.run();
            open.bucket.wait_loaded().unwrap();
            for n in 0..5 {
                let cas = open.set("key", n.to_string().as_bytes()).unwrap().cas;
                assert!(cas > last, "{commit_log} {killed}: {cas:?} after {last:?}");
                last = cas;
            }
            open.bucket.persistence().sync().unwrap();
            if killed {
                disk.kill_process();
            }
            open.bucket.shutdown();
            site.executor.shutdown();
        }
    }
}
