//! Applies the cluster map to this node's buckets and vBuckets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kedge_bucket::{Bucket, BucketChange, BucketConfig, NodeName, Topology, VbRole, VbState};
use kedge_cluster::{
    Chain, ClusterMap, CopyPosition, Feature, MapBucket, NodePositions, Revision, VbucketRole,
};
use kedge_node::coordination::PeerAddress;
use kedge_node::registry::RegistryError;
use kedge_types::VbId;
use serde_json::Value;

use super::ClusterNode;
use super::reconciler::{Assignment, Reconciler, ReportedPositions};
use crate::replication::ReplicationSource;

/// The pause between two checks of a loading bucket, or of a vBucket that catches up.
const PAUSE: Duration = Duration::from_millis(20);

/// The state of a bucket of the map.
struct KnownBucket {
    reconciler: Reconciler,
    /// The last plan of the replicator.
    plan: Vec<ReplicationSource>,
    /// The uuid and the settings in the last followed map.
    uuid: String,
    settings: Value,
}

/// The part of the map that is applied so far.
#[derive(Default)]
struct AppliedProgress {
    buckets: BTreeMap<String, KnownBucket>,
    /// True after a map was completely applied: a bucket of a later one is a new bucket.
    has_begun: bool,
    followed: Option<Revision>,
    /// The last reported errors of buckets that could not be created.
    refused: BTreeMap<String, String>,
}

/// Follows the map until the server stops.
pub(super) fn run(node: &ClusterNode) {
    let mut done = AppliedProgress::default();
    let mut waits = false;
    while !node.followed.is_stopping() {
        {
            let mut current = node.followed.current.lock();
            if !current.poked && (waits || !node.fenced().is_empty()) {
                node.followed.wake.wait_for(&mut current, PAUSE);
            } else if !current.poked {
                node.followed.wake.wait(&mut current);
            }
            current.poked = false;
        }
        waits = match node.followed.map() {
            // Another map comes.
            Some(map) if node.waits_for_moves(Some(&map)) => false,
            Some(map) => follow(node, &map, &mut done),
            None => false,
        };
    }
}

/// The state of the buckets that a map has.
struct AppliedBuckets {
    /// True if all are there.
    is_complete: bool,
    /// True if no vBucket is active that the map assigns to another node.
    is_settled: bool,
    /// True if something has to be awaited.
    waits: bool,
}

/// Makes the buckets of the map, and their vBuckets, as far as possible now. Adds the nodes to ask to `ask`.
fn make_buckets(
    node: &ClusterNode,
    buckets: &[MapBucket],
    map: (&Arc<ClusterMap>, Option<u16>),
    done: &mut AppliedProgress,
    ask: &mut BTreeSet<u16>,
) -> AppliedBuckets {
    let (map, me) = map;
    let mut state = AppliedBuckets {
        is_complete: true,
        is_settled: true,
        waits: false,
    };
    for bucket in buckets {
        let ensured = ensure(node, bucket, done).and_then(|opened| {
            let registry = &node.registry;
            registry.follow_manifest(&bucket.name, &bucket.manifest)?;
            // Before it gets any data: without its directory it counts as lost then.
            node.followed.note_created(&opened.config().uuid)?;
            Ok(opened)
        });
        let opened = match ensured {
            Ok(opened) => {
                done.refused.remove(&bucket.name);
                opened
            }
            Err(error) => {
                // It is retried again and again: one message is enough.
                let why = error.to_string();
                if done.refused.get(&bucket.name) != Some(&why) {
                    tracing::error!(bucket = bucket.name, %error, "cannot make a bucket of the cluster");
                    done.refused.insert(bucket.name.clone(), why);
                }
                (state.is_complete, state.waits) = (false, true);
                continue;
            }
        };
        if opened.is_loading() {
            state.waits = true;
            continue;
        }
        let Some(known) = done.buckets.get_mut(&bucket.name) else {
            continue;
        };
        if let Some(me) = me {
            match assign(node, (map, me), bucket, &opened, known, ask) {
                Assigned::All => {}
                Assigned::SomeWait => state.waits = true,
                Assigned::Failed => (state.is_settled, state.waits) = (false, true),
            }
        }
    }
    state
}

