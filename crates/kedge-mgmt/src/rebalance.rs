//! Rebalance, drain and graceful failover: `GET` and `POST /kedge/cluster/rebalance`, `POST /kedge/cluster/rebalance/stop`,
//! `POST /kedge/cluster/drain`, and the original's `POST /controller/rebalance`, `POST /controller/stopRebalance`,
//! `GET /pools/default/rebalanceProgress` and its task, and `GET` and `POST /settings/rebalance`.
//!
//! The map has the record of the last rebalance, and the rest follows from the map, so any node answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_cluster::{ClusterMap, RebalanceKind, RebalanceLeft, RebalanceRecord, RebalanceState};
use kedge_node::coordination::{ChangeError, ClusterControl};
use kedge_types::limits::{REBALANCE_MOVES_PER_NODE, REBALANCE_MOVES_PER_NODE_MAX};
use serde_json::{Map, Value, json};

use super::cluster::{document, refusal};
use super::form::FormFields;
use super::node_names;
use super::reply::{EarlyReply, Handled, done, ok};
use super::request_context::RequestContext;

/// The recommended polling interval of the task, in seconds.
const REFRESH_SECS: f64 = 0.25;

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The last rebalance of a map.
pub(crate) struct LastRebalance<'a> {
    map: &'a ClusterMap,
    record: &'a RebalanceRecord,
    left: RebalanceLeft,
}

impl<'a> LastRebalance<'a> {
    /// Returns the last rebalance; `None` if there was none.
    pub(crate) fn of(map: &'a ClusterMap) -> Option<Self> {
        let record = map.rebalance.as_deref()?;
        let left = match record.state {
            RebalanceState::Finished => RebalanceLeft::default(),
            _ => record.left(map).unwrap_or_default(),
        };
        Some(Self { map, record, left })
    }

    fn reason(&self) -> Option<&str> {
        match &self.record.state {
            RebalanceState::Failed(why) => Some(why),
            _ => None,
        }
    }

    /// Returns the reason in the original's words.
    fn error_message(&self) -> Option<String> {
        let failed = match self.record.kind {
            RebalanceKind::Rebalance => "Rebalance failed",
            RebalanceKind::GracefulFailover => "Graceful failover failed",
            RebalanceKind::Drain => "Drain failed",
        };
        self.reason().map(|why| format!("{failed}: {why}"))
    }

    /// Returns the names of the members that cannot be reached while it is running: it waits for them, or for their failover.
    fn unreachable(&self, is_reached: impl Fn(u16) -> bool) -> Vec<&str> {
        let members = self.map.members().filter(|_| self.record.is_running());
        let unreachable = members.filter(|node| !is_reached(*node));
        unreachable.map(|node| self.map.name(node)).collect()
    }

    /// Returns the document of `GET /kedge/cluster/rebalance`, at a wall-clock time.
    fn status(&self, now_ms: u64, is_reached: impl Fn(u16) -> bool) -> Value {
        let (map, record) = (self.map, self.record);
        let state = match record.state {
            RebalanceState::Running => "running",
            RebalanceState::Stopped => "stopped",
            RebalanceState::Finished => "finished",
            RebalanceState::Failed(_) => "failed",
        };
        let progress = record.progress(&self.left, now_ms);
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let of_node = |(number, node): (&u16, &kedge_cluster::MapNode)| {
            let count = |of: &BTreeMap<u16, usize>| of.get(number).copied().unwrap_or(0);
            let left = json!({
                "incoming": count(&self.left.incoming),
                "outgoing": count(&self.left.outgoing),
                "leaves": record.remove.contains(number),
                "drains": record.drain.contains(number),
                "progress": record.node_fraction(&self.left, *number),
            });
            (node.name.clone(), left)
        };
        let nodes: Map<String, Value> = map.nodes.iter().map(of_node).collect();
        json!({
            "id": record.id,
            "kind": kind_name(record.kind),
            "state": state,
            "reason": self.reason(),
            "progress": progress.fraction(),
            "vbuckets": progress.vbuckets,
            "vbucketsDone": progress.vbuckets_done,
            "copies": progress.copies,
            "copiesDone": progress.copies_done,
            "ranMs": record.is_running().then(|| ms(progress.ran)),
            "leftMs": progress.left.filter(|_| record.is_running()).map(ms),
            "unreachable": self.unreachable(is_reached),
            "nodes": nodes,
        })
    }

    fn percent(&self) -> f64 {
        self.record.progress(&self.left, now_ms()).fraction() * 100.0
    }

    /// Returns the progress of each node in the original's form, between 0 and `whole`.
    fn per_node(&self, whole: f64, host: &str) -> Map<String, Value> {
        let of_node = |(number, node): (&u16, &kedge_cluster::MapNode)| {
            let progress = self.record.node_fraction(&self.left, *number) * whole;
            let name = node_names::otp_name(*number, node, host);
            (name, json!({ "progress": progress }))
        };
        self.map.nodes.iter().map(of_node).collect()
    }

