//! RANGE_SCAN_CREATE, RANGE_SCAN_CONTINUE, RANGE_SCAN_CANCEL, and the records that a scan streams.
//!
//! Source: Couchbase `docs/range_scans/range_scan_create.md`, `range_scan_continue.md`, `range_scan_cancel.md`.

use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::{Request, RequestWriter};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kedge_types::{Cas, CollectionId, Datatype, Expiry, Seqno, Status, VbUuid};
use serde::{Deserialize, Serialize};

/// The longest name of a scan, in bytes.
pub const SCAN_NAME_BYTES_MAX: usize = 50;

/// Identity of a scan, as RANGE_SCAN_CREATE returns it in its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanId(pub [u8; 16]);

/// One end of a range of keys, without collection prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The key; an empty one sorts before all keys.
    pub key: Vec<u8>,
    /// True if the key itself is excluded.
    pub exclusive: bool,
}

/// The documents that a scan visits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanKind {
    /// Keys from one bound to the other.
    Range {
        /// The lower bound.
        start: Bound,
        /// The upper bound.
        end: Bound,
    },
    /// A random sample.
    Sampling {
        /// The seed of the random choice.
        seed: u64,
        /// The number of documents; more than 0.
        samples: u64,
    },
}

/// The state that the vBucket must have before the scan starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRequirements {
    /// The branch of history.
    pub vb_uuid: VbUuid,
    /// The seqno that must be persisted.
    pub seqno: Seqno,
    /// True if a document with exactly this seqno must exist.
    pub seqno_exists: bool,
    /// The longest wait for the seqno, in milliseconds; `None` does not wait.
    pub timeout_ms: Option<u64>,
}

/// A request to create a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeScanCreate {
    /// The collection to scan.
    pub collection: CollectionId,
    /// True if the scan returns only keys.
    pub key_only: bool,
    /// True if values are returned with their extended attributes.
    pub include_xattrs: bool,
    /// The documents to visit.
    pub kind: ScanKind,
    /// The state that the vBucket must have.
    pub snapshot: Option<SnapshotRequirements>,
    /// Name for logs and statistics.
    pub name: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
    #[serde(default)]
    key_only: bool,
    #[serde(default)]
    include_xattrs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<RangeJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling: Option<SamplingJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_requirements: Option<SnapshotJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RangeJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excl_start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    excl_end: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SamplingJson {
    #[serde(default)]
    seed: u64,
    samples: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotJson {
    vb_uuid: String,
    seqno: u64,
    #[serde(default)]
    seqno_exists: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

fn decode_bound(inclusive: Option<&str>, exclusive: Option<&str>) -> Result<Bound, Status> {
    let (text, exclusive) = match (inclusive, exclusive) {
        (Some(text), None) => (text, false),
        (None, Some(text)) => (text, true),
        _ => return Err(Status::Invalid),
    };
    let key = STANDARD.decode(text).map_err(|_| Status::Invalid)?;
    Ok(Bound { key, exclusive })
}

/// Returns a bound as its inclusive and exclusive JSON member.
fn encode_bound(bound: &Bound) -> (Option<String>, Option<String>) {
    let text = Some(STANDARD.encode(&bound.key));
    if bound.exclusive {
        (None, text)
    } else {
        (text, None)
    }
}

fn decode_kind(
    range: Option<&RangeJson>,
    sampling: Option<&SamplingJson>,
) -> Result<ScanKind, Status> {
    match (range, sampling) {
        (Some(range), None) => Ok(ScanKind::Range {
            start: decode_bound(range.start.as_deref(), range.excl_start.as_deref())?,
            end: decode_bound(range.end.as_deref(), range.excl_end.as_deref())?,
        }),
        (None, Some(sampling)) if sampling.samples > 0 => Ok(ScanKind::Sampling {
            seed: sampling.seed,
            samples: sampling.samples,
        }),
        _ => Err(Status::Invalid),
    }
}

impl RangeScanCreate {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the value is not marked as JSON or is not such JSON, a bound is missing, doubled, empty
    /// or not base64, there is neither or both of range and sampling, the name is too long, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            value: PartRule::Required,
            datatype: Datatype::JSON,
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        if request.datatype != Datatype::JSON.bits() {
            return Err(Status::Invalid);
        }
        let json: CreateJson =
            serde_json::from_slice(request.value).map_err(|_| Status::Invalid)?;
        let collection = match &json.collection {
            Some(hex) => u32::from_str_radix(hex, 16).map_err(|_| Status::Invalid)?,
            None => 0,
        };
        let snapshot = match json.snapshot_requirements {
            Some(snapshot) => Some(SnapshotRequirements {
                vb_uuid: VbUuid(snapshot.vb_uuid.parse().map_err(|_| Status::Invalid)?),
                seqno: Seqno(snapshot.seqno),
                seqno_exists: snapshot.seqno_exists,
                timeout_ms: snapshot.timeout_ms,
            }),
            None => None,
        };
        let name_len = json.name.as_ref().map_or(0, String::len);
        if name_len > SCAN_NAME_BYTES_MAX {
            return Err(Status::Invalid);
        }
        Ok(Self {
            collection: CollectionId(collection),
            key_only: json.key_only,
            include_xattrs: json.include_xattrs,
            kind: decode_kind(json.range.as_ref(), json.sampling.as_ref())?,
            snapshot,
            name: json.name,
        })
    }

    /// Appends the request.
    ///
    /// # Panics
    /// Never: the JSON has no keys that could fail to serialise.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let (mut range, mut sampling) = (None, None);
        match &self.kind {
            ScanKind::Range { start, end } => {
                let (start, excl_start) = encode_bound(start);
                let (end, excl_end) = encode_bound(end);
                range = Some(RangeJson {
                    start,
                    excl_start,
                    end,
                    excl_end,
                });
            }
            ScanKind::Sampling { seed, samples } => {
                sampling = Some(SamplingJson {
                    seed: *seed,
                    samples: *samples,
                });
            }
        }
        let json = CreateJson {
            collection: Some(format!("{:x}", self.collection.get())),
            key_only: self.key_only,
            include_xattrs: self.include_xattrs,
            range,
            sampling,
            snapshot_requirements: self.snapshot.map(|snapshot| SnapshotJson {
                vb_uuid: snapshot.vb_uuid.to_string(),
                seqno: snapshot.seqno.get(),
                seqno_exists: snapshot.seqno_exists,
                timeout_ms: snapshot.timeout_ms,
            }),
            name: self.name.clone(),
        };
        let value = serde_json::to_vec(&json).expect("plain members serialise");
        RequestWriter {
            datatype: Datatype::JSON,
            ..*writer
        }
        .write(&[], &[], &value, out);
    }
}

