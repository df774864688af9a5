//! Settings of encryption at rest: master keys, and what is encrypted beside buckets.
//!
//! Paths and names are those of Couchbase Server's REST interface. The master key and the encryption of the audit log are settings of
//! each node ([`crate`] cannot change them), so requests to change them are refused with the setting's name.

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_bucket::MASTER_KEY_ID;
use kedge_encryption::{MasterKeyDetail, MasterKeyInfo};
use kedge_node::audit::{AUDIT_KEY_ROTATION_SECS, AuditEncryption};
use serde_json::{Map, Value, json};

use super::backend::BucketsError;
use super::buckets::refusal;
use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done, ok};
use super::request_context::RequestContext;

/// The parts of a node that the original encrypts, beside buckets.
const PARTS: [&str; 4] = ["config", "log", "audit", "other"];
const AUDIT: &str = "audit";

fn refuse(why: &str) -> EarlyReply {
    EarlyReply::field_error(StatusCode::BAD_REQUEST, "_", why)
}

/// Returns the document of the master key, without the key.
fn key_document(name: &str, info: &MasterKeyInfo) -> Value {
    let details = info.details.iter().map(|(name, detail)| {
        let value = match detail {
            MasterKeyDetail::Text(text) => json!(text),
            MasterKeyDetail::Number(number) => json!(number),
            MasterKeyDetail::Flag(flag) => json!(flag),
        };
        ((*name).to_owned(), value)
    });
    json!({
        "id": MASTER_KEY_ID,
        "name": name,
        "type": info.kind,
        "usage": ["bucket-encryption", "audit-encryption"],
        "data": details.collect::<Map<_, _>>(),
        "source": info.source,
        "requests": info.requests,
        "failures": info.failures,
        "error": info.error,
    })
}

fn master_key(call: &RequestContext) -> Option<Value> {
    let (name, info) = call.buckets().master_key()?;
    Some(key_document(&name, &info))
}

/// Returns the master key if it has this number.
fn key_with(call: &RequestContext, id: &str) -> Result<Value, EarlyReply> {
    let key = master_key(call).filter(|_| id == MASTER_KEY_ID.to_string());
    key.ok_or_else(EarlyReply::no_such_resource)
}

/// `GET /settings/encryptionKeys`: the master key, if there is one.
pub(crate) async fn keys(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    ok(&master_key(&call).into_iter().collect::<Value>())
}

/// `GET /settings/encryptionKeys/ID`.
pub(crate) async fn key(call: RequestContext, Path(id): Path<String>) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    ok(&key_with(&call, &id)?)
}

/// `POST /settings/encryptionKeys`: refused.
pub(crate) async fn create_key(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    Err(refuse(
        "The master key is the setting encryption_master_key of each node, which names its source. The server makes none: one that \
         it kept beside the data would protect nothing.",
    ))
}

/// `PUT` and `DELETE /settings/encryptionKeys/ID`: refused.
pub(crate) async fn change_key(call: RequestContext, Path(id): Path<String>) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    key_with(&call, &id)?;
    Err(refuse(
        "The master key is the setting encryption_master_key of each node.",
    ))
}

/// `POST /settings/encryptionKeys/ID/test`: encrypts and decrypts something with the master key.
pub(crate) async fn test_key(call: RequestContext, Path(id): Path<String>) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    key_with(&call, &id)?;
    call.blocking(|state| state.parts.buckets.test_master_key())
        .await?
        .map_err(|error| refusal(&error))?;
    done()
}

/// `POST /controller/rotateEncryptionKey/ID`: has the master key wrap all data keys of this node again.
pub(crate) async fn rotate_key(call: RequestContext, Path(id): Path<String>) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    key_with(&call, &id)?;
    let rewrapped = call.blocking(|state| {
        let of_buckets = state.parts.buckets.rewrap_keys();
        let of_audit = state.parts.users.audit().rewrap_keys();
        of_buckets.and(of_audit.map_err(|error| BucketsError::Temporary(error.to_string())))
    });
    rewrapped.await?.map_err(|error| refusal(&error))?;
    done()
}

