//! The cluster map: the chains of all vBuckets. It is in the store, and nodes learn of it sooner or later.

use kedge_bucket::Bucket;
use kedge_cluster::{
    CatchUp, Chain, ClusterMap, CopyPosition, DrainRequest, MapAction, MapNode, MoveLimits,
    NodePositions, RebalanceKind, RebalanceRequest, Revision, SERVER_GROUP, VbucketRole, act_on,
    begin_drain, begin_rebalance, plan_automatic_failover, plan_discarded, plan_failover,
    plan_full_recovery, plan_move, plan_recovery, plan_steps, stop_rebalance,
};
use kedge_types::VbId;
use kedge_types::limits::MAP_LINEAGE_MAX;
use kedge_vbucket::{NodeName, Topology};
use std::collections::{BTreeMap, BTreeSet};

const BUCKET: &str = "sim";
/// The key of the map in the store.
pub(crate) const MAP_KEY: &str = "map";

/// The chains of all vBuckets: nodes by number, the active first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SimMap(ClusterMap);

fn settings(replicas: u8) -> serde_json::Value {
    serde_json::json!({ "replicas": replicas })
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
        let entry = |node: usize| MapNode {
            name: text(node),
            uuid: uuid(node),
            host: "127.0.0.1".to_owned(),
            kv_port: 1,
            mgmt_port: 1,
            external: None,
            server_group: SERVER_GROUP.to_owned(),
            failed: false,
        };
        let map = ClusterMap::new("7".repeat(32), replicas, (0..nodes).map(entry));
        let mut map = map.expect("the nodes are valid");
        let added = map.add_bucket(BUCKET, settings(replicas), vbuckets, replicas);
        added.expect("no node has failed");
        Self(map.stamped(0))
    }

    /// Returns the map with the id of the change that made it.
    pub(crate) fn stamped(self, id: u64) -> Self {
        Self(self.0.stamped(id))
    }

    /// Returns whether this is a later map of the same branch, or the same one.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        self.0.continues(&earlier.0)
    }

    /// Returns whether so many changes were made until a later map that it may not know this one.
    pub(crate) fn is_long_before(&self, later: &Self) -> bool {
        let changes = later.revision().rev - self.revision().rev;
        usize::try_from(changes).is_ok_and(|changes| changes > MAP_LINEAGE_MAX / 2)
    }

    /// Returns whether a node that follows `followed` adopts this map of the store.
    pub(crate) fn is_adopted(&self, node: usize, followed: &Self) -> bool {
        act_on(&uuid(node), Some(&followed.0), Some(&self.0)) == MapAction::Adopt
    }

    /// Returns the map that a node which follows this one puts in place of one of the store, if it does.
    pub(crate) fn put_over(&self, node: usize, stored: &Self) -> Option<Self> {
        match act_on(&uuid(node), Some(&self.0), Some(&stored.0)) {
            MapAction::PutBack(map) => Some(Self(*map)),
            _ => None,
        }
    }

    /// Reads a map of the store.
    pub(crate) fn from_json(json: &[u8]) -> Self {
        Self(ClusterMap::from_json(json).expect("nodes write valid maps"))
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        self.0.to_json()
    }

    pub(crate) fn revision(&self) -> Revision {
        self.0.revision
    }

    fn chains(&self) -> &[Chain] {
        &self.0.buckets[0].chains
    }

    fn chain(&self, vb: VbId) -> &Chain {
        &self.chains()[vb.index()]
    }

    pub(crate) fn vbuckets(&self) -> impl Iterator<Item = VbId> + use<> {
        (0..self.chains().len()).map(|vb| VbId(vb as u16))
    }

    pub(crate) fn active(&self, vb: VbId) -> Option<usize> {
        self.chain(vb).active().map(usize::from)
    }

    pub(crate) fn replicas(&self, vb: VbId) -> impl Iterator<Item = usize> + '_ {
        self.chain(vb).replicas().map(usize::from)
    }

    /// Returns the role of a node for a vBucket, and the node that it follows.
    pub(crate) fn role(&self, vb: VbId, node: usize) -> VbucketRole {
        self.0.buckets[0].role(vb.get(), number(node))
    }

    /// Returns whether a node is failed over.
    pub(crate) fn is_out(&self, node: usize) -> bool {
        !self.0.is_member(number(node))
    }

    /// Returns the nodes that are not failed over.
    pub(crate) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.members().map(usize::from)
    }

    /// Returns whether a node is a member, and was one in the map of that `rev` and in all since.
    pub(crate) fn is_member_since(&self, node: usize, rev: i64) -> bool {
        self.0.is_member_since(number(node), rev)
    }

    /// Returns whether nodes became members by this map.
    pub(crate) fn begins_membership(&self) -> bool {
        self.0.begins_membership()
    }

    pub(crate) fn has(&self, vb: VbId, node: usize) -> bool {
        self.chain(vb).contains(number(node))
    }

    /// Returns whether a node has copies, or is to have some.
    pub(crate) fn has_any(&self, node: usize) -> bool {
        let next = self.0.buckets[0].next.values();
        let mut chains = self.chains().iter().chain(next.map(|next| &next.chain));
        chains.any(|chain| chain.contains(number(node)))
    }

    pub(crate) fn leads(&self, node: usize) -> impl Iterator<Item = VbId> + '_ {
        let vbuckets = self.vbuckets();
        vbuckets.filter(move |vb| self.active(*vb) == Some(node))
    }

    /// Returns the node that takes a vBucket over.
    pub(crate) fn moves_to(&self, vb: VbId) -> Option<usize> {
        let moves = &self.0.buckets[0].moves;
        moves.get(&vb.get()).copied().map(usize::from)
    }

    /// Returns whether no place is empty, and nothing moves or changes.
    pub(crate) fn is_whole(&self) -> bool {
        let is_full = |chain: &Chain| chain.0.iter().all(Option::is_some);
        let is_done = !self.makes_copies()
            && !self.discards()
            && plan_steps(&self.0, MoveLimits::of(&self.0)).is_none();
        self.0.moving() == 0 && is_done && self.chains().iter().all(is_full)
    }

    pub(crate) fn topology(&self, vb: VbId) -> Option<Topology> {
        let names = |chain: &Chain| {
            let names = self.0.topology(chain);
            names.map(|name| name.and_then(NodeName::new)).collect()
        };
        let second = self.0.buckets[0].second_chain(vb.get());
        let chains = [self.chain(vb)].into_iter().chain(&second);
        Topology::new(chains.map(names).collect()).ok()
    }

    /// Returns the vBuckets in which a node follows another one; those that it takes over have `true`.
    pub(crate) fn followed(&self, node: usize, peer: usize) -> BTreeMap<VbId, bool> {
        let active = Some(number(peer));
        let follows = |vb: &VbId| self.role(*vb, node) == VbucketRole::Replica { active };
        let followed = self.vbuckets().filter(follows);
        followed
            .map(|vb| (vb, self.moves_to(vb) == Some(node)))
            .collect()
    }

    /// Returns the chains and moves on one line.
    pub(crate) fn brief(&self) -> String {
        let chain = |vb: VbId| {
            let nodes = self.chain(vb).0.iter();
            let nodes: Vec<String> = nodes
                .map(|node| node.map_or("-".to_owned(), |node| text(usize::from(node))))
                .collect();
            let moves = self.moves_to(vb).map(|to| format!(" to {}", text(to)));
            let next = self.0.buckets[0].next.get(&vb.get()).map(|next| {
                let is = if next.counts { " and" } else { ", to be" };
                format!("{is} {:?}", next.chain.0)
            });
            let joining = self.0.buckets[0].joining.get(&vb.get());
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
        let nodes: Vec<u16> = nodes.iter().map(|node| number(*node)).collect();
        let plan = match (automatic, nodes.first()) {
            (true, _) => plan_automatic_failover(&self.0, &nodes, told),
            (false, Some(node)) => plan_failover(&self.0, *node, told, false),
            (false, None) => return None,
        };
        plan.ok().map(|plan| Self(plan.map))
    }

    /// Returns the map with a node that was failed over, which gets its lost places back.
    pub(crate) fn with(&self, node: usize) -> Option<Self> {
        plan_recovery(&self.0, number(node)).ok().map(Self)
    }

    /// Returns the map with a move of a vBucket to one of its replicas.
    pub(crate) fn with_move(&self, vb: VbId, to: usize) -> Option<Self> {
        plan_move(&self.0, BUCKET, vb.get(), &text(to))
            .ok()
            .map(Self)
    }

    /// Returns the map with another wanted number of replicas.
    pub(crate) fn with_replicas(&self, replicas: u8) -> Self {
        let mut next = self.0.next();
        next.buckets[0].settings = settings(replicas);
        Self(next)
    }

    /// Returns the map in which a rebalance over these nodes begins, if it can.
    pub(crate) fn with_servers(&self, servers: &[usize]) -> Option<Self> {
        let request = RebalanceRequest {
            id: String::new(),
            now_ms: 0,
            servers: servers.iter().map(|node| number(*node)).collect(),
            remove: BTreeSet::new(),
        };
        begin_rebalance(&self.0, request).ok().map(Self)
    }

    /// Returns the map in which a drain begins, if it can; with `fails_over`, the nodes are failed over at its end.
    pub(crate) fn with_drain(&self, nodes: &[usize], fails_over: bool) -> Option<Self> {
        let request = DrainRequest {
            id: String::new(),
            now_ms: 0,
            nodes: nodes.iter().map(|node| number(*node)).collect(),
            fails_over,
        };
        begin_drain(&self.0, request).ok().map(Self)
    }

    /// Returns the map in which the running operation is stopped.
    pub(crate) fn stopped(&self) -> Option<Self> {
        stop_rebalance(&self.0).map(Self)
    }

    /// Returns whether nodes are to be failed over gracefully.
    pub(crate) fn removes_copies(&self) -> bool {
        let running = self.0.running_rebalance();
        running.is_some_and(|it| it.kind == RebalanceKind::GracefulFailover)
    }

    /// Returns whether nodes discard their copies.
    pub(crate) fn discards(&self) -> bool {
        self.0.discarding().next().is_some()
    }

    /// Returns the map in which nodes join that have discarded their copies.
    pub(crate) fn with_discarded(&self, told: &BTreeMap<u16, NodePositions>) -> Option<Self> {
        plan_discarded(&self.0, told).map(Self)
    }

    /// Returns the map with a node that was failed over, which discards its copies.
    pub(crate) fn with_empty(&self, node: usize) -> Option<Self> {
        plan_full_recovery(&self.0, number(node)).ok().map(Self)
    }

    /// Returns the map in which due steps begin or are cancelled, and due nodes join.
    pub(crate) fn with_change(&self) -> Option<Self> {
        plan_steps(&self.0, MoveLimits::of(&self.0)).map(Self)
    }

    /// Returns whether the target chain of a vBucket has only this node.
    pub(crate) fn is_alone_next(&self, vb: VbId, node: usize) -> bool {
        let next = self.0.buckets[0].next.get(&vb.get());
        next.is_some_and(|next| next.chain.nodes().all(|it| it == number(node)))
    }

    /// Returns the vBuckets that get other copies.
    pub(crate) fn with_next(&self) -> BTreeSet<VbId> {
        self.0.buckets[0].next.keys().map(|vb| VbId(*vb)).collect()
    }

    /// Returns whether there are copies that do not count yet, or not alone.
    pub(crate) fn makes_copies(&self) -> bool {
        self.0.buckets[0].is_unfinished()
    }

    /// Returns the catch-up of these copies.
    pub(crate) fn catch_up(&self) -> CatchUp {
        CatchUp::begin(&self.0)
    }

    /// Continues it with this map.
    pub(crate) fn follow_up(&self, copies: &mut CatchUp) {
        if copies.revision() != self.revision() {
            copies.follow(&self.0);
        }
    }

    /// Returns the map in which caught-up copies have advanced.
    pub(crate) fn with_step(&self, copies: &CatchUp) -> Option<Self> {
        copies.plan(&self.0).map(Self)
    }

    /// Returns the map in which a node has taken a vBucket over, if it still should.
    pub(crate) fn with_taken(&self, node: usize, vb: VbId) -> Option<Self> {
        let taken = [(BUCKET.to_owned(), vb.get())];
        self.0.with_taken(number(node), &taken).map(Self)
    }

    /// Returns the map without the moves from a restarted node, if there are any.
    pub(crate) fn without_moves_from(&self, node: usize) -> Option<Self> {
        self.0.without_moves_from(number(node)).map(Self)
    }
}

pub(crate) fn number(node: usize) -> u16 {
    u16::try_from(node).expect("few")
}
