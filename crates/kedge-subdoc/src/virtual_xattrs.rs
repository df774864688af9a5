//! Virtual attributes, which are not stored: the server's knowledge of the document.

use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, VbUuid};
use kedge_vbucket::{Item, ValueParts};
use std::fmt::Write as _;

/// The vBucket of a document, as far as virtual attributes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VbucketContext {
    /// The branch of its vBucket.
    pub uuid: VbUuid,
    /// The time of its vBucket's clock, in Unix seconds.
    pub unix_secs: u64,
}

/// A virtual attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VirtualXattr {
    Document,
    Vbucket,
    /// The names of all stored attributes.
    TableOfContents,
}

impl VirtualXattr {
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"$document" => Some(Self::Document),
            b"$vbucket" => Some(Self::Vbucket),
            b"$XTOC" => Some(Self::TableOfContents),
            _ => None,
        }
    }
}

/// The fields of `$document`, in the order of the list.
pub(crate) const DOCUMENT_FIELDS: [&str; 11] = [
    "CAS",
    "vbucket_uuid",
    "seqno",
    "revid",
    "exptime",
    "value_bytes",
    "datatype",
    "deleted",
    "flags",
    "last_modified",
    "value_crc32c",
];

/// The properties of a document that virtual attributes show.
pub(crate) struct DocumentProperties<'a> {
    pub(crate) cas: Cas,
    pub(crate) seqno: Seqno,
    pub(crate) rev: RevSeqno,
    pub(crate) expiry: Expiry,
    pub(crate) datatype: Datatype,
    pub(crate) deleted: bool,
    pub(crate) flags: u32,
    pub(crate) body: &'a [u8],
}

impl<'a> DocumentProperties<'a> {
    /// Returns the facts of a document. `cas` is the CAS that clients see: that of a lock is secret.
    pub(crate) fn of(item: &Item, parts: &'a ValueParts<'_>, cas: Cas) -> Self {
        Self {
            cas,
            seqno: item.seqno(),
            rev: item.rev_seqno(),
            expiry: item.expiry(),
            datatype: item.datatype(),
            deleted: item.is_deleted(),
            flags: item.flags(),
            body: parts.body(),
        }
    }

    /// Returns the value of a field of `$document` as JSON; `None` if there is no field with this name.
    pub(crate) fn field(&self, name: &str, around: &VbucketContext) -> Option<String> {
        Some(match name {
            "CAS" => hex64(self.cas.get()),
            "vbucket_uuid" => hex64(around.uuid.get()),
            "seqno" => hex64(self.seqno.get()),
            "revid" => format!("\"{}\"", self.rev.get()),
            "exptime" => self.expiry.0.to_string(),
            "value_bytes" => self.body.len().to_string(),
            "datatype" => datatypes(self.datatype),
            "deleted" => self.deleted.to_string(),
            "flags" => self.flags.to_string(),
            // The upper bits of a CAS are the time of the change in nanoseconds.
            "last_modified" => format!("\"{}\"", self.cas.get() / 1_000_000_000),
            "value_crc32c" => hex32(crc32c::crc32c(self.body)),
            _ => return None,
        })
    }

    /// Returns `$document` as JSON.
    pub(crate) fn document(&self, around: &VbucketContext) -> String {
        let mut text = String::from("{");
        for name in DOCUMENT_FIELDS {
            let value = self.field(name, around).unwrap_or_default();
            let comma = if text.len() > 1 { "," } else { "" };
            let _ = write!(text, "{comma}\"{name}\":{value}");
        }
        text.push('}');
        text
    }
}

/// Returns `$vbucket` as JSON.
pub(crate) fn vbucket(around: &VbucketContext) -> String {
    let secs = around.unix_secs;
    format!("{{\"HLC\":{{\"now\":\"{secs}\",\"mode\":\"real\"}}}}")
}

/// Returns `$XTOC` as JSON. The names contain no bytes that need escaping but quotation marks and backslashes.
pub(crate) fn table_of_contents<'n>(names: impl Iterator<Item = &'n [u8]>) -> String {
    let mut text = String::from("[");
    for name in names {
        if text.len() > 1 {
            text.push(',');
        }
        text.push('"');
        for letter in String::from_utf8_lossy(name).chars() {
            if matches!(letter, '"' | '\\') {
                text.push('\\');
            }
            text.push(letter);
        }
        text.push('"');
    }
    text.push(']');
    text
}

pub(crate) fn hex64(number: u64) -> String {
    format!("\"0x{number:016x}\"")
}

pub(crate) fn hex32(number: u32) -> String {
    format!("\"0x{number:08x}\"")
}

fn datatypes(datatype: Datatype) -> String {
    let names = [
        (Datatype::JSON, "\"json\""),
        (Datatype::SNAPPY, "\"snappy\""),
        (Datatype::XATTR, "\"xattr\""),
    ];
    let set: Vec<&str> = names
        .into_iter()
        .filter(|(bit, _)| datatype.contains(*bit))
        .map(|(_, name)| name)
        .collect();
    match set.is_empty() {
        true => "[\"raw\"]".to_owned(),
        false => format!("[{}]", set.join(",")),
    }
}
