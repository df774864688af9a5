//! Bodies of error replies.
//!
//! Only a connection with the JSON feature gets one, with [`kedge_types::Datatype::JSON`]. Shape: Couchbase
//! `docs/BinaryProtocol.md`, section "Extended error message".

use serde_json::{Map, Value, json};

/// Writes `{"error":{"context":…,"ref":…}}`: a description of the error for a person, and a reference to find it in the
/// server's log.
#[must_use]
pub fn write_error_context(context: &str, reference: Option<&str>) -> String {
    Value::Object(Map::from_iter([error_member(context, reference)])).to_string()
}

/// Writes `{"error":{"context":…},"manifest_uid":"hex"}`: the body of [`kedge_types::Status::UnknownCollection`] and
/// [`kedge_types::Status::UnknownScope`]. The uid of the manifest shows the client which side is behind.
#[must_use]
pub fn write_unknown_manifest_entity(context: Option<&str>, manifest_uid: u64) -> String {
    let mut body = Map::new();
    if let Some(context) = context {
        body.extend([error_member(context, None)]);
    }
    body.insert("manifest_uid".into(), json!(format!("{manifest_uid:x}")));
    Value::Object(body).to_string()
}

fn error_member(context: &str, reference: Option<&str>) -> (String, Value) {
    let mut error = Map::new();
    error.insert("context".into(), json!(context));
    if let Some(reference) = reference {
        error.insert("ref".into(), json!(reference));
    }
    ("error".into(), Value::Object(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        for (got, expected) in [
            (
                write_error_context("a \"b\"\n", None),
                r#"{"error":{"context":"a \"b\"\n"}}"#,
            ),
            (
                write_error_context("x", Some("1-2")),
                r#"{"error":{"context":"x","ref":"1-2"}}"#,
            ),
            (
                write_unknown_manifest_entity(None, 0x1f),
                r#"{"manifest_uid":"1f"}"#,
            ),
            (
                write_unknown_manifest_entity(Some("x"), 0),
                r#"{"error":{"context":"x"},"manifest_uid":"0"}"#,
            ),
        ] {
            assert_eq!(got, expected);
        }
    }
}
