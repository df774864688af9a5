//! The cluster map, through the crate's public face.

mod auto_failover;
mod copies;
mod documents;
mod drain;
mod failover;
mod groups;
mod joining;
mod level;
mod manifest;
mod many;
mod members;
mod moves;
mod placement;
mod rebalance;
mod recovery;
mod replicas;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use kedge_cluster::{BucketEntry, ClusterState, ClusterView, Ports};

pub(crate) fn state() -> ClusterState {
    let mut random = [0xc0; 32];
    random[16..].fill(0xa0);
    ClusterState::new(random)
}

pub(crate) fn bucket(name: &str, vbuckets: u16) -> BucketEntry {
    BucketEntry {
        name: name.to_owned(),
        uuid: [0x1b; 16],
        vbuckets,
        manifest_uid: 0,
    }
}

/// A view with one bucket "default" of four vBuckets, and the last revision that it saved.
pub(crate) fn view() -> (ClusterView, Arc<AtomicI64>) {
    let saved = Arc::new(AtomicI64::new(0));
    let sink = saved.clone();
    let view = ClusterView::new(
        state(),
        Ports::plain(11210, 8091),
        [bucket("default", 4)],
        Box::new(move |state| {
            sink.store(state.rev, Ordering::SeqCst);
            Ok(())
        }),
    );
    (view.expect("the state can be saved"), saved)
}
