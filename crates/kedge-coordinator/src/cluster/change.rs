//! Changes of the map: one node makes them in the coordination store, and sends the map to all others.
//!
//! Invariant: a change is planned on the map that the store has. If another change comes first, it is planned again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_bucket::{BucketChange, BucketConfig};
use kedge_cluster::{
    ClusterError, ClusterMap, FailoverAttempt, FailoverLosses, ManifestEdit, NodePositions,
    RecoveryType, plan_add_node, plan_failover, plan_full_recovery, plan_recovery,
    plan_remove_node,
};
use kedge_coordination::Transaction;
use kedge_node::coordination::{AppliedChange, ChangeError, FailoverConsent};
use kedge_types::ManifestUid;

use super::auto_failover::{FailoverControl, WhenAlive};
use super::begin::{new_attempt, stamped};
use super::followed::Followed;
use super::orchestrator::FailoverNode;
use super::peer::{Peer, PeerError};
use super::peers::Peers;
use super::sent_change::{SentChange, may_be_made};
use super::store::{PutMap, Store, StoredMap};
use super::{APPLY_TIMEOUT, ASK_TIMEOUT, ClusterNode, master_keys};

/// The timeout of a probe of a node that is to be failed over, if it responded a moment ago.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);
/// The number of times that a change is planned, as other changes come first.
const ATTEMPTS: usize = 10;

/// A change of the map.
pub(super) struct PlannedChange {
    pub(super) map: ClusterMap,
    /// Further compares and changes of the transaction.
    pub(super) with: Transaction,
}

impl From<ClusterMap> for PlannedChange {
    fn from(map: ClusterMap) -> Self {
        Self {
            map,
            with: Transaction::new(),
        }
    }
}

/// The result of a change of the map in the store.
pub(super) enum Commit {
    /// There was nothing to change: the map of the store.
    Unchanged(Arc<ClusterMap>),
    /// The store has the changed map.
    Changed(Arc<ClusterMap>),
}

