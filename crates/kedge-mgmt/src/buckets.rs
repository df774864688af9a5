//! `/pools/default/buckets` and the terse documents of one bucket.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_cluster::{ClusterMap, MapBucket};
use kedge_node::coordination::{AppliedChange, ChangeError};
use kedge_types::VbId;
use serde_json::{Map, Value, json};

use super::backend::{BucketFacts, BucketsError};
use super::bucket_form::{self, FieldErrors};
use super::documents::DocumentComposer;
use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done, ok, ok_bytes};
use super::request_context::RequestContext;
use super::state::HttpState;
use super::{cluster, collections, stream};

impl RequestContext {
    /// Returns the bucket, if the caller has the privilege on it and the query does not name another bucket of that
    /// name.
    pub(crate) fn bucket(
        &self,
        name: &str,
        privilege: Privilege,
    ) -> Result<BucketFacts, EarlyReply> {
        // The privilege is checked first: a caller without one does not learn whether the bucket exists.
        self.caller.require(privilege, Some(name))?;
        let facts = self
            .buckets()
            .get(name)
            .ok_or_else(EarlyReply::no_such_resource)?;
        if self
            .query
            .get("bucket_uuid")
            .is_some_and(|uuid| uuid != facts.config.uuid)
        {
            return Err(EarlyReply::text(
                StatusCode::NOT_FOUND,
                "Bucket uuid does not match the requested.",
            ));
        }
        Ok(facts)
    }

    /// Returns whether the caller only asks for validation.
    fn only_validates(&self) -> bool {
        self.query.get("just_validate") == Some("1")
    }
}

fn bucket_document(state: &HttpState, host: &str, facts: &BucketFacts) -> Vec<u8> {
    let cluster = state.parts.cluster.snapshot();
    let composer = DocumentComposer {
        state,
        cluster: &cluster,
        host,
    };
    serde_json::to_vec(&composer.bucket(facts)).expect("documents of text and numbers serialise")
}

pub(crate) fn refusal(error: &BucketsError) -> EarlyReply {
    let bad = |field, text: &str| EarlyReply::field_error(StatusCode::BAD_REQUEST, field, text);
    match error {
        BucketsError::NotFound => EarlyReply::no_such_resource(),
        BucketsError::Exists => bad("name", "Bucket with given name already exists"),
        BucketsError::TooMany(_) | BucketsError::Refused(_) => bad("_", &error.to_string()),
        // A form of its own: SDKs look for this text.
        BucketsError::FlushDisabled => EarlyReply::json(
            StatusCode::BAD_REQUEST,
            &json!({ "_": "Flush is disabled for the bucket" }),
        ),
        BucketsError::Temporary(_) => {
            EarlyReply::field_error(StatusCode::SERVICE_UNAVAILABLE, "_", error.to_string())
        }
        BucketsError::Manifest(why) => collections::refused(why),
        BucketsError::Failed(why) => EarlyReply::failed("change the bucket", why),
    }
}

fn invalid(errors: &FieldErrors) -> EarlyReply {
    EarlyReply::json(StatusCode::BAD_REQUEST, &json!({ "errors": errors }))
}

/// Returns the reply to a successful validation.
fn nothing_wrong() -> Handled {
    ok(&json!({ "errors": {} }))
}

/// Makes a change on all nodes of the cluster.
pub(crate) async fn in_cluster(
    call: &RequestContext,
    change: impl FnOnce() -> Result<AppliedChange, ChangeError> + Send + 'static,
) -> Result<(), EarlyReply> {
    let applied = call.blocking(move |_| change()).await?;
    cluster::complete(&applied.map_err(|error| cluster::refusal(&error))?)
}

pub(crate) async fn list(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Access, None)?;
    let mut document = vec![b'['];
    for facts in call.buckets().list() {
        if call
            .caller
            .roles
            .allows(Privilege::Access, Some(&facts.config.name))
        {
            if document.len() > 1 {
                document.push(b',');
            }
            document.extend(bucket_document(&call.state, &call.host, &facts));
        }
    }
    document.push(b']');
    ok_bytes(document.into())
}

