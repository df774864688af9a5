//! The current state of the cluster, and its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use kedge_sync::{
    RankedMutex, RankedRwLock,
    ranks::{ClusterListeners, ClusterViewSave},
};

use crate::config::{self, BucketNodes, ServerChains};
use crate::{
    Chain, ClusterError, ClusterMap, ClusterState, ConfigDocument, MapBucket, NodeList, Revision,
    ServerMap,
};

/// The epoch of a standalone node. It never restarts its revisions, so the epoch is constant.
const EPOCH: i64 = 1;

/// The largest number of hosts for which a config is cached. A node has a handful of addresses; a client cannot choose
/// others.
const HOSTS_CACHED_MAX: usize = 16;

/// The real ports of a node: 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// The port of the binary protocol.
    pub kv: u16,
    /// The port of HTTP management.
    pub mgmt: u16,
    /// The port of the binary protocol over TLS.
    pub kv_tls: u16,
    /// The port of HTTPS management.
    pub mgmt_tls: u16,
}

impl Ports {
    /// Returns ports without TLS.
    #[must_use]
    pub const fn plain(kv: u16, mgmt: u16) -> Self {
        Self {
            kv,
            mgmt,
            kv_tls: 0,
            mgmt_tls: 0,
        }
    }

    /// The port by which a list without services names the binary protocol: the one without TLS, if there is one.
    #[must_use]
    pub fn kv_listed(&self) -> u16 {
        if self.kv == 0 { self.kv_tls } else { self.kv }
    }

    /// The port in the name of the node: that of management without TLS, if there is one.
    #[must_use]
    pub fn mgmt_listed(&self) -> u16 {
        if self.mgmt == 0 {
            self.mgmt_tls
        } else {
            self.mgmt
        }
    }
}

/// The properties of a bucket that clients need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketEntry {
    /// The bucket's name.
    pub name: String,
    /// The uuid: it changes when the bucket is dropped and created again.
    pub uuid: [u8; 16],
    /// The number of vBuckets.
    pub vbuckets: u16,
    /// The uid of the collections manifest.
    pub manifest_uid: u64,
}

/// A change. All configs have a new revision after every change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterChange {
    /// The first revision with the change.
    pub revision: Revision,
    /// The kind of the change.
    pub kind: ChangeKind,
}

/// The kind of a [`ClusterChange`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A bucket was created, or its entry or settings changed.
    Bucket(String),
    /// A bucket was removed.
    BucketRemoved(String),
    /// The cluster's name changed.
    ClusterName,
    /// The map of the cluster changed, in any part.
    Map,
}

/// Saves the cluster's state durably.
pub type SaveState = Box<
    dyn Fn(&ClusterState) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + Send + Sync,
>;

type ClusterListener = Box<dyn Fn(&ClusterChange) + Send + Sync>;

/// The composed configs, by host.
#[derive(Debug, Default)]
struct ConfigCache(ArcSwapOption<Vec<(Box<str>, Arc<ConfigDocument>)>>);

impl ConfigCache {
    fn get_or(&self, host: &str, compose: impl FnOnce() -> ConfigDocument) -> Arc<ConfigDocument> {
        let known = self.0.load();
        let entries = known.as_deref().map_or(&[][..], |entries| entries);
        if let Some((_, config)) = entries.iter().find(|(of, _)| &**of == host) {
            return config.clone();
        }
        let config = Arc::new(compose());
        // Two threads may both compose, and one entry may be lost: it is just composed again.
        let mut grown = Vec::with_capacity(entries.len() + 1);
        if entries.len() < HOSTS_CACHED_MAX {
            grown.extend(entries.iter().cloned());
        }
        grown.push((host.into(), config.clone()));
        self.0.store(Some(Arc::new(grown)));
        config
    }
}

/// A bucket with its vBucket assignment and the configs composed from it.
#[derive(Debug)]
struct BucketView {
    entry: BucketEntry,
    nodes: BucketNodes,
    chains: ServerChains,
    cache: ConfigCache,
}

impl BucketView {
    /// Creates the entry of a bucket that is wholly on this node.
    fn alone(entry: BucketEntry, nodes: &NodeList) -> (String, Self) {
        let chains = ServerChains::First(entry.vbuckets);
        Self::new(entry, BucketNodes::all(nodes.clone()), chains)
    }

