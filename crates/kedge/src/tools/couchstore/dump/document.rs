//! A document as one line.

use kedge_couchstore::Entry;
use kedge_couchstore::kv::{
    DeleteSource, DiskKey, EntryMeta, KvError, Meaning, RevMeta, StoredSystemEvent,
    SystemEventKind, Value,
};
use kedge_types::{Datatype, DurabilityLevel};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::json;

use super::super::text::{PrintedBytes, to_hex};

/// An entry, in the order in which its fields are printed. Fields without a value are left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct DocumentLine<'a> {
    seqno: u64,
    rev: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    /// A key that is no text, or that the engine could not have made.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    deleted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<MetaLine>,
    /// Private metadata that are not the engine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    rev_meta_hex: Option<String>,
    content_meta: u8,
    body_offset: Option<u64>,
    disk_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    xattrs: Option<XattrPairs>,
    /// The form of `body`: `json`, `text`, `base64`, `event`, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_as: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<PrintedBody>,
    /// A deviation from the engine's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The engine's metadata.
#[derive(Debug, Default, Serialize)]
struct MetaLine {
    state: &'static str,
    /// The CAS as text, since many JSON parsers do not support 64 bits.
    cas: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiry: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_by: Option<&'static str>,
    flags: u32,
    datatype: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prepare_seqno: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum PrintedBody {
    Shown(PrintedBytes),
    Event(serde_json::Value),
}

/// Names and values; a duplicate name is printed twice.
#[derive(Debug)]
struct XattrPairs(Vec<(String, PrintedBytes)>);

impl Serialize for XattrPairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'a> DocumentLine<'a> {
    /// Creates the line without the body.
    pub(super) fn new(entry: &'a Entry) -> Self {
        Self::understood(entry).0
    }

    /// Creates the line with the body.
    pub(super) fn with_body(entry: &'a Entry, body: Option<&[u8]>) -> Self {
        let (mut line, understood) = Self::understood(entry);
        let Some(body) = body else {
            line.body_as = Some("none");
            return line;
        };
        let shown = match understood {
            Some((_, Meaning::SystemEvent { kind, dropped, .. })) => {
                StoredSystemEvent::decode(kind, dropped, body).map(|event| {
                    line.body_as = Some("event");
                    line.body = Some(PrintedBody::Event(event_json(&event)));
                })
            }
            Some((meta, _)) => Value::decode(meta.datatype, body).map(|value| {
                let attributes: Vec<_> = value.attributes().map(attribute).collect();
                line.xattrs = (!attributes.is_empty()).then_some(XattrPairs(attributes));
                line.show(PrintedBytes::of(value.document()));
            }),
            None => {
                line.show(PrintedBytes::of(body));
                Ok(())
            }
        };
        if let Err(error) = shown {
            line.show(PrintedBytes::plain(body));
            line.error = Some(error.to_string());
        }
        line
    }

    fn show(&mut self, shown: PrintedBytes) {
        self.body_as = Some(shown.kind());
        self.body = Some(PrintedBody::Shown(shown));
    }

    /// Returns the line without a body, and the engine's interpretation of the entry.
    fn understood(entry: &'a Entry) -> (Self, Option<(RevMeta, Meaning)>) {
        let mut line = DocumentLine {
            seqno: entry.seqno().get(),
            rev: entry.rev().get(),
            deleted: entry.is_deleted(),
            content_meta: entry.content_meta().0,
            body_offset: entry.body_offset().map(|offset| offset.0),
            disk_bytes: entry.disk_bytes(),
            ..DocumentLine::default()
        };
        match line.understand(entry) {
            Ok(understood) => (line, Some(understood)),
            Err(error) => {
                line.error = Some(error.to_string());
                line.rev_meta_hex = Some(to_hex(entry.rev_meta()));
                (line, None)
            }
        }
    }