pub(crate) async fn get(call: RequestContext, Path(name): Path<String>) -> Handled {
    let facts = call.bucket(&name, Privilege::Access)?;
    ok_bytes(bucket_document(&call.state, &call.host, &facts).into())
}

pub(crate) async fn create(call: RequestContext, form: FormFields) -> Handled {
    call.caller.require(Privilege::Buckets, None)?;
    let mut config = bucket_form::new_bucket(&form, call.state.parts.vbuckets_default)
        .map_err(|errors| invalid(&errors))?;
    if call.only_validates() {
        let is_there = |facts: &BucketFacts| facts.config.name.eq_ignore_ascii_case(&config.name);
        return match call.buckets().list().iter().any(is_there) {
            true => Err(refusal(&BucketsError::Exists)),
            false => nothing_wrong(),
        };
    }
    if let Some(node) = call.state.parts.node.clone() {
        if form.get("replicaNumber").is_none() {
            config.replicas = node.replicas();
        }
        in_cluster(&call, move || node.create_bucket(&config)).await?;
    } else {
        call.blocking(|state| state.parts.buckets.create(config))
            .await?
            .map_err(|error| refusal(&error))?;
    }
    Ok(EarlyReply::text(StatusCode::ACCEPTED, ""))
}

/// `GET /kedge/buckets/unserved`: directories of this node that are not served, with remedies.
pub(crate) async fn unserved(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Buckets, None)?;
    let unserved = call
        .blocking(|state| state.parts.buckets.unserved())
        .await?
        .map_err(|error| refusal(&error))?;
    let shown = unserved.iter().map(|it| {
        json!({
            "name": it.name,
            "path": it.path.display().to_string(),
            "why": it.why,
            "remedy": it.remedy,
        })
    });
    ok(&shown.collect::<Value>())
}

/// Returns the uuid of the cluster's bucket of that name. The node drops buckets that the cluster does not have.
fn uuid_in_cluster(map: Option<&ClusterMap>, name: &str) -> Result<String, BucketsError> {
    let map = map.ok_or_else(|| BucketsError::Temporary("the node has no map yet".to_owned()))?;
    let uuid = map.bucket(name).and_then(MapBucket::uuid);
    uuid.map(str::to_owned).ok_or_else(|| {
        BucketsError::Refused(format!(
            "the cluster has no bucket {name}; move its directory out of the data directory"
        ))
    })
}

/// `POST /kedge/buckets/unserved/BUCKET/adopt`: this node serves its directory of that name.
pub(crate) async fn adopt(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.caller.require(Privilege::Buckets, None)?;
    let uuid = match &call.state.parts.node {
        None => None,
        Some(node) => Some(uuid_in_cluster(node.map().as_deref(), &name).map_err(|e| refusal(&e))?),
    };
    call.blocking(move |state| state.parts.buckets.adopt(&name, uuid.as_deref()))
        .await?
        .map_err(|error| refusal(&error))?;
    done()
}

pub(crate) async fn update(
    call: RequestContext,
    Path(name): Path<String>,
    form: FormFields,
) -> Handled {
    let facts = call.bucket(&name, Privilege::Manage)?;
    let change =
        bucket_form::changed_bucket(&form, &facts.config).map_err(|errors| invalid(&errors))?;
    if call.only_validates() {
        return nothing_wrong();
    }
    if let Some(node) = call.state.parts.node.clone() {
        in_cluster(&call, move || node.update_bucket(&name, &change)).await?;
    } else {
        call.blocking(move |state| state.parts.buckets.update(&name, &change))
            .await?
            .map_err(|error| refusal(&error))?;
    }
    done()
}

pub(crate) async fn remove(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.bucket(&name, Privilege::Buckets)?;
    if let Some(node) = call.state.parts.node.clone() {
        in_cluster(&call, move || node.drop_bucket(&name)).await?;
    } else {
        call.blocking(move |state| state.parts.buckets.remove(&name))
            .await?
            .map_err(|error| refusal(&error))?;
    }
    done()
}