/// Applies the map as far as possible now. True if something has to be awaited.
fn follow(node: &ClusterNode, map: &Arc<ClusterMap>, done: &mut AppliedProgress) -> bool {
    let mut ask = BTreeSet::new();
    let me = node.followed.number(map);
    // A node that was removed has no bucket.
    let buckets = if me.is_some() { &*map.buckets } else { &[] };
    let AppliedBuckets {
        is_complete,
        is_settled,
        waits,
    } = make_buckets(node, buckets, (map, me), done, &mut ask);
    let is_of_map = |it: &Arc<Bucket>| buckets.iter().any(|bucket| bucket.name == it.name());
    if is_settled && node.registry.list().iter().all(is_of_map) {
        node.followed.settle(map.revision);
    }
    if !is_complete {
        return true;
    }
    for peer in ask.iter().filter_map(|peer| node.peers.get(*peer)) {
        peer.want_positions_once();
    }
    if done.followed != Some(map.revision) {
        node.registry.cluster().adopt(map, me);
        drop_others(node, buckets, done);
        if is_settled {
            node.followed.settle(map.revision);
        }
        let fenced = node.fenced();
        if !fenced.is_empty() && !fenced.iter().any(|it| map.is_member(*it)) {
            // Nobody follows them by this map.
            node.fenced.lock().clear();
            node.followed.poke();
        }
        done.followed = Some(map.revision);
    }
    done.has_begun = true;
    node.begun.store(true, Ordering::SeqCst);
    if !waits {
        for peer in node.peers.all() {
            // The reported positions are of no use later.
            peer.forget_positions();
        }
        // Nobody reaches the node yet if it has another address than the map says.
        if !node.is_entry_due(map) {
            node.followed.announce(map.revision);
        }
    }
    waits
}

/// Returns the bucket, created or changed according to the map.
fn ensure(
    node: &ClusterNode,
    bucket: &MapBucket,
    done: &mut AppliedProgress,
) -> Result<Arc<Bucket>, RegistryError> {
    let registry = &node.registry;
    let config: BucketConfig = serde_json::from_value(bucket.settings.clone())
        .map_err(|error| RegistryError::BadSetting(format!("its settings: {error}")))?;
    let there = registry.get(&bucket.name);
    let is_missing = there.is_none() && !done.has_begun;
    if let Some(there) = there {
        if there.config().uuid == config.uuid {
            let known = done.buckets.get_mut(&bucket.name);
            match known.filter(|known| known.uuid == config.uuid) {
                Some(known) if known.settings == bucket.settings => {}
                Some(known) => {
                    registry.update(&bucket.name, &BucketChange::to(&config))?;
                    known.settings = bucket.settings.clone();
                }
                None => know(bucket, &config, false, done),
            }
            return Ok(there);
        }
        // Another bucket of the same name was created while this node was away.
        registry.drop_bucket(&bucket.name)?;
    }
    tracing::info!(bucket = bucket.name, "creating a bucket of the cluster");
    let is_lost = is_missing && node.followed.has_created(&config.uuid);
    know(bucket, &config, done.has_begun, done);
    let created = registry.create(config)?;
    if is_lost {
        let path = registry.dir_of(&bucket.name);
        tracing::error!(
            bucket = bucket.name,
            path = %path.display(),
            "the directory of a bucket was missing, and an empty one is made: kedge cluster recover gets the documents that \
             other nodes have; if there are no copies, stop the node and put the directory back"
        );
    }
    Ok(created)
}

fn know(bucket: &MapBucket, config: &BucketConfig, is_new: bool, done: &mut AppliedProgress) {
    let known = KnownBucket {
        reconciler: Reconciler::new(is_new),
        plan: Vec::new(),
        uuid: config.uuid.clone(),
        settings: bucket.settings.clone(),
    };
    done.buckets.insert(bucket.name.clone(), known);
}

