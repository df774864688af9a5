//! The start of a node: whether it creates the cluster, is a member of it, or waits until it is made one.

use std::collections::BTreeSet;
use std::time::Duration;

use kedge_cluster::{
    ClusterError, ClusterMap, ClusterSecret, External, FailoverAttempt, MapNode, NodeRecord, Ports,
    Release, TlsPorts, uuid_text,
};
use kedge_coordination::{CoordinationError, StoreAddress, Transaction};
use kedge_disk::Disk;
use kedge_node::coordination::NodeReport;
use kedge_node::node_access::NodeAccess;
use kedge_node::users::Users;
use kedge_tls::ServerTls;

use std::path::Path;
use std::sync::Arc;

use super::lost_copies::{FoundBuckets, check_without_store, fail_over_if_lost};
use super::saved_map::{NodeFile, SavedNode};
use super::store::{PutMap, Store, StoreError, StoredState, record_put};
use super::users::ClusterUsers;
use crate::lease::LeaseOptions;

/// The timeout of the question whether another process has the name.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings of a node of a cluster.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The coordination store of the cluster.
    pub coordinator: StoreAddress,
    /// The name of the node.
    pub name: String,
    /// The host at which the other nodes and the clients reach it.
    pub host: String,
    /// The address for clients of another network.
    pub external: Option<External>,
    /// The ports of TLS for clients of another network.
    pub external_tls: TlsPorts,
    /// The server group.
    pub server_group: String,
    /// The parameters of the lease.
    pub lease: LeaseOptions,
    /// The release of the process.
    pub release: Release,
    /// TLS of this node, if nodes use it among themselves.
    pub tls: Option<ServerTls>,
}

/// A node that knows the secret of its cluster.
#[derive(Clone, Debug)]
pub struct ClusterSetup {
    pub(super) options: NodeOptions,
    pub(super) store: Arc<Store>,
    pub(super) secret: ClusterSecret,
    /// The way to the other nodes.
    pub(super) access: Arc<NodeAccess>,
    pub(super) file: NodeFile,
    /// The content of the node's file, if it has one.
    pub(super) saved: Option<SavedNode>,
    pub(super) users: Arc<ClusterUsers>,
    /// True if the node has a master key of encryption at rest.
    pub(super) has_master_key: bool,
}

impl ClusterSetup {
    /// Reads the secret of the cluster, from the coordination store or from the data directory. The first node creates it.
    ///
    /// # Errors
    /// `Membership` when the data directory belongs to another node, or the store cannot be reached and the node was
    /// never a member; the errors of the node's file.
    pub fn prepare(
        options: NodeOptions,
        disk: &Arc<dyn Disk>,
        data_dir: &Path,
    ) -> Result<Self, ClusterError> {
        kedge_cluster::check_node_name(&options.name).map_err(ClusterError::Membership)?;
        let file = NodeFile::new(disk.clone(), data_dir, &options.name);
        let saved = file.load()?;
        let seen = saved.as_ref().and_then(|saved| saved.seen);
        let store = Store::new(options.coordinator.clone(), seen);
        let known = saved.as_ref().map(|saved| saved.secret.clone());
        let secret = match (
            store.ensure_secret(known.clone().unwrap_or_else(new_secret)),
            known,
        ) {
            (Ok(secret), _) => secret,
            (Err(StoreError::Store(error)), Some(known)) => {
                tracing::warn!(%error, "the node starts without the coordination store");
                known
            }
            (Err(error), _) => return Err(refused(error)),
        };
        let store = Arc::new(store);
        let last = saved.as_ref().and_then(|saved| saved.map.as_ref());
        let last = last.map(|map| map.cluster_uuid.clone());
        Ok(Self {
            users: Arc::new(ClusterUsers::new(store.clone(), last)),
            access: Arc::new(NodeAccess::new(secret.text(), options.tls.clone())),
            options,
            store,
            secret,
            file,
            saved,
            has_master_key: false,
        })
    }

    /// Shares the node's users with the cluster, and follows those of the coordination store if it has any and can be
    /// reached.
    pub fn share_users(&self, users: &Users) {
        self.users.begin(users);
        users.share(self.users.clone());
    }

    /// Returns whether an earlier process of the node was a member.
    pub(super) fn was_member(&self) -> bool {
        self.saved.as_ref().is_some_and(|saved| saved.map.is_some())
    }

    /// Returns the secret.
    #[must_use]
    pub fn secret(&self) -> &str {
        self.secret.text()
    }

    /// Returns the name of the node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Returns the names of the node's host and of its host in another network.
    pub fn hosts(&self) -> impl Iterator<Item = String> + use<> {
        let external = self.options.external.as_ref();
        let external = external.map(|external| external.host.clone());
        [self.options.host.clone()].into_iter().chain(external)
    }

