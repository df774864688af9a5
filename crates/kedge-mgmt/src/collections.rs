//! Scopes and collections: `/pools/default/buckets/BUCKET/scopes`.

use axum::extract::{Path, Request};
use axum::http::StatusCode;
use kedge_auth::{Privilege, Roles};
use kedge_cluster::{
    ManifestEdit, ManifestError, WantedManifest, manifest_rest_json, parse_wanted_scopes,
};
use kedge_types::limits::COLLECTION_TTL_SECS_MAX;
use kedge_types::{Manifest, ManifestUid};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

use super::buckets::refusal;
use super::cluster;
use super::form::{self, FormFields};
use super::reply::{EarlyReply, Handled, ok, ok_bytes};
use super::request_context::RequestContext;

/// Longest wait of `@ensureManifest` for a manifest.
const ENSURE_TIMEOUT: Duration = if cfg!(test) {
    Duration::from_millis(100)
} else {
    Duration::from_secs(10)
};

const NO_UID: &str = "The uid is not a hexadecimal number.";

pub(super) fn refused(error: &ManifestError) -> EarlyReply {
    let (status, field) = match error {
        ManifestError::NoScope(_) | ManifestError::NoCollection { .. } => {
            (StatusCode::NOT_FOUND, "_")
        }
        ManifestError::Name(_) => (StatusCode::BAD_REQUEST, "name"),
        _ => (StatusCode::BAD_REQUEST, "_"),
    };
    EarlyReply::field_error(status, field, error.to_string())
}

fn wrong(field: &str, why: impl Into<String>) -> EarlyReply {
    EarlyReply::field_error(StatusCode::BAD_REQUEST, field, why)
}

/// Rejects unknown fields of a form: a misspelt one would be ignored silently.
fn only(form: &FormFields, known: &[&str]) -> Result<(), EarlyReply> {
    let other = form.fields().find(|(name, _)| !known.contains(name));
    other.map_or(Ok(()), |(name, _)| Err(wrong(name, "Unsupported key")))
}

fn name(form: &FormFields) -> Result<String, EarlyReply> {
    let name = form.get("name").map(str::to_owned);
    name.ok_or_else(|| wrong("name", "The value must be supplied"))
}

/// Returns the default time to live of a form: in seconds, 0 for the bucket's, -1 for none; `None` if it is not given.
#[expect(clippy::option_option, reason = "not given, the bucket's, or its own")]
fn max_ttl(form: &FormFields) -> Result<Option<Option<u32>>, EarlyReply> {
    let Some(text) = form.get("maxTTL") else {
        return Ok(None);
    };
    let secs: i64 = text
        .parse()
        .map_err(|_| wrong("maxTTL", "The value must be an integer"))?;
    match u32::try_from(secs) {
        Ok(0) => Ok(Some(None)),
        Ok(secs) if secs <= COLLECTION_TTL_SECS_MAX => Ok(Some(Some(secs))),
        Err(_) if secs == -1 => Ok(Some(Some(0))),
        _ => Err(wrong(
            "maxTTL",
            format!("The value must be in range from -1 to {COLLECTION_TTL_SECS_MAX}"),
        )),
    }
}

/// Rejects history: the files keep only the newest version of a document.
fn no_history(form: &FormFields) -> Result<(), EarlyReply> {
    match form.get("history") {
        None | Some("false") => Ok(()),
        Some("true") => Err(wrong(
            "history",
            "Not supported for storage mode couchstore",
        )),
        Some(_) => Err(wrong("history", "The value must be a boolean")),
    }
}

/// Returns the part of a manifest that its caller may see.
fn visible(manifest: &Manifest, roles: &Roles, bucket: &str) -> Manifest {
    let mut manifest = manifest.clone();
    let only_access = kedge_auth::Privileges::of(&[Privilege::Access]);
    if roles.privileges(Some(bucket)) != only_access {
        return manifest;
    }
    let parts = roles.parts(bucket);
    manifest.scopes.retain_mut(|scope| {
        let touched = parts.iter().any(|part| part.touches(&scope.name));
        scope.collections.retain(|collection| {
            let mut covering = parts.iter();
            covering.any(|part| part.covers(&scope.name, Some(&collection.name)))
        });
        touched
    });
    manifest
}

impl RequestContext {
    /// Returns the manifest of an existing bucket.
    fn manifest(&self, bucket: &str) -> Result<Arc<Manifest>, EarlyReply> {
        let manifest = self.buckets().manifest(bucket);
        manifest.ok_or_else(EarlyReply::no_such_resource)
    }

    /// Refuses callers that may not manage the collections of the scope or, without one, of the whole bucket.
    fn may_manage(&self, bucket: &str, scope: Option<&str>) -> Result<(), EarlyReply> {
        self.caller
            .require_in(Privilege::Collections, bucket, scope)?;
        self.bucket(bucket, Privilege::Access).map(drop)
    }

    /// Changes the manifest, on all nodes of a cluster.
    async fn edit(&self, bucket: String, edit: ManifestEdit) -> Handled {
        let uid = if let Some(node) = self.state.parts.node.clone() {
            let edited = self
                .blocking(move |_| node.edit_manifest(&bucket, &edit))
                .await?;
            let (applied, uid) = edited.map_err(|error| cluster::refusal(&error))?;
            cluster::complete(&applied)?;
            uid
        } else {
            self.blocking(move |state| state.parts.buckets.edit_manifest(&bucket, &edit))
                .await?
                .map_err(|error| refusal(&error))?
        };
        changed(uid)
    }
}

