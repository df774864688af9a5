//! This node as a member of a cluster.
//!
//! The coordination store has the map, which lists the nodes and buckets and assigns vBuckets to nodes. Whoever changes the
//! map puts it there by a transaction that compares. One thread, "kedge-store", adopts each newer map of the store; the
//! maker of a map also sends it to all members, which is faster. The same thread follows the cluster's users. One thread,
//! "kedge-cluster", applies the map to this
//! node's buckets and vBuckets. One thread for each other node, "kedge-peer-NAME", asks it for its state, so that a node
//! that hangs delays nothing else. One thread, "kedge-replicas", changes numbers of replicas and completes copies that have
//! caught up. One thread, "kedge-moves", records finished takeovers in the map.
//!
//! Invariants:
//! * Only maps that are in the store are followed. A map is saved before it is followed. Older maps than the followed one
//!   are never followed again.
//! * A node that has buckets and no map, as it lost the map, follows only a map that has all these buckets. It begins no
//!   cluster.
//! * State on disk alone makes no vBucket active. A vBucket becomes active when the map says so, and either this
//!   process was its replica at that time, or all other nodes of the chain have reported, since the process started,
//!   which map they follow and their positions.
//! * Clients see a map after this node has applied it, and the removal of a bucket before its drop.

mod apply;
mod auto_failover;
mod begin;
mod change;
mod control;
mod data_lock;
mod fence;
mod followed;
mod lease;
mod leases;
mod level;
mod lost_copies;
mod master_keys;
mod membership;
mod moves;
mod orchestrator;
mod peer;
mod peers;
mod rebalance;
mod reconciler;
mod reconnect;
mod replicas;
mod saved_map;
mod sent_change;
mod status;
mod store;
mod store_link;
mod users;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use kedge_bucket::BucketConfig;
use kedge_cluster::{
    CLUSTER_USER, ClusterError, ClusterMap, CompatLevel, Feature, Fences, MapNode, Ports, Revision,
    TakenVbucket, TlsPorts,
};
use kedge_node::registry::BucketRegistry;
use kedge_node::users::Users;
use kedge_sync::{
    RankedMutex,
    ranks::{ClusterChanging, ClusterFenced, ClusterTaken},
};
use zeroize::Zeroizing;

use self::auto_failover::FailoverControl;
use self::followed::Followed;
use self::lost_copies::FoundBuckets;
use self::peer::{ASK_INTERVAL, ASK_TIMEOUT};
use self::peers::Peers;
use self::reconnect::Restart;
use self::store::Store;
use self::users::ClusterUsers;
use crate::lease::NodeLease;
use crate::replication::{NodeIdentity, Replicator};

pub use self::begin::{ClusterSetup, NodeOptions, create, new_uuid, stored_map};
pub use self::saved_map::{MAP_FILE, check_alone};
pub use crate::lease::LeaseOptions;

/// The longest wait of the maker of a change for the nodes that have to apply its map.
const APPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of replicas of the buckets of a cluster that a single node creates.
const REPLICAS_DEFAULT: u8 = 1;

/// The work of a thread, until the server ends.
type ThreadBody = fn(&Weak<ClusterNode>);

/// This node as a member of a cluster. Share it as `Arc<ClusterNode>`.
pub struct ClusterNode {
    followed: Arc<Followed>,
    peers: Arc<Peers>,
    store: Arc<Store>,
    registry: Arc<BucketRegistry>,
    replicator: Arc<Replicator>,
    /// Locked during a change.
    changing: RankedMutex<ClusterChanging, ()>,
    /// The fenced nodes, which are about to be failed over, by attempt, and the ends of the fences.
    fenced: RankedMutex<ClusterFenced, Fences<std::time::Instant>>,
    failovers: Arc<FailoverControl>,
    /// This node's copy of the cluster's users.
    users: Arc<Users>,
    shared_users: Arc<ClusterUsers>,
    /// vBuckets that were taken over, until the map contains that.
    taken: RankedMutex<ClusterTaken, Vec<TakenVbucket>>,
    lease_options: LeaseOptions,
    /// The identity of the lock on the data directory.
    data_lock: String,
    /// The lease, once it has started.
    lease: OnceLock<Arc<NodeLease>>,
    /// This node, for its threads.
    this: Weak<Self>,
    /// True once this process has applied a map.
    begun: AtomicBool,
    restart: Restart,
}

impl std::fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterNode")
            .field("node", &self.name())
            .finish_non_exhaustive()
    }
}