    /// Returns the node as an entry of the map.
    fn entry(&self, uuid: String, ports: Ports) -> MapNode {
        MapNode {
            name: self.options.name.clone(),
            uuid,
            host: self.options.host.clone(),
            kv_port: ports.kv,
            mgmt_port: ports.mgmt,
            tls: TlsPorts {
                kv: ports.kv_tls,
                mgmt: ports.mgmt_tls,
                ..self.options.external_tls
            },
            external: self.options.external.clone(),
            server_group: self.options.server_group.clone(),
            failed: false,
        }
    }
}

fn refused(error: StoreError) -> ClusterError {
    match error {
        StoreError::Content(error) => error,
        StoreError::Store(error) => ClusterError::Membership(error.to_string()),
    }
}

/// The way in which a node starts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Start {
    /// It creates the cluster.
    Create,
    /// It is the member with this uuid.
    Member { uuid: String },
    /// It waits until it is added, with this uuid if it has one.
    Wait { uuid: Option<String> },
}

/// Returns the way in which a node starts.
///
/// # Errors
/// `Membership`, with the reason and the remedy.
fn decide(
    name: &str,
    saved: Option<&SavedNode>,
    stored: Option<&ClusterMap>,
    record: Option<&NodeRecord>,
) -> Result<Start, ClusterError> {
    let refused = |why: String| Err(ClusterError::Membership(why));
    let known = saved.map(|saved| &saved.uuid);
    let followed = saved.and_then(|saved| saved.map.as_ref());
    let Some(stored) = stored else {
        return match followed {
            None => Ok(Start::Create),
            Some(map) => refused(format!(
                "the coordination store has no map, and this node belongs to the cluster {}: give --coordinator as \
                 before, or restore the store from a backup",
                map.cluster_uuid
            )),
        };
    };
    if let Some(map) = followed
        && map.cluster_uuid != stored.cluster_uuid
    {
        return refused(format!(
            "the coordination store has the cluster {}, and this node belongs to {}: give --coordinator as before, or \
             an empty data directory",
            stored.cluster_uuid, map.cluster_uuid
        ));
    }
    let taken = |uuid: &String| {
        refused(format!(
            "another node is called \"{name}\", with the uuid {uuid}: give another --node-name, or the data directory \
             of that node"
        ))
    };
    if let Some(node) = stored.nodes.values().find(|node| node.name == name) {
        return match known {
            Some(known) if *known != node.uuid => taken(&node.uuid),
            _ => Ok(Start::Member {
                uuid: node.uuid.clone(),
            }),
        };
    }
    match (record.map(|record| &record.uuid), known) {
        (Some(uuid), Some(known)) if uuid != known => taken(uuid),
        (uuid, known) => Ok(Start::Wait {
            uuid: known.or(uuid).cloned(),
        }),
    }
}

/// Returns whether another process answers as the node at the address that is known of it.
fn runs_elsewhere(setup: &ClusterSetup, state: &StoredState, ports: Ports) -> bool {
    let name = &setup.options.name;
    let of_map = state
        .map
        .iter()
        .flat_map(|stored| stored.map.nodes.values());
    let access = &setup.access;
    let of_map = of_map
        .filter(|node| node.name == *name)
        .map(|node| (&node.host, node.mgmt_port, node.tls));
    let of_record = state
        .record
        .iter()
        .map(|it| (&it.host, it.mgmt_port, it.tls));
    let own = TlsPorts {
        mgmt: ports.mgmt_tls,
        ..TlsPorts::default()
    };
    let own = access.mgmt_port(ports.mgmt, own);
    of_map.chain(of_record).any(|(host, plain, tls)| {
        let port = access.mgmt_port(plain, tls);
        if *host == setup.options.host && port == own {
            // This process has bound the port.
            return false;
        }
        let client = access.client(name, host, port).within(PROBE_TIMEOUT);
        let reply = client.send("GET", "/kedge/cluster/node", "application/json", &[]);
        let report = reply.ok().filter(|reply| reply.is_success());
        let report = report.and_then(|it| serde_json::from_slice::<NodeReport>(&it.body).ok());
        report.is_some_and(|report| report.node == *name)
    })
}

/// The result of a start.
pub(super) struct Started {
    /// The content of the node's file.
    pub(super) saved: SavedNode,
    /// The node as an entry of the map.
    pub(super) entry: MapNode,
    /// The release of this process.
    pub(super) release: Release,
}

