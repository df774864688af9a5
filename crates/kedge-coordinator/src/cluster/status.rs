//! The status of the cluster for administrators: nodes, states of vBuckets, lag of replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kedge_bucket::{Bucket, VbState};
use kedge_cluster::{ClusterMap, MapBucket, VbucketRole};
use kedge_node::coordination::{NodeReport, StoreStatus};
use serde_json::{Map, Value, json};

use super::ClusterNode;
use super::level::{self, levels_of};

/// The longest time for which lagging replicas are watched.
const LAG_MAX: Duration = Duration::from_secs(1);
/// The pause between two checks of them.
const LAG_PAUSE: Duration = Duration::from_millis(2);

/// States, in the order of the documents.
const STATES: [(VbState, &str); 4] = [
    (VbState::Active, "active"),
    (VbState::Replica, "replica"),
    (VbState::Pending, "pending"),
    (VbState::Dead, "dead"),
];

/// The figures of one node for a bucket.
struct ReportedFigures<'a> {
    states: Option<&'a Map<String, Value>>,
    seqnos: Vec<Option<u64>>,
}

impl<'a> ReportedFigures<'a> {
    fn of(node: Option<&'a Value>, bucket: &str) -> Self {
        let of_bucket = node.and_then(|node| node.get("buckets")?.get(bucket));
        let seqnos = of_bucket.and_then(|it| it.get("seqnos")?.as_array());
        Self {
            states: of_bucket.and_then(|it| it.get("states")?.as_object()),
            seqnos: seqnos.map_or_else(Vec::new, |all| all.iter().map(Value::as_u64).collect()),
        }
    }
}

impl ClusterNode {
    /// Returns the state of this node, for others.
    pub(super) fn report(&self) -> NodeReport {
        NodeReport {
            node: self.name().to_owned(),
            revision: self.followed.revision(),
            applied: self.followed.applied_revision(),
            users: *self.users.followed().borrow(),
            encryption: self.followed.access.encryption().to_owned(),
            release: self.followed.release.version.to_owned(),
            restarted_ms: self.restart.age_ms(),
            levels: self.followed.release.levels,
        }
    }

    /// Returns whether a node is reachable; this one always is.
    pub(super) fn is_reached(&self, node: u16) -> bool {
        match self.peers.get(node) {
            Some(peer) => peer.is_reached(),
            None => {
                let map = self.followed.map();
                map.is_some_and(|map| self.followed.number(&map) == Some(node))
            }
        }
    }

    /// Returns whether the node with this uuid is reachable; true if the map does not have it.
    pub(super) fn is_uuid_reached(&self, uuid: &str) -> bool {
        let Some(map) = self.followed.map() else {
            return true;
        };
        let found = map.nodes.iter().find(|(_, node)| node.uuid == uuid);
        found.is_none_or(|(node, _)| self.is_reached(*node))
    }

    /// Returns the state of the coordination store, as of the last call.
    pub(super) fn coordinator(&self) -> StoreStatus {
        let refused = self.followed.map_refusal();
        let mut status = self.store.status();
        status.lease = self.lease_status();
        if status.trouble.is_none() && !refused.is_empty() {
            status.trouble = Some(refused);
        }
        status
    }

    /// Returns figures of this node, for the status of the cluster.
    pub(super) fn figures(&self) -> Value {
        let buckets = self.registry.list();
        let buckets: Map<String, Value> = buckets
            .iter()
            .map(|bucket| (bucket.name().to_owned(), bucket_figures(bucket)))
            .collect();
        let decision = self.failovers.status();
        json!({
            "about": self.report(),
            "buckets": buckets,
            "autoFailover": decision,
            "health": self.failovers.health(),
            "lease": self.lease_status(),
        })
    }