fn changed(uid: ManifestUid) -> Handled {
    ok(&json!({ "uid": format!("{:x}", uid.0) }))
}

/// `GET .../scopes`.
pub(crate) async fn manifest(call: RequestContext, Path(bucket): Path<String>) -> Handled {
    call.bucket(&bucket, Privilege::Access)?;
    let manifest = visible(&*call.manifest(&bucket)?, &call.caller.roles, &bucket);
    ok_bytes(manifest_rest_json(&manifest).into())
}

/// `POST .../scopes` with `name`.
pub(crate) async fn create_scope(
    call: RequestContext,
    Path(bucket): Path<String>,
    form: FormFields,
) -> Handled {
    call.may_manage(&bucket, None)?;
    only(&form, &["name"])?;
    let scope = name(&form)?;
    call.edit(bucket, ManifestEdit::CreateScope { scope }).await
}

/// `PUT .../scopes`, optionally with `validOnUid` in the query: replaces the manifest by that of the JSON.
pub(crate) async fn replace(
    call: RequestContext,
    Path(bucket): Path<String>,
    request: Request,
) -> Handled {
    call.may_manage(&bucket, None)?;
    let hex = |text: &str| u64::from_str_radix(text, 16).map(ManifestUid);
    let valid_on = call.query.get("validOnUid").map(hex).transpose();
    let valid_on = valid_on.map_err(|_| wrong("validOnUid", NO_UID))?;
    let body = form::read(request.into_body()).await?;
    let scopes = parse_wanted_scopes(&body).map_err(|why| wrong("_", why))?;
    let wanted = WantedManifest { scopes, valid_on };
    call.edit(bucket, ManifestEdit::Replace(wanted)).await
}

/// `DELETE .../scopes/SCOPE`.
pub(crate) async fn drop_scope(
    call: RequestContext,
    Path((bucket, scope)): Path<(String, String)>,
) -> Handled {
    call.may_manage(&bucket, None)?;
    call.edit(bucket, ManifestEdit::DropScope { scope }).await
}

/// `POST .../scopes/SCOPE/collections` with `name`, optionally `maxTTL`.
pub(crate) async fn create_collection(
    call: RequestContext,
    Path((bucket, scope)): Path<(String, String)>,
    form: FormFields,
) -> Handled {
    call.may_manage(&bucket, Some(&scope))?;
    only(&form, &["name", "maxTTL", "history"])?;
    no_history(&form)?;
    let edit = ManifestEdit::CreateCollection {
        scope,
        collection: name(&form)?,
        max_ttl: max_ttl(&form)?.flatten(),
    };
    call.edit(bucket, edit).await
}

/// `PATCH .../scopes/SCOPE/collections/COLLECTION` with `maxTTL`.
pub(crate) async fn modify_collection(
    call: RequestContext,
    Path((bucket, scope, collection)): Path<(String, String, String)>,
    form: FormFields,
) -> Handled {
    call.may_manage(&bucket, Some(&scope))?;
    only(&form, &["maxTTL", "history"])?;
    no_history(&form)?;
    let max_ttl = max_ttl(&form)?;
    let edit = ManifestEdit::ModifyCollection {
        scope,
        collection,
        max_ttl,
    };
    call.edit(bucket, edit).await
}

/// `DELETE .../scopes/SCOPE/collections/COLLECTION`.
pub(crate) async fn drop_collection(
    call: RequestContext,
    Path((bucket, scope, collection)): Path<(String, String, String)>,
) -> Handled {
    call.may_manage(&bucket, Some(&scope))?;
    let edit = ManifestEdit::DropCollection { scope, collection };
    call.edit(bucket, edit).await
}

/// `POST .../scopes/@ensureManifest/UID`: waits until all nodes have that manifest, or a newer one.
pub(crate) async fn ensure_manifest(
    call: RequestContext,
    Path((bucket, uid)): Path<(String, String)>,
) -> Handled {
    call.bucket(&bucket, Privilege::Access)?;
    let uid = u64::from_str_radix(&uid, 16).map_err(|_| wrong("uid", NO_UID))?;
    let late = || {
        let text = "There is no manifest of that uid, or not all nodes have it yet.";
        EarlyReply::text(StatusCode::GATEWAY_TIMEOUT, text)
    };
    let has_it = |bucket: &str| call.manifest(bucket).map(|it| it.uid >= ManifestUid(uid));
    let mut revisions = call.state.revisions.subscribe();
    let wait = async {
        while !has_it(&bucket)? {
            // The sender lives as long as the state.
            if revisions.changed().await.is_err() {
                return Err(late());
            }
        }
        Ok(())
    };
    tokio::time::timeout(ENSURE_TIMEOUT, wait)
        .await
        .map_err(|_| late())??;
    if let Some(node) = call.state.parts.node.clone() {
        let behind = call.blocking(move |_| node.give_to_all()).await?;
        let behind = behind.map_err(|error| cluster::refusal(&error))?;
        if !behind.is_empty() {
            return Err(late());
        }
    }
    ok(&json!({}))
}