    /// Creates the entry of a bucket of a map.
    ///
    /// Nodes with copies are servers, and so are nodes that a rebalance is about to remove, and this node itself. A client that
    /// hears on a connection that its node is no server any more closes that connection: the Go SDK hangs forever if nothing
    /// else is under way there (gocbcore 10.8.1).
    fn of(bucket: &MapBucket, map: &ClusterMap, me: Option<u16>, ports: Ports) -> (String, Self) {
        let mut shown: BTreeSet<u16> = bucket.chains.iter().flat_map(Chain::nodes).collect();
        let running = map.rebalance.iter().filter(|record| record.is_running());
        shown.extend(running.flat_map(|record| &record.remove));
        shown.extend(me);
        let failed_over = me.filter(|me| !map.is_member(*me));
        let (mut numbers, others): (Vec<u16>, Vec<u16>) = map
            .members()
            .chain(failed_over)
            .partition(|number| shown.contains(number));
        let chains = ServerChains::of(&bucket.chains, &numbers);
        let servers = match numbers.len() {
            // Clients take no bucket without nodes.
            0 => others.len(),
            some => some,
        };
        numbers.extend(others);
        let nodes = NodeList::in_order(&numbers, map, me, ports);
        Self::new(bucket.entry(), BucketNodes { nodes, servers }, chains)
    }

    fn new(entry: BucketEntry, nodes: BucketNodes, chains: ServerChains) -> (String, Self) {
        let shown = Self {
            entry,
            nodes,
            chains,
            cache: ConfigCache::default(),
        };
        (shown.entry.name.clone(), shown)
    }
}

/// The immutable state of the cluster at one revision.
#[derive(Debug)]
pub struct ClusterSnapshot {
    revision: Revision,
    state: ClusterState,
    ports: Ports,
    nodes: NodeList,
    buckets: BTreeMap<String, BucketView>,
    global: ConfigCache,
}

impl ClusterSnapshot {
    /// Returns the revision of every config of this snapshot.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the nodes in the configs.
    #[must_use]
    pub fn nodes(&self) -> &NodeList {
        &self.nodes
    }

    /// Returns the vBucket map of a bucket, for clients that reached this node at `host`; for an unknown bucket, all
    /// vBuckets are on this node.
    #[must_use]
    pub fn server_map(&self, bucket: &str, vbuckets: u16, host: &str) -> ServerMap {
        match self.buckets.get(bucket) {
            Some(shown) => ServerMap::new(shown.chains.clone(), &shown.nodes, host),
            None => {
                let nodes = BucketNodes::all(self.nodes.clone());
                ServerMap::new(ServerChains::First(vbuckets), &nodes, host)
            }
        }
    }

    /// Returns the identity and name of the cluster.
    #[must_use]
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// Returns the ports of this node.
    #[must_use]
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Returns the bucket with that name.
    #[must_use]
    pub fn bucket(&self, name: &str) -> Option<&BucketEntry> {
        self.buckets.get(name).map(|shown| &shown.entry)
    }

    /// Iterates over all buckets, by name.
    pub fn buckets(&self) -> impl Iterator<Item = &BucketEntry> {
        self.buckets.values().map(|shown| &shown.entry)
    }

    /// Returns the config of a bucket, see [`ClusterView::bucket_config`].
    #[must_use]
    pub fn bucket_config(&self, bucket: &str, host: &str) -> Option<Arc<ConfigDocument>> {
        let BucketView {
            entry,
            nodes,
            chains,
            cache,
        } = self.buckets.get(bucket)?;
        Some(cache.get_or(host, || {
            config::of_bucket(&self.state, self.revision, nodes, entry, chains, host)
        }))
    }

    /// Returns the config of the cluster, see [`ClusterView::global_config`].
    #[must_use]
    pub fn global_config(&self, host: &str) -> Arc<ConfigDocument> {
        self.global.get_or(host, || {
            config::global(&self.state, self.revision, &self.nodes, host)
        })
    }
}

