//! Plans of a thread that does not run.

use mio::Waker;

use super::*;
use crate::cluster::testing;

fn plan(start: Option<i64>) -> Vec<ReplicationSource> {
    let takeover = start.map(|rev| (VbId(3), MoveStart(Some(rev))));
    vec![ReplicationSource {
        peer: PeerAddress {
            name: "n_1".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 1,
        },
        vbuckets: vec![VbId(3)],
        from_files: false,
        map_epoch: start,
        takeovers: takeover.into_iter().collect(),
        copies: BTreeSet::new(),
    }]
}

/// A node had taken a vBucket over, and missed the end of the move. It did not take the vBucket over when that moved to it again.
#[test]
fn another_move_to_the_same_node_is_another_takeover() {
    let (registry, clock) = testing::registry();
    let poll = Poll::new().expect("a poll");
    let waker = Waker::new(poll.registry(), WAKER).expect("a waker");
    let inbox = Arc::new(Inbox::new(waker));
    let mut thread = LinkThread::new(poll, inbox, registry, clock, Arc::default());
    for start in [None, Some(1), Some(4)] {
        thread.on_plan("b", plan(start));
        let links: Vec<_> = thread.links.values().collect();
        let [link] = &*links else {
            panic!("one link");
        };
        assert_eq!(
            link.streams.takeover(VbId(3)),
            start.map(|it| MoveStart(Some(it)))
        );
        assert_eq!(link.map_epoch, start, "of the newest plan");
    }
}
