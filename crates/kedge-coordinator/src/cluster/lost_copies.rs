//! A member that starts without copies that it had: with an empty data directory, as after the loss of its disk, or without
//! the directory of a bucket.
//!
//! Others count its copies: if the remaining ones were lost too, an empty one would be promoted, and acknowledged writes would
//! be lost. So the node has another member fail it over before it takes part, and is recovered by an administrator.
//!
//! A bucket is one that the node has had if its file says that it was created here ([`SavedNode::created`]). A node without
//! that file has had all buckets of the map in which it has copies, if it has run before.
//!
//! [`SavedNode::created`]: super::saved_map::SavedNode

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kedge_cluster::{ClusterError, ClusterMap, MapBucket, MapNode};
use kedge_coordination::CoordinationError;
use kedge_node::registry::{BucketRegistry, RegistryError};

use super::begin::ClusterSetup;
use super::store::StoredState;

/// The time of a request beyond that of two leases, which the end of this node's last lease may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after all members have refused.
const PAUSE: Duration = Duration::from_millis(500);

/// The buckets that a node finds in its data directory.
#[derive(Debug, Default)]
pub(super) struct FoundBuckets {
    /// The uuids of the served buckets, by name.
    served: BTreeMap<String, String>,
    /// The names of directories that an operator has to repair first.
    unserved: BTreeSet<String>,
}

impl FoundBuckets {
    /// Reads which buckets a registry has.
    ///
    /// # Errors
    /// `Membership` when the directory cannot be read.
    pub(super) fn of(registry: &BucketRegistry) -> Result<Self, ClusterError> {
        let refused = |error: RegistryError| ClusterError::Membership(error.to_string());
        let unserved = registry.unserved().map_err(refused)?;
        let served = registry.list().into_iter().map(|bucket| {
            let config = bucket.config();
            (config.name.clone(), config.uuid.clone())
        });
        Ok(Self {
            served: served.collect(),
            unserved: unserved.into_iter().map(|it| it.name).collect(),
        })
    }

    /// Returns whether there are no buckets.
    pub(super) fn is_empty(&self) -> bool {
        self.served.is_empty()
    }

    /// Returns whether a bucket of the map is missing that the node has had. `created` are the uuids of the buckets that it
    /// has created, if it has its file.
    fn lacks(&self, bucket: &MapBucket, created: Option<&BTreeSet<String>>) -> bool {
        let (Some(uuid), found) = (bucket.uuid(), self.served.get(&bucket.name)) else {
            return false;
        };
        let has_had = created.is_none_or(|created| created.contains(uuid));
        let is_found = match created {
            Some(_) => found.is_some_and(|found| found == uuid),
            // The node follows no map with another bucket of this name.
            None => found.is_some(),
        };
        has_had && !is_found && !self.unserved.contains(&bucket.name)
    }
}

/// Returns whether others count a copy of a node in a bucket.
fn has_copies(bucket: &MapBucket, node: u16) -> bool {
    let coming = bucket.next.values().filter(|next| next.counts);
    let mut chains = bucket.chains.iter().chain(coming.map(|next| &next.chain));
    chains.any(|chain| chain.contains(node))
}

/// Returns the names of the buckets whose directories are missing, and in which others count copies of the node.
fn lost_buckets(
    map: &ClusterMap,
    node: &str,
    found: &FoundBuckets,
    created: Option<&BTreeSet<String>>,
) -> Vec<String> {
    let number = map.node(node).ok().filter(|number| map.is_member(*number));
    let Some(number) = number else {
        return Vec::new();
    };
    let buckets = map.buckets.iter();
    let lost = buckets.filter(|it| has_copies(it, number) && found.lacks(it, created));
    lost.map(|bucket| bucket.name.clone()).collect()
}

/// Copies that a node has lost.
struct LostCopies<'m> {
    /// The description of what is missing.
    what: String,
    /// The other members.
    others: Vec<&'m MapNode>,
}

impl<'m> LostCopies<'m> {
    /// Returns the copies of the map that are lost; `None` if there are none.
    fn of(setup: &ClusterSetup, map: &'m ClusterMap, found: &FoundBuckets) -> Option<Self> {
        let name = &setup.options.name;
        let created = setup.saved.as_ref().map(|saved| &saved.created);
        let lost = lost_buckets(map, name, found, created);
        if lost.is_empty() {
            return None;
        }
        let what = match created.is_none() && found.is_empty() {
            true => "the data directory is empty".to_owned(),
            false => format!(
                "the directories of buckets are missing: {}",
                lost.join(", ")
            ),
        };
        let others = map.members().filter_map(|number| map.nodes.get(&number));
        let others = others.filter(|other| other.name != *name).collect();
        Some(Self { what, others })
    }
}

