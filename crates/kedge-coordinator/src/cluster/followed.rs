//! The map that a node follows, and what it has applied of that.
//!
//! Invariant: a map is saved before it is followed, and replaced by newer ones only.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kedge_cluster::{
    ClusterError, ClusterMap, ClusterSecret, MapNode, NodeRecord, Release, Revision,
};
use kedge_disk::DiskError;
use kedge_node::coordination::ChangeError;
use kedge_node::node_access::NodeAccess;
use kedge_node::registry::BucketRegistry;
use kedge_sync::{RankedCondvar, RankedMutex, ranks::ClusterCurrent};
use tokio::sync::watch;

use super::begin::Started;
use super::saved_map::{MAP_FILE, NodeFile, SavedNode};
use super::store::Store;

type AppliedListener = Box<dyn FnOnce() + Send>;

/// The followed map, and its listeners.
pub(super) struct FollowedMap {
    pub(super) map: Option<Arc<ClusterMap>>,
    /// True if something happened that the applier has not seen.
    pub(super) poked: bool,
    /// The uuids of the buckets that the node has created.
    created: BTreeSet<String>,
    /// The listeners, called once the node has applied a map of that revision, or a newer one.
    listeners: Vec<(Revision, AppliedListener)>,
    /// The reason why the map of the store is not followed; empty if it is.
    refused: String,
}

/// The map that a node follows.
pub(super) struct Followed {
    /// This node as an entry of the map, with its present address.
    pub(super) entry: MapNode,
    /// The release of this process.
    pub(super) release: Release,
    pub(super) secret: ClusterSecret,
    /// The way to the other nodes.
    pub(super) access: Arc<NodeAccess>,
    file: NodeFile,
    store: Arc<Store>,
    registry: Arc<BucketRegistry>,
    pub(super) current: RankedMutex<ClusterCurrent, FollowedMap>,
    pub(super) wake: RankedCondvar,
    /// The revision of the applied map.
    applied: watch::Sender<Option<Revision>>,
    /// The revision of the newest map by which no active vBucket of this node belongs to another one.
    settled: watch::Sender<Option<Revision>>,
    stopping: AtomicBool,
}

impl Followed {
    pub(super) fn new(
        started: Started,
        access: Arc<NodeAccess>,
        file: NodeFile,
        store: Arc<Store>,
        registry: Arc<BucketRegistry>,
    ) -> Self {
        if let Some(map) = &started.saved.map {
            access.follow_level(map);
            registry.cluster().follow_epoch(map.revision.epoch);
        }
        Self {
            entry: started.entry,
            release: started.release,
            secret: started.saved.secret,
            access,
            file,
            store,
            registry,
            current: RankedMutex::new(FollowedMap {
                map: started.saved.map.map(Arc::new),
                created: started.saved.created,
                poked: true,
                listeners: Vec::new(),
                refused: String::new(),
            }),
            wake: RankedCondvar::new(),
            applied: watch::Sender::new(None),
            settled: watch::Sender::new(None),
            stopping: AtomicBool::new(false),
        }
    }

    /// Ends the threads that follow the map.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.poke();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns the name of this node.
    pub(super) fn name(&self) -> &str {
        &self.entry.name
    }

    /// Returns the uuid of this node.
    pub(super) fn uuid(&self) -> &str {
        &self.entry.uuid
    }

    /// Returns the number of this node in a map; `None` if it is no member.
    pub(super) fn number(&self, map: &ClusterMap) -> Option<u16> {
        let mut nodes = map.nodes.iter();
        let found = nodes.find(|(_, node)| node.uuid == self.entry.uuid);
        found.map(|(number, _)| *number)
    }

    /// Returns the number of this node in a map that it is to change.
    pub(super) fn member(&self, map: &ClusterMap) -> Result<u16, ChangeError> {
        let number = self.number(map);
        number.ok_or_else(|| ChangeError::NoMember(self.name().to_owned()))
    }

    /// Returns the record of this node.
    pub(super) fn record(&self) -> NodeRecord {
        NodeRecord::new(&self.entry, self.release)
            .with_master_key(self.registry.master_keys().is_some())
    }

    /// Returns the followed map; `None` until the first start has one.
    pub(super) fn map(&self) -> Option<Arc<ClusterMap>> {
        self.current.lock().map.clone()
    }

    pub(super) fn revision(&self) -> Option<Revision> {
        self.current.lock().map.as_ref().map(|map| map.revision)
    }

    /// Returns the revision of the applied map, and its changes.
    pub(super) fn applied(&self) -> watch::Receiver<Option<Revision>> {
        self.applied.subscribe()
    }

    /// Notes that no vBucket of this node is active that a map assigns to another one.
    pub(super) fn settle(&self, revision: Revision) {
        self.settled.send_replace(Some(revision));
    }

    /// Returns the revision of the newest map by which no active vBucket of this node belongs to another one.
    pub(super) fn settled(&self) -> Option<Revision> {
        *self.settled.borrow()
    }

    /// Wakes the applier.
    pub(super) fn poke(&self) {
        self.current.lock().poked = true;
        self.wake.notify_all();
    }

    /// Waits for another map, a map that is applied, or another event, at most for that time.
    pub(super) fn wait_for_news(&self, time: Duration) {
        self.wake.wait_for(&mut self.current.lock(), time);
    }

    /// Waits for that time, or until the server stops.
    pub(super) fn rest(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut current = self.current.lock();
        while !self.is_stopping() && Instant::now() < deadline {
            self.wake.wait_until(&mut current, deadline);
        }
    }

    /// Returns the revision of the applied map.
    pub(super) fn applied_revision(&self) -> Option<Revision> {
        *self.applied.borrow()
    }

