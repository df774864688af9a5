//! `/pools/default/settings/memcached/global`: the threads of the task pools, in the form of Couchbase Server's REST
//! interface ("Setting Thread Allocations"). A change holds until the next start.

use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_executor::{Pool, ThreadCount};
use kedge_node::pools::{TaskPools, parse_threads, setting_name, threads_text};
use serde_json::{Map, Value};

use super::form::FormFields;
use super::reply::{EarlyReply, Handled, ok};
use super::request_context::RequestContext;

/// Returns the values of all four settings.
fn document(pools: &TaskPools) -> Value {
    let member = |pool: Pool| {
        let value = match pools.threads(pool) {
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
    ok(&document(&call.state.parts.pools))
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
    let user = call.caller.id.clone();
    // Starting threads takes a moment.
    call.blocking(move |state| {
        for (pool, threads) in changes {
            state.parts.pools.set_threads(pool, threads)?;
            tracing::info!(
                user,
                setting = setting_name(pool),
                value = threads_text(threads),
                "the threads of a pool were changed"
            );
        }
        Ok::<_, std::io::Error>(())
    })
    .await?
    .map_err(|error| EarlyReply::failed("change the threads", &error))?;
    ok(&document(&call.state.parts.pools))
}