/// Creates the cluster, or makes the node one of it, as far as the store can be reached. `first_map` makes the first map
/// of a new cluster, and `found` are the buckets that the node has.
///
/// # Errors
/// `Membership` and `Level`, with the reason and the remedy; `Save`.
pub(super) fn start(
    setup: &ClusterSetup,
    ports: Ports,
    found: &FoundBuckets,
    first_map: impl Fn(MapNode) -> Result<ClusterMap, ClusterError>,
) -> Result<Started, ClusterError> {
    let (name, release) = (&setup.options.name, setup.options.release);
    let started = |uuid: String, map: Option<ClusterMap>| Started {
        entry: setup.entry(uuid.clone(), ports),
        release,
        saved: SavedNode {
            uuid,
            secret: setup.secret.clone(),
            seen: setup.store.seen(),
            created: setup
                .saved
                .as_ref()
                .map_or_else(BTreeSet::new, |saved| saved.created.clone()),
            map,
        },
    };
    let followed = setup.saved.as_ref().and_then(|saved| saved.map.clone());
    loop {
        let state = match (setup.store.read(name), &setup.saved) {
            (Ok(state), _) => state,
            (Err(StoreError::Store(error)), Some(saved)) => {
                if let Some(map) = &followed {
                    release.check(map.level, [])?;
                    check_without_store(setup, map, found, &error)?;
                }
                return Ok(started(saved.uuid.clone(), followed));
            }
            (Err(error), _) => return Err(refused(error)),
        };
        state.check_level(release)?;
        let stored = state.map.as_ref().map(|stored| &stored.map);
        if let Some(map) = stored {
            setup.access.follow_level(map);
        }
        let start = decide(name, setup.saved.as_ref(), stored, state.record.as_ref())?;
        if start != Start::Create && runs_elsewhere(setup, &state, ports) {
            return Err(ClusterError::Membership(format!(
                "another process runs as node \"{name}\": give another --node-name"
            )));
        }
        fail_over_if_lost(setup, &state, found)?;
        let started = match start {
            Start::Create => {
                let known = setup.saved.as_ref().map(|saved| saved.uuid.clone());
                let node = started(known.unwrap_or_else(new_uuid), None);
                match put_first(setup, &node, &stamped(first_map(node.entry.clone())?))? {
                    true => return Ok(node),
                    // Another node was first.
                    false => continue,
                }
            }
            Start::Member { uuid } => started(uuid, followed),
            Start::Wait { uuid } => {
                tracing::warn!(
                    node = name,
                    "the node is no member of the cluster yet: kedge cluster add makes it one"
                );
                started(uuid.unwrap_or_else(new_uuid), followed)
            }
        };
        save_if_new(setup, &started.saved)?;
        put_record(setup, &record_of(setup, &started), state)?;
        return Ok(started);
    }
}

fn record_of(setup: &ClusterSetup, node: &Started) -> NodeRecord {
    NodeRecord::new(&node.entry, node.release).with_master_key(setup.has_master_key)
}

/// Puts the first map of a cluster, with the record of the node. False if there is one, or that is not known.
fn put_first(setup: &ClusterSetup, node: &Started, map: &ClusterMap) -> Result<bool, ClusterError> {
    // Saved before the map that has the uuid.
    setup.file.save(&node.saved)?;
    let record = record_of(setup, node);
    let with = record_put(&setup.options.name, &record);
    let put = setup.store.put_map(None, map, &with).map_err(refused)?;
    let is_done = matches!(put, PutMap::Done);
    if is_done {
        tracing::info!(uuid = map.cluster_uuid, "a cluster begins");
    }
    Ok(is_done)
}

/// Puts the record of the node before it takes part, while the cluster has a level that the release supports: see the
/// invariant of the level. What the store does not take now, the thread "kedge-store" puts later.
fn put_record(
    setup: &ClusterSetup,
    record: &NodeRecord,
    mut state: StoredState,
) -> Result<(), ClusterError> {
    let name = &setup.options.name;
    loop {
        state.check_level(setup.options.release)?;
        let changed = match setup.store.put_record(name, record, &state) {
            Ok(()) => return Ok(()),
            Err(StoreError::Store(CoordinationError::Conflict(_))) => setup.store.read(name),
            Err(error) => Err(error),
        };
        match changed {
            Ok(newer) => state = newer,
            Err(StoreError::Store(error)) => {
                tracing::warn!(%error, "the record of the node is not in the coordination store yet");
                return Ok(());
            }
            Err(error) => return Err(refused(error)),
        }
    }
}

/// Saves the node's file. A start with what is known needs no room on the disk.
fn save_if_new(setup: &ClusterSetup, new: &SavedNode) -> Result<(), ClusterError> {
    let is_known = |known: &SavedNode| known.uuid == new.uuid && known.secret == new.secret;
    match setup.saved.as_ref().is_some_and(is_known) {
        true => Ok(()),
        false => setup.file.save(new),
    }
}