/// A request for the next part of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanContinue {
    /// The scan.
    pub id: ScanId,
    /// The largest number of items to return, 0 for no limit.
    pub items_max: u32,
    /// The longest run time, in milliseconds, 0 for no limit.
    pub time_ms_max: u32,
    /// The largest number of bytes to return, 0 for no limit.
    pub bytes_max: u32,
}

impl RangeScanContinue {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 28 bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[28],
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let mut extras = FieldReader::new(request.extras);
        Ok(Self {
            id: ScanId(extras.bytes16()?),
            items_max: extras.u32()?,
            time_ms_max: extras.u32()?,
            bytes_max: extras.u32()?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        let mut extras = [0; 28];
        extras[..16].copy_from_slice(&self.id.0);
        extras[16..20].copy_from_slice(&self.items_max.to_be_bytes());
        extras[20..24].copy_from_slice(&self.time_ms_max.to_be_bytes());
        extras[24..].copy_from_slice(&self.bytes_max.to_be_bytes());
        writer.write(&extras, &[], &[], out);
    }
}

/// A request to end a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeScanCancel {
    /// The scan.
    pub id: ScanId,
}

impl RangeScanCancel {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 16 bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[16],
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        Ok(Self {
            id: ScanId(FieldReader::new(request.extras).bytes16()?),
        })
    }

    /// Appends the request.
    pub fn encode(&self, writer: &RequestWriter<'_>, out: &mut Vec<u8>) {
        writer.write(&self.id.0, &[], &[], out);
    }
}

/// Encodes the extras of a reply to RANGE_SCAN_CONTINUE with records: their kind.
#[must_use]
pub const fn encode_record_kind(documents: bool) -> [u8; 4] {
    (documents as u32).to_be_bytes()
}

/// Appends a length as LEB128 of up to 32 bits.
fn push_len(len: usize, out: &mut Vec<u8>) {
    let len = u32::try_from(len).expect("a length fits 32 bits");
    let (bytes, used) = kedge_types::encode_leb128(len);
    out.extend_from_slice(&bytes[..used]);
}

/// Appends a key to the value of a reply.
///
/// # Panics
/// When the key is longer than 32 bits can express.
pub fn push_scan_key(key: &[u8], out: &mut Vec<u8>) {
    push_len(key.len(), out);
    out.extend_from_slice(key);
}

/// One document of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanDocument<'a> {
    /// The client's flags.
    pub flags: u32,
    /// Expiry.
    pub expiry: Expiry,
    /// Seqno.
    pub seqno: Seqno,
    /// CAS.
    pub cas: Cas,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// Key, without collection prefix.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl<'a> ScanDocument<'a> {
    /// Appends the document to the value of a reply.
    ///
    /// # Panics
    /// When the key or value is longer than 32 bits can express.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.expiry.0.to_be_bytes());
        out.extend_from_slice(&self.seqno.get().to_be_bytes());
        out.extend_from_slice(&self.cas.get().to_be_bytes());
        out.push(self.datatype.bits());
        push_scan_key(self.key, out);
        push_scan_key(self.value, out);
    }

    /// Reads all documents of a value.
    ///
    /// # Errors
    /// [`Status::Invalid`] when it ends in the middle of a document, or a datatype has undefined bits.
    pub fn decode_all(value: &'a [u8]) -> Result<Vec<Self>, Status> {
        let mut fields = FieldReader::new(value);
        let mut documents = Vec::new();
        while !fields.is_empty() {
            documents.push(Self {
                flags: fields.u32()?,
                expiry: Expiry(fields.u32()?),
                seqno: Seqno(fields.u64()?),
                cas: Cas(fields.u64()?),
                datatype: Datatype::from_bits(fields.u8()?).ok_or(Status::Invalid)?,
                key: take_sized(&mut fields)?,
                value: take_sized(&mut fields)?,
            });
        }
        Ok(documents)
    }
}

fn take_sized<'a>(fields: &mut FieldReader<'a>) -> Result<&'a [u8], Status> {
    let (len, used) = kedge_types::decode_leb128(fields.rest()).ok_or(Status::Invalid)?;
    fields.take(used)?;
    fields.take(len as usize)
}

/// Reads all keys of a value.
///
/// # Errors
/// [`Status::Invalid`] when it ends in the middle of a key.
pub fn decode_scan_keys(value: &[u8]) -> Result<Vec<&[u8]>, Status> {
    let mut fields = FieldReader::new(value);
    let mut keys = Vec::new();
    while !fields.is_empty() {
        keys.push(take_sized(&mut fields)?);
    }
    Ok(keys)
}
