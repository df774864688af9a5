//! `GET /kedge/ready`: whether the node has started and serves its part of the cluster, for probes of load balancers and
//! of Kubernetes.
//!
//! Probes have no password, so the reply names nothing but a reason, and at most one request at a time asks other nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use kedge_cluster::ClusterMap;
use kedge_node::coordination::ClusterControl;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::reply::{EarlyReply, Handled, ok};
use super::state::HttpState;

/// The progress of the node's start.
pub(crate) struct Readiness {
    /// True as soon as the start was complete once. Buckets that are created or adopted later do not make the node unready.
    started: AtomicBool,
    /// The semaphore of the request that asks other nodes how far their actives are.
    asking: Semaphore,
}

impl Default for Readiness {
    fn default() -> Self {
        Self {
            started: AtomicBool::new(false),
            asking: Semaphore::new(1),
        }
    }
}

/// The reason why a node is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unready {
    /// The node has no map with its name yet.
    NotMember,
    /// The node was failed over, and not recovered.
    FailedOver,
    /// The node was recovered, and some of its copies do not count yet.
    Recovering,
    /// A bucket reads its log.
    Loading,
    /// Documents are being read into memory.
    Warmup,
    /// Buckets or active vBuckets of the map are not served yet.
    Activating,
    /// Replicas lack changes that their actives had when they were asked.
    CatchingUp,
    /// The node has no valid lease, so it serves no active vBucket.
    NoLease,
}

impl Unready {
    /// Returns the name in the reply.
    fn name(self) -> &'static str {
        match self {
            Self::NotMember => "notMember",
            Self::FailedOver => "failedOver",
            Self::Recovering => "recovering",
            Self::Loading => "loading",
            Self::Warmup => "warmup",
            Self::Activating => "activating",
            Self::CatchingUp => "catchingUp",
            Self::NoLease => "noLease",
        }
    }
}

/// `GET /kedge/ready`.
pub(crate) async fn ready(State(state): State<Arc<HttpState>>) -> Handled {
    match check(&state).await {
        Ok(()) => ok(&json!({ "ready": true })),
        Err(why) => Err(EarlyReply::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &json!({ "ready": false, "reason": why.name() }),
        )),
    }
}

async fn check(state: &Arc<HttpState>) -> Result<(), Unready> {
    let node = state.parts.node.as_ref();
    if let Some(node) = node {
        let map = node.map().ok_or(Unready::NotMember)?;
        check_member(&map, &node.report().node)?;
    }
    check_start(state).await?;
    match node {
        Some(node) if !node.coordinator().lease.serves => Err(Unready::NoLease),
        _ => Ok(()),
    }
}

/// Checks that the start was complete once.
async fn check_start(state: &Arc<HttpState>) -> Result<(), Unready> {
    let node = state.parts.node.as_ref();
    let started = &state.readiness.started;
    if started.load(Ordering::Relaxed) {
        return Ok(());
    }
    let starting = state.parts.buckets.starting();
    if starting.loading > 0 {
        return Err(Unready::Loading);
    }
    if let Some(node) = node {
        if node.report().applied.is_none() {
            return Err(Unready::Activating);
        }
        if !has_caught_up(state, node.clone()).await {
            return Err(Unready::CatchingUp);
        }
    }
    if starting.warming > 0 {
        return Err(Unready::Warmup);
    }
    started.store(true, Ordering::Relaxed);
    Ok(())
}

/// Checks that the map has the node as a member whose copies all count.
fn check_member(map: &ClusterMap, name: &str) -> Result<(), Unready> {
    let me = map.node(name).map_err(|_| Unready::NotMember)?;
    if !map.members().any(|member| member == me) {
        return Err(Unready::FailedOver);
    }
    let mut joining = map
        .buckets
        .iter()
        .flat_map(|bucket| bucket.joining.values());
    if joining.any(|nodes| nodes.contains(&me)) {
        return Err(Unready::Recovering);
    }
    Ok(())
}

/// Returns whether the node's replicas have what their actives had at the time of the request; false while another
/// request is asking.
async fn has_caught_up(state: &HttpState, node: Arc<dyn ClusterControl>) -> bool {
    let Ok(_turn) = state.readiness.asking.try_acquire() else {
        return false;
    };
    let name = node.report().node;
    let status = tokio::task::spawn_blocking(move || node.status()).await;
    status.is_ok_and(|status| status.is_some_and(|status| lags_are_over(&status, &name)))
}

/// Returns whether the status has a measured lag of the node for each bucket.
fn lags_are_over(status: &Value, name: &str) -> bool {
    let entries = |of: &Value, key: &str| of[key].as_array().cloned().unwrap_or_default();
    let is_over = |bucket: &Value| {
        let mut nodes = entries(bucket, "nodes").into_iter();
        nodes.any(|node| node["node"] == name && node["lagSeconds"].is_number())
    };
    entries(status, "buckets").iter().all(is_over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_over_when_it_was_measured_for_every_bucket() {
        let bucket = |lag: Value| json!({ "nodes": [{ "node": "n_0", "lagSeconds": null }, { "node": "n_1", "lagSeconds": lag }] });
        for (buckets, expected) in [
            (vec![], true),
            (vec![bucket(json!(0.0))], true),
            (vec![bucket(json!(0.25)), bucket(json!(0.0))], true),
            (vec![bucket(json!(0.0)), bucket(Value::Null)], false),
        ] {
            let status = json!({ "buckets": buckets });
            assert_eq!(lags_are_over(&status, "n_1"), expected, "{status}");
        }
        let other = json!({ "buckets": [bucket(json!(0.0))] });
        assert!(!lags_are_over(&other, "n_2"));
    }
}