/// Returns the map in a store; `None` if it has none.
///
/// # Errors
/// `Membership` when the store cannot be read; `Damaged`, `Version`, `Map`.
pub fn stored_map(address: &StoreAddress) -> Result<Option<ClusterMap>, ClusterError> {
    let stored = Store::new(address.clone(), None).read_map();
    Ok(stored.map_err(refused)?.map(|stored| stored.map))
}

/// Creates a cluster with this map in a store, and its secret, unless there is one. Returns the map of the store.
///
/// # Errors
/// Those of [`stored_map`].
pub fn create(address: &StoreAddress, map: &ClusterMap) -> Result<ClusterMap, ClusterError> {
    let store = Store::new(address.clone(), None);
    store.ensure_secret(new_secret()).map_err(refused)?;
    let map = stamped(map.clone());
    match store
        .put_map(None, &map, &Transaction::new())
        .map_err(refused)?
    {
        PutMap::Done => Ok(map),
        PutMap::Conflict(Some(there)) => Ok(there.map),
        PutMap::Conflict(None) | PutMap::Unknown => {
            let map = stored_map(address)?;
            map.ok_or_else(|| {
                let why = "the coordination store did not take the map; try again";
                ClusterError::Membership(why.to_owned())
            })
        }
    }
}

/// Returns random bytes.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    bytes
}

/// Creates a uuid.
#[must_use]
pub fn new_uuid() -> String {
    uuid_text(random())
}

/// Returns a map that is to be put into the store, with the id of its change.
pub(super) fn stamped(map: ClusterMap) -> ClusterMap {
    map.stamped(u64::from_le_bytes(random()))
}

pub(super) fn new_attempt() -> FailoverAttempt {
    FailoverAttempt(u64::from_le_bytes(random()))
}

pub(super) fn new_secret() -> ClusterSecret {
    ClusterSecret::new(random())
}

#[cfg(test)]
mod tests {
    use super::super::testing::map;
    use super::*;

    fn saved(uuid: &str, map: Option<ClusterMap>) -> SavedNode {
        SavedNode {
            uuid: uuid.to_owned(),
            secret: new_secret(),
            seen: None,
            created: BTreeSet::new(),
            map,
        }
    }

    #[test]
    fn start_follows_from_the_store_and_the_data_directory() {
        let stored = map(&["a", "b"]);
        let uuid = |name: &str| {
            let found = stored.nodes.values().find(|node| node.name == name);
            found.expect("it is a member").uuid.clone()
        };
        let of_c = new_uuid();
        let mut c = stored.nodes[&0].clone();
        c.uuid.clone_from(&of_c);
        let record = NodeRecord::new(&c, Release::CURRENT);
        let mut other = stored.clone();
        other.cluster_uuid = new_uuid();
        let wait = |uuid: Option<&String>| {
            Ok(Start::Wait {
                uuid: uuid.cloned(),
            })
        };
        let member = |name: &str| Ok(Start::Member { uuid: uuid(name) });
        type Given<'g> = (
            &'g str,
            Option<SavedNode>,
            Option<&'g ClusterMap>,
            Option<&'g NodeRecord>,
        );
        let table: [(Given<'_>, Result<Start, &str>); 11] = [
            (("a", None, None, None), Ok(Start::Create)),
            // It had begun to create a cluster.
            (
                ("a", Some(saved(&of_c, None)), None, None),
                Ok(Start::Create),
            ),
            (
                (
                    "a",
                    Some(saved(&uuid("a"), Some(stored.clone()))),
                    None,
                    None,
                ),
                Err("has no map"),
            ),
            (("a", None, Some(&stored), None), member("a")),
            (
                ("b", Some(saved(&uuid("b"), None)), Some(&stored), None),
                member("b"),
            ),
            (
                ("b", Some(saved(&of_c, None)), Some(&stored), None),
                Err("another node is called"),
            ),
            (
                (
                    "b",
                    Some(saved(&uuid("b"), Some(other))),
                    Some(&stored),
                    None,
                ),
                Err("this node belongs to"),
            ),
            (("c", None, Some(&stored), None), wait(None)),
            (("c", None, Some(&stored), Some(&record)), wait(Some(&of_c))),
            (
                ("c", Some(saved(&of_c, None)), Some(&stored), Some(&record)),
                wait(Some(&of_c)),
            ),
            (
                (
                    "c",
                    Some(saved(&uuid("a"), None)),
                    Some(&stored),
                    Some(&record),
                ),
                Err("another node is called"),
            ),
        ];
        for (at, ((name, saved, stored, record), expected)) in table.into_iter().enumerate() {
            match (decide(name, saved.as_ref(), stored, record), expected) {
                (Ok(start), Ok(expected)) => assert_eq!(start, expected, "{at}"),
                (Err(error), Err(says)) => {
                    assert!(error.to_string().contains(says), "{at}: {error}");
                }
                (start, expected) => panic!("{at}: {start:?}, not {expected:?}"),
            }
        }
    }
}
