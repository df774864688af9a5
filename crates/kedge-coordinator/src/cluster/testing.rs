//! Values of tests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kedge_auth::UserStore;
use kedge_bucket::{Completion, Completions, Cookie, RecoveryMode};
use kedge_cluster::{ClusterMap, MapNode, Ports, Release, SERVER_GROUP, TlsPorts};
use kedge_coordination::lease::LeaseTiming;
use kedge_coordination::{StoreAddress, Transaction};
use kedge_disk::{Disk, SimDisk};
use kedge_executor::ManualExecutor;
use kedge_node::registry::{BucketRegistry, RegistrySetup};
use kedge_node::users::Users;
use kedge_types::SystemClock;

use super::begin::stamped;
use super::store::{PutMap, StoredMap};
use super::{ClusterNode, ClusterSetup, LeaseOptions, NodeOptions, new_uuid};
use crate::replication::Replicator;

/// Returns the first map of a cluster of nodes with these names, without buckets.
pub(super) fn map(names: &[&str]) -> ClusterMap {
    let node = |(at, name): (u16, &&str)| MapNode {
        name: (*name).to_owned(),
        uuid: new_uuid(),
        host: "127.0.0.1".to_owned(),
        kv_port: 11_000 + at,
        mgmt_port: 9_000 + at,
        tls: TlsPorts::default(),
        external: None,
        server_group: SERVER_GROUP.to_owned(),
        failed: false,
    };
    let nodes = (0..).zip(names).map(node);
    ClusterMap::new(new_uuid(), 0, nodes).expect("the names are valid")
}

const PORTS: Ports = Ports::plain(1, 2);

struct Nobody;

impl Completions for Nobody {
    fn complete(&self, done: &mut Vec<(Cookie, Completion)>) {
        done.clear();
    }
}

/// Returns the registry of a node without buckets, and its clock. None of its tasks run.
pub(crate) fn registry() -> (Arc<BucketRegistry>, Arc<SystemClock>) {
    let (disk, data_dir) = data_dir();
    registry_at(disk, data_dir)
}

fn data_dir() -> (Arc<dyn Disk>, &'static Path) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let data_dir = Path::new("/data");
    disk.create_dir_all(data_dir).expect("a directory");
    (disk, data_dir)
}

fn registry_at(disk: Arc<dyn Disk>, data_dir: &Path) -> (Arc<BucketRegistry>, Arc<SystemClock>) {
    let (executor, _) = ManualExecutor::new();
    let clock = Arc::new(SystemClock::new());
    let setup = RegistrySetup {
        disk,
        data_dir: data_dir.to_owned(),
        master_keys: None,
        clock: clock.clone(),
        owner: executor.register("server").expect("it runs"),
        executor,
        completions: Arc::new(Nobody),
        serving: Arc::default(),
        threads: 1,
        recovery: RecoveryMode::Strict,
        clustered: true,
        on_fatal: Arc::new(|why| panic!("{why}")),
    };
    let registry = BucketRegistry::open(setup, PORTS).expect("no buckets");
    (Arc::new(registry), clock)
}

/// Creates a cluster of one node with the name `n_0`, whose coordination store is in a directory. None of its threads run: it
/// follows the store when it changes the map.
pub(super) fn node(store: &Path) -> Arc<ClusterNode> {
    let (disk, data_dir) = data_dir();
    let timing = LeaseTiming::new(Duration::from_secs(5), None).expect("a lease time");
    let options = NodeOptions {
        coordinator: StoreAddress::from(store),
        name: "n_0".to_owned(),
        host: "127.0.0.1".to_owned(),
        external: None,
        external_tls: TlsPorts::default(),
        server_group: SERVER_GROUP.to_owned(),
        lease: LeaseOptions {
            timing,
            pause: None,
            watchdog: false,
        },
        release: Release::CURRENT,
        tls: None,
    };
    let setup = ClusterSetup::prepare(options, &disk, data_dir).expect("the store can be read");
    let (registry, clock) = registry_at(disk, data_dir);
    let replicator = Arc::new(Replicator::new(&registry, &clock).expect("a poll"));
    let users = UserStore::new().expect("randomness");
    let users = Arc::new(Users::new(users, Box::new(|_| Ok(()))));
    ClusterNode::open(setup, registry, replicator, users, (None, PORTS)).expect("a new cluster")
}

/// Changes the map in the store of a node, as another node would.
pub(super) fn change(node: &ClusterNode, plan: impl FnOnce(&ClusterMap) -> ClusterMap) {
    let StoredMap { map, revision } = stored(node);
    let next = stamped(plan(&map));
    let put = node
        .store
        .put_map(Some(revision), &next, &Transaction::new());
    assert!(matches!(put, Ok(PutMap::Done)), "{put:?}");
}

/// Returns the map in the store of a node.
pub(super) fn stored(node: &ClusterNode) -> StoredMap {
    let stored = node.store.read_map().expect("the store can be read");
    stored.expect("there is a cluster")
}