    /// Returns the task of a rebalance in the original's form.
    fn task(&self, host: &str) -> Value {
        if !self.record.is_running() {
            let mut task = idle_task();
            if let Some(why) = self.error_message() {
                task["errorMessage"] = why.into();
            }
            return task;
        }
        json!({
            "type": "rebalance",
            "subtype": kind_name(self.record.kind),
            "statusId": self.record.id,
            "recommendedRefreshPeriod": REFRESH_SECS,
            "status": "running",
            "progress": self.percent(),
            "perNode": self.per_node(100.0, host),
            "detailedProgress": {},
        })
    }
}

/// Returns the name of a kind: the original's subtypes of the task, and `drain`, which the original does not have.
fn kind_name(kind: RebalanceKind) -> &'static str {
    match kind {
        RebalanceKind::Rebalance => "rebalance",
        RebalanceKind::GracefulFailover => "gracefulFailover",
        RebalanceKind::Drain => "drain",
    }
}

fn idle_task() -> Value {
    json!({
        "type": "rebalance",
        "status": "notRunning",
        "statusIsStale": false,
        "masterRequestTimedOut": false,
    })
}

/// Returns the task of the rebalance, for the list of tasks; `None` on a standalone node.
pub(crate) fn task(call: &RequestContext) -> Option<Value> {
    let map = call.state.parts.node.as_ref()?.map()?;
    let last = LastRebalance::of(&map);
    Some(last.map_or_else(idle_task, |last| last.task(&call.host)))
}

/// Returns whether a rebalance runs.
pub(crate) fn is_running(node: &dyn ClusterControl) -> bool {
    let map = node.map();
    map.is_some_and(|map| map.running_rebalance().is_some())
}

/// `GET /kedge/cluster/rebalance`: the last rebalance.
pub(crate) async fn status(call: RequestContext) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let map = node.map().ok_or_else(|| refusal(&ChangeError::NotBegun))?;
    let last = LastRebalance::of(&map);
    let of_last = |last: LastRebalance<'_>| last.status(now_ms(), |number| node.is_reached(number));
    let mut status = last.map_or_else(|| json!({ "state": "none" }), of_last);
    status["movesPerNode"] = map.moves_per_node().into();
    ok(&status)
}

/// `POST /kedge/cluster/rebalance` with `remove`, once for each node to remove at the end.
pub(crate) async fn start(call: RequestContext, form: FormFields) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let remove = form.fields().filter(|(field, _)| *field == "remove");
    let remove: Vec<String> = remove.map(|(_, name)| name.to_owned()).collect();
    let applied = call
        .blocking(move |_| node.start_rebalance(&remove))
        .await?;
    ok(&document(&applied.map_err(|error| refusal(&error))?))
}

/// `POST /kedge/cluster/drain` with `node`, once for each, and `failover=true` for a graceful failover.
pub(crate) async fn drain(call: RequestContext, form: FormFields) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let names = form.fields().filter(|(field, _)| *field == "node");
    let names: Vec<String> = names.map(|(_, name)| name.to_owned()).collect();
    let fails_over = matches!(form.get("failover"), Some("true" | "1"));
    let applied = call
        .blocking(move |_| node.drain(&names, fails_over))
        .await?;
    ok(&document(&applied.map_err(|error| refusal(&error))?))
}

/// `POST /kedge/cluster/rebalance/stop`.
pub(crate) async fn stop(call: RequestContext) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let applied = call.blocking(move |_| node.stop_rebalance()).await?;
    ok(&document(&applied.map_err(|error| refusal(&error))?))
}

/// `POST /controller/rebalance` with `knownNodes`, which are all, and `ejectedNodes`. Nodes that are failed over are removed, too, unless
/// `setRecoveryType` has chosen their recovery.
pub(crate) async fn controller_start(call: RequestContext, form: FormFields) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let map = node.map().ok_or_else(|| refusal(&ChangeError::NotBegun))?;
    let list = |field: &str| {
        let names = form.get(field).unwrap_or("").split(',').map(str::trim);
        let names: Vec<String> = names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        names
    };
    let refused = |field: &str| {
        Err(EarlyReply::json(
            StatusCode::BAD_REQUEST,
            &json!({ field: 1 }),
        ))
    };
    let (known, ejected) = (list("knownNodes"), list("ejectedNodes"));
    if known.is_empty() {
        return refused("empty_known_nodes");
    }
    let numbers = |names: &[String]| {
        let names = names.iter();
        let numbers = names.map(|name| node_names::node_of_otp_name(&map, name));
        numbers.collect::<Option<BTreeSet<u16>>>()
    };
    let all: BTreeSet<u16> = map.nodes.keys().copied().collect();
    let (Some(known), Some(ejected)) = (numbers(&known), numbers(&ejected)) else {
        return refused("mismatch");
    };
    if known != all {
        return refused("mismatch");
    }
    // A node that is failed over leaves unless its recovery was chosen.
    let leaves = |number: &u16| {
        let is_lost = !map.is_member(*number) && map.recovery_type(*number).is_none();
        ejected.contains(number) || is_lost
    };
    let remove: BTreeSet<u16> = all.iter().copied().filter(leaves).collect();
    if remove == all {
        return refused("noKVNodesLeft");
    }
    if map.running_rebalance().is_some() {
        return done();
    }
    let remove = remove.into_iter().map(|number| map.name(number).to_owned());
    let remove: Vec<String> = remove.collect();
    let starting = node.clone();
    let applied = call
        .blocking(move |_| starting.start_rebalance(&remove))
        .await?;
    applied.map_err(|error| refusal(&error))?;
    let id = node
        .map()
        .and_then(|map| Some(map.rebalance.as_deref()?.id.clone()));
    ok(&json!({ "rebalance_id": id }))
}