    /// Returns a management document of another node, by uuid.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn ask(&self, uuid: &str, path: &str) -> Result<Value, String> {
        let map = self.followed.map().ok_or("the cluster has no map yet")?;
        let found = map.nodes.iter().find(|(_, node)| node.uuid == uuid);
        let peer = found.and_then(|(node, _)| self.peers.get(*node));
        let peer = peer.ok_or("it is no other node of the cluster")?;
        peer.document(path).map_err(|error| error.to_string())
    }

    /// Returns the status of the whole cluster, as this node sees it. Other nodes are asked, which may take a second.
    pub(super) fn status(&self) -> Option<Value> {
        let map = self.followed.map()?;
        let mut figures: BTreeMap<u16, Value> = BTreeMap::new();
        let me = self.followed.number(&map);
        figures.extend(me.map(|me| (me, self.figures())));
        let mut everyone = ClusterMap::clone(&map);
        for node in everyone.nodes.values_mut() {
            node.failed = false;
        }
        let told = self.peers.each(&everyone, |peer| peer.figures().ok());
        let asked = Instant::now();
        figures.extend(
            told.into_iter()
                .filter_map(|(node, told)| Some((node, told?))),
        );
        let lags = self.measure_lags(&map, &figures, asked);
        // A node that counts slowly is up all the same.
        let is_up = |node: u16| figures.contains_key(&node) || self.is_reached(node);
        let nodes = map.nodes.iter().map(|(&number, node)| {
            let about = figures.get(&number).and_then(|told| told.get("about"));
            json!({
                "name": node.name,
                "uuid": node.uuid,
                "host": node.host,
                "kvPort": node.kv_port,
                "mgmtPort": node.mgmt_port,
                "kvTlsPort": node.tls.kv,
                "mgmtTlsPort": node.tls.mgmt,
                "thisNode": Some(number) == me,
                "failedOver": node.failed,
                "up": is_up(number),
                "revision": about.and_then(|about| about.get("revision")),
                "applied": about.and_then(|about| about.get("applied")),
                "users": about.and_then(|about| about.get("users")),
                "lease": figures.get(&number).and_then(|told| told.get("lease")),
                "encryption": about.and_then(|about| about.get("encryption")),
                "release": about.and_then(|about| about.get("release")),
                "lowestLevel": about.and_then(|about| about.get("lowest_level")),
                "highestLevel": about.and_then(|about| about.get("highest_level")),
            })
        });
        let decisions = figures.iter();
        let decisions =
            decisions.filter_map(|(number, told)| Some((*number, told.get("autoFailover")?)));
        let holds_office = |decision: &Value| decision["isOrchestrator"] == true;
        let orchestrator = decisions
            .into_iter()
            .find(|(_, decision)| holds_office(decision));
        Some(json!({
            "name": map.cluster_name,
            "uuid": map.cluster_uuid,
            "revision": map.revision,
            "compatibility": level::status(&map, |name| levels_of(&self.followed, &self.peers, name)),
            "coordinator": self.coordinator(),
            "encryption": self.followed.access.encryption(),
            "orchestrator": orchestrator.map(|(number, _)| map.name(number)),
            "autoFailover": orchestrator.map(|(_, decision)| decision),
            "nodes": nodes.collect::<Vec<_>>(),
            "buckets": map
                .buckets
                .iter()
                .map(|bucket| bucket_status(&map, bucket, &figures, &lags, &is_up))
                .collect::<Vec<_>>(),
        }))
    }
}

impl ClusterNode {
    /// Returns the times that the replicas of each node take to reach the state of their actives at `asked`; `None` if
    /// that is longer than [`LAG_MAX`].
    fn measure_lags(
        &self,
        map: &ClusterMap,
        figures: &BTreeMap<u16, Value>,
        asked: Instant,
    ) -> BTreeMap<u16, Option<Duration>> {
        let is_behind = |node: u16, now: &Value| {
            let lag_of = |bucket: &MapBucket| {
                let mut told = told_of(map, bucket, figures);
                told.insert(node, ReportedFigures::of(Some(now), &bucket.name));
                lag(bucket, node, &told)
            };
            map.buckets.iter().any(|bucket| lag_of(bucket) > 0)
        };
        let mut lags = BTreeMap::new();
        let mut behind = BTreeSet::new();
        for (node, figures) in figures {
            if is_behind(*node, figures) {
                behind.insert(*node);
                lags.insert(*node, None);
            } else {
                lags.insert(*node, Some(Duration::ZERO));
            }
        }
        while !behind.is_empty() && asked.elapsed() < LAG_MAX {
            std::thread::sleep(LAG_PAUSE);
            behind.retain(|node| {
                let now = match self.peers.get(*node) {
                    None => Some(self.figures()),
                    Some(peer) => peer.figures().ok(),
                };
                // A node that is gone by now has no measurable lag.
                let still = now.is_some_and(|now| is_behind(*node, &now));
                if !still {
                    lags.insert(*node, Some(asked.elapsed()));
                }
                still
            });
        }
        lags
    }
}

