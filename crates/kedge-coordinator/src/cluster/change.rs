//! Changes of the map: one node makes them and sends the map to all others.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kedge_bucket::{BucketChange, BucketConfig};
use kedge_cluster::{
    ClusterMap, ManifestEdit, NodePositions, Revision, plan_failover, plan_recovery,
};
use kedge_node::coordination::{AppliedChange, ChangeError};
use kedge_types::ManifestUid;

use super::{APPLY_TIMEOUT, ASK_TIMEOUT, ClusterNode};

/// The timeout of a probe of a node that is to be failed over, if it responded a moment ago.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

impl ClusterNode {
    /// Fails a node over: replicas take over its active vBuckets.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn fail_over(&self, name: &str, force: bool) -> Result<AppliedChange, ChangeError> {
        let began = Instant::now();
        let _one_at_a_time = self.changing.lock();
        let map = self.map().ok_or(ChangeError::NotBegun)?;
        let failed = map.node(name)?;
        if !force && map.is_member(failed) && self.is_alive(failed) {
            return Err(ChangeError::Alive(name.to_owned()));
        }
        let told = self.gather(&map, failed);
        let plan = plan_failover(&map, self.me, failed, &told, force).inspect_err(|_| {
            self.lift_fence();
            // A node that misses this follows again by itself, after a while.
            self.each(&map, |peer| drop(peer.lift_fence()));
        })?;
        tracing::warn!(
            node = name,
            promoted = plan.promoted,
            losses = %plan.losses,
            "failing a node over"
        );
        let applied = self.publish(plan.map)?;
        Ok(AppliedChange {
            promoted: plan.promoted,
            losses: plan.losses,
            took: began.elapsed(),
            ..applied
        })
    }

    /// Recovers a failed-over node: it catches up and becomes a replica.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn recover(&self, name: &str) -> Result<AppliedChange, ChangeError> {
        let _one_at_a_time = self.changing.lock();
        let map = self.map().ok_or(ChangeError::NotBegun)?;
        let node = map.node(name)?;
        let next = plan_recovery(&map, self.me, node)?;
        // It may have become reachable since the last probe.
        let other = self.peers[usize::from(node)].as_ref();
        if other.is_some_and(|peer| peer.about(ASK_TIMEOUT).is_err()) {
            return Err(ChangeError::Down(name.to_owned()));
        }
        tracing::info!(node = name, "recovering a node");
        self.publish(next)
    }

    /// Creates a bucket on all nodes.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn create_bucket(
        &self,
        config: &BucketConfig,
    ) -> Result<AppliedChange, ChangeError> {
        kedge_node::registry::check_name(&config.name)
            .map_err(|error| ChangeError::Refused(error.to_string()))?;
        config.check().map_err(ChangeError::Refused)?;
        self.change(|map| {
            let same = |known: &str| known.eq_ignore_ascii_case(&config.name);
            if map.buckets.iter().any(|bucket| same(&bucket.name)) {
                return Err(ChangeError::Exists);
            }
            if map.buckets.len() >= kedge_types::limits::BUCKETS_MAX {
                return Err(ChangeError::Refused(
                    kedge_node::registry::RegistryError::TooMany.to_string(),
                ));
            }
            let settings = settings(config)?;
            Ok(map.add_bucket(&config.name, settings, config.vbuckets, config.replicas)?)
        })
    }

    /// Changes settings of a bucket on all nodes. A change of the number of replicas follows in the background.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn update_bucket(
        &self,
        name: &str,
        change: &BucketChange,
    ) -> Result<AppliedChange, ChangeError> {
        self.change(|map| {
            let bucket = map.buckets.iter_mut().find(|bucket| bucket.name == name);
            let bucket = bucket.ok_or(ChangeError::NoBucket)?;
            let is: BucketConfig = serde_json::from_value(bucket.settings.clone())
                .map_err(|error| ChangeError::Refused(error.to_string()))?;
            let next = change.apply(&is);
            next.check().map_err(ChangeError::Refused)?;
            bucket.settings = settings(&next)?;
            Ok(())
        })
    }

    /// Drops a bucket on all nodes.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn drop_bucket(&self, name: &str) -> Result<AppliedChange, ChangeError> {
        self.change(|map| {
            let before = map.buckets.len();
            map.buckets.retain(|bucket| bucket.name != name);
            if map.buckets.len() == before {
                return Err(ChangeError::NoBucket);
            }
            Ok(())
        })
    }

    /// Changes scopes and collections of a bucket on all nodes. Returns the uid of the manifest after the change. A
    /// change without effect makes no new map.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn edit_manifest(
        &self,
        name: &str,
        edit: &ManifestEdit,
    ) -> Result<(AppliedChange, ManifestUid), ChangeError> {
        let edited = |map: &ClusterMap| {
            let bucket = map.bucket(name).ok_or(ChangeError::NoBucket)?;
            Ok::<_, ChangeError>(bucket.manifest.edit(edit, map.maker(self.me))?)
        };
        let map = self.map().ok_or(ChangeError::NotBegun)?;
        let is = map.bucket(name).map(|bucket| bucket.manifest.uid());
        let uid = edited(&map)?.uid();
        if Some(uid) == is {
            return Ok((AppliedChange::nothing(map.revision), uid));
        }
        let mut made = uid;
        let applied = self.change(|map| {
            let manifest = edited(map)?;
            made = manifest.uid();
            let mut buckets = map.buckets.iter_mut();
            let bucket = buckets.find(|bucket| bucket.name == name);
            bucket.ok_or(ChangeError::NoBucket)?.manifest = manifest;
            Ok(())
        })?;
        Ok((applied, made))
    }

    /// Sends the map to all other nodes that are not failed over, and returns those that have not applied it.
    ///
    /// # Errors
    /// `NotBegun`.
    pub(super) fn give_to_all(&self) -> Result<Vec<String>, ChangeError> {
        let map = self.map().ok_or(ChangeError::NotBegun)?;
        let is_behind = self.each(&map, |peer| {
            let given = peer.give(&map, APPLY_TIMEOUT);
            given.map_or(true, |about| about.applied < Some(map.revision))
        });
        let behind = is_behind.into_iter().filter(|(_, is_behind)| *is_behind);
        Ok(behind.map(|(node, _)| map.name(node).to_owned()).collect())
    }

    /// Renames the cluster.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn rename(&self, name: &str) -> Result<AppliedChange, ChangeError> {
        self.change(|map| {
            name.clone_into(&mut map.cluster_name);
            Ok(())
        })
    }

    /// Repeats a request on all other nodes.
    ///
    /// # Errors
    /// `Refused` with the errors of the nodes that failed.
    pub(super) fn repeat(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<(), ChangeError> {
        let map = self.map().ok_or(ChangeError::NotBegun)?;
        let said = self.each(&map, |peer| {
            let done = peer.repeat(method, path, content_type, body);
            done.err()
                .map(|error| format!("node \"{}\": {error}", peer.name))
        });
        let said: Vec<String> = said.into_values().flatten().collect();
        if said.is_empty() {
            return Ok(());
        }
        let said = said.join("; ");
        Err(ChangeError::Refused(format!(
            "this node did it, but not {said}"
        )))
    }

    /// Makes a change that all nodes have to make.
    fn change(
        &self,
        change: impl FnOnce(&mut ClusterMap) -> Result<(), ChangeError>,
    ) -> Result<AppliedChange, ChangeError> {
        let _one_at_a_time = self.changing.lock();
        let map = self.map().ok_or(ChangeError::NotBegun)?;
        let mut next = map.next(self.me);
        change(&mut next)?;
        self.require_all(&map)?;
        self.publish(next)
    }

    /// Returns an error unless all nodes that are not failed over respond.
    pub(super) fn require_all(&self, map: &ClusterMap) -> Result<(), ChangeError> {
        let alive = self.each(map, |peer| peer.about(ASK_TIMEOUT).is_ok());
        let down = alive.into_iter().find(|(_, alive)| !alive);
        down.map_or(Ok(()), |(node, _)| {
            Err(ChangeError::Down(map.name(node).to_owned()))
        })
    }

    /// Follows the map, sends it to all others and waits until they have applied it.
    pub(super) fn publish(&self, map: ClusterMap) -> Result<AppliedChange, ChangeError> {
        let began = Instant::now();
        let revision = map.revision;
        if !self.adopt(map)? {
            return Err(ChangeError::Raced);
        }
        let map = self.map().ok_or(ChangeError::NotBegun)?;
        for peer in self.peers.iter().flatten() {
            // A failed-over node gets it too, if it is alive; nobody waits for that.
            peer.poke();
        }
        let mut missing = BTreeMap::new();
        let others = self.each(&map, |peer| {
            let given = peer.give(&map, APPLY_TIMEOUT);
            peer.poke();
            match given {
                Ok(about) if about.applied >= Some(revision) => None,
                Ok(_) => Some("it is not done yet".to_owned()),
                Err(error) => Some(error.to_string()),
            }
        });
        missing.extend(
            others
                .into_iter()
                .filter_map(|(node, why)| Some((node, why?))),
        );
        if !self.wait_applied(revision, began + APPLY_TIMEOUT) {
            missing.insert(self.me, "it is not done yet".to_owned());
        }
        // vBuckets that this map moves may have moved in the meantime.
        if !self.map().is_some_and(|now| map.leads_to(&now)) {
            return Err(ChangeError::Raced);
        }
        let named = missing.into_iter();
        Ok(AppliedChange {
            missing: named
                .map(|(node, why)| (map.name(node).to_owned(), why))
                .collect(),
            took: began.elapsed(),
            ..AppliedChange::nothing(revision)
        })
    }

    /// Waits until this node has applied a map of that revision, or a newer one. False on a timeout.
    fn wait_applied(&self, revision: Revision, deadline: Instant) -> bool {
        let (tell, told) = std::sync::mpsc::channel();
        self.when_applied(revision, move || {
            // Nobody waits any more if it comes too late.
            let _ = tell.send(());
        });
        told.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            .is_ok()
    }

    /// Runs `work` for each other node that is not failed over, in parallel.
    pub(super) fn each<T: Send>(
        &self,
        map: &ClusterMap,
        work: impl Fn(&super::Peer) -> T + Sync,
    ) -> BTreeMap<u16, T> {
        let members: Vec<&super::Peer> = map
            .members()
            .filter_map(|node| self.peers[usize::from(node)].as_ref())
            .collect();
        std::thread::scope(|scope| {
            let threads: Vec<_> = members
                .into_iter()
                .map(|peer| (peer.number, scope.spawn(|| work(peer))))
                .collect();
            let joined = threads.into_iter();
            joined
                .filter_map(|(number, thread)| Some((number, thread.join().ok()?)))
                .collect()
        })
    }

    /// Returns the positions of the copies of all nodes, except the one to remove, which nobody follows any more then.
    fn gather(&self, map: &ClusterMap, without: u16) -> BTreeMap<u16, NodePositions> {
        let mut rest = map.clone();
        rest.nodes.remove(&without);
        let name = map.name(without);
        let told = self.each(&rest, |peer| match peer.fence(name) {
            Ok(positions) => Some(positions),
            Err(error) => {
                tracing::warn!(node = peer.name, %error, "a node does not report the positions of its copies");
                None
            }
        });
        let mut told: BTreeMap<u16, NodePositions> = told
            .into_iter()
            .filter_map(|(node, positions)| Some((node, positions?)))
            .collect();
        if without != self.me {
            match self.fence(without).and_then(|()| self.positions()) {
                Ok(own) => drop(told.insert(self.me, own)),
                Err(why) => {
                    tracing::warn!(why, "this node does not report the positions of its copies");
                }
            }
        }
        told
    }

    /// Returns whether a node responds. A node that did not respond last time is not asked again.
    fn is_alive(&self, node: u16) -> bool {
        match &self.peers[usize::from(node)] {
            None => true,
            Some(peer) => peer.is_up() && peer.about(PROBE_TIMEOUT).is_ok(),
        }
    }

    /// Returns the positions of this node's copies.
    ///
    /// # Errors
    /// The bucket that is still loading.
    pub(super) fn positions(&self) -> Result<NodePositions, String> {
        let mut all = NodePositions::new();
        for bucket in self.registry.list() {
            let name = bucket.name().to_owned();
            match super::apply::positions(&bucket) {
                Ok(positions) => all.insert(name, positions),
                Err(status) => return Err(format!("bucket \"{name}\" answers {}", status.name())),
            };
        }
        Ok(all)
    }

    /// Calls `tell` when this node has applied a map of that revision, or a newer one.
    pub(super) fn when_applied(&self, revision: Revision, tell: impl FnOnce() + Send + 'static) {
        let mut current = self.current.lock();
        if *self.applied.borrow() >= Some(revision) {
            drop(current);
            return tell();
        }
        current.listeners.push((revision, Box::new(tell)));
    }
}

fn settings(config: &BucketConfig) -> Result<serde_json::Value, ChangeError> {
    serde_json::to_value(config).map_err(|error| ChangeError::Refused(error.to_string()))
}