    fn understand(&mut self, entry: &'a Entry) -> Result<(RevMeta, Meaning), KvError> {
        let key = DiskKey::decode(entry.key()).inspect_err(|_| {
            self.key_hex = Some(to_hex(entry.key()));
        })?;
        match key {
            DiskKey::SystemEvent { .. } => self.namespace = Some("system"),
            DiskKey::Document {
                prepared,
                collection,
                logical,
            } => {
                self.namespace = Some(if prepared { "prepare" } else { "committed" });
                self.collection = Some(format!("{:#x}", collection.get()));
                match str::from_utf8(logical) {
                    Ok(text) => self.key = Some(text),
                    Err(_) => self.key_hex = Some(to_hex(entry.key())),
                }
            }
        }
        let meta = EntryMeta::decode(entry.is_deleted(), entry.content_meta(), entry.rev_meta())?;
        let meaning = meta.meaning(&key)?;
        self.meta = Some(MetaLine::new(&meta, meaning));
        Ok((meta.rev_meta, meaning))
    }
}

fn attribute((name, value): (&[u8], &[u8])) -> (String, PrintedBytes) {
    (
        String::from_utf8_lossy(name).into_owned(),
        PrintedBytes::of(value),
    )
}

impl MetaLine {
    fn new(entry: &EntryMeta, meaning: Meaning) -> Self {
        let meta = &entry.rev_meta;
        let mut line = MetaLine {
            state: match meaning {
                Meaning::Live => "live",
                Meaning::Tombstone => "deleted",
                Meaning::Prepare { is_delete, .. } if is_delete => "prepared_delete",
                Meaning::Prepare { .. } => "prepared",
                Meaning::LegacyCommit { .. } => "committed",
                Meaning::Abort { .. } => "aborted",
                Meaning::SystemEvent { dropped: true, .. } => "dropped",
                Meaning::SystemEvent { .. } => "opened",
            },
            cas: meta.cas.get().to_string(),
            flags: u32::from_be_bytes(meta.flags),
            datatype: datatype_names(meta.datatype),
            ..MetaLine::default()
        };
        if entry.deleted {
            line.deleted_at = Some(meta.exptime);
            line.deleted_by = Some(match meta.delete_source {
                DeleteSource::Explicit => "explicit",
                DeleteSource::Ttl => "ttl",
            });
        } else {
            line.expiry = Some(meta.exptime);
        }
        match meaning {
            Meaning::Prepare { level, .. } => line.level = Some(level_name(level)),
            Meaning::Abort { prepare } | Meaning::LegacyCommit { prepare } => {
                line.prepare_seqno = Some(prepare.get());
            }
            Meaning::SystemEvent { kind, subject, .. } => {
                line.event = Some(match kind {
                    SystemEventKind::Collection => "collection",
                    SystemEventKind::Scope => "scope",
                    SystemEventKind::ModifyCollection => "modify_collection",
                });
                line.subject = Some(format!("{subject:#x}"));
            }
            Meaning::Live | Meaning::Tombstone => {}
        }
        line
    }
}

fn datatype_names(datatype: Datatype) -> Vec<&'static str> {
    let names = [
        (Datatype::JSON, "json"),
        (Datatype::SNAPPY, "snappy"),
        (Datatype::XATTR, "xattr"),
    ];
    let set = names.into_iter().filter(|(bit, _)| datatype.contains(*bit));
    set.map(|(_, name)| name).collect()
}

const fn level_name(level: DurabilityLevel) -> &'static str {
    match level {
        DurabilityLevel::Majority => "majority",
        DurabilityLevel::MajorityAndPersistOnActive => "majorityAndPersistOnMaster",
        DurabilityLevel::PersistToMajority => "persistToMajority",
    }
}

fn event_json(event: &StoredSystemEvent) -> serde_json::Value {
    match event {
        StoredSystemEvent::CollectionOpened(event)
        | StoredSystemEvent::CollectionModified(event) => json!({
            "manifest": event.uid.0,
            "scope": format!("{:#x}", event.scope.0),
            "collection": format!("{:#x}", event.collection.get()),
            "name": event.name,
            "max_ttl": event.max_ttl,
            "history": event.history,
            "default_collection_max_visible": event.default_collection_max_visible.get(),
            "metered": event.metered,
            "flush_manifest": event.flush_uid.0,
        }),
        StoredSystemEvent::CollectionDropped(event) => json!({
            "manifest": event.uid.0,
            "scope": format!("{:#x}", event.scope.0),
            "collection": format!("{:#x}", event.collection.get()),
            "is_system": event.is_system,
        }),
        StoredSystemEvent::ScopeOpened(event) => json!({
            "manifest": event.uid.0,
            "scope": format!("{:#x}", event.scope.0),
            "name": event.name,
        }),
        StoredSystemEvent::ScopeDropped(event) => json!({
            "manifest": event.uid.0,
            "scope": format!("{:#x}", event.scope.0),
            "is_system": event.is_system,
        }),
    }
}
