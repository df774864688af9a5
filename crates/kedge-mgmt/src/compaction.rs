//! Compaction of a bucket's files, and its tasks.
//!
//! Paths and forms are those of Couchbase Server's REST interface: `POST .../controller/compactBucket`,
//! `.../cancelBucketCompaction`, `GET /pools/default/tasks`. The fields that select the files, and `wait`, are Kedge's
//! own.

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_bucket::{CompactionProgress, CompactionReport, CompactionRequest};
use kedge_types::VbId;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::buckets::refusal;
use super::documents::path_text;
use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done, ok};
use super::request_context::RequestContext;

/// The recommended polling interval of the tasks, in seconds.
const REFRESH_SECS: u32 = 2;

fn bad(field: &str, text: &str) -> EarlyReply {
    EarlyReply::field_error(StatusCode::BAD_REQUEST, field, text)
}

fn flag(form: &FormFields, field: &str) -> Result<bool, EarlyReply> {
    match form.get(field) {
        None | Some("0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(_) => Err(bad(field, "must be true or false")),
    }
}

/// Returns the requested compaction: `vbuckets`, numbers separated by commas; `purgeBefore`, a Unix second;
/// `dropDeletes`.
fn request(form: &FormFields) -> Result<CompactionRequest, EarlyReply> {
    let vbuckets = form.get("vbuckets").map(|text| {
        let numbers = text.split(',').map(|number| number.trim().parse::<u16>());
        let vbuckets: Result<Vec<VbId>, _> = numbers.map(|number| number.map(VbId)).collect();
        vbuckets.map_err(|_| bad("vbuckets", "must be numbers separated by commas"))
    });
    let purge_before_secs = form.get("purgeBefore").map(|text| {
        let secs = text.parse::<u32>();
        secs.map_err(|_| bad("purgeBefore", "must be a Unix second"))
    });
    Ok(CompactionRequest {
        vbuckets: vbuckets.transpose()?,
        purge_before_secs: purge_before_secs.transpose()?,
        purge_before_seqno: None,
        drop_deletes: flag(form, "dropDeletes")?,
    })
}

fn report(report: &CompactionReport) -> Value {
    json!({
        "compacted": report.compacted,
        "withoutFile": report.without_file,
        "cancelled": report.cancelled,
        "failed": report.failed,
        "firstError": report.first_error,
        "bytesBefore": report.bytes_before,
        "bytesAfter": report.bytes_after,
        "tombstones": report.tombstones,
        "expired": report.expired,
    })
}

async fn begin(
    call: RequestContext,
    name: String,
    request: CompactionRequest,
    wait: bool,
) -> Handled {
    call.bucket(&name, Privilege::Manage)?;
    let ticket = call
        .blocking(move |state| state.parts.buckets.compact(&name, &request))
        .await?
        .map_err(|error| refusal(&error))?;
    if !wait {
        return done();
    }
    let (tell, told) = oneshot::channel();
    ticket.when_done(move |report| {
        // The caller may be gone.
        let _ = tell.send(report);
    });
    let ended = told
        .await
        .map_err(|error| EarlyReply::failed("wait for the compaction", &error))?;
    ok(&report(&ended))
}

/// `POST .../controller/compactBucket`; with `wait`, the reply comes at the end with the result.
pub(crate) async fn compact(
    call: RequestContext,
    Path(name): Path<String>,
    form: FormFields,
) -> Handled {
    let request = request(&form)?;
    let wait = flag(&form, "wait")?;
    begin(call, name, request, wait).await
}

/// `POST .../controller/unsafePurgeBucket`: purges all tombstones.
pub(crate) async fn purge(call: RequestContext, Path(name): Path<String>) -> Handled {
    let request = CompactionRequest {
        drop_deletes: true,
        ..CompactionRequest::default()
    };
    begin(call, name, request, false).await
}

/// `POST .../controller/cancelBucketCompaction`.
pub(crate) async fn cancel(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.bucket(&name, Privilege::Manage)?;
    call.blocking(move |state| state.parts.buckets.cancel_compaction(&name))
        .await?
        .map_err(|error| refusal(&error))?;
    done()
}

/// `GET /pools/default/tasks`: the rebalance of a cluster, and the buckets with compactions, as far as the caller may see them.
pub(crate) async fn tasks(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Access, None)?;
    let mut tasks: Vec<Value> = super::rebalance::task(&call).into_iter().collect();
    for facts in call.buckets().list() {
        let name = &facts.config.name;
        let may_see = call.caller.roles.allows(Privilege::Access, Some(name));
        let compactions = call.buckets().compactions(name);
        if may_see && !compactions.is_empty() {
            let files: Vec<CompactionCounts> = compactions.iter().map(copied).collect();
            tasks.push(task(name, &files));
        }
    }
    ok(&tasks)
}

/// The number of processed entries, and of entries of the file; `None` for a file that has not begun.
type CompactionCounts = Option<(u64, u64)>;

fn copied(compaction: &CompactionProgress) -> CompactionCounts {
    let figures = compaction.figures.filter(|_| compaction.is_running)?;
    Some((figures.entries, figures.entries_total))
}

fn task(bucket: &str, compactions: &[CompactionCounts]) -> Value {
    let (mut entries, mut total, mut running) = (0, 0, 0);
    for (of_file, of_file_total) in compactions.iter().flatten() {
        // A file that grows meanwhile has more entries in the end than expected.
        entries += of_file.min(of_file_total);
        total += of_file_total;
        running += 1;
    }
    let path = path_text(bucket);
    json!({
        "type": "bucket_compaction",
        "status": "running",
        "bucket": bucket,
        "recommendedRefreshPeriod": REFRESH_SECS,
        "changesDone": entries,
        "totalChanges": total,
        "progress": (entries * 100).checked_div(total).unwrap_or(0),
        "vbucketsRunning": running,
        "vbucketsQueued": compactions.len() - running,
        "cancelURI": format!("/pools/default/buckets/{path}/controller/cancelBucketCompaction"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_progress_covers_the_files_in_work() {
        let task = task("a%b", &[Some((30, 100)), Some((70, 60)), None]);
        assert_eq!(task["progress"], 56);
        assert_eq!(task["changesDone"], 90);
        assert_eq!(task["totalChanges"], 160);
        assert_eq!(task["vbucketsRunning"], 2);
        assert_eq!(task["vbucketsQueued"], 1);
        let cancel = "/pools/default/buckets/a%25b/controller/cancelBucketCompaction";
        assert_eq!(task["cancelURI"], cancel);
        assert_eq!(super::task("b", &[None])["progress"], 0);
    }
}