impl ClusterNode {
    /// Fails a node over: replicas take over its active vBuckets.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn fail_over(
        &self,
        name: &str,
        accepts: FailoverConsent,
    ) -> Result<AppliedChange, ChangeError> {
        let began = Instant::now();
        let _one_at_a_time = self.changing.lock();
        let (mut promoted, mut losses) = (0, FailoverLosses::default());
        let attempt = new_attempt();
        let mut was_member = false;
        let done = self.commit(|map| {
            let failed = map.node(name)?;
            if was_member && !map.is_member(failed) {
                // The orchestrator was faster.
                return Ok(None);
            }
            was_member = map.is_member(failed);
            let me = self.followed.member(map)?;
            if !map.is_member(me) {
                return Err(ChangeError::Refused(format!(
                    "node \"{}\" is failed over itself: have another node do it",
                    self.name()
                )));
            }
            if !accepts.alive && map.is_member(failed) && self.is_alive(map, failed) {
                return Err(ChangeError::Alive(name.to_owned()));
            }
            // No lease is taken in vain.
            let told = match accepts.losses {
                true => BTreeMap::new(),
                false => self.ask_positions(map, &[failed]),
            };
            plan_failover(map, failed, &told, accepts.losses)?;
            let when_alive = match accepts.alive {
                true => WhenAlive::RevokeAtOnce,
                false => WhenAlive::Revoke,
            };
            let ended =
                self.failovers
                    .await_end_of_lease((map, me), name, when_alive, accepts.losses)?;
            let told = self.gather(map, &[failed], attempt);
            let plan = plan_failover(map, failed, &told, accepts.losses)?;
            tracing::warn!(
                node = name,
                promoted = plan.promoted,
                losses = %plan.losses,
                "failing a node over"
            );
            (promoted, losses) = (plan.promoted, plan.losses);
            Ok(Some(PlannedChange {
                map: plan.map,
                with: ended,
            }))
        });
        let map = match done {
            Ok(Commit::Changed(map) | Commit::Unchanged(map)) => map,
            Err(error) => {
                if let Some(map) = self.followed.map().filter(|_| !may_be_made(&error)) {
                    self.lift_all_fences(&map, attempt);
                }
                return Err(error);
            }
        };
        Ok(AppliedChange {
            promoted,
            losses,
            ..self.distribute(&map, began)
        })
    }

    /// Recovers a failed-over node: it catches up and becomes a replica. With full recovery it discards its data first.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn recover(
        &self,
        name: &str,
        recovery: RecoveryType,
    ) -> Result<AppliedChange, ChangeError> {
        self.change_map(|map| {
            let node = map.node(name)?;
            let next = match recovery {
                RecoveryType::Delta => plan_recovery(map, node)?,
                RecoveryType::Full => plan_full_recovery(map, node)?,
            };
            // It may have become reachable since the last probe.
            let other = self.peers.get(node);
            if other.is_some_and(|peer| peer.about(ASK_TIMEOUT).is_err()) {
                return Err(ChangeError::Down(name.to_owned()));
            }
            tracing::info!(node = name, ?recovery, "recovering a node");
            Ok(Some(next))
        })
    }

    /// Makes a waiting node a member.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn add_node(&self, name: &str) -> Result<AppliedChange, ChangeError> {
        self.change_map(|map| {
            if map.node(name).is_ok() {
                let why = format!("node \"{name}\" is a member already");
                return Err(ChangeError::Refused(why));
            }
            let record = self.store.read(name)?.record.ok_or_else(|| {
                ChangeError::Refused(format!(
                    "no node waits under the name \"{name}\": start it with --node-name {name} and this cluster's \
                     --coordinator"
                ))
            })?;
            if !record.levels.contains(map.level) {
                return Err(ChangeError::Refused(format!(
                    "node \"{name}\" has release {}, which supports {}, and the cluster has compatibility level {}",
                    record.release, record.levels, map.level
                )));
            }
            master_keys::require_of_new(map, name, &record)?;
            tracing::info!(node = name, host = record.host, "adding a node");
            Ok(Some(plan_add_node(map, record.to_node(name))?))
        })
    }

    /// Removes a node that has no vBuckets. A node that runs waits then; the record of one that does not is deleted, as is
    /// that of a node that waits.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub(super) fn remove_node(&self, name: &str) -> Result<AppliedChange, ChangeError> {
        let mut is_forgotten = true;
        let applied = self.change_map(|map| {
            let Ok(number) = map.node(name) else {
                if self.store.read(name)?.record.is_none() {
                    return Err(ClusterError::NoNode(name.to_owned()).into());
                }
                return Ok(None);
            };
            is_forgotten = !self.is_alive(map, number);
            let next = plan_remove_node(map, number)?;
            tracing::info!(node = name, "removing a node");
            Ok(Some(next))
        })?;
        if is_forgotten {
            self.store.delete_record(name)?;
        }
        Ok(applied)
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
            if config.encryption.enabled {
                master_keys::require_of_all(map, &self.store.read_records()?)?;
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
            if next.encryption.enabled && !is.encryption.enabled {
                master_keys::require_of_all(map, &self.store.read_records()?)?;
            }
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
        let mut made = ManifestUid::default();
        let applied = self.change_map(|map| {
            let bucket = map.bucket(name).ok_or(ChangeError::NoBucket)?;
            let manifest = bucket.manifest.edit(edit)?;
            made = manifest.uid();
            if made == bucket.manifest.uid() {
                return Ok(None);
            }
            self.peers.require_all(map)?;
            let mut next = map.next();
            let mut buckets = next.buckets.iter_mut();
            let bucket = buckets.find(|bucket| bucket.name == name);
            bucket.ok_or(ChangeError::NoBucket)?.manifest = manifest;
            Ok(Some(next))
        })?;
        Ok((applied, made))
    }

    /// Sends the map to all other nodes that are not failed over, and returns those that have not applied it.
    ///
    /// # Errors
    /// `NotBegun`.
    pub(super) fn give_to_all(&self) -> Result<Vec<String>, ChangeError> {
        let map = self.followed.map().ok_or(ChangeError::NotBegun)?;
        let is_behind = self.peers.each(&map, |peer| {
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
        let map = self.followed.map().ok_or(ChangeError::NotBegun)?;
        let said = self.peers.each(&map, |peer| {
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
    pub(super) fn change(
        &self,
        mut change: impl FnMut(&mut ClusterMap) -> Result<(), ChangeError>,
    ) -> Result<AppliedChange, ChangeError> {
        self.change_map(|map| {
            let mut next = map.next();
            change(&mut next)?;
            self.peers.require_all(map)?;
            Ok(Some(next))
        })
    }

    /// Makes a change, if `plan` returns one, and waits until the nodes have applied it.
    pub(super) fn change_map(
        &self,
        plan: impl FnMut(&ClusterMap) -> Result<Option<ClusterMap>, ChangeError>,
    ) -> Result<AppliedChange, ChangeError> {
        change_map_with(self, &Transaction::new(), plan)
    }

    /// Puts the map that `plan` makes of the store's map into the store. If another change comes first, `plan` is called
    /// again with that.
    ///
    /// # Errors
    /// `NotBegun`, `Store`; `NoMember` when this node is none; `Raced` after too many other changes; the errors of `plan`.
    /// `OutcomeUnknown` instead of any of them when the store may still make the change.
    pub(super) fn commit(
        &self,
        plan: impl FnMut(&ClusterMap) -> Result<Option<PlannedChange>, ChangeError>,
    ) -> Result<Commit, ChangeError> {
        let mut sent = SentChange::default();
        let done = try_commit(self, &mut sent, plan);
        done.map_err(|error| sent.given_up(error))
    }

    /// Changes the map, if there is a change and this node is a member, and sends it to the other nodes. Nobody waits for
    /// them.
    pub(super) fn amend(
        &self,
        change: impl Fn(&ClusterMap, u16) -> Option<ClusterMap>,
    ) -> Result<(), ChangeError> {
        let changed =
            |map: &ClusterMap| Ok::<_, ChangeError>(change(map, self.followed.member(map)?));
        match self.commit(|map| Ok(changed(map)?.map(PlannedChange::from))) {
            Ok(Commit::Changed(map)) => self.peers.offer(&map),
            Ok(Commit::Unchanged(_)) | Err(ChangeError::NoMember(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Checks that no node follows a newer map than that of the store, which went backwards in that case. The newer map
    /// is put back before anything is changed.
    fn check_newest(&self, map: &ClusterMap) -> Result<(), ChangeError> {
        if self.followed.revision() > Some(map.revision) {
            return Err(ChangeError::WentBackwards(self.name().to_owned()));
        }
        let follows_newer = |peer: &Arc<Peer>| {
            let status = peer.status.lock();
            let about = status.about.as_ref();
            about.is_some_and(|(about, _)| about.revision > Some(map.revision))
        };
        match self.peers.all().iter().find(|peer| follows_newer(peer)) {
            Some(peer) => Err(ChangeError::WentBackwards(peer.name.clone())),
            None => Ok(()),
        }
    }

    /// Sends a map of the store to all others and waits until they, and this node, have applied it.
    pub(super) fn distribute(&self, map: &Arc<ClusterMap>, began: Instant) -> AppliedChange {
        let revision = map.revision;
        // A failed-over node gets it too, if it is alive; nobody waits for that.
        self.peers.offer_to_failed(map);
        let others = self.peers.each(map, |peer| {
            let given = peer.give(map, APPLY_TIMEOUT);
            peer.poke();
            match given {
                Ok(about) if about.applied >= Some(revision) => None,
                Ok(_) => Some("it is not done yet".to_owned()),
                Err(error) => Some(error.to_string()),
            }
        });
        let behind = |(node, why): (u16, Option<String>)| Some((map.name(node).to_owned(), why?));
        let mut missing: Vec<(String, String)> = others.into_iter().filter_map(behind).collect();
        let is_member = self.followed.number(map).is_some();
        if is_member
            && !self
                .followed
                .wait_applied(revision, Instant::now() + APPLY_TIMEOUT)
        {
            missing.push((self.name().to_owned(), "it is not done yet".to_owned()));
        }
        if map.begins_membership() {
            self.failovers
                .await_followers(map, Instant::now() + ASK_TIMEOUT);
        }
        AppliedChange {
            missing,
            took: began.elapsed(),
            ..AppliedChange::nothing(revision)
        }
    }

    /// Returns whether a node responds. A node that did not respond last time is not asked again.
    fn is_alive(&self, map: &ClusterMap, node: u16) -> bool {
        match self.peers.get(node) {
            None => self.followed.number(map) == Some(node),
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
}

impl FailoverNode for ClusterNode {
    fn followed(&self) -> &Followed {
        &self.followed
    }

    fn peers(&self) -> &Peers {
        &self.peers
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn failovers(&self) -> &FailoverControl {
        &self.failovers
    }

    fn set_lease_time(&self, time: Duration) {
        self.set_lease_time(time);
    }

    fn one_at_a_time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _one_at_a_time = self.changing.lock();
        work()
    }

    fn gather(
        &self,
        map: &ClusterMap,
        without: &[u16],
        attempt: FailoverAttempt,
    ) -> BTreeMap<u16, NodePositions> {
        let names: Vec<&str> = without.iter().map(|node| map.name(*node)).collect();
        let of_peer = |peer: &Peer| {
            let told = names.iter().map(|name| peer.fence(name, attempt));
            // The last answer is of a time at which none of them was followed.
            told.collect::<Result<Vec<_>, _>>()
                .map(|mut told| told.pop().unwrap_or_default())
        };
        let own = || {
            let mut nodes = without.iter();
            nodes.try_for_each(|node| self.fence(*node, attempt))?;
            self.positions()
        };
        positions_of(self, map, without, of_peer, own)
    }

    fn ask_positions(&self, map: &ClusterMap, without: &[u16]) -> BTreeMap<u16, NodePositions> {
        positions_of(self, map, without, Peer::positions, || self.positions())
    }

    fn lift_all_fences(&self, map: &ClusterMap, attempt: FailoverAttempt) {
        self.lift_fences(attempt);
        // A node that misses this follows again by itself, after a while.
        self.peers.each(map, |peer| drop(peer.lift_fences(attempt)));
    }
}

/// Makes a change, if `plan` returns one, together with further compares and changes, and waits until the nodes have applied it.
pub(super) fn change_map_with(
    node: &ClusterNode,
    with: &Transaction,
    mut plan: impl FnMut(&ClusterMap) -> Result<Option<ClusterMap>, ChangeError>,
) -> Result<AppliedChange, ChangeError> {
    let began = Instant::now();
    let _one_at_a_time = node.changing.lock();
    let planned = |map| {
        let with = with.clone();
        PlannedChange { map, with }
    };
    Ok(match node.commit(|map| Ok(plan(map)?.map(planned)))? {
        Commit::Changed(map) => node.distribute(&map, began),
        Commit::Unchanged(map) => AppliedChange::nothing(map.revision),
    })
}

/// Makes a change, and notes a transaction whose outcome is not known.
fn try_commit(
    node: &ClusterNode,
    sent: &mut SentChange,
    mut plan: impl FnMut(&ClusterMap) -> Result<Option<PlannedChange>, ChangeError>,
) -> Result<Commit, ChangeError> {
    let mut stored = node.store.read_map()?;
    for _ in 0..ATTEMPTS {
        let Some(present) = stored.take() else {
            return Err(ChangeError::NotBegun);
        };
        let is_made = sent.has_made(&present);
        let StoredMap { map, revision } = present;
        node.adopt(map.clone())?;
        if is_made {
            return Ok(Commit::Changed(Arc::new(map)));
        }
        node.followed.member(&map)?;
        if let Err(error) = node.check_newest(&map) {
            // The newer map may have come into the store since it was read.
            let again = node.store.read_map()?;
            if again
                .as_ref()
                .is_none_or(|again| again.map.revision <= map.revision)
            {
                return Err(error);
            }
            stored = again;
            continue;
        }
        let Some(PlannedChange { map: next, with }) = plan(&map)? else {
            return Ok(Commit::Unchanged(Arc::new(map)));
        };
        let next = stamped(next);
        match node.store.put_map(Some(revision), &next, &with)? {
            PutMap::Done => {
                if let Err(error) = node.adopt(next.clone()) {
                    // The store has it. The thread "kedge-store" tries again.
                    tracing::error!(%error, "this node does not follow a map that it made");
                }
                return Ok(Commit::Changed(Arc::new(next)));
            }
            PutMap::Conflict(newer) => stored = newer.map(|newer| *newer),
            PutMap::Unknown => {
                sent.note(next, revision);
                stored = node.store.read_map()?;
            }
        }
    }
    Err(ChangeError::Raced)
}

/// Returns the positions of the copies of all nodes but some.
fn positions_of(
    node: &ClusterNode,
    map: &ClusterMap,
    without: &[u16],
    of_peer: impl Fn(&Peer) -> Result<NodePositions, PeerError> + Sync,
    own: impl FnOnce() -> Result<NodePositions, String>,
) -> BTreeMap<u16, NodePositions> {
    let mut rest = map.clone();
    rest.nodes.retain(|node, _| !without.contains(node));
    let told = node.peers.each(&rest, |peer| match of_peer(peer) {
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
    if let Some(me) = node.followed.number(map).filter(|me| !without.contains(me)) {
        match own() {
            Ok(own) => drop(told.insert(me, own)),
            Err(why) => {
                tracing::warn!(why, "this node does not report the positions of its copies");
            }
        }
    }
    told
}

fn settings(config: &BucketConfig) -> Result<serde_json::Value, ChangeError> {
    serde_json::to_value(config).map_err(|error| ChangeError::Refused(error.to_string()))
}
