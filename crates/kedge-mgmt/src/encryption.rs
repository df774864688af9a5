//! Encryption at rest of buckets.
//!
//! Paths and names are those of Couchbase Server's REST interface; `/kedge/encryption` is Kedge's own.

use axum::extract::Path;
use kedge_auth::Privilege;
use kedge_bucket::EncryptionStatus;
use serde_json::{Value, json};

use super::buckets::refusal;
use super::reply::{EarlyReply, Handled, done, ok};
use super::request_context::RequestContext;

/// `GET /kedge/encryption/BUCKET`: keys and files of a bucket on this node.
pub(crate) async fn status(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.bucket(&name, Privilege::Manage)?;
    let status = call
        .blocking(move |state| state.parts.buckets.encryption(&name))
        .await?;
    let status = status.ok_or_else(EarlyReply::no_such_resource)?;
    let master_key = call.buckets().master_key();
    let source = master_key.as_ref().map(|(_, info)| &info.source);
    let keys = status
        .keys
        .iter()
        .map(|key| json!({ "id": key.id, "created": key.created_unix_secs }));
    ok(&json!({
        "enabled": status.is_enabled,
        "masterKey": status.master_key,
        "masterKeySource": source,
        "keys": keys.collect::<Value>(),
        "encryptedFiles": status.files.encrypted,
        "plainFiles": status.files.plain,
        "filesToRewrite": status.files.replaced,
        "plainLog": status.has_plain_log,
        "pending": status.is_pending,
        "error": status.error,
        "info": info(&status),
    }))
}

/// `POST /controller/dropEncryptionAtRestDeks/bucket/BUCKET`: gives the bucket a new data key, and has all data of older ones written
/// again with it on this node.
pub(crate) async fn rotate(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.bucket(&name, Privilege::Manage)?;
    call.blocking(move |state| state.parts.buckets.rotate_keys(&name))
        .await?
        .map_err(|error| refusal(&error))?;
    done()
}

/// Returns the state of the data, as the document of a bucket shows it.
pub(crate) fn info(status: &EncryptionStatus) -> Value {
    let is_encrypted = status.files.encrypted > 0 || status.is_enabled;
    let is_plain = status.files.plain > 0 || status.has_plain_log || !status.is_enabled;
    let data_status = match (is_encrypted, is_plain) {
        (true, false) => "encrypted",
        (true, true) => "partiallyEncrypted",
        (false, _) => "unencrypted",
    };
    let oldest = status.keys.iter().map(|key| key.created_unix_secs).min();
    json!({
        "dataStatus": data_status,
        "dekNumber": status.keys.len(),
        "oldestDekCreationDatetime": oldest.map(|secs| kedge_node::iso_8601(secs * 1_000)),
        "issues": status.error.iter().collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_bucket::{EncryptedFiles, KeyStatus};

    #[test]
    fn data_status_has_the_names_of_the_original() {
        let status = |is_enabled, encrypted, plain, has_plain_log| EncryptionStatus {
            is_enabled,
            files: EncryptedFiles {
                encrypted,
                plain,
                replaced: 0,
            },
            has_plain_log,
            ..EncryptionStatus::default()
        };
        for (status, expected) in [
            (status(false, 0, 4, true), "unencrypted"),
            (status(true, 4, 0, false), "encrypted"),
            (status(true, 0, 0, false), "encrypted"),
            (status(true, 3, 1, false), "partiallyEncrypted"),
            (status(true, 4, 0, true), "partiallyEncrypted"),
            (status(false, 1, 3, true), "partiallyEncrypted"),
        ] {
            assert_eq!(info(&status)["dataStatus"], expected, "{status:?}");
        }
    }

    #[test]
    fn info_has_the_oldest_key_and_the_last_error() {
        let key = |created_unix_secs: u64| KeyStatus {
            id: created_unix_secs.to_string(),
            created_unix_secs,
        };
        let status = EncryptionStatus {
            keys: vec![key(1_700_000_000), key(1_700_000_060)],
            error: Some("the disk is full".to_owned()),
            ..EncryptionStatus::default()
        };
        let info = info(&status);
        assert_eq!(info["dekNumber"], 2);
        assert_eq!(
            info["oldestDekCreationDatetime"],
            "2023-11-14T22:13:20.000Z"
        );
        assert_eq!(info["issues"], json!(["the disk is full"]));
    }
}
