//! Kedge's own paths: timings and statistics for its command line.

use axum::extract::Path;
use kedge_auth::Privilege;
use kedge_bucket::TimingSnapshot;
use serde_json::{Map, Value, json};

use super::reply::{EarlyReply, Handled, ok};
use super::request_context::RequestContext;

/// Encodes a histogram as `[[low, high, count], ...]`, both ends included.
fn histogram(snapshot: &TimingSnapshot) -> Value {
    json!({ "count": snapshot.count, "buckets": snapshot.buckets })
}

/// Returns the histograms of a bucket, and those of the kinds of tasks, which cover all buckets.
fn all_timings(
    call: &RequestContext,
    bucket: &str,
) -> Result<Vec<(String, TimingSnapshot)>, EarlyReply> {
    call.bucket(bucket, Privilege::Stats)?;
    let timings = call
        .buckets()
        .timings(bucket)
        .ok_or_else(EarlyReply::no_such_resource)?;
    let own = timings
        .into_iter()
        .map(|(name, snapshot)| (name.to_owned(), snapshot));
    Ok(own.chain(call.state.parts.pools.timings()).collect())
}

/// `GET /kedge/timings/BUCKET`: every histogram with values, in microseconds except those whose names end in `_items`
/// or `_size`.
pub(crate) async fn timings(call: RequestContext, Path(bucket): Path<String>) -> Handled {
    let timings: Map<String, Value> = all_timings(&call, &bucket)?
        .iter()
        .filter(|(_, snapshot)| snapshot.count > 0)
        .map(|(name, snapshot)| (name.clone(), histogram(snapshot)))
        .collect();
    ok(&json!({ "bucket": bucket, "timings": timings }))
}

/// `GET /kedge/timings/BUCKET/NAME`: one histogram, which may be empty.
pub(crate) async fn timing(
    call: RequestContext,
    Path((bucket, name)): Path<(String, String)>,
) -> Handled {
    let timings = all_timings(&call, &bucket)?;
    let found = timings.iter().find(|(known, _)| *known == name);
    let (_, snapshot) = found.ok_or_else(EarlyReply::no_such_resource)?;
    let mut document = histogram(snapshot);
    document["bucket"] = bucket.into();
    document["name"] = name.into();
    ok(&document)
}

/// `GET /kedge/stats`: all statistics of the server and of each bucket that the caller may see.
pub(crate) async fn stats(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Stats, None)?;
    let mut server = Map::new();
    call.state.server_stats(&mut |name, text| {
        server.insert(name.to_owned(), text.into());
    });
    let mut buckets = Map::new();
    for facts in call.buckets().list() {
        let name = facts.config.name;
        let stats = call.buckets().stats(&name).unwrap_or_default();
        let stats: Map<String, Value> = stats.into_iter().map(|(k, v)| (k, v.into())).collect();
        buckets.insert(name, stats.into());
    }
    ok(&json!({ "server": server, "buckets": buckets }))
}
