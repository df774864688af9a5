//! A member that starts with an empty data directory, as after the loss of its disk.
//!
//! Others count its copies: if the remaining ones were lost too, an empty one would be promoted, and acknowledged writes would
//! be lost. So the node has another member fail it over before it takes part, and is recovered by an administrator.

use std::time::{Duration, Instant};

use kedge_cluster::{CLUSTER_USER, ClusterError, ClusterMap, MapNode};
use kedge_node::http_client::HttpClient;

use super::begin::ClusterSetup;
use super::store::StoredState;

/// The time of a request beyond that of two leases, which the end of this node's last lease may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after all members have refused.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns whether the map gives a member copies.
fn has_copies(map: &ClusterMap, node: &str) -> bool {
    let Ok(number) = map.node(node) else {
        return false;
    };
    let mut chains = map.buckets.iter().flat_map(|bucket| &bucket.chains);
    map.is_member(number) && chains.any(|chain| chain.contains(number))
}

/// Has another member fail this node over, whose data directory is empty, if it is a member that has run before. The only member
/// goes on without copies: they were the last ones.
///
/// # Errors
/// `Membership` when no other member can, with the remedy.
pub(super) fn fail_over_if_lost(
    setup: &ClusterSetup,
    state: &StoredState,
) -> Result<(), ClusterError> {
    let name = &setup.options.name;
    let map = state.map.as_ref().map(|stored| &stored.map);
    let Some(map) = map.filter(|map| state.has_run && has_copies(map, name)) else {
        return Ok(());
    };
    let others = map.members().filter_map(|number| map.nodes.get(&number));
    let others: Vec<&MapNode> = others.filter(|other| other.name != *name).collect();
    if others.is_empty() {
        tracing::error!(
            node = name,
            "the data directory is empty, and there is no other member: the node begins with empty copies"
        );
        return Ok(());
    }
    tracing::error!(
        node = name,
        "the data directory is empty, and the map gives this node copies: another node is asked to fail it over"
    );
    let patience = setup.options.lease.timing.time() * 2 + REQUEST_TIMEOUT;
    let deadline = Instant::now() + patience;
    loop {
        let mut why = String::new();
        for other in &others {
            match ask(setup, other, patience) {
                Ok(()) => {
                    tracing::error!(
                        node = name,
                        by = other.name,
                        "the node was failed over, as its copies are gone: kedge cluster recover brings it back"
                    );
                    return Ok(());
                }
                Err(error) => why = format!("{}: {error}", other.name),
            }
        }
        if Instant::now() >= deadline {
            return Err(ClusterError::Membership(format!(
                "the data directory is empty, the map gives this node copies, and no other member fails it over ({why}). Start \
                 the node with its data, or give up what only this node had: kedge cluster failover {name} --force"
            )));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Asks a member to fail this node over.
fn ask(setup: &ClusterSetup, other: &MapNode, patience: Duration) -> Result<(), String> {
    let client = HttpClient::new(&other.host, other.mgmt_port, CLUSTER_USER, setup.secret());
    let form = format!("node={}", setup.options.name);
    let reply = client.within(patience).send(
        "POST",
        "/kedge/cluster/failover",
        "application/x-www-form-urlencoded",
        form.as_bytes(),
    );
    let reply = reply.map_err(|error| error.to_string())?;
    match reply.is_success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&reply.body).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::map;
    use super::has_copies;

    #[test]
    fn member_has_copies_until_it_is_failed_over() {
        let mut map = map(&["a", "b"]);
        assert!(!has_copies(&map, "a"), "there is no bucket");
        let added = map.add_bucket("bucket", serde_json::json!({}), 4, 1);
        added.expect("no node has failed");
        assert!(has_copies(&map, "a") && !has_copies(&map, "c"));
        let failed = kedge_cluster::plan_failover(&map, 0, &Default::default(), true);
        let failed = failed.expect("the other one is there").map;
        assert!(!has_copies(&failed, "a") && has_copies(&failed, "b"));
    }
}