/// `POST /controller/dropEncryptionAtRestDeks/PART`: gives the audit log of this node a new data key. Its older files keep theirs.
pub(crate) async fn drop_keys(call: RequestContext, Path(part): Path<String>) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    check_part(&call, &part).await?;
    let rotated = call.blocking(|state| state.parts.users.audit().rotate_keys());
    rotated
        .await?
        .map_err(|error| EarlyReply::failed("renew the data key of the audit log", &error))?;
    done()
}

/// `POST /controller/forceEncryptionAtRest/PART`: refused.
pub(crate) async fn force(call: RequestContext, Path(part): Path<String>) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    check_part(&call, &part).await?;
    Err(refuse(
        "Older files of the audit log are not written again: those in plain text go when the log is rotated often enough, or remove \
         them.",
    ))
}

/// `POST /controller/forceEncryptionAtRest/bucket/BUCKET`: nothing is to be done, as data in plain text of an encrypted bucket is
/// written again in any case.
pub(crate) async fn force_bucket(call: RequestContext, Path(name): Path<String>) -> Handled {
    call.bucket(&name, Privilege::Manage)?;
    let status = call
        .blocking(move |state| state.parts.buckets.encryption(&name))
        .await?;
    match status.ok_or_else(EarlyReply::no_such_resource)?.is_enabled {
        true => done(),
        false => Err(refuse(
            "The bucket is not encrypted: switch encryption_at_rest on.",
        )),
    }
}

/// Refuses parts that are not encrypted.
async fn check_part(call: &RequestContext, part: &str) -> Result<(), EarlyReply> {
    if !PARTS.contains(&part) {
        return Err(EarlyReply::no_such_resource());
    }
    if part != AUDIT {
        return Err(refuse(&format!("This part is not encrypted: {part}.")));
    }
    match audit(call).await?.is_enabled {
        true => Ok(()),
        false => Err(refuse(
            "The audit log is not encrypted: set audit_log_encryption at the start of the node.",
        )),
    }
}

async fn audit(call: &RequestContext) -> Result<AuditEncryption, EarlyReply> {
    let state = call.blocking(|state| state.parts.users.audit().encryption());
    let state = state
        .await?
        .map_err(|error| EarlyReply::failed("read the audit log", &error))?;
    Ok(state.unwrap_or_default())
}

/// Returns the settings, of which only those of the audit log depend on anything.
fn document(audit: &AuditEncryption) -> Value {
    let (method, id, interval) = match audit.is_enabled {
        true => ("encryptionKey", MASTER_KEY_ID, AUDIT_KEY_ROTATION_SECS),
        false => ("disabled", -1, 0),
    };
    let data_status = match (audit.encrypted_files > 0, audit.plain_files > 0) {
        (true, true) => "partiallyEncrypted",
        (true, false) => "encrypted",
        (false, false) if audit.is_enabled => "encrypted",
        (false, _) => "unencrypted",
    };
    let mut info = json!({ "dataStatus": data_status, "dekNumber": audit.keys, "issues": [] });
    if let Some(oldest) = audit.oldest_unix_secs {
        info["oldestDekCreationDatetime"] = kedge_node::iso_8601(oldest * 1_000).into();
    }
    let audit = json!({
        "encryptionMethod": method,
        "encryptionKeyId": id,
        "dekRotationInterval": interval,
        "dekLifetime": 0,
        "info": info,
    });
    let disabled = json!({
        "encryptionMethod": "disabled",
        "encryptionKeyId": -1,
        "dekRotationInterval": 0,
        "dekLifetime": 0,
        "info": { "dataStatus": "unencrypted", "dekNumber": 0, "issues": [] },
    });
    let part = |part| match part {
        AUDIT => (part, audit.clone()),
        _ => (part, disabled.clone()),
    };
    PARTS.map(part).into_iter().collect()
}

/// Returns an error for each field of a form that asks for another setting.
fn check(form: &FormFields, is: &Value) -> Map<String, Value> {
    let mut errors = Map::new();
    for (name, text) in form.fields() {
        let (part, setting) = name.split_once('.').unwrap_or_default();
        let known = match &is[part][setting] {
            Value::String(known) => known.clone(),
            Value::Number(known) => known.to_string(),
            _ if setting == "skipEncryptionKeyTest" && is[part].is_object() => continue,
            _ => {
                errors.insert(name.to_owned(), "Unsupported key".into());
                continue;
            }
        };
        if text == known {
            continue;
        }
        let why = match part {
            AUDIT => format!(
                "It is {known}, by the setting audit_log_encryption of this node, which holds from its start."
            ),
            _ => format!("It is {known}: only buckets and the audit log can be encrypted."),
        };
        errors.insert(name.to_owned(), why.into());
    }
    errors
}

