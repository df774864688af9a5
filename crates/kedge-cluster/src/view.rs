//! The current state, and its changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use kedge_sync::{
    RankedMutex, RankedRwLock,
    ranks::{ClusterListeners, ClusterViewSave},
};

use crate::config::{self, ServerChains};
use crate::{
    ClusterError, ClusterFile, ClusterMap, ClusterState, Config, Nodes, Revision, ServerMap,
};

/// A node that runs alone never starts its revisions again, so the epoch is constant.
const EPOCH: i64 = 1;

/// Hosts for which a config is kept. A node has a handful of addresses; a client cannot choose others.
const HOSTS_CACHED_MAX: usize = 16;

/// Where this node listens. A port of 0 must have been replaced by the real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Binary protocol.
    pub kv: u16,
    /// HTTP management.
    pub mgmt: u16,
}

/// What clients must know of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketEntry {
    /// The bucket's name.
    pub name: String,
    /// Its identity: another one after it was dropped and created again.
    pub uuid: [u8; 16],
    /// How many vBuckets it has.
    pub vbuckets: u16,
    /// The version of its collections manifest.
    pub manifest_uid: u64,
}

/// What changed. All configs have a new revision, whatever it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The revision since when it holds.
    pub revision: Revision,
    /// What it was.
    pub kind: ChangeKind,
}

/// See [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A bucket was created, or its entry or settings are others now.
    Bucket(String),
    /// A bucket is gone.
    BucketRemoved(String),
    /// The cluster's name.
    ClusterName,
    /// The map of a cluster: anything may be another.
    Map,
}

/// Saves the cluster's state, durably.
pub type SaveState = Box<
    dyn Fn(&ClusterState) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + Send + Sync,
>;

type Listener = Box<dyn Fn(&Change) + Send + Sync>;

/// Configs already composed, by host.
#[derive(Debug, Default)]
struct Cache(ArcSwapOption<Vec<(Box<str>, Arc<Config>)>>);

impl Cache {
    fn get_or(&self, host: &str, compose: impl FnOnce() -> Config) -> Arc<Config> {
        let known = self.0.load();
        let entries = known.as_deref().map_or(&[][..], |entries| entries);
        if let Some((_, config)) = entries.iter().find(|(of, _)| &**of == host) {
            return config.clone();
        }
        let config = Arc::new(compose());
        // Two threads may both compose, and one entry may be lost: it is composed again, that is all.
        let mut grown = Vec::with_capacity(entries.len() + 1);
        if entries.len() < HOSTS_CACHED_MAX {
            grown.extend(entries.iter().cloned());
        }
        grown.push((host.into(), config.clone()));
        self.0.store(Some(Arc::new(grown)));
        config
    }
}

/// A bucket, who has its vBuckets, and what was composed of that.
#[derive(Debug)]
struct Shown {
    entry: BucketEntry,
    chains: ServerChains,
    cache: Cache,
}

impl Shown {
    /// All of it is here.
    fn alone(entry: BucketEntry) -> (String, Self) {
        let chains = ServerChains::First(entry.vbuckets);
        Self::new(entry, chains)
    }

    fn new(entry: BucketEntry, chains: ServerChains) -> (String, Self) {
        let shown = Self {
            entry,
            chains,
            cache: Cache::default(),
        };
        (shown.entry.name.clone(), shown)
    }
}

/// The cluster at one revision. It does not change.
#[derive(Debug)]
pub struct Snapshot {
    revision: Revision,
    state: ClusterState,
    ports: Ports,
    nodes: Nodes,
    buckets: BTreeMap<String, Shown>,
    global: Cache,
}

impl Snapshot {
    /// The revision of every config of this snapshot.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The nodes that clients are told of.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Who has the vBuckets of a bucket, for clients that reached this node at `host`; this node, of one that is not
    /// known yet.
    #[must_use]
    pub fn server_map(&self, bucket: &str, vbuckets: u16, host: &str) -> ServerMap {
        let shown = self.buckets.get(bucket);
        let chains = shown.map_or(ServerChains::First(vbuckets), |shown| shown.chains.clone());
        ServerMap::new(chains, &self.nodes, host)
    }

    /// Identity and name.
    #[must_use]
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// Where this node listens.
    #[must_use]
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// The bucket of that name.
    #[must_use]
    pub fn bucket(&self, name: &str) -> Option<&BucketEntry> {
        self.buckets.get(name).map(|shown| &shown.entry)
    }

    /// All buckets, by name.
    pub fn buckets(&self) -> impl Iterator<Item = &BucketEntry> {
        self.buckets.values().map(|shown| &shown.entry)
    }

    /// See [`ClusterView::bucket_config`].
    #[must_use]
    pub fn bucket_config(&self, bucket: &str, host: &str) -> Option<Arc<Config>> {
        let Shown {
            entry,
            chains,
            cache,
        } = self.buckets.get(bucket)?;
        Some(cache.get_or(host, || {
            config::of_bucket(&self.state, self.revision, &self.nodes, entry, chains, host)
        }))
    }

    /// See [`ClusterView::global_config`].
    #[must_use]
    pub fn global_config(&self, host: &str) -> Arc<Config> {
        self.global.get_or(host, || {
            config::global(&self.state, self.revision, &self.nodes, host)
        })
    }
}

/// What one node tells its clients of the cluster.
pub struct ClusterView {
    current: ArcSwap<Snapshot>,
    /// Held while a change is made, so that revisions are published in order.
    save: RankedMutex<ClusterViewSave, SaveState>,
    listeners: RankedRwLock<ClusterListeners, Vec<Listener>>,
    /// Whether it shows the map of a cluster, and changes with that only.
    follows: bool,
}

impl std::fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterView")
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