/// One node's view of the cluster, for its clients.
pub struct ClusterView {
    current: ArcSwap<ClusterSnapshot>,
    /// Locked during a change, so that revisions are published in order.
    save: RankedMutex<ClusterViewSave, SaveState>,
    listeners: RankedRwLock<ClusterListeners, Vec<ClusterListener>>,
    /// True if the view shows the map of a cluster, and only changes with that.
    follows: bool,
    /// The epoch of the map that the node follows, which it may not have applied; 0 if there is none.
    epoch: AtomicI64,
}

impl std::fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterView")
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

impl ClusterView {
    /// Creates the view with the buckets that exist at start-up. Its revision is already newer than that of `state`,
    /// since ports, addresses and buckets may have changed.
    ///
    /// # Errors
    /// `Save` when the first revision cannot be saved.
    pub fn new(
        mut state: ClusterState,
        ports: Ports,
        buckets: impl IntoIterator<Item = BucketEntry>,
        save: SaveState,
    ) -> Result<Self, ClusterError> {
        state.rev += 1;
        save(&state).map_err(ClusterError::Save)?;
        let nodes = NodeList::alone(&state, ports);
        let alone = |entry| BucketView::alone(entry, &nodes);
        Ok(Self {
            current: ArcSwap::from_pointee(ClusterSnapshot {
                revision: revision_of(&state),
                buckets: buckets.into_iter().map(alone).collect(),
                nodes,
                state,
                ports,
                global: ConfigCache::default(),
            }),
            save: RankedMutex::new(save),
            listeners: RankedRwLock::default(),
            follows: false,
            epoch: AtomicI64::default(),
        })
    }

    /// Creates the view of a node of a cluster, which shows only the node itself until [`Self::adopt`] is called. The
    /// caller of that has saved the map.
    #[must_use]
    pub fn following(ports: Ports) -> Self {
        let state = ClusterState::new([0; 32]);
        Self {
            current: ArcSwap::from_pointee(ClusterSnapshot {
                revision: revision_of(&state),
                nodes: NodeList::alone(&state, ports),
                state,
                ports,
                buckets: BTreeMap::new(),
                global: ConfigCache::default(),
            }),
            save: RankedMutex::new(Box::new(|_| Ok(()))),
            listeners: RankedRwLock::default(),
            follows: true,
            epoch: AtomicI64::default(),
        }
    }

    /// Notes the epoch of the map that the node follows from now on.
    pub fn follow_epoch(&self, epoch: i64) {
        self.epoch.fetch_max(epoch, Ordering::SeqCst);
    }

    /// Returns the epoch of the map that the node follows; `None` if it is in no cluster, or has no map yet.
    #[must_use]
    pub fn map_epoch(&self) -> Option<i64> {
        Some(self.epoch.load(Ordering::SeqCst)).filter(|epoch| *epoch > 0)
    }

    /// Publishes the map of a cluster, in which this node has the number `me` if it is a member, unless the view has a newer one.
    pub fn adopt(&self, map: &ClusterMap, me: Option<u16>) {
        {
            let _one_at_a_time = self.save.lock();
            let current = self.current.load();
            if current.revision >= map.revision {
                return;
            }
            let mut state = current.state.clone();
            state.cluster_uuid.clone_from(&map.cluster_uuid);
            state.cluster_name.clone_from(&map.cluster_name);
            if let Some(node) = me.and_then(|me| map.nodes.get(&me)) {
                state.node_uuid.clone_from(&node.uuid);
            }
            let shown = |bucket: &MapBucket| BucketView::of(bucket, map, me, current.ports);
            self.current.store(Arc::new(ClusterSnapshot {
                revision: map.revision,
                nodes: NodeList::of(map, me, current.ports),
                state,
                ports: current.ports,
                buckets: map.buckets.iter().map(shown).collect(),
                global: ConfigCache::default(),
            }));
        }
        self.tell(&ClusterChange {
            revision: map.revision,
            kind: ChangeKind::Map,
        });
    }

    /// Returns whether other nodes count this node's copy of a vBucket: all of them are in its chain. True until the node of a
    /// cluster follows a map.
    #[must_use]
    pub fn is_counted_by_others(&self, bucket: &str, vb: u16) -> bool {
        let current = self.current.load();
        let Some(BucketView { nodes, chains, .. }) = current.buckets.get(bucket) else {
            return self.follows;
        };
        let this = nodes.nodes.this;
        this.is_some_and(|this| chains.has_others_than(this, vb))
    }

