//! `/pools/default/settings/memcached/global`: the threads of the task pools, in the form of Couchbase Server's REST
//! interface ("Setting Thread Allocations"). In a cluster a change is one of the map, so that all nodes have it, also after a start.
//! On a standalone server it holds until the next start.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_cluster::ClusterMap;
use kedge_executor::{Pool, ThreadCount};
use kedge_node::pools::{TaskPools, parse_threads, setting_name, threads_text};
use serde_json::{Map, Value};

use super::cluster::refusal;
use super::form::FormFields;
use super::reply::{EarlyReply, Handled, ok};
use super::request_context::RequestContext;
use super::state::HttpState;

/// Returns the values of all four settings: those of the cluster, else those of the pools.
fn document(pools: &TaskPools, cluster: &[(Pool, ThreadCount)]) -> Value {
    let member = |pool: Pool| {
        let set = cluster.iter().find(|(known, _)| *known == pool);
        let threads = set.map_or_else(|| pools.threads(pool), |(_, threads)| *threads);
        let value = match threads {
            ThreadCount::Fixed(count) => count.into(),
            other => threads_text(other).into(),
        };
        (setting_name(pool).to_owned(), value)
    };
    Value::Object(Pool::ALL.into_iter().map(member).collect())
}

/// Returns the changes of a form, or the error of each invalid field.
fn changes(form: &FormFields) -> Result<Vec<(Pool, ThreadCount)>, Map<String, Value>> {
    let mut changes = Vec::new();
    let mut errors = Map::new();
    for (name, text) in form.fields() {
        let pool = Pool::ALL
            .into_iter()
            .find(|pool| setting_name(*pool) == name);
        let read = match (pool, text) {
            (Some(pool), "default") => Ok((pool, ThreadCount::Balanced)),
            (Some(pool), text) => parse_threads(text).map(|threads| (pool, threads)),
            (None, _) => {
                let names = Pool::ALL.map(setting_name).join(", ");
                Err(format!("there is no such setting; there are {names}"))
            }
        };
        match read {
            Ok(change) => changes.push(change),
            Err(why) => {
                errors.insert(name.to_owned(), why.into());
            }
        }
    }
    if errors.is_empty() {
        Ok(changes)
    } else {
        Err(errors)
    }
}

/// `GET`: the current settings.
pub(crate) async fn get(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    ok(&document(&call.state.parts.pools, &[]))
}

/// `POST`: changes the given settings, all or none, and replies with the current ones.
pub(crate) async fn set(call: RequestContext, form: FormFields) -> Handled {
    call.caller.require(Privilege::Settings, None)?;
    let changes = changes(&form).map_err(|errors| {
        EarlyReply::json(
            StatusCode::BAD_REQUEST,
            &serde_json::json!({ "errors": errors }),
        )
    })?;
    if let Some(node) = call.state.parts.node.clone() {
        let changes = changes.iter();
        let texts =
            changes.map(|(pool, threads)| (setting_name(*pool).to_owned(), threads_text(*threads)));
        let texts: BTreeMap<String, String> = texts.collect();
        let setting = node.clone();
        let made = call.blocking(move |_| setting.set_threads(&texts)).await?;
        made.map_err(|error| refusal(&error))?;
        // `follow` changes the pools, in the order of the maps.
        let set = node.map().map(|map| of_map(&map)).unwrap_or_default();
        return ok(&document(&call.state.parts.pools, &set));
    }
    let user = call.caller.id.clone();
    // Starting threads takes a moment.
    call.blocking(move |state| apply(&state.parts.pools, &changes, &user))
        .await?
        .map_err(|error| EarlyReply::failed("change the threads", &error))?;
    ok(&document(&call.state.parts.pools, &[]))
}

/// Changes the threads of pools that have other ones.
fn apply(pools: &TaskPools, changes: &[(Pool, ThreadCount)], user: &str) -> io::Result<()> {
    for &(pool, threads) in changes {
        if pools.threads(pool) == threads {
            continue;
        }
        pools.set_threads(pool, threads)?;
        tracing::info!(
            user,
            setting = setting_name(pool),
            value = threads_text(threads),
            "the threads of a pool were changed"
        );
    }
    Ok(())
}

/// Returns the numbers of threads in the map of the cluster. Those that this release does not know are left out.
fn of_map(map: &ClusterMap) -> Vec<(Pool, ThreadCount)> {
    let known = Pool::ALL.into_iter().filter_map(|pool| {
        let text = map.threads().get(setting_name(pool))?;
        Some((pool, parse_threads(text).ok()?))
    });
    known.collect()
}

/// Gives the pools of a node the numbers of threads in the map of its cluster, whenever these change.
pub(crate) async fn follow(state: Arc<HttpState>) {
    let Some(node) = state.parts.node.clone() else {
        return;
    };
    let mut applied = node.applied();
    let mut known = Vec::new();
    loop {
        let wanted = node.map().map(|map| of_map(&map)).unwrap_or_default();
        if wanted != known {
            let (state, changes) = (state.clone(), wanted.clone());
            let apply = move || apply(&state.parts.pools, &changes, "cluster map");
            match tokio::task::spawn_blocking(apply).await {
                Ok(Ok(())) => known = wanted,
                Ok(Err(error)) => {
                    tracing::error!(%error, "cannot change the threads of a pool");
                }
                Err(_) => return,
            }
        }
        if applied.changed().await.is_err() {
            return;
        }
    }
}
