//! The cluster map: the chains of all vBuckets. It is in the store, and nodes learn of it sooner or later.

use kedge_bucket::Bucket;
use kedge_cluster::{
    CatchUp, Chain, ClusterMap, CopyPosition, DrainRequest, MapAction, MapNode, MoveLimits,
    MoveStart, NodePositions, RebalanceKind, RebalanceRequest, Revision, SERVER_GROUP,
    TakenVbucket, TlsPorts, VbucketRole, act_on, begin_drain, begin_rebalance, plan_add_node,
    plan_automatic_failover, plan_discarded, plan_failover, plan_full_recovery, plan_move,
    plan_recovery, plan_remove_node, plan_round, plan_steps, stop_rebalance,
};
use kedge_types::VbId;
use kedge_types::limits::MAP_LINEAGE_MAX;
use kedge_vbucket::{NodeName, Topology, VbState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const BUCKET: &str = "sim";
/// A number that no node has.
const NO_NODE: u16 = u16::MAX;
/// The key of the map in the store.
pub(crate) const MAP_KEY: &str = "map";

/// The chains of all vBuckets: nodes by number, the active first.
#[derive(Clone, Debug)]
pub(crate) struct SimMap {
    map: Arc<ClusterMap>,
    /// The numbers of the nodes in the map, with the nodes. A node that is added again gets another number.
    nodes: Arc<[(u16, usize)]>,
}

impl PartialEq for SimMap {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.map, &other.map) || self.map == other.map
    }
}

fn settings(replicas: u8) -> serde_json::Value {
    serde_json::json!({ "replicas": replicas })
}

fn entry(node: usize) -> MapNode {
    MapNode {
        name: text(node),
        uuid: uuid(node),
        host: "127.0.0.1".to_owned(),
        kv_port: 1,
        mgmt_port: 1,
        tls: TlsPorts::default(),
        external: None,
        server_group: SERVER_GROUP.to_owned(),
        failed: false,
    }
}

/// Returns the name of a node as text.
pub(crate) fn text(node: usize) -> String {
    format!("n_{node}")
}

/// Returns the uuid of a node.
fn uuid(node: usize) -> String {
    format!("{node:032x}")
}

/// Returns the name of a node.
pub(crate) fn name(node: usize) -> NodeName {
    NodeName::new(&text(node)).expect("it is short")
}

/// Returns the positions of the vBuckets of a node.
pub(crate) fn positions(bucket: &Bucket) -> Option<NodePositions> {
    let mut positions = vec![None; usize::from(bucket.vbuckets())];
    for position in bucket.states().positions().ok()? {
        let branches = position.failover.iter();
        positions[position.vb.index()] = Some(CopyPosition {
            high_seqno: position.high_seqno.get(),
            persisted_seqno: position.persisted_seqno.get(),
            high_prepared: position.high_prepared.get(),
            consistent: position.consistent,
            catch_up_to: position.catch_up_to.map(|seqno| seqno.get()),
            active: position.state == VbState::Active,
            history: branches
                .map(|(uuid, seqno)| (uuid.get(), seqno.get()))
                .collect(),
        });
    }
    Some(BTreeMap::from([(BUCKET.to_owned(), positions)]))
}

impl SimMap {
    pub(crate) fn new(vbuckets: u16, nodes: usize, replicas: usize) -> Self {
        let replicas = u8::try_from(replicas).expect("few");
        let map = ClusterMap::new("7".repeat(32), replicas, (0..nodes).map(entry));
        let mut map = map.expect("the nodes are valid");
        let added = map.add_bucket(BUCKET, settings(replicas), vbuckets, replicas);
        added.expect("no node has failed");
        Self::of(map.stamped(0))
    }

