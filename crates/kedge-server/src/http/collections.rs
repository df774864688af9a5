//! Scopes and collections. There is only the default one so far: the manifest can be read, not changed.

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_cluster::{DEFAULT_MANIFEST_REST_JSON, DEFAULT_MANIFEST_UID};

use super::call::Call;
use super::form::Form;
use super::reply::{Handled, Reply, ok, ok_bytes};

const DEFAULT: &str = "_default";

fn unsupported() -> Reply {
    Reply::field_error(
        StatusCode::BAD_REQUEST,
        "_",
        "Scopes and collections other than _default are not supported yet",
    )
}

fn scope_not_found(scope: &str) -> Reply {
    let text = format!("Scope with name \"{scope}\" is not found");
    Reply::field_error(StatusCode::NOT_FOUND, "_", text)
}

fn collection_not_found(scope: &str, collection: &str) -> Reply {
    let text = format!("Collection with name \"{collection}\" in scope \"{scope}\" is not found");
    Reply::field_error(StatusCode::NOT_FOUND, "_", text)
}

/// `GET .../scopes`.
pub(crate) async fn manifest(call: Call, Path(bucket): Path<String>) -> Handled {
    call.bucket(&bucket, Privilege::Access)?;
    ok_bytes(DEFAULT_MANIFEST_REST_JSON.into())
}

/// `POST .../scopes`.
pub(crate) async fn create_scope(call: Call, Path(bucket): Path<String>, form: Form) -> Handled {
    call.bucket(&bucket, Privilege::Manage)?;
    if form.get("name") == Some(DEFAULT) {
        let text = "Scope with name \"_default\" already exists";
        return Err(Reply::field_error(StatusCode::BAD_REQUEST, "_", text));
    }
    Err(unsupported())
}

/// `DELETE .../scopes/SCOPE`.
pub(crate) async fn remove_scope(
    call: Call,
    Path((bucket, scope)): Path<(String, String)>,
) -> Handled {
    call.bucket(&bucket, Privilege::Manage)?;
    if scope != DEFAULT {
        return Err(scope_not_found(&scope));
    }
    let text = "Deleting _default scope is not allowed";
    Err(Reply::field_error(StatusCode::BAD_REQUEST, "_", text))
}

/// `POST .../scopes/SCOPE/collections`.
pub(crate) async fn create_collection(
    call: Call,
    Path((bucket, scope)): Path<(String, String)>,
    form: Form,
) -> Handled {
    call.bucket(&bucket, Privilege::Manage)?;
    if scope != DEFAULT {
        return Err(scope_not_found(&scope));
    }
    if form.get("name") == Some(DEFAULT) {
        let text = "Collection with name \"_default\" in scope \"_default\" already exists";
        return Err(Reply::field_error(StatusCode::BAD_REQUEST, "_", text));
    }
    Err(unsupported())
}

/// `PATCH` and `DELETE .../scopes/SCOPE/collections/COLLECTION`.
pub(crate) async fn change_collection(
    call: Call,
    Path((bucket, scope, collection)): Path<(String, String, String)>,
) -> Handled {
    call.bucket(&bucket, Privilege::Manage)?;
    if scope != DEFAULT {
        return Err(scope_not_found(&scope));
    }
    if collection != DEFAULT {
        return Err(collection_not_found(&scope, &collection));
    }
    Err(unsupported())
}

/// `POST .../scopes/@ensureManifest/UID`: waits until the node has that manifest. It has the only one there is.
pub(crate) async fn ensure_manifest(
    call: Call,
    Path((bucket, uid)): Path<(String, String)>,
) -> Handled {
    call.bucket(&bucket, Privilege::Access)?;
    match u64::from_str_radix(&uid, 16) {
        Ok(DEFAULT_MANIFEST_UID) => ok(&serde_json::json!({})),
        Ok(_) => Err(Reply::text(
            StatusCode::GATEWAY_TIMEOUT,
            "There is no manifest of that uid.",
        )),
        Err(_) => Err(Reply::text(
            StatusCode::BAD_REQUEST,
            "The uid is not a hexadecimal number.",
        )),
    }
}