/// Has another member fail this node over if copies are missing that it had. The only member goes on without them: they were
/// the last ones.
///
/// # Errors
/// `Membership` when no other member can, with the remedy.
pub(super) fn fail_over_if_lost(
    setup: &ClusterSetup,
    state: &StoredState,
    found: &FoundBuckets,
) -> Result<(), ClusterError> {
    let name = &setup.options.name;
    let map = state.map.as_ref().map(|stored| &stored.map);
    let map = map.filter(|_| state.has_run || setup.saved.is_some());
    let lost = map.and_then(|map| LostCopies::of(setup, map, found));
    let Some(LostCopies { what, others }) = lost else {
        return Ok(());
    };
    if others.is_empty() {
        tracing::error!(
            node = name,
            what,
            "there is no other member: the node begins with empty copies"
        );
        return Ok(());
    }
    tracing::error!(
        node = name,
        what,
        "the map gives this node copies that it does not have any more: another node is asked to fail it over"
    );
    let patience = setup.options.lease.timing.time() * 2 + REQUEST_TIMEOUT;
    let deadline = Instant::now() + patience;
    loop {
        let why = match ask_all(setup, &others, patience) {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        if is_failed_over(setup, found) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(ClusterError::Membership(format!(
                "{what}, the map gives this node copies, and no other member fails it over ({why}). Start the node with its \
                 data, or give up what only this node had: kedge cluster failover {name} --force"
            )));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns whether no copies of this node count any more, as after a request whose answer was lost.
fn is_failed_over(setup: &ClusterSetup, found: &FoundBuckets) -> bool {
    let stored = setup.store.read_map().ok().flatten();
    stored.is_some_and(|stored| LostCopies::of(setup, &stored.map, found).is_none())
}

/// Asks one member after the other to fail this node over.
fn ask_all(setup: &ClusterSetup, others: &[&MapNode], patience: Duration) -> Result<(), String> {
    let mut why = String::new();
    for other in others {
        match ask(setup, other, patience) {
            Ok(()) => {
                tracing::error!(
                    node = setup.options.name,
                    by = other.name,
                    "the node was failed over, as its copies are gone: kedge cluster recover brings it back"
                );
                return Ok(());
            }
            Err(error) => why = format!("{}: {error}", other.name),
        }
    }
    Err(why)
}

/// Checks that no copies of the followed map are missing, for a start without the coordination store: nobody can fail the
/// node over.
///
/// # Errors
/// `Membership`, with the remedy.
pub(super) fn check_without_store(
    setup: &ClusterSetup,
    map: &ClusterMap,
    found: &FoundBuckets,
    error: &CoordinationError,
) -> Result<(), ClusterError> {
    match LostCopies::of(setup, map, found) {
        Some(LostCopies { what, others }) if !others.is_empty() => {
            Err(ClusterError::Membership(format!(
                "{what}, and without the coordination store the node cannot be failed over: {error}. Start the node with its \
                 data, or when the store can be reached"
            )))
        }
        _ => Ok(()),
    }
}

/// Asks a member to fail this node over.
fn ask(setup: &ClusterSetup, other: &MapNode, patience: Duration) -> Result<(), String> {
    let access = &setup.access;
    let port = access.mgmt_port(other.mgmt_port, other.tls);
    let client = access.client(&other.name, &other.host, port);
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
    use kedge_cluster::{Chain, NextChain};
    use serde_json::json;

    use super::super::testing::map;
    use super::*;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// A map of two nodes and a bucket with the uuid "1" on both.
    fn two_nodes() -> ClusterMap {
        let mut map = map(&["a", "b"]);
        let added = map.add_bucket("bucket", json!({ "uuid": "1" }), 4, 1);
        added.expect("no node has failed");
        map
    }

    #[test]
    fn created_bucket_is_lost_unless_it_is_found_or_waits_for_an_operator() {
        let map = two_nodes();
        let lost = |found: &FoundBuckets, created: Option<&[&str]>| {
            let created = created.map(set);
            !lost_buckets(&map, "a", found, created.as_ref()).is_empty()
        };
        let none = FoundBuckets::default();
        let served = |uuid: &str| FoundBuckets {
            served: BTreeMap::from([("bucket".to_owned(), uuid.to_owned())]),
            ..FoundBuckets::default()
        };
        let unserved = FoundBuckets {
            unserved: set(&["bucket"]),
            ..FoundBuckets::default()
        };
        // The creation was interrupted, or has not begun.
        assert!(!lost(&none, Some(&[])) && !lost(&none, Some(&["0"])));
        assert!(lost(&none, Some(&["1"])) && lost(&none, None));
        assert!(lost(&served("0"), Some(&["1"])));
        for found in [&served("1"), &unserved] {
            assert!(!lost(found, Some(&["1"])) && !lost(found, None));
        }
        assert!(!lost(&served("0"), None));
    }

    #[test]
    fn copies_of_a_member_count_until_it_is_failed_over() {
        let (map, found) = (two_nodes(), FoundBuckets::default());
        let has_lost = |map: &ClusterMap, node| !lost_buckets(map, node, &found, None).is_empty();
        assert!(has_lost(&map, "a") && !has_lost(&map, "c"));
        let failed = kedge_cluster::plan_failover(&map, 0, &BTreeMap::new(), true);
        let failed = failed.expect("the other one is there").map;
        assert!(!has_lost(&failed, "a") && has_lost(&failed, "b"));
        // Copies of a target chain are as good when SyncWrites need them.
        let mut moving = map;
        moving.buckets[0].chains = vec![Chain(vec![Some(1)])];
        for counts in [false, true] {
            let next = NextChain {
                chain: Chain(vec![Some(0)]),
                counts,
            };
            moving.buckets[0].next = BTreeMap::from([(0, next)]);
            assert_eq!(has_lost(&moving, "a"), counts);
        }
    }
}