    /// Adopts a map of the store that is newer than the followed one. False if it is not newer.
    ///
    /// # Errors
    /// `Map` when it is no map of this cluster, or of another branch after the restore of a backup; `Level` when this release
    /// does not support its level; `Save`, and it is not
    /// followed.
    pub(super) fn adopt(&self, map: ClusterMap) -> Result<bool, ClusterError> {
        self.release.check(map.level, [])?;
        let mut current = self.current.lock();
        if let Some(followed) = &current.map {
            if followed.cluster_uuid != map.cluster_uuid {
                return Err(ClusterError::Map(
                    "it is that of another cluster".to_owned(),
                ));
            }
            if followed.is_of_other_branch(&map) {
                return Err(ClusterError::Map(
                    "it was made from an older map after a backup of the coordination store was restored".to_owned(),
                ));
            }
            if followed.revision >= map.revision {
                return Ok(false);
            }
        } else if self.number(&map).is_none() {
            return Err(ClusterError::Map(format!(
                "node \"{}\" is no member",
                self.name()
            )));
        } else {
            self.check_first(&map)?;
        }
        let created = current.created.iter();
        let created = created.filter(|uuid| map.buckets.iter().any(|it| it.uuid() == Some(*uuid)));
        let saved = SavedNode {
            created: created.cloned().collect(),
            map: Some(map),
            ..self.saved_node()
        };
        // Saved before it is followed: see the invariants.
        self.file.save(&saved)?;
        current.created = saved.created;
        if let Some(map) = saved.map {
            tracing::info!(rev = map.revision.rev, "a new cluster map is followed");
            // Before this node follows anybody by it: see `Feature::ReplicationEpoch`.
            self.registry.cluster().follow_epoch(map.revision.epoch);
            self.access.follow_level(&map);
            current.map = Some(Arc::new(map));
        }
        current.poked = true;
        Ok(true)
    }

    /// Returns the content of the node's file, without a map.
    fn saved_node(&self) -> SavedNode {
        SavedNode {
            uuid: self.entry.uuid.clone(),
            secret: self.secret.clone(),
            seen: self.store.seen(),
            created: BTreeSet::new(),
            map: None,
        }
    }

    /// Returns whether the node has created the bucket with that uuid.
    pub(super) fn has_created(&self, uuid: &str) -> bool {
        self.current.lock().created.contains(uuid)
    }

    /// Saves that the node has created the bucket with that uuid, before the bucket gets any data. On a full disk the next
    /// start does that.
    ///
    /// # Errors
    /// `Save`.
    pub(super) fn note_created(&self, uuid: &str) -> Result<(), ClusterError> {
        let mut current = self.current.lock();
        if current.created.contains(uuid) {
            return Ok(());
        }
        let mut created = current.created.clone();
        created.insert(uuid.to_owned());
        let saved = SavedNode {
            created: created.clone(),
            map: current.map.as_deref().cloned(),
            ..self.saved_node()
        };
        match self.file.save(&saved) {
            Err(error) if !is_no_space(&error) => return Err(error),
            _ => {}
        }
        current.created = created;
        Ok(())
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

    /// Records why the map of the store is not followed; empty if it is. It is logged once.
    pub(super) fn refuse_map(&self, why: String) {
        let mut current = self.current.lock();
        if !why.is_empty() && why != current.refused {
            tracing::error!(why, "the map of the coordination store is not followed");
        }
        current.refused = why;
    }

    /// Returns the reason why the map of the store is not followed; empty if it is.
    pub(super) fn map_refusal(&self) -> String {
        self.current.lock().refused.clone()
    }

    /// Calls `tell` when this node has applied a map of that revision, or a newer one.
    pub(super) fn when_applied(&self, revision: Revision, tell: impl FnOnce() + Send + 'static) {
        let mut current = self.current.lock();
        if self.applied_revision() >= Some(revision) {
            drop(current);
            return tell();
        }
        current.listeners.push((revision, Box::new(tell)));
    }

    /// Waits until this node has applied a map of that revision, or a newer one. False on a timeout.
    pub(super) fn wait_applied(&self, revision: Revision, deadline: Instant) -> bool {
        let (tell, told) = std::sync::mpsc::channel();
        self.when_applied(revision, move || {
            // Nobody waits any more if it comes too late.
            let _ = tell.send(());
        });
        told.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            .is_ok()
    }

    /// Notifies all waiting listeners that this node has applied the map.
    pub(super) fn announce(&self, revision: Revision) {
        let is_news = self.applied.send_if_modified(|applied| {
            let newer = *applied != Some(revision);
            *applied = Some(revision);
            newer
        });
        if !is_news {
            return;
        }
        tracing::info!(rev = revision.rev, "the cluster map is applied");
        let due = {
            let mut current = self.current.lock();
            let listeners = std::mem::take(&mut current.listeners);
            let (due, later) = listeners
                .into_iter()
                .partition(|(when, _)| *when <= revision);
            current.listeners = later;
            due
        };
        let due: Vec<(Revision, AppliedListener)> = due;
        for (_, tell) in due {
            tell();
        }
    }
}

/// Returns whether a full disk was the reason of a failed save.
fn is_no_space(error: &ClusterError) -> bool {
    let ClusterError::Save(error) = error else {
        return false;
    };
    let error = error.downcast_ref::<DiskError>();
    error.is_some_and(DiskError::is_no_space)
}

/// Returns the names and uuids of the buckets of a map.
fn bucket_uuids(map: &ClusterMap) -> impl Iterator<Item = (String, String)> {
    map.buckets
        .iter()
        .filter_map(|bucket| Some((bucket.name.clone(), bucket.uuid()?.to_owned())))
}