pub(crate) async fn flush(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.bucket(&name, Privilege::Flush)?;
    call.blocking(move |state| state.parts.buckets.flush(&name))
        .await?
        .map_err(|error| refusal(&error))?;
    done()
}

/// `POST .../controller/resetVbucket`, with `vbucket`: gives up the file of a quarantined vBucket. The path is Kedge's
/// own.
pub(crate) async fn reset_vbucket(
    call: RequestContext,
    Path(name): Path<String>,
    form: FormFields,
) -> Handled {
    call.bucket(&name, Privilege::Manage)?;
    let number = form.get("vbucket").and_then(|text| text.parse().ok());
    let vb = number.map(VbId).ok_or_else(|| {
        EarlyReply::field_error(
            StatusCode::BAD_REQUEST,
            "vbucket",
            "must be a vBucket's number",
        )
    })?;
    let reset = call
        .blocking(move |state| state.parts.buckets.reset_vbucket(&name, vb))
        .await?
        .map_err(|error| refusal(&error))?;
    let warning = format!(
        "vBucket {vb} has the {} documents that the commit log had of it; all others are missing until they are \
         written again",
        reset.documents
    );
    ok(&json!({
        "vbucket": vb.get(),
        "file": reset.file.map(|file| file.display().to_string()),
        "documents": reset.documents,
        "uuid": reset.uuid.get().to_string(),
        "warning": warning,
    }))
}

/// Returns the current figures, in the form of a time series with one sample.
pub(crate) fn samples(call: &RequestContext, name: &str) -> Result<Value, EarlyReply> {
    let stats = call
        .buckets()
        .stats(name)
        .ok_or_else(EarlyReply::no_such_resource)?;
    let mut samples: Map<String, Value> = stats
        .into_iter()
        .filter_map(|(name, text)| Some((name, json!([text.parse::<f64>().ok()?]))))
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |since| since.as_millis() as u64);
    samples.insert("timestamp".to_owned(), json!([now_ms]));
    Ok(json!({ "op": {
        "samples": samples,
        "samplesCount": 1,
        "isPersistent": true,
        "lastTStamp": now_ms,
        "interval": 1_000,
    } }))
}

/// `GET .../stats`.
pub(crate) async fn stats(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.bucket(&name, Privilege::Stats)?;
    ok(&samples(&call, &name)?)
}

/// `GET /pools/default/b/BUCKET`.
pub(crate) async fn terse(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.bucket(&name, Privilege::Access)?;
    let config = call.state.parts.cluster.bucket_config(&name, &call.host);
    let config = config.ok_or_else(EarlyReply::no_such_resource)?;
    ok_bytes(Bytes::from_owner(config.json.clone()))
}

/// `GET /pools/default/bs/BUCKET`.
pub(crate) async fn terse_streaming(call: RequestContext, Path(name): Path<String>) -> Handled {
    let uuid = call.bucket(&name, Privilege::Access)?.config.uuid;
    let host = call.host.clone();
    stream::documents(&call.state, move |state| {
        same_bucket(state, &name, &uuid)?;
        let config = state.parts.cluster.bucket_config(&name, &host)?;
        Some(Bytes::from_owner(config.json.clone()))
    })
}

/// `GET /pools/default/bucketsStreaming/BUCKET`.
pub(crate) async fn streaming(call: RequestContext, Path(name): Path<String>) -> Handled {
    let uuid = call.bucket(&name, Privilege::Access)?.config.uuid;
    let host = call.host.clone();
    stream::documents(&call.state, move |state| {
        let facts = same_bucket(state, &name, &uuid)?;
        Some(bucket_document(state, &host, &facts).into())
    })
}

/// Returns the bucket, unless it was dropped since the stream began; another one of the same name is another bucket.
/// The cluster map is checked too: its change announces a drop while the bucket itself may still exist.
fn same_bucket(state: &HttpState, name: &str, uuid: &str) -> Option<BucketFacts> {
    let facts = state.parts.buckets.get(name)?;
    let cluster = state.parts.cluster.snapshot();
    let mapped = cluster.bucket(name).map(|entry| entry.uuid);
    (facts.config.uuid == uuid && mapped == facts.config.uuid_bytes()).then_some(facts)
}
