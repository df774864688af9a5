//! This node as one of a cluster of a fixed topology.
//!
//! The cluster file says which nodes there are; the map says who has which vBucket, and what buckets there are. The
//! newest map counts, and goes from node to node: each asks all others twice a second, and hears of a new one at once
//! from whoever made it. One thread, "kedge-cluster", makes this node's buckets and vBuckets what the map says; one for
//! each other node, "kedge-peer-NAME", talks to it, so that a node that hangs holds up nothing; one, "kedge-replicas",
//! changes numbers of replicas and lets copies count that have caught up.
//!
//! Invariants:
//! * A map is saved before it is followed. What is older than the one that is followed is never followed again.
//! * What a bucket has on disk makes nothing active. A vBucket becomes active when the map says so, and either this process
//!   was its replica when it did, or all other nodes of the chain have told, since the process began, which map they
//!   follow and how far their copies are.
//! * Clients hear of a map when this node's vBuckets are what it says, and of a bucket that goes before it goes.

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
use crate::replication::{Identity, Replicator};

pub use self::store::MAP_FILE;
pub use self::store::check_alone;

/// Interval at which each other node is asked.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of connecting to another node, and of each wait for its answer, when it is asked for its state.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which a node counts as reachable after it answered: a question that is on its way and the one after it.
/// So everyone who asks hears within two seconds of a node that is gone.
const ANSWER_HOLDS: Duration = Duration::from_millis(1_800);
/// Longest wait of the author of a change for the nodes that have to adopt its map.
const APPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The cluster, and the node of it that this one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSetup {
    /// The cluster file; it was checked.
    pub file: ClusterFile,
    /// This node's name in it.
    pub node: String,
}

type AppliedListener = Box<dyn FnOnce() + Send>;

/// The map that is followed, and those who wait for it.
struct FollowedMap {
    map: Option<Arc<ClusterMap>>,
    /// Something happened that the applier has not looked at.
    poked: bool,
    /// Called once the node is what a map of that revision, or a newer one, says.
    listeners: Vec<(Revision, AppliedListener)>,
}

/// This node as one of a cluster. Share it as `Arc<ClusterNode>`.
pub struct ClusterNode {
    file: ClusterFile,
    me: u16,
    store: MapStore,
    registry: Arc<BucketRegistry>,
    replicator: Arc<Replicator>,
    /// The bucket that a new cluster begins with.
    create: Option<BucketConfig>,
    /// The other nodes; at this one's number there is none.
    peers: Vec<Option<Peer>>,
    current: RankedMutex<ClusterCurrent, FollowedMap>,
    wake: RankedCondvar,
    /// AppliedState while a change is made.
    changing: RankedMutex<ClusterChanging, ()>,
    /// A node that is about to be failed over, and until when it is not followed.
    fenced: RankedMutex<ClusterFenced, Option<(u16, std::time::Instant)>>,
    /// The map that this node is.
    applied: watch::Sender<Option<Revision>>,
    /// vBuckets that were taken over, until the map says so.
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
    /// The node, with the map that it followed last. Nothing runs yet.
    ///
    /// # Errors
    /// When the file does not name the node, or the data directory is another's.
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
        let map = store.load()?;
        if let Some(map) = &map {
            map.check_nodes(&setup.file)?;
        } else if !registry.list().is_empty() {
            return Err(ClusterError::File(format!(
                "{} has buckets that are no cluster's; a node of a cluster begins with an empty directory",
                data_dir.display()
            )));
        }
        let peer = |(at, entry): (u16, &kedge_cluster::ClusterFileNode)| {
            let secret = &setup.file.secret;
            let client = HttpClient::new(&entry.host, entry.mgmt_port, CLUSTER_USER, secret);
            (at != me).then(|| Peer::new(at, &entry.name, client))
        };
        replicator.set_identity(Identity {
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

    /// Begins to ask the other nodes and to follow the map.
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

    /// Ends the threads. Those that talk to other nodes are not waited for: they do nothing more.
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

    /// This node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.file.nodes[usize::from(self.me)].name
    }

    /// The replicas that a bucket has unless it is made with another number.
    #[must_use]
    pub fn replicas(&self) -> u8 {
        self.file.replicas
    }

    /// The map that is followed; `None` until a first start has status of one.
    pub(super) fn map(&self) -> Option<Arc<ClusterMap>> {
        self.current.lock().map.clone()
    }

    fn revision(&self) -> Option<Revision> {
        self.current.lock().map.as_ref().map(|map| map.revision)
    }

    /// Calls `tell` once this node is what the map says: its buckets are loaded, and every vBucket that it is to be
    /// active for is.
    pub fn when_ready(&self, tell: impl FnOnce() + Send + 'static) {
        self.when_applied(Revision::default(), tell);
    }

    /// The revision of the map that this node is, as it changes.
    pub(super) fn applied(&self) -> watch::Receiver<Option<Revision>> {
        self.applied.subscribe()
    }

    /// Makes the applier look again.
    fn poke(&self) {
        self.current.lock().poked = true;
        self.wake.notify_all();
    }

    /// Follows a map that is newer than the one followed. False when it is not newer.
    ///
    /// # Errors
    /// `Map` and `File` when it is no map of this cluster; `Save`, and it is not followed.
    pub(super) fn adopt(&self, map: ClusterMap) -> Result<bool, ClusterError> {
        map.check_nodes(&self.file)?;
        let mut map = map;
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
            }
            self.follow_map(&mut current, map)?;
        }
        self.told_of_map(is_ours);
        Ok(true)
    }

    fn follow_map(&self, current: &mut FollowedMap, map: ClusterMap) -> Result<(), ClusterError> {
        // Saved before it is followed: see the invariants.
        self.store.save(&map)?;
        tracing::info!(rev = map.revision.rev, "a new cluster map is followed");
        current.map = Some(Arc::new(map));
        current.poked = true;
        Ok(())
    }

    /// There is another map, which this node has made or not.
    fn told_of_map(&self, is_ours: bool) {
        for peer in self.peers.iter().flatten() {
            // What it told was of the map before, and may be another by this one.
            peer.forget_positions();
            if is_ours {
                peer.poke();
            }
        }
        self.wake.notify_all();
    }

    /// The node still there, or nothing when the server has ended.
    fn alive(node: &Weak<Self>) -> Option<Arc<Self>> {
        node.upgrade().filter(|node| !node.is_stopping())
    }
}