impl ClusterNode {
    /// Creates the node, with the map that it followed last. Nothing runs yet. If the coordination store has no map, the
    /// node creates the cluster, with `create` as its first bucket. `ports` are those at which the node listens.
    ///
    /// # Errors
    /// `Membership` when the node cannot be a member under its name, with the reason; errors of the node's file.
    pub fn open(
        mut setup: ClusterSetup,
        registry: Arc<BucketRegistry>,
        replicator: Arc<Replicator>,
        users: Arc<Users>,
        (create, ports): (Option<&BucketConfig>, Ports),
    ) -> Result<Arc<Self>, ClusterError> {
        let found = FoundBuckets::of(&registry)?;
        let level = setup.options.release.levels.highest;
        let restart = Restart::now(setup.was_member());
        setup.has_master_key = registry.master_keys().is_some();
        let started = begin::start(&setup, ports, &found, |node| {
            if !found.is_empty() {
                let dir = setup.file.dir();
                return Err(ClusterError::Membership(format!(
                    "{} has buckets and no {MAP_FILE}, and the coordination store has no map; a new cluster begins \
                     with an empty directory",
                    dir.display()
                )));
            }
            master_keys::require_of_first(create, setup.has_master_key)?;
            first_map(vec![node], REPLICAS_DEFAULT, create, level)
        })?;
        replicator.set_identity(NodeIdentity {
            node: setup.options.name.clone(),
            user: CLUSTER_USER.to_owned(),
            password: Zeroizing::new(setup.secret.text().to_owned()),
            tls: setup.options.tls.clone(),
        });
        let store = setup.store;
        let data_lock = data_lock::identity(setup.file.dir(), store.is_remote());
        let followed = Followed::new(
            started,
            setup.access,
            setup.file,
            store.clone(),
            registry.clone(),
        );
        let followed = Arc::new(followed);
        let node = Arc::new_cyclic(|this: &Weak<Self>| Self {
            peers: Arc::new(Peers::new(followed.clone())),
            failovers: Arc::new(FailoverControl::new(
                store.clone(),
                registry.clone(),
                (followed.name(), new_uuid()),
                setup.options.lease.timing.time(),
            )),
            followed,
            store,
            registry,
            replicator,
            users,
            shared_users: setup.users,
            changing: RankedMutex::default(),
            fenced: RankedMutex::default(),
            taken: RankedMutex::default(),
            lease_options: setup.options.lease,
            data_lock,
            lease: OnceLock::new(),
            this: this.clone(),
            begun: AtomicBool::new(false),
            restart,
        });
        node.shared_users
            .belong_to(node.followed.clone(), node.peers.clone());
        node.users.share(node.shared_users.clone());
        Ok(node)
    }

    /// Starts asking the other nodes, and following the store and the map.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        // Before any vBucket becomes active.
        let lease = self.start_lease()?;
        let _ = self.lease.set(lease);
        self.peers.start();
        let heir = self.this.clone();
        self.replicator.set_heir(Arc::new(move |taken| {
            if let Some(node) = Self::alive(&heir) {
                node.took_over(taken);
            }
        }));
        let threads: [(&str, ThreadBody); 4] = [
            ("kedge-store", store_link::run),
            ("kedge-orchestrator", orchestrator::run),
            ("kedge-replicas", replicas::run),
            ("kedge-moves", moves::run),
        ];
        for (name, run) in threads {
            let node = self.this.clone();
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run(&node))?;
        }
        let node = self.clone();
        std::thread::Builder::new()
            .name("kedge-cluster".to_owned())
            .spawn(move || apply::run(&node))
    }

    /// Ends the threads. Those that communicate with other nodes or with the store are not awaited: they have no further
    /// effect.
    pub fn stop(&self) {
        self.followed.stop();
        self.peers.poke();
        if let Some(lease) = self.lease.get() {
            lease.stop();
        }
    }

    /// Returns the name of this node.
    #[must_use]
    pub fn name(&self) -> &str {
        self.followed.name()
    }

    /// Returns the default number of replicas of a bucket.
    #[must_use]
    pub fn replicas(&self) -> u8 {
        let map = self.followed.map();
        map.map_or(REPLICAS_DEFAULT, |map| map.replicas)
    }

    /// Calls `tell` once this node has applied the map and serves: its buckets are loaded, and all its active vBuckets are
    /// active.
    pub fn when_ready(&self, tell: impl FnOnce() + Send + 'static) {
        let lease = self.lease.get().cloned();
        self.followed
            .when_applied(Revision::default(), move || match lease {
                Some(lease) => lease.when_serving(tell),
                None => tell(),
            });
    }

    /// Adopts a map of the store that is newer than the followed one. False if it is not newer.
    ///
    /// # Errors
    /// `Map` when it is no map of this cluster; `Save`, and it is not followed.
    pub(super) fn adopt(&self, map: ClusterMap) -> Result<bool, ClusterError> {
        let before = self.followed.map();
        let is_known = |node: u16| before.as_ref().is_some_and(|before| before.is_member(node));
        let has_new_members = !map.members().all(is_known);
        let is_new = self.followed.adopt(map)?;
        if is_new {
            self.peers.follow();
            self.followed.wake.notify_all();
            if let Some(lease) = self.lease.get().filter(|_| has_new_members) {
                // A new member may fail this node over when the record shows that this node knows it.
                lease.renew();
            }
        }
        Ok(is_new)
    }

    /// Returns the node if it still exists; `None` after the end of the server.
    fn alive(node: &Weak<Self>) -> Option<Arc<Self>> {
        node.upgrade().filter(|node| !node.followed.is_stopping())
    }
}

/// Creates the first map of a cluster of these nodes, at that level, with a bucket if there is one.
///
/// # Errors
/// `Map` when the nodes cannot be those of a cluster.
pub fn first_map(
    nodes: Vec<MapNode>,
    replicas: u8,
    bucket: Option<&BucketConfig>,
    level: CompatLevel,
) -> Result<ClusterMap, ClusterError> {
    let has_tls = level >= Feature::TlsPorts.level();
    let nodes = nodes.into_iter().map(|node| MapNode {
        tls: if has_tls {
            node.tls
        } else {
            TlsPorts::default()
        },
        ..node
    });
    let mut map = ClusterMap::new(new_uuid(), replicas, nodes)?;
    map.level = level;
    if let Some(config) = bucket {
        let mut config = config.clone();
        config.replicas = replicas;
        let settings = serde_json::to_value(&config).map_err(ClusterError::Damaged)?;
        map.add_bucket(&config.name, settings, config.vbuckets, replicas)?;
    }
    Ok(map)
}

#[cfg(test)]
pub(crate) mod testing;