/// Returns the nodes that must acknowledge the SyncWrites of a vBucket; `None` if it has no active.
fn topology(map: &ClusterMap, chain: &Chain, second: Option<&Chain>) -> Option<Topology> {
    let names = |chain: &Chain| {
        let names = map.topology(chain);
        names.map(|name| name.and_then(NodeName::new)).collect()
    };
    let chains = [chain].into_iter().chain(second);
    Topology::new(chains.map(names).collect()).ok()
}

/// Returns the last positions that other nodes reported.
fn reported_positions(node: &ClusterNode) -> Vec<(u16, NodePositions)> {
    let peers = node.peers.all().into_iter();
    peers
        .filter_map(|peer| Some((peer.number, peer.status.lock().positions.clone()?)))
        .collect()
}

/// Sets the states of vBuckets of a bucket. Returns whether these are durable.
fn set_states(map: &ClusterMap, bucket: &Bucket, assign: Vec<Assignment>) -> bool {
    let roles: Vec<(VbId, VbRole)> = assign
        .into_iter()
        .map(|it| {
            let role = VbRole {
                topology: topology(map, &it.chain, it.second.as_ref()),
                unless_dead: it.unless_dead,
                ..it.state.into()
            };
            (VbId(it.vb), role)
        })
        .collect();
    match bucket.states().assign(&roles) {
        Ok(refused) if refused.is_empty() => true,
        Ok(refused) => {
            tracing::error!(
                bucket = bucket.name(),
                vbuckets = refused.len(),
                "vBuckets are quarantined and cannot do their part in the cluster"
            );
            true
        }
        Err(status) => {
            tracing::error!(
                bucket = bucket.name(),
                status = status.name(),
                "the states of vBuckets are not durable"
            );
            false
        }
    }
}

/// Returns the copies that a map has taken away from this node. Those of a failed-over node stay, for its return.
fn gone_copies(is_member: bool, assign: &[Assignment], own: &[Option<CopyPosition>]) -> Vec<VbId> {
    let gone = assign.iter().filter(|it| {
        let has_some = own[usize::from(it.vb)].as_ref();
        is_member && it.is_gone && has_some.is_some_and(|has| has.high_seqno > 0)
    });
    gone.map(|it| VbId(it.vb)).collect()
}

/// Returns all copies with data that no chain gives to this node.
fn stray_copies(bucket: &MapBucket, me: u16, own: &[Option<CopyPosition>]) -> Vec<VbId> {
    let has_data = |has: &Option<CopyPosition>| has.as_ref().is_some_and(|has| has.high_seqno > 0);
    let all = (0_u16..).zip(own).filter(|(_, has)| has_data(has));
    let stray = all.filter(|(vb, _)| bucket.role(*vb, me) == VbucketRole::None);
    stray.map(|(vb, _)| VbId(vb)).collect()
}

/// Starts the deletion of copies that this node must not have any more.
fn delete_copies(bucket: &Bucket, gone: &[VbId]) {
    for &vb in gone {
        if let Err(status) = bucket.states().begin_delete_vbucket(vb, |_| ()) {
            let (bucket, status) = (bucket.name(), status.name());
            tracing::error!(bucket, vbucket = %vb, status, "a copy that went stays");
        }
    }
}

/// The result of setting the states of a bucket's vBuckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assigned {
    /// Each has the state of the map.
    All,
    /// Some wait to become active.
    SomeWait,
    /// Some may be active that the map assigns to another node.
    Failed,
}