    fn of(map: ClusterMap) -> Self {
        let index = |name: &str| {
            let number = name.strip_prefix("n_").and_then(|text| text.parse().ok());
            number.expect("nodes are called so")
        };
        let nodes = map.nodes.iter();
        let nodes = nodes.map(|(number, node)| (*number, index(&node.name)));
        Self {
            nodes: nodes.collect(),
            map: Arc::new(map),
        }
    }

    /// Returns the number of a node in the map; if it has none, a number that no node has.
    pub(crate) fn number(&self, node: usize) -> u16 {
        let found = self.nodes.iter().find(|(_, it)| *it == node);
        found.map_or(NO_NODE, |(number, _)| *number)
    }

    /// Returns the node of a number in the map.
    pub(crate) fn index(&self, number: u16) -> usize {
        let found = self.nodes.iter().find(|(it, _)| *it == number);
        found.expect("the map has its nodes").1
    }

    /// Returns whether the map has a node, failed over or not.
    pub(crate) fn has_node(&self, node: usize) -> bool {
        self.number(node) != NO_NODE
    }

    /// Returns whether a node is failed over.
    pub(crate) fn is_failed(&self, node: usize) -> bool {
        self.has_node(node) && self.is_out(node)
    }

    /// Returns the map with the id of the change that made it.
    pub(crate) fn stamped(self, id: u64) -> Self {
        Self::of((*self.map).clone().stamped(id))
    }