/// `GET /settings/security/encryptionAtRest`.
pub(crate) async fn settings(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    ok(&document(&audit(&call).await?))
}

/// `POST /settings/security/encryptionAtRest`: accepts what is so already.
pub(crate) async fn set_settings(call: RequestContext, form: FormFields) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let is = document(&audit(&call).await?);
    let errors = check(&form, &is);
    match errors.is_empty() {
        true => ok(&is),
        false => Err(EarlyReply::json(
            StatusCode::BAD_REQUEST,
            &json!({ "errors": errors }),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encrypted() -> AuditEncryption {
        AuditEncryption {
            is_enabled: true,
            keys: 2,
            oldest_unix_secs: Some(1_700_000_000),
            encrypted_files: 1,
            plain_files: 1,
        }
    }

    #[test]
    fn settings_show_the_audit_log_and_nothing_else_as_encrypted() {
        let off = document(&AuditEncryption::default());
        for part in PARTS {
            assert_eq!(off[part]["encryptionMethod"], "disabled", "{part}");
            assert_eq!(off[part]["encryptionKeyId"], -1, "{part}");
            assert_eq!(off[part]["info"]["dataStatus"], "unencrypted", "{part}");
        }
        let on = document(&encrypted());
        assert_eq!(on["log"], off["log"]);
        assert_eq!(on[AUDIT]["encryptionMethod"], "encryptionKey");
        assert_eq!(on[AUDIT]["encryptionKeyId"], 1);
        assert_eq!(on[AUDIT]["dekRotationInterval"], 2_592_000);
        let info = &on[AUDIT]["info"];
        assert_eq!(info["dataStatus"], "partiallyEncrypted");
        assert_eq!(info["dekNumber"], 2);
        assert_eq!(
            info["oldestDekCreationDatetime"],
            "2023-11-14T22:13:20.000Z"
        );
    }

    #[test]
    fn document_of_the_master_key_has_the_names_of_the_original() {
        let info = MasterKeyInfo {
            kind: "kmip-aes-key-256",
            source: "kmip:h:5696/7".to_owned(),
            details: vec![
                ("host", MasterKeyDetail::Text("h".to_owned())),
                ("port", MasterKeyDetail::Number(5_696)),
                ("useIMDS", MasterKeyDetail::Flag(false)),
            ],
            failures: 2,
            ..MasterKeyInfo::default()
        };
        let key = key_document("kmip:7", &info);
        assert_eq!(key["id"], 1);
        assert_eq!(
            (&key["name"], &key["type"]),
            (&json!("kmip:7"), &json!("kmip-aes-key-256"))
        );
        assert_eq!(
            key["data"],
            json!({ "host": "h", "port": 5_696, "useIMDS": false })
        );
        assert_eq!((&key["failures"], &key["error"]), (&json!(2), &Value::Null));
    }

    #[test]
    fn form_may_repeat_the_settings_and_not_change_them() {
        let is = document(&encrypted());
        let read = |text: &str| check(&FormFields::parse(text.as_bytes()), &is);
        let same = "audit.encryptionMethod=encryptionKey&audit.encryptionKeyId=1&log.encryptionMethod=disabled\
                    &audit.skipEncryptionKeyTest=true";
        assert!(read(same).is_empty());
        let errors = read(
            "audit.encryptionMethod=disabled&log.encryptionKeyId=1&x.encryptionMethod=a&audit.info=1&audit=1",
        );
        let of_audit = errors["audit.encryptionMethod"].as_str().expect("text");
        assert!(of_audit.contains("audit_log_encryption"), "{of_audit}");
        let of_log = errors["log.encryptionKeyId"].as_str().expect("text");
        assert!(
            of_log.contains("only buckets and the audit log"),
            "{of_log}"
        );
        for unknown in ["x.encryptionMethod", "audit.info", "audit"] {
            assert_eq!(errors[unknown], "Unsupported key", "{unknown}");
        }
    }
}