/// `POST /controller/stopRebalance`.
pub(crate) async fn controller_stop(call: RequestContext) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let applied = call.blocking(move |_| node.stop_rebalance()).await?;
    applied.map_err(|error| refusal(&error))?;
    done()
}

/// The field of `/settings/rebalance`.
const MOVES_PER_NODE: &str = "rebalanceMovesPerNode";

/// Returns the number of a form, or the errors of its fields.
fn moves_per_node(form: &FormFields) -> Result<u8, Map<String, Value>> {
    let mut errors = Map::new();
    let mut moves = None;
    for (field, text) in form.fields() {
        let why = match (field, text.parse::<u8>()) {
            (MOVES_PER_NODE, Ok(number))
                if (1..=REBALANCE_MOVES_PER_NODE_MAX).contains(&number) =>
            {
                moves = Some(number);
                continue;
            }
            (MOVES_PER_NODE, _) => format!(
                "The value must be an integer in range from 1 to {REBALANCE_MOVES_PER_NODE_MAX}"
            ),
            _ => "Unsupported key".to_owned(),
        };
        errors.insert(field.to_owned(), why.into());
    }
    match moves {
        Some(moves) if errors.is_empty() => Ok(moves),
        None if errors.is_empty() => {
            errors.insert(
                MOVES_PER_NODE.to_owned(),
                "The value must be supplied".into(),
            );
            Err(errors)
        }
        _ => Err(errors),
    }
}

fn settings_document(moves: u8) -> Handled {
    ok(&json!({ MOVES_PER_NODE: moves }))
}

/// `GET /settings/rebalance`.
pub(crate) async fn settings(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    let map = call.state.parts.node.as_ref().and_then(|node| node.map());
    settings_document(map.map_or(REBALANCE_MOVES_PER_NODE, |map| map.moves_per_node()))
}

/// `POST /settings/rebalance` with `rebalanceMovesPerNode`.
pub(crate) async fn set_settings(call: RequestContext, form: FormFields) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let moves = moves_per_node(&form).map_err(|errors| {
        EarlyReply::json(StatusCode::BAD_REQUEST, &json!({ "errors": errors }))
    })?;
    let applied = call.blocking(move |_| node.limit_moves(moves)).await?;
    applied.map_err(|error| refusal(&error))?;
    settings_document(moves)
}

/// `GET /pools/default/rebalanceProgress`.
pub(crate) async fn progress(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Access, None)?;
    let map = call.state.parts.node.as_ref().and_then(|node| node.map());
    let last = map.as_deref().and_then(LastRebalance::of);
    let Some(last) = last else {
        return ok(&json!({ "status": "none" }));
    };
    if last.record.is_running() {
        let mut document = last.per_node(1.0, &call.host);
        document.insert("status".to_owned(), "running".into());
        return ok(&document);
    }
    match last.error_message() {
        Some(why) => ok(&json!({ "status": "none", "errorMessage": why })),
        None => ok(&json!({ "status": "none" })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_per_node_have_a_range() {
        let read = |text: &str| moves_per_node(&FormFields::parse(text.as_bytes()));
        assert_eq!(read("rebalanceMovesPerNode=1"), Ok(1));
        assert_eq!(read("rebalanceMovesPerNode=64"), Ok(64));
        for wrong in [
            "",
            "rebalanceMovesPerNode=0",
            "rebalanceMovesPerNode=65",
            "rebalanceMovesPerNode=x",
        ] {
            let errors = read(wrong).unwrap_err();
            assert!(errors.contains_key("rebalanceMovesPerNode"), "{wrong}");
        }
        let errors = read("rebalanceMovesPerNode=4&other=1").unwrap_err();
        assert_eq!(errors["other"], "Unsupported key");
    }

    #[test]
    fn idle_task_has_the_fields_of_the_original() {
        let task = idle_task();
        assert_eq!(task["status"], "notRunning");
        assert_eq!(task["type"], "rebalance");
    }
}
