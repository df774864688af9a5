//! This node as a member of a cluster of a fixed topology.
//!
//! The cluster file lists the nodes; the map assigns vBuckets to nodes and lists the buckets. The newest map is valid,
//! and spreads from node to node: each asks all others twice a second, and gets a new one at once from its maker. One
//! thread, "kedge-cluster", applies the map to this node's buckets and vBuckets. One thread for each other node,
//! "kedge-peer-NAME", communicates with it, so that a node that hangs delays nothing else. One thread,
//! "kedge-replicas", changes numbers of replicas and completes copies that have caught up.
//!
//! Invariants:
//! * A map is saved before it is followed. Older maps than the followed one are never followed again.
//! * A node that has buckets and no map, as it lost the map, follows only a map that has all these buckets. It begins no
//!   cluster.
//! * State on disk alone makes no vBucket active. A vBucket becomes active when the map says so, and either this
//!   process was its replica at that time, or all other nodes of the chain have reported, since the process started,
//!   which map they follow and their positions.
//! * Clients see a map after this node has applied it, and the removal of a bucket before its drop.

mod apply;
mod change;
mod control;
mod fence;
mod moves;
mod peer;
mod reconciler;
mod replicas;
mod status;
mod store;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use kedge_bucket::BucketConfig;
use kedge_cluster::{CLUSTER_USER, ClusterError, ClusterFile, ClusterMap, Revision};
use kedge_disk::Disk;
use kedge_node::http_client::HttpClient;
use kedge_node::registry::BucketRegistry;
use kedge_sync::{
    RankedCondvar, RankedMutex,
    ranks::{ClusterChanging, ClusterCurrent, ClusterFenced, ClusterTaken},
};
use tokio::sync::watch;
use zeroize::Zeroizing;

use self::peer::Peer;
use self::store::MapStore;
use crate::replication::{NodeIdentity, Replicator};

pub use self::store::MAP_FILE;
pub use self::store::check_alone;

/// The interval at which each other node is asked for its state.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// The timeout of connecting to another node, and of each wait for its reply, when it is asked for its state.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which a node counts as reachable after a reply: one pending request and the next. So every caller
/// learns within two seconds that a node is gone.
const ANSWER_HOLDS: Duration = Duration::from_millis(1_800);
/// The longest wait of the maker of a change for the nodes that have to apply its map.
const APPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The cluster file, and this node in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSetup {
    /// The checked cluster file.
    pub file: ClusterFile,
    /// The name of this node in the file.
    pub node: String,
}

type AppliedListener = Box<dyn FnOnce() + Send>;

/// The followed map, and its listeners.
struct FollowedMap {
    map: Option<Arc<ClusterMap>>,
    /// True if something happened that the applier has not seen.
    poked: bool,
    /// The listeners, called once the node has applied a map of that revision, or a newer one.
    listeners: Vec<(Revision, AppliedListener)>,
}

/// This node as a member of a cluster. Share it as `Arc<ClusterNode>`.
pub struct ClusterNode {
    file: ClusterFile,
    me: u16,
    store: MapStore,
    registry: Arc<BucketRegistry>,
    replicator: Arc<Replicator>,
    /// The first bucket of a new cluster.
    create: Option<BucketConfig>,
    /// The names and uuids of the buckets in the map that was stored at the start.
    stored: BTreeSet<(String, String)>,
    /// The other nodes, by number; `None` at this node's number.
    peers: Vec<Option<Peer>>,
    current: RankedMutex<ClusterCurrent, FollowedMap>,
    wake: RankedCondvar,
    /// Locked during a change.
    changing: RankedMutex<ClusterChanging, ()>,
    /// The fenced node, which is about to be failed over, and the end of the fence.
    fenced: RankedMutex<ClusterFenced, Option<(u16, std::time::Instant)>>,
    /// The revision of the applied map.
    applied: watch::Sender<Option<Revision>>,
    /// vBuckets that were taken over, until the map contains that.
    taken: RankedMutex<ClusterTaken, Vec<(String, u16)>>,
    stopping: AtomicBool,
}

impl std::fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterNode")
            .field("node", &self.name())
            .finish_non_exhaustive()
    }
}

impl ClusterNode {
    /// Creates the node, with the map that it followed last. Nothing runs yet.
    ///
    /// # Errors
    /// When the file does not have the node, or the data directory belongs to another one.
    pub fn open(
        setup: ClusterSetup,
        disk: Arc<dyn Disk>,
        data_dir: &std::path::Path,
        registry: Arc<BucketRegistry>,
        replicator: Arc<Replicator>,
        create: Option<BucketConfig>,
    ) -> Result<Arc<Self>, ClusterError> {
        let me = setup.file.index_of(&setup.node)?;
        let store = MapStore::new(disk, data_dir, &setup.node);
        let mut map = store.load()?;
        if let Some(map) = &mut map {
            map.take_addresses(&setup.file)?;
        } else if !registry.list().is_empty() {
            let dir = data_dir.display();
            if setup.file.nodes.len() == 1 {
                return Err(ClusterError::File(format!(
                    "{dir} has buckets and no {MAP_FILE}, and there is no other node that has the map; a new cluster begins \
                     with an empty directory"
                )));
            }
            tracing::warn!(
                %dir,
                "the node has buckets and no map: it waits for the map of another node"
            );
        }
        let peer = |(at, entry): (u16, &kedge_cluster::ClusterFileNode)| {
            let secret = &setup.file.secret;
            let client = HttpClient::new(&entry.host, entry.mgmt_port, CLUSTER_USER, secret);
            (at != me).then(|| Peer::new(at, &entry.name, client))
        };
        replicator.set_identity(NodeIdentity {
            node: setup.node,
            user: CLUSTER_USER.to_owned(),
            password: Zeroizing::new(setup.file.secret.clone()),
        });
        Ok(Arc::new(Self {
            peers: (0_u16..).zip(&setup.file.nodes).map(peer).collect(),
            file: setup.file,
            me,
            store,
            registry,
            replicator,
            create,
            stored: map.iter().flat_map(bucket_uuids).collect(),
            current: RankedMutex::new(FollowedMap {
                map: map.map(Arc::new),
                poked: true,
                listeners: Vec::new(),
            }),
            wake: RankedCondvar::new(),
            changing: RankedMutex::default(),
            fenced: RankedMutex::default(),
            applied: watch::Sender::new(None),
            taken: RankedMutex::default(),
            stopping: AtomicBool::new(false),
        }))
    }