    /// Returns the current state of the cluster. Never blocks.
    #[must_use]
    pub fn snapshot(&self) -> Arc<ClusterSnapshot> {
        self.current.load_full()
    }

    /// Returns the revision of all configs. Never blocks.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.current.load().revision()
    }

    /// Returns the config of a bucket for clients that reached this node at `host`: a real address without port or
    /// brackets, such as [`crate::host_text`] returns. `None` when there is no such bucket. Never blocks.
    #[must_use]
    pub fn bucket_config(&self, bucket: &str, host: &str) -> Option<Arc<ConfigDocument>> {
        self.current.load().bucket_config(bucket, host)
    }

    /// Returns the config of the cluster, for connections without a bucket; `host` as in [`Self::bucket_config`]. Never
    /// blocks.
    #[must_use]
    pub fn global_config(&self, host: &str) -> Arc<ConfigDocument> {
        self.current.load().global_config(host)
    }

    /// Adds a bucket, or announces a change of it (of any setting, also one that no config shows). In a cluster the map
    /// has the buckets, and this function and the next two do nothing.
    ///
    /// # Errors
    /// `Save`; nothing is changed then.
    pub fn put_bucket(&self, bucket: BucketEntry) -> Result<Revision, ClusterError> {
        let kind = ChangeKind::Bucket(bucket.name.clone());
        self.change(kind, |_, buckets| {
            buckets.insert(bucket.name.clone(), bucket);
        })
    }

    /// Removes a bucket; if there is none, nothing happens and the revision stays.
    ///
    /// # Errors
    /// `Save`; nothing is changed then.
    pub fn remove_bucket(&self, name: &str) -> Result<Revision, ClusterError> {
        let current = self.current.load();
        if current.bucket(name).is_none() {
            return Ok(current.revision());
        }
        self.change(ChangeKind::BucketRemoved(name.to_owned()), |_, buckets| {
            buckets.remove(name);
        })
    }

    /// Renames the cluster; an unchanged name has no effect.
    ///
    /// # Errors
    /// `Save`; nothing is changed then.
    pub fn set_cluster_name(&self, name: &str) -> Result<Revision, ClusterError> {
        let current = self.current.load();
        if current.state.cluster_name == name {
            return Ok(current.revision());
        }
        self.change(ChangeKind::ClusterName, |state, _| {
            name.clone_into(&mut state.cluster_name);
        })
    }

    /// Calls `listener` after each change, on the thread that made it. It must be quick. With concurrent changes, a
    /// listener may be called out of order, and the current revision may be newer than the reported one.
    pub fn subscribe(&self, listener: impl Fn(&ClusterChange) + Send + Sync + 'static) {
        self.listeners.write().push(Box::new(listener));
    }

    fn change(
        &self,
        kind: ChangeKind,
        apply: impl FnOnce(&mut ClusterState, &mut BTreeMap<String, BucketEntry>),
    ) -> Result<Revision, ClusterError> {
        if self.follows {
            return Ok(self.revision());
        }
        let revision = {
            let save = self.save.lock();
            let current = self.current.load();
            let mut state = current.state.clone();
            let mut buckets = current
                .buckets()
                .map(|entry| (entry.name.clone(), entry.clone()))
                .collect();
            apply(&mut state, &mut buckets);
            state.rev += 1;
            // Saved before it is visible: see the invariants of the crate.
            save(&state).map_err(ClusterError::Save)?;
            let next = ClusterSnapshot {
                revision: revision_of(&state),
                nodes: current.nodes.clone(),
                state,
                ports: current.ports,
                buckets: buckets
                    .into_values()
                    .map(|entry| BucketView::alone(entry, &current.nodes))
                    .collect(),
                global: ConfigCache::default(),
            };
            let revision = next.revision();
            self.current.store(Arc::new(next));
            revision
        };
        self.tell(&ClusterChange { revision, kind });
        Ok(revision)
    }

    fn tell(&self, change: &ClusterChange) {
        for listener in self.listeners.read().iter() {
            listener(change);
        }
    }
}

/// Returns the revision of a standalone node.
fn revision_of(state: &ClusterState) -> Revision {
    Revision {
        epoch: EPOCH,
        rev: state.rev,
    }
}