impl ClusterView {
    /// A view with the buckets that exist at start-up. Its revision is already newer than that of `state`, since
    /// ports, addresses and buckets may be others than before.
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
        Ok(Self {
            current: ArcSwap::from_pointee(Snapshot {
                revision: revision_of(&state),
                nodes: Nodes::alone(&state, ports),
                state,
                ports,
                buckets: buckets.into_iter().map(Shown::alone).collect(),
                global: Cache::default(),
            }),
            save: RankedMutex::new(save),
            listeners: RankedRwLock::default(),
            follows: false,
        })
    }

    /// The view of a node of a cluster, which shows nothing but the node itself until [`Self::adopt`] is called. Whoever
    /// calls that has saved the map.
    #[must_use]
    pub fn following(ports: Ports) -> Self {
        let state = ClusterState::new([0; 32]);
        Self {
            current: ArcSwap::from_pointee(Snapshot {
                revision: revision_of(&state),
                nodes: Nodes::alone(&state, ports),
                state,
                ports,
                buckets: BTreeMap::new(),
                global: Cache::default(),
            }),
            save: RankedMutex::new(Box::new(|_| Ok(()))),
            listeners: RankedRwLock::default(),
            follows: true,
        }
    }

    /// Shows the map of a cluster, in which this node has the number `me`, unless a newer one is shown.
    pub fn adopt(&self, map: &ClusterMap, file: &ClusterFile, me: u16) {
        {
            let _one_at_a_time = self.save.lock();
            let current = self.current.load();
            if current.revision >= map.revision {
                return;
            }
            let members: Vec<u16> = map.members().collect();
            let mut state = current.state.clone();
            state.cluster_uuid.clone_from(&map.cluster_uuid);
            state.cluster_name.clone_from(&map.cluster_name);
            if let Some(node) = map.nodes.get(usize::from(me)) {
                state.node_uuid.clone_from(&node.uuid);
            }
            let shown = |bucket: &crate::MapBucket| {
                Shown::new(bucket.entry(), ServerChains::of(&bucket.chains, &members))
            };
            self.current.store(Arc::new(Snapshot {
                revision: map.revision,
                nodes: Nodes::of(map, file, me, current.ports),
                state,
                ports: current.ports,
                buckets: map.buckets.iter().map(shown).collect(),
                global: Cache::default(),
            }));
        }
        self.tell(&Change {
            revision: map.revision,
            kind: ChangeKind::Map,
        });
    }

    /// The cluster as it is now. Never blocks.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// The revision of all configs. Never blocks.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.current.load().revision()
    }

    /// The config of a bucket for clients that reached this node at `host`: a real address without port or brackets,
    /// such as [`crate::host_text`] makes. `None` when there is no such bucket. Never blocks.
    #[must_use]
    pub fn bucket_config(&self, bucket: &str, host: &str) -> Option<Arc<Config>> {
        self.current.load().bucket_config(bucket, host)
    }

    /// The config of the cluster, for connections without a bucket; `host` as in [`Self::bucket_config`]. Never
    /// blocks.
    #[must_use]
    pub fn global_config(&self, host: &str) -> Arc<Config> {
        self.current.load().global_config(host)
    }

    /// Adds a bucket, or says that something about it changed (any setting, also one that no config shows). In a
    /// cluster the map says so, and this does nothing; nor do the two below.
    ///
    /// # Errors
    /// `Save`; nothing changed then.
    pub fn put_bucket(&self, bucket: BucketEntry) -> Result<Revision, ClusterError> {
        let kind = ChangeKind::Bucket(bucket.name.clone());
        self.change(kind, |_, buckets| {
            buckets.insert(bucket.name.clone(), bucket);
        })
    }

    /// Takes a bucket away; of one that is not there, nothing happens and the revision stays.
    ///
    /// # Errors
    /// `Save`; nothing changed then.
    pub fn remove_bucket(&self, name: &str) -> Result<Revision, ClusterError> {
        let current = self.current.load();
        if current.bucket(name).is_none() {
            return Ok(current.revision());
        }
        self.change(ChangeKind::BucketRemoved(name.to_owned()), |_, buckets| {
            buckets.remove(name);
        })
    }

    /// Renames the cluster; the name it has already changes nothing.
    ///
    /// # Errors
    /// `Save`; nothing changed then.
    pub fn set_cluster_name(&self, name: &str) -> Result<Revision, ClusterError> {
        let current = self.current.load();
        if current.state.cluster_name == name {
            return Ok(current.revision());
        }
        self.change(ChangeKind::ClusterName, |state, _| {
            name.clone_into(&mut state.cluster_name);
        })
    }

    /// Calls `listener` after each change, on the thread that made it. It must be quick. When several threads make
    /// changes it may hear of them out of order, and a newer revision than the one it is told may be current.
    pub fn subscribe(&self, listener: impl Fn(&Change) + Send + Sync + 'static) {
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
            // Saved before it is seen: see the invariants of the crate.
            save(&state).map_err(ClusterError::Save)?;
            let next = Snapshot {
                revision: revision_of(&state),
                nodes: current.nodes.clone(),
                state,
                ports: current.ports,
                buckets: buckets.into_values().map(Shown::alone).collect(),
                global: Cache::default(),
            };
            let revision = next.revision();
            self.current.store(Arc::new(next));
            revision
        };
        self.tell(&Change { revision, kind });
        Ok(revision)
    }

    fn tell(&self, change: &Change) {
        for listener in self.listeners.read().iter() {
            listener(change);
        }
    }
}

/// The revision of a node that runs alone.
fn revision_of(state: &ClusterState) -> Revision {
    Revision {
        epoch: EPOCH,
        rev: state.rev,
    }
}
