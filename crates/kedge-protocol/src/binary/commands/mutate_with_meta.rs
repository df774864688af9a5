//! MUTATE_WITH_META: a document or deletion whose metadata stand as JSON behind its value, and which may ask for the CAS
//! and the seqno that it gets to be written into its extended attributes.
//!
//! Source: Couchbase `docs/mutate-with-meta.md`. The JSON lies in the value, so a compressed one is inflated first
//! ([`Request::with_inflated`]).

use super::meta::WithMetaOptions;
use crate::binary::fields::{ALL_DATATYPES, Fields, Part, Shape};
use crate::binary::{Request, RequestWriter};
use kedge_types::{Cas, Datatype, RevSeqno, Status};
use serde::{Deserialize, Serialize};

const SHAPE: Shape = Shape {
    extras: &[4],
    key: Part::Required,
    value: Part::Required,
    cas: Part::Optional,
    datatype: ALL_DATATYPES,
};

/// What becomes of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MutateKind {
    /// It is stored, unless a live one is there.
    Add,
    /// It is stored.
    Set,
    /// It is deleted.
    Delete,
}

/// A write with metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutateWithMeta<'a> {
    /// What becomes of the document.
    pub kind: MutateKind,
    /// The CAS that the document gets; `None`: the server makes one.
    pub cas: Option<Cas>,
    /// The client's flags.
    pub flags: u32,
    /// Unix second of expiry; of the deletion, for a delete.
    pub expiry: u32,
    /// Revision.
    pub rev_seqno: RevSeqno,
    /// Options.
    pub options: WithMetaOptions,
    /// Where in the value the CAS is written, in bytes.
    pub cas_offsets: Vec<u32>,
    /// Where in the value the seqno is written, in bytes.
    pub seqno_offsets: Vec<u32>,
    /// The CAS that the document must have now, 0 for any.
    pub expected_cas: Cas,
    /// The document.
    pub key: &'a [u8],
    /// Its value, without the metadata behind it.
    pub value: &'a [u8],
    /// Datatype of the value.
    pub datatype: Datatype,
}

/// A number, or its hexadecimal digits, as some readers of JSON know no numbers of 64 bits.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Number(u64),
    Text(String),
}

impl Number {
    fn hex(number: u64) -> Option<Self> {
        Some(Self::Text(format!("{number:#x}")))
    }

    fn get(&self) -> Result<u64, Status> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                // The parser takes a sign, too.
                if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(Status::Invalid);
                }
                u64::from_str_radix(digits, 16).map_err(|_| Status::Invalid)
            }
        }
    }
}

/// What is not there is 0.
fn wide(number: Option<&Number>) -> Result<u64, Status> {
    number.map_or(Ok(0), Number::get)
}

fn narrow(number: Option<&Number>) -> Result<u32, Status> {
    u32::try_from(wide(number)?).map_err(|_| Status::Invalid)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetaJson {
    command: MutateKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    cas: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rev_seqno: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Number>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cas_offsets: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    seqno_offsets: Vec<u32>,
}

impl<'a> MutateWithMeta<'a> {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes, key or value is missing, the metadata are longer than the
    /// value, or are not such JSON: no command, a member that is unknown or twice there, a number that is none or too
    /// large, an option without meaning, or a place for a CAS that the server does not make.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        SHAPE.check_document(request)?;
        let mut extras = Fields::new(request.extras);
        let meta_len = extras.u32()? as usize;
        let value_len = request.value.len().checked_sub(meta_len);
        let (value, meta) = request.value.split_at(value_len.ok_or(Status::Invalid)?);
        let meta: MetaJson = serde_json::from_slice(meta).map_err(|_| Status::Invalid)?;
        let options = WithMetaOptions::from_json(narrow(meta.options.as_ref())?)?;
        let makes_cas = options.contains(WithMetaOptions::REGENERATE_CAS);
        if !makes_cas && !meta.cas_offsets.is_empty() {
            return Err(Status::Invalid);
        }
        let cas = meta.cas.as_ref().map(Number::get).transpose()?;
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
            cas: self.cas.and_then(|cas| Number::hex(cas.get())),
            expiration: Number::hex(self.expiry.into()),
            flags: Number::hex(self.flags.into()),
            rev_seqno: Number::hex(self.rev_seqno.get()),
            options: Number::hex(self.options.bits().into()),
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
