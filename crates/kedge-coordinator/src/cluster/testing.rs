//! Values of tests.

use kedge_cluster::{ClusterMap, MapNode, SERVER_GROUP};

use super::new_uuid;

/// Returns the first map of a cluster of nodes with these names, without buckets.
pub(super) fn map(names: &[&str]) -> ClusterMap {
    let node = |(at, name): (u16, &&str)| MapNode {
        name: (*name).to_owned(),
        uuid: new_uuid(),
        host: "127.0.0.1".to_owned(),
        kv_port: 11_000 + at,
        mgmt_port: 9_000 + at,
        external: None,
        server_group: SERVER_GROUP.to_owned(),
        failed: false,
    };
    let nodes = (0..).zip(names).map(node);
    ClusterMap::new(new_uuid(), 0, nodes).expect("the names are valid")
}