    /// Starts asking the other nodes and following the map.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        for peer in self.peers.iter().flatten() {
            let (node, number) = (Arc::downgrade(self), peer.number);
            std::thread::Builder::new()
                .name(format!("kedge-peer-{}", peer.name))
                .spawn(move || peer::run(&node, number))?;
        }
        let heir = Arc::downgrade(self);
        self.replicator.set_heir(Arc::new(move |bucket, vb| {
            if let Some(node) = Self::alive(&heir) {
                node.took_over(bucket, vb);
            }
        }));
        let tends = Arc::downgrade(self);
        std::thread::Builder::new()
            .name("kedge-replicas".to_owned())
            .spawn(move || replicas::run(&tends))?;
        let node = self.clone();
        std::thread::Builder::new()
            .name("kedge-cluster".to_owned())
            .spawn(move || apply::run(&node))
    }

    /// Ends the threads. Those that communicate with other nodes are not awaited: they have no further effect.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.poke();
        for peer in self.peers.iter().flatten() {
            peer.poke();
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns the name of this node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.file.nodes[usize::from(self.me)].name
    }

    /// Returns the default number of replicas of a bucket.
    #[must_use]
    pub fn replicas(&self) -> u8 {
        self.map().map_or(self.file.replicas, |map| map.replicas)
    }

    /// Returns the followed map; `None` until the first start has one.
    pub(super) fn map(&self) -> Option<Arc<ClusterMap>> {
        self.current.lock().map.clone()
    }

    fn revision(&self) -> Option<Revision> {
        self.current.lock().map.as_ref().map(|map| map.revision)
    }

    /// Calls `tell` once this node has applied the map: its buckets are loaded, and all its active vBuckets are active.
    pub fn when_ready(&self, tell: impl FnOnce() + Send + 'static) {
        self.when_applied(Revision::default(), tell);
    }

    /// Returns the revision of the applied map, and its changes.
    pub(super) fn applied(&self) -> watch::Receiver<Option<Revision>> {
        self.applied.subscribe()
    }

    /// Wakes the applier.
    fn poke(&self) {
        self.current.lock().poked = true;
        self.wake.notify_all();
    }

    /// Adopts a map that is newer than the followed one. False if it is not newer.
    ///
    /// # Errors
    /// `Map` and `File` when it is no map of this cluster; `Save`, and it is not followed.
    pub(super) fn adopt(&self, mut map: ClusterMap) -> Result<bool, ClusterError> {
        map.take_addresses(&self.file)?;
        let mut is_ours = false;
        {
            let mut current = self.current.lock();
            if let Some(followed) = &current.map {
                if followed.cluster_uuid != map.cluster_uuid {
                    return Err(ClusterError::Map(
                        "it is that of another cluster".to_owned(),
                    ));
                }
                if followed.revision >= map.revision {
                    return Ok(false);
                }
                let revision = map.revision;
                map = followed.carry_over(map, self.me);
                is_ours = map.revision != revision;
            } else {
                self.check_first(&map)?;
            }
            self.follow_map(&mut current, map)?;
        }
        self.told_of_map(is_ours);
        Ok(true)
    }

    /// Checks the first map: buckets that it does not have would be dropped.
    fn check_first(&self, map: &ClusterMap) -> Result<(), ClusterError> {
        let known: BTreeSet<(String, String)> = bucket_uuids(map).collect();
        for bucket in self.registry.list() {
            let config = bucket.config();
            if !known.contains(&(config.name.clone(), config.uuid.clone())) {
                return Err(ClusterError::Map(format!(
                    "this node has no {MAP_FILE}, and a bucket that the map does not have; stop the node and move {} out of \
                     the data directory",
                    self.registry.dir_of(&config.name).display()
                )));
            }
        }
        Ok(())
    }

    fn follow_map(&self, current: &mut FollowedMap, map: ClusterMap) -> Result<(), ClusterError> {
        // Saved before it is followed: see the invariants.
        self.store.save(&map)?;
        tracing::info!(rev = map.revision.rev, "a new cluster map is followed");
        current.map = Some(Arc::new(map));
        current.poked = true;
        Ok(())
    }

    /// Handles a new map; `is_ours` if this node made it.
    fn told_of_map(&self, is_ours: bool) {
        for peer in self.peers.iter().flatten() {
            // The reported positions were of the previous map, and may differ by this one.
            peer.forget_positions();
            if is_ours {
                peer.poke();
            }
        }
        self.wake.notify_all();
    }

    /// Returns the node if it still exists; `None` after the end of the server.
    fn alive(node: &Weak<Self>) -> Option<Arc<Self>> {
        node.upgrade().filter(|node| !node.is_stopping())
    }
}

/// Returns the names and uuids of the buckets of a map.
fn bucket_uuids(map: &ClusterMap) -> impl Iterator<Item = (String, String)> {
    map.buckets
        .iter()
        .filter_map(|bucket| Some((bucket.name.clone(), bucket.uuid()?.to_owned())))
}