/// Returns the figures of each node for a bucket.
fn told_of<'a>(
    map: &ClusterMap,
    bucket: &MapBucket,
    figures: &'a BTreeMap<u16, Value>,
) -> BTreeMap<u16, ReportedFigures<'a>> {
    let of_node = |number| ReportedFigures::of(figures.get(number), &bucket.name);
    let numbers = map.nodes.keys();
    numbers.map(|number| (*number, of_node(number))).collect()
}

fn bucket_figures(bucket: &Bucket) -> Value {
    let Ok(positions) = bucket.states().positions() else {
        return json!({ "loading": bucket.is_loading() });
    };
    let mut seqnos = vec![Value::Null; usize::from(bucket.vbuckets())];
    for position in &positions {
        seqnos[position.vb.index()] = position.high_seqno.get().into();
    }
    let count = |state| positions.iter().filter(|it| it.state == state).count();
    let states: Map<String, Value> = STATES
        .iter()
        .map(|(state, name)| ((*name).to_owned(), count(*state).into()))
        .collect();
    json!({ "states": states, "seqnos": seqnos })
}

fn bucket_status(
    map: &ClusterMap,
    bucket: &MapBucket,
    figures: &BTreeMap<u16, Value>,
    lags: &BTreeMap<u16, Option<Duration>>,
    is_up: &dyn Fn(u16) -> bool,
) -> Value {
    let shortfall = bucket.shortfall(is_up);
    let told = told_of(map, bucket, figures);
    let nodes = map.nodes.iter().map(|(&number, node)| {
        let mut document = json!({ "node": node.name });
        if let Some(states) = told[&number].states {
            for (state, count) in states {
                document[state] = count.clone();
            }
            document["lagItems"] = lag(bucket, number, &told).into();
            let lag = lags.get(&number).copied().flatten();
            document["lagSeconds"] = lag.map(|lag| lag.as_secs_f64()).into();
        }
        document["catchingUp"] = catching_up(bucket, number).into();
        document
    });
    json!({
        "name": bucket.name,
        "vbuckets": bucket.chains.len(),
        "replicas": bucket.replicas(),
        "wantedReplicas": bucket.wanted_replicas(),
        "withoutActive": shortfall.without_active,
        "missingCopies": shortfall.missing_copies,
        "moving": bucket.moves.len(),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

/// Returns the number of vBuckets that a node follows, and whose chains do not have it yet.
fn catching_up(bucket: &MapBucket, node: u16) -> usize {
    let chains = (0_u16..).zip(&bucket.chains);
    let follows = |vb: u16| matches!(bucket.role(vb, node), VbucketRole::Replica { .. });
    let these = chains.filter(|(vb, chain)| !chain.contains(node) && follows(*vb));
    these.count()
}

/// Returns the number of items that the replicas of a node lack compared with their actives, future replicas included.
/// The nodes are asked one after the other, so writes in between count too.
fn lag(bucket: &MapBucket, node: u16, told: &BTreeMap<u16, ReportedFigures<'_>>) -> u64 {
    let behind = |vb: u16| {
        let VbucketRole::Replica { active } = bucket.role(vb, node) else {
            return None;
        };
        let vb = usize::from(vb);
        let high = (*told.get(&active?)?.seqnos.get(vb)?)?;
        let mine = told[&node].seqnos.get(vb).copied().flatten().unwrap_or(0);
        Some(high.saturating_sub(mine))
    };
    (0_u16..).take(bucket.chains.len()).filter_map(behind).sum()
}