    /// Returns whether this is a later map of the same branch, or the same one.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        self.map.continues(&earlier.map)
    }

    /// Returns whether so many changes were made until a later map that it may not know this one.
    pub(crate) fn is_long_before(&self, later: &Self) -> bool {
        let changes = later.revision().rev - self.revision().rev;
        usize::try_from(changes).is_ok_and(|changes| changes > MAP_LINEAGE_MAX / 2)
    }

    /// Returns whether a node that follows `followed` adopts this map of the store.
    pub(crate) fn is_adopted(&self, node: usize, followed: &Self) -> bool {
        act_on(&uuid(node), Some(&followed.map), Some(&self.map)) == MapAction::Adopt
    }

    /// Returns the map that a node which follows this one puts in place of one of the store, if it does.
    pub(crate) fn put_over(&self, node: usize, stored: &Self) -> Option<Self> {
        match act_on(&uuid(node), Some(&self.map), Some(&stored.map)) {
            MapAction::PutBack(map) => Some(Self::of(*map)),
            _ => None,
        }
    }

    /// Reads a map of the store.
    pub(crate) fn from_json(json: &[u8]) -> Self {
        let map = ClusterMap::from_json(json);
        Self::of(map.unwrap_or_else(|error| {
            panic!("{error} in {}", String::from_utf8_lossy(json));
        }))
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        self.map.to_json()
    }

    pub(crate) fn revision(&self) -> Revision {
        self.map.revision
    }

    fn chains(&self) -> &[Chain] {
        &self.map.buckets[0].chains
    }

    fn chain(&self, vb: VbId) -> &Chain {
        &self.chains()[vb.index()]
    }

    pub(crate) fn vbuckets(&self) -> impl Iterator<Item = VbId> + use<> {
        (0..self.chains().len()).map(|vb| VbId(vb as u16))
    }

    /// Returns whether a vBucket has the same chain in another map.
    pub(crate) fn has_same_chain(&self, vb: VbId, other: &Self) -> bool {
        self.chain(vb) == other.chain(vb)
    }

    pub(crate) fn active(&self, vb: VbId) -> Option<usize> {
        self.chain(vb).active().map(|node| self.index(node))
    }

    pub(crate) fn replicas(&self, vb: VbId) -> impl Iterator<Item = usize> + '_ {
        self.chain(vb).replicas().map(|node| self.index(node))
    }

    /// Returns the role of a node for a vBucket, and the node that it follows.
    pub(crate) fn role(&self, vb: VbId, node: usize) -> VbucketRole {
        self.map.buckets[0].role(vb.get(), self.number(node))
    }

    /// Returns whether a node is no member, as it was failed over, was removed, or never was one.
    pub(crate) fn is_out(&self, node: usize) -> bool {
        !self.map.is_member(self.number(node))
    }

    /// Returns the nodes that are not failed over.
    pub(crate) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.map.members().map(|node| self.index(node))
    }

    /// Returns whether a node is a member, and was one in the map of that `rev` and in all since.
    pub(crate) fn is_member_since(&self, node: usize, rev: i64) -> bool {
        self.map.is_member_since(self.number(node), rev)
    }

    /// Returns the `rev` of the map that made a node a member; 0 if it was one in the first map.
    pub(crate) fn joined_rev(&self, node: usize) -> i64 {
        kedge_cluster::joined_rev(&self.map, self.number(node))
    }

    /// Returns whether nodes became members by this map.
    pub(crate) fn begins_membership(&self) -> bool {
        self.map.begins_membership()
    }

    pub(crate) fn has(&self, vb: VbId, node: usize) -> bool {
        self.chain(vb).contains(self.number(node))
    }

    /// Returns whether a node has copies, or is to have some.
    pub(crate) fn has_any(&self, node: usize) -> bool {
        let next = self.map.buckets[0].next.values();
        let mut chains = self.chains().iter().chain(next.map(|next| &next.chain));
        chains.any(|chain| chain.contains(self.number(node)))
    }

    pub(crate) fn leads(&self, node: usize) -> impl Iterator<Item = VbId> + '_ {
        let vbuckets = self.vbuckets();
        vbuckets.filter(move |vb| self.active(*vb) == Some(node))
    }

    /// Returns the node that takes a vBucket over.
    pub(crate) fn moves_to(&self, vb: VbId) -> Option<usize> {
        let pending = self.map.buckets[0].moves.get(&vb.get());
        pending.map(|pending| self.index(pending.to))
    }

    /// Returns the start of the move of a vBucket to a node.
    pub(crate) fn start_of_move(&self, vb: VbId, to: usize) -> Option<MoveStart> {
        let pending = self.map.buckets[0].moves.get(&vb.get())?;
        (self.index(pending.to) == to).then_some(pending.start)
    }

    /// Returns whether no place is empty, and nothing moves or changes.
    pub(crate) fn is_whole(&self) -> bool {
        let is_full = |chain: &Chain| chain.0.iter().all(Option::is_some);
        let is_done = !self.makes_copies()
            && !self.discards()
            && plan_steps(&self.map, MoveLimits::of(&self.map)).is_none();
        self.map.moving() == 0 && is_done && self.chains().iter().all(is_full)
    }

    pub(crate) fn topology(&self, vb: VbId) -> Option<Topology> {
        let names = |chain: &Chain| {
            let names = self.map.topology(chain);
            names.map(|name| name.and_then(NodeName::new)).collect()
        };
        let second = self.map.buckets[0].second_chain(vb.get());
        let chains = [self.chain(vb)].into_iter().chain(&second);
        Topology::new(chains.map(names).collect()).ok()
    }

    /// Returns the vBuckets in which a node follows another one; those that it takes over have the starts of their moves.
    pub(crate) fn followed(&self, node: usize, peer: usize) -> BTreeMap<VbId, Option<MoveStart>> {
        let active = Some(self.number(peer));
        let follows = |vb: &VbId| self.role(*vb, node) == VbucketRole::Replica { active };
        let followed = self.vbuckets().filter(follows);
        followed
            .map(|vb| (vb, self.start_of_move(vb, node)))
            .collect()
    }

    /// Returns the chains and moves on one line.
    pub(crate) fn brief(&self) -> String {
        let chain = |vb: VbId| {
            let nodes = self.chain(vb).0.iter();
            let nodes: Vec<String> = nodes
                .map(|node| node.map_or("-".to_owned(), |node| text(self.index(node))))
                .collect();
            let moves = self.moves_to(vb).map(|to| format!(" to {}", text(to)));
            let next = self.map.buckets[0].next.get(&vb.get()).map(|next| {
                let is = if next.counts { " and" } else { ", to be" };
                format!("{is} {:?}", next.chain.0)
            });
            let joining = self.map.buckets[0].joining.get(&vb.get());
            let joining = joining.map_or_else(String::new, |nodes| format!(", {nodes:?} joins"));
            let more = next.unwrap_or_default() + &moves.unwrap_or_default();
            format!("{vb}: {}{more}{joining}", nodes.join(","))
        };
        let chains: Vec<String> = self.vbuckets().map(chain).collect();
        format!("map {}: {}", self.revision().rev, chains.join("; "))
    }

    /// Returns the nodes that others may follow.
    pub(crate) fn actives(&self) -> BTreeSet<usize> {
        let actives = self.vbuckets().filter_map(|vb| self.active(vb));
        actives.collect()
    }

    /// Returns the map without nodes, if that loses nothing, as far as the others have reported. Nobody has asked for it
    /// if it is `automatic`.
    pub(crate) fn without(
        &self,
        nodes: &[usize],
        told: &BTreeMap<u16, NodePositions>,
        automatic: bool,
    ) -> Option<Self> {
        let nodes: Vec<u16> = nodes.iter().map(|node| self.number(*node)).collect();
        let plan = match (automatic, nodes.first()) {
            (true, _) => plan_automatic_failover(&self.map, &nodes, told),
            (false, Some(node)) => plan_failover(&self.map, *node, told, false),
            (false, None) => return None,
        };
        plan.ok().map(|plan| Self::of(plan.map))
    }

    /// Returns the map with a node that was failed over, which gets its lost places back.
    pub(crate) fn with(&self, node: usize) -> Option<Self> {
        plan_recovery(&self.map, self.number(node))
            .ok()
            .map(Self::of)
    }

    /// Returns the map with a move of a vBucket to one of its replicas.
    pub(crate) fn with_move(&self, vb: VbId, to: usize) -> Option<Self> {
        plan_move(&self.map, BUCKET, vb.get(), &text(to))
            .ok()
            .map(Self::of)
    }

    /// Returns the map with another wanted number of replicas.
    pub(crate) fn with_replicas(&self, replicas: u8) -> Self {
        let mut next = self.map.next();
        next.buckets[0].settings = settings(replicas);
        Self::of(next)
    }

    /// Returns the map in which a rebalance over these nodes begins, if it can. Those to remove leave the map at its end.
    pub(crate) fn with_rebalance(&self, servers: &[usize], remove: &[usize]) -> Option<Self> {
        let numbers = |nodes: &[usize]| -> BTreeSet<u16> {
            let numbers = nodes.iter().map(|node| self.number(*node));
            numbers.filter(|number| *number != NO_NODE).collect()
        };
        let request = RebalanceRequest {
            id: String::new(),
            now_ms: 0,
            servers: numbers(servers).into_iter().collect(),
            remove: numbers(remove),
        };
        begin_rebalance(&self.map, request).ok().map(Self::of)
    }

    /// Returns the map in which a rebalance over all nodes but some begins, which leave the map at its end.
    pub(crate) fn with_ejection(&self, nodes: &[usize]) -> Option<Self> {
        let all: Vec<usize> = self.nodes.iter().map(|(_, node)| *node).collect();
        self.with_rebalance(&all, nodes)
    }

    /// Returns the map with another node, if it is none of them.
    pub(crate) fn with_node(&self, node: usize) -> Option<Self> {
        plan_add_node(&self.map, entry(node)).ok().map(Self::of)
    }

    /// Returns the map without a node, if it has no copies.
    pub(crate) fn without_node(&self, node: usize) -> Option<Self> {
        let removed = plan_remove_node(&self.map, self.number(node));
        removed.ok().map(Self::of)
    }

    /// Returns the map in which a drain begins, if it can; with `fails_over`, the nodes are failed over at its end.
    pub(crate) fn with_drain(&self, nodes: &[usize], fails_over: bool) -> Option<Self> {
        let request = DrainRequest {
            id: String::new(),
            now_ms: 0,
            nodes: nodes.iter().map(|node| self.number(*node)).collect(),
            fails_over,
        };
        begin_drain(&self.map, request).ok().map(Self::of)
    }

    /// Returns the map in which the running operation is stopped.
    pub(crate) fn stopped(&self) -> Option<Self> {
        stop_rebalance(&self.map).map(Self::of)
    }

    /// Returns whether nodes are to be failed over gracefully.
    pub(crate) fn removes_copies(&self) -> bool {
        let running = self.map.running_rebalance();
        running.is_some_and(|it| it.kind == RebalanceKind::GracefulFailover)
    }

    /// Returns whether nodes discard their copies.
    pub(crate) fn discards(&self) -> bool {
        self.map.discarding().next().is_some()
    }

    /// Returns the map in which nodes join that have discarded their copies.
    pub(crate) fn with_discarded(&self, told: &BTreeMap<u16, NodePositions>) -> Option<Self> {
        plan_discarded(&self.map, told).map(Self::of)
    }

    /// Returns the map with a node that was failed over, which discards its copies.
    pub(crate) fn with_empty(&self, node: usize) -> Option<Self> {
        plan_full_recovery(&self.map, self.number(node))
            .ok()
            .map(Self::of)
    }

    /// Returns the map in which caught-up copies have advanced, due steps begin or are cancelled, and due nodes join. A rebalance
    /// moves nothing to the `awaited` nodes yet.
    pub(crate) fn with_round(&self, copies: Option<&CatchUp>, awaited: &[usize]) -> Option<Self> {
        let mut limits = MoveLimits::of(&self.map);
        if self.map.running_rebalance().is_some() {
            limits.awaited = awaited.iter().map(|node| self.number(*node)).collect();
        }
        plan_round(&self.map, copies, limits).map(Self::of)
    }

    /// Returns whether the target chain of a vBucket has only this node.
    pub(crate) fn is_alone_next(&self, vb: VbId, node: usize) -> bool {
        let next = self.map.buckets[0].next.get(&vb.get());
        next.is_some_and(|next| next.chain.nodes().all(|it| it == self.number(node)))
    }

    /// Returns the vBuckets that get other copies.
    pub(crate) fn with_next(&self) -> BTreeSet<VbId> {
        self.map.buckets[0]
            .next
            .keys()
            .map(|vb| VbId(*vb))
            .collect()
    }

    /// Returns whether there are copies that do not count yet, or not alone.
    pub(crate) fn makes_copies(&self) -> bool {
        self.map.buckets[0].is_unfinished()
    }

    /// Returns the catch-up of these copies.
    pub(crate) fn catch_up(&self) -> CatchUp {
        CatchUp::begin(&self.map)
    }

    /// Continues it with this map.
    pub(crate) fn follow_up(&self, copies: &mut CatchUp) {
        if copies.revision() != self.revision() {
            copies.follow(&self.map);
        }
    }

    /// Returns the map in which a node has taken vBuckets over, as far as it still should.
    pub(crate) fn with_taken(&self, node: usize, vbuckets: &[(VbId, MoveStart)]) -> Option<Self> {
        let taken = vbuckets.iter().map(|(vb, start)| TakenVbucket {
            bucket: BUCKET.to_owned(),
            vb: vb.get(),
            start: *start,
        });
        let taken: Vec<TakenVbucket> = taken.collect();
        let next = self.map.with_taken(self.number(node), &taken);
        next.map(Self::of)
    }

    /// Returns the map without the moves from a restarted node, if there are any.
    pub(crate) fn without_moves_from(&self, node: usize) -> Option<Self> {
        self.map.without_moves_from(self.number(node)).map(Self::of)
    }
}
