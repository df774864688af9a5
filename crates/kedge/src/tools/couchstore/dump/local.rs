//! A local document as one line, decoded if its name determines its format.

use kedge_couchstore::kv::LocalDocument;
use kedge_types::Seqno;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::text::PrintedBytes;

#[derive(Debug, Serialize)]
pub(super) struct LocalLine {
    name: PrintedBytes,
    /// The form of `value`: `json`, `text` or `base64` as stored in the file, or `decoded`.
    value_as: &'static str,
    value: Contents,
    /// The reason why it does not match its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Contents {
    Shown(PrintedBytes),
    Decoded(Value),
}

impl LocalLine {
    pub(super) fn new(name: &[u8], value: &[u8], high_seqno: Seqno) -> Self {
        let (decoded, error) = match LocalDocument::decode(name, value, high_seqno) {
            Ok(document) => (document.as_ref().and_then(decoded), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (value_as, value) = match decoded {
            Some(decoded) => ("decoded", Contents::Decoded(decoded)),
            None => {
                let shown = PrintedBytes::of(value);
                (shown.kind(), Contents::Shown(shown))
            }
        };
        LocalLine {
            name: PrintedBytes::plain(name),
            value_as,
            value,
            error,
        }
    }
}

/// Decodes a document that is no JSON by itself.
fn decoded(document: &LocalDocument) -> Option<Value> {
    let list = |entries: Vec<Value>| json!({ "entries": entries });
    Some(match document {
        LocalDocument::Manifest(manifest) => json!({ "uid": manifest.uid.0 }),
        LocalDocument::OpenCollections(open) => {
            let entries = open.entries.iter().map(|entry| {
                json!({
                    "start_seqno": entry.start.get(),
                    "scope": format!("{:#x}", entry.scope.0),
                    "collection": format!("{:#x}", entry.collection.get()),
                    "max_ttl": entry.max_ttl,
                    "name": entry.name,
                    "history": entry.history,
                    "metered": entry.metered,
                    "flush_manifest": entry.flush_uid.0,
                })
            });
            list(entries.collect())
        }
        LocalDocument::Scopes(scopes) => {
            let entries = scopes.entries.iter().map(|entry| {
                json!({
                    "start_seqno": entry.start.get(),
                    "scope": format!("{:#x}", entry.scope.0),
                    "name": entry.name,
                })
            });
            list(entries.collect())
        }
        LocalDocument::DroppedCollections(dropped) => {
            let entries = dropped.entries.iter().map(|entry| {
                json!({
                    "start_seqno": entry.start.get(),
                    "end_seqno": entry.end.get(),
                    "collection": format!("{:#x}", entry.collection.get()),
                })
            });
            list(entries.collect())
        }
        LocalDocument::Stats(collection, stats) => json!({
            "collection": format!("{:#x}", collection.get()),
            "items": stats.items,
            "high_seqno": stats.high_seqno.get(),
            "disk_bytes": stats.disk_bytes,
        }),
        LocalDocument::VbState(_) => return None,
    })
}
