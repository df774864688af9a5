//! MUTATE_WITH_META: a write of a document or deletion whose metadata follow the value as JSON. The command may ask the
//! server to write the new CAS and seqno into the extended attributes.
//!
//! Source: Couchbase `docs/mutate-with-meta.md`. The value contains the JSON, so a compressed value is inflated first
//! ([`Request::with_inflated`]).

use super::meta::WithMetaOptions;
use crate::binary::fields::{ALL_DATATYPES, FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Datatype, RevSeqno, Status};
use serde::{Deserialize, Serialize};

const SHAPE: RequestShape = RequestShape {
    extras: &[4],
    key: PartRule::Required,
    value: PartRule::Required,
    cas: PartRule::Optional,
    datatype: ALL_DATATYPES,
};

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MutateKind {
    /// Stores the document, unless a live one exists.
    Add,
    /// Stores the document.
    Set,
    /// Deletes the document.
    Delete,
}

/// A write with metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutateWithMeta<'a> {
    /// The kind of the write.
    pub kind: MutateKind,
    /// The new CAS of the document; `None` if the server generates it.
    pub cas: Option<Cas>,
    /// The client's flags.
    pub flags: u32,
    /// Unix second of expiry; of the deletion, for a delete.
    pub expiry: u32,
    /// Revision.
    pub rev_seqno: RevSeqno,
    /// Options.
    pub options: WithMetaOptions,
    /// The offsets in the value at which the CAS is written, in bytes.
    pub cas_offsets: Vec<u32>,
    /// The offsets in the value at which the seqno is written, in bytes.
    pub seqno_offsets: Vec<u32>,
    /// The CAS that the document must have now, 0 for any.
    pub expected_cas: Cas,
    /// The document.
    pub key: &'a [u8],
    /// The value, without the metadata that follow it.
    pub value: &'a [u8],
    /// Datatype of the value.
    pub datatype: Datatype,
}

/// A number, or a string of its hexadecimal digits, as some JSON parsers do not support numbers of 64 bits.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum JsonNumber {
    Number(u64),
    Text(String),
}

impl JsonNumber {
    fn hex(number: u64) -> Option<Self> {
        Some(Self::Text(format!("{number:#x}")))
    }

    fn get(&self) -> Result<u64, Status> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                // The parser would accept a sign, too.
                if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(Status::Invalid);
                }
                u64::from_str_radix(digits, 16).map_err(|_| Status::Invalid)
            }
        }
    }
}

/// Returns the number, or 0 if there is none.
fn wide(number: Option<&JsonNumber>) -> Result<u64, Status> {
    number.map_or(Ok(0), JsonNumber::get)
}

fn narrow(number: Option<&JsonNumber>) -> Result<u32, Status> {
    u32::try_from(wide(number)?).map_err(|_| Status::Invalid)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetaJson {
    command: MutateKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    cas: Option<JsonNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration: Option<JsonNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<JsonNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rev_seqno: Option<JsonNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<JsonNumber>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cas_offsets: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    seqno_offsets: Vec<u32>,
}

impl<'a> MutateWithMeta<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes, key or value is missing, the metadata are longer than
    /// the value, or the JSON is invalid: the command is missing, a member is unknown or doubled, a number is malformed
    /// or too large, an option is undefined, or an offset is given for a CAS that the server does not generate.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        let mut extras = FieldReader::new(request.extras);
        let meta_len = extras.u32()? as usize;
        let value_len = request.value.len().checked_sub(meta_len);
        let (value, meta) = request.value.split_at(value_len.ok_or(Status::Invalid)?);
        let meta: MetaJson = serde_json::from_slice(meta).map_err(|_| Status::Invalid)?;
        let options = WithMetaOptions::from_json(narrow(meta.options.as_ref())?)?;
        let makes_cas = options.contains(WithMetaOptions::REGENERATE_CAS);
        if !makes_cas && !meta.cas_offsets.is_empty() {
            return Err(Status::Invalid);
        }
        let cas = meta.cas.as_ref().map(JsonNumber::get).transpose()?;
        Ok(Self {
            kind: meta.command,
            cas: cas.filter(|_| !makes_cas).map(Cas),
            flags: narrow(meta.flags.as_ref())?,
            expiry: narrow(meta.expiration.as_ref())?,
            rev_seqno: RevSeqno(wide(meta.rev_seqno.as_ref())?),
            options,
            cas_offsets: meta.cas_offsets,
            seqno_offsets: meta.seqno_offsets,
            expected_cas: request.cas,
            key: request.key,
            value,
            datatype: request.datatype(ALL_DATATYPES)?,
        })
    }

    /// Appends the request.
    ///
    /// # Panics
    /// When the metadata take 4 GiB.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let meta = MetaJson {
            command: self.kind,
            cas: self.cas.and_then(|cas| JsonNumber::hex(cas.get())),
            expiration: JsonNumber::hex(self.expiry.into()),
            flags: JsonNumber::hex(self.flags.into()),
            rev_seqno: JsonNumber::hex(self.rev_seqno.get()),
            options: JsonNumber::hex(self.options.bits().into()),
            cas_offsets: self.cas_offsets.clone(),
            seqno_offsets: self.seqno_offsets.clone(),
        };
        let meta = serde_json::to_vec(&meta).expect("plain members serialise");
        let meta_len = u32::try_from(meta.len()).expect("a length fits 32 bits");
        RequestWriter {
            cas: self.expected_cas,
            datatype: self.datatype,
            ..*writer
        }
        .write(
            &meta_len.to_be_bytes(),
            self.key,
            &[self.value, &meta].concat(),
            out,
        );
    }
}