/// Sets the states of the vBuckets of a bucket.
fn assign(
    node: &ClusterNode,
    (map, me): (&ClusterMap, u16),
    bucket: &MapBucket,
    opened: &Arc<Bucket>,
    known: &mut KnownBucket,
    ask: &mut BTreeSet<u16>,
) -> Assigned {
    let KnownBucket {
        reconciler, plan, ..
    } = known;
    let own = match positions(opened) {
        Ok(own) => own,
        // The bucket ends because the server does.
        Err(_) => return Assigned::Failed,
    };
    let none: Vec<Option<CopyPosition>> = Vec::new();
    let status = reported_positions(node);
    let told: ReportedPositions<'_> = status
        .iter()
        .map(|(number, buckets)| (*number, &**buckets.get(&bucket.name).unwrap_or(&none)))
        .collect();
    let step = reconciler.step(bucket, me, &told, &own);
    ask.extend(step.ask);
    let gone = match map.discards(me) {
        true => stray_copies(bucket, me, &own),
        false => gone_copies(map.is_member(me), &step.assign, &own),
    };
    if !step.assign.is_empty() && !set_states(map, opened, step.assign) {
        return Assigned::Failed;
    }
    delete_copies(opened, &gone);
    node.replicate((map, me), &bucket.name, reconciler, plan);
    if step.waiting > 0 {
        Assigned::SomeWait
    } else {
        Assigned::All
    }
}

/// Returns the positions of a bucket's vBuckets on this node, by number.
pub(super) fn positions(bucket: &Bucket) -> Result<Vec<Option<CopyPosition>>, kedge_types::Status> {
    let mut positions = vec![None; usize::from(bucket.vbuckets())];
    for position in bucket.states().positions()? {
        positions[position.vb.index()] = Some(CopyPosition {
            high_seqno: position.high_seqno.get(),
            persisted_seqno: position.persisted_seqno.get(),
            high_prepared: position.high_prepared.get(),
            consistent: position.consistent,
            catch_up_to: position.catch_up_to.map(|seqno| seqno.get()),
            active: position.state == VbState::Active,
            history: position
                .failover
                .iter()
                .map(|(uuid, seqno)| (uuid.get(), seqno.get()))
                .collect(),
        });
    }
    Ok(positions)
}

/// Drops all buckets but these.
fn drop_others(node: &ClusterNode, stay: &[MapBucket], done: &mut AppliedProgress) {
    for bucket in node.registry.list() {
        let name = bucket.name();
        if stay.iter().any(|bucket| bucket.name == name) {
            continue;
        }
        tracing::info!(bucket = name, "dropping a bucket that the cluster dropped");
        done.buckets.remove(name);
        node.replicator.set_plan(name, Vec::new());
        if let Err(error) = node.registry.drop_bucket(name) {
            tracing::error!(bucket = name, %error, "cannot drop a bucket");
        }
    }
}

impl ClusterNode {
    /// Makes the bucket's vBuckets follow those of other nodes.
    fn replicate(
        &self,
        (map, me): (&ClusterMap, u16),
        bucket: &str,
        reconciler: &Reconciler,
        plan: &mut Vec<ReplicationSource>,
    ) {
        let takeovers = reconciler.takeovers();
        let copies = reconciler.copies(me);
        let source = |(number, vbuckets): (u16, Vec<u16>)| {
            let taken = vbuckets.iter();
            let taken = taken.filter_map(|vb| Some((VbId(*vb), *takeovers.get(vb)?)));
            let copied = vbuckets.iter().filter(|vb| copies.contains(vb));
            let node = map.nodes.get(&number)?;
            Some(ReplicationSource {
                peer: PeerAddress {
                    name: node.name.clone(),
                    host: node.host.clone(),
                    port: self.followed.access.kv_port(node.kv_port, node.tls),
                },
                from_files: map.has(Feature::FileCopies),
                map_epoch: map
                    .has(Feature::ReplicationEpoch)
                    .then_some(map.revision.epoch),
                takeovers: taken.collect(),
                copies: copied.copied().map(VbId).collect(),
                vbuckets: vbuckets.into_iter().map(VbId).collect(),
            })
        };
        let mut sources = reconciler.sources();
        for fenced in self.fenced() {
            sources.remove(&fenced);
        }
        let next: Vec<ReplicationSource> = sources.into_iter().filter_map(source).collect();
        if *plan != next {
            self.replicator.set_plan(bucket, next.clone());
            *plan = next;
        }
    }
}
