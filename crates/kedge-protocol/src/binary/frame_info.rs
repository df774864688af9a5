//! Framing extras of requests: durability, barrier, preserve-TTL and the like.
//!
//! An entry is one byte `id << 4 | length`, then `length` bytes. An id or length of 15 is an escape: the real one is 15
//! plus the next byte (id first, if both are escaped). Source of ids and bodies: Couchbase `docs/BinaryProtocol.md`,
//! section "Request header with flexible framing extras".

use super::fields::FieldReader;
use super::opcode::Opcode;
use kedge_types::{Durability, DurabilityLevel, Status};

const ID_BARRIER: u16 = 0;
const ID_DURABILITY: u16 = 1;
const ID_STREAM_ID: u16 = 2;
const ID_IMPERSONATE: u16 = 4;
const ID_PRESERVE_TTL: u16 = 5;
const ID_PRIVILEGE: u16 = 6;
const ID_TOKEN_ID: u16 = 7;
const ESCAPE: u8 = 15;

/// The framing extras of a request. The default is a request without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameInfos<'a> {
    /// The command runs after all commands before it and before all commands after it, also with UnorderedExecution.
    pub barrier: bool,
    /// The durability requirement of the write.
    pub durability: Option<Durability>,
    /// The id of the DCP stream, among several streams of one vBucket, to which the message belongs.
    pub stream_id: Option<u16>,
    /// The user that the command runs as; a leading `^` denotes an external user.
    pub impersonate: Option<&'a [u8]>,
    /// True if the document keeps its expiry.
    pub preserve_ttl: bool,
    /// The registered token that the command runs under.
    pub token_id: Option<u16>,
    /// The name of a privilege added to those of the impersonated user, the first if there are several;
    /// [`FrameInfos::privileges`] returns all.
    pub privilege: Option<&'a [u8]>,
}

/// Reads one raw entry.
fn next_entry<'a>(fields: &mut FieldReader<'a>) -> Result<(u16, &'a [u8]), Status> {
    let head = fields.u8()?;
    let mut id = u16::from(head >> 4);
    if head >> 4 == ESCAPE {
        id += u16::from(fields.u8()?);
    }
    let mut len = usize::from(head & 0x0f);
    if head & 0x0f == ESCAPE {
        len += usize::from(fields.u8()?);
    }
    Ok((id, fields.take(len)?))
}

fn durability(body: &[u8]) -> Result<Durability, Status> {
    let mut fields = FieldReader::new(body);
    let level = fields.u8()?;
    let timeout_ms = if fields.is_empty() {
        None
    } else {
        Some(fields.u16()?)
    };
    if !fields.is_empty() || matches!(timeout_ms, Some(0 | u16::MAX)) {
        return Err(Status::Invalid);
    }
    let level = DurabilityLevel::from_wire(level).ok_or(Status::DurabilityInvalidLevel)?;
    Ok(Durability { level, timeout_ms })
}

fn id16(body: &[u8]) -> Result<u16, Status> {
    let bytes: [u8; 2] = body.try_into().map_err(|_| Status::Invalid)?;
    Ok(u16::from_be_bytes(bytes))
}

fn empty(body: &[u8]) -> Result<bool, Status> {
    if body.is_empty() {
        Ok(true)
    } else {
        Err(Status::Invalid)
    }
}

impl<'a> FrameInfos<'a> {
    /// Parses framing extras. If an entry occurs more than once, the first one applies (privileges add up).
    ///
    /// Some clients (libcouchbase on little-endian machines) send the durability timeout with its bytes swapped. The
    /// value is used as it is, because it cannot be distinguished from a real timeout.
    ///
    /// # Errors
    /// [`Status::UnknownFrameInfo`] for an undefined id, [`Status::DurabilityInvalidLevel`] for an undefined durability
    /// level, [`Status::Invalid`] for an entry that runs past the end or has the wrong length, and for a durability
    /// timeout of 0 or 0xffff.
    #[inline]
    pub fn parse(framing: &'a [u8]) -> Result<Self, Status> {
        let mut infos = Self::default();
        let mut fields = FieldReader::new(framing);
        while !fields.is_empty() {
            let (id, body) = next_entry(&mut fields)?;
            match id {
                ID_BARRIER => infos.barrier = empty(body)?,
                ID_DURABILITY => {
                    let parsed = durability(body)?;
                    infos.durability.get_or_insert(parsed);
                }
                ID_STREAM_ID => {
                    let parsed = id16(body)?;
                    infos.stream_id.get_or_insert(parsed);
                }
                ID_IMPERSONATE | ID_PRIVILEGE if body.is_empty() => return Err(Status::Invalid),
                ID_IMPERSONATE => {
                    infos.impersonate.get_or_insert(body);
                }
                ID_PRESERVE_TTL => infos.preserve_ttl = empty(body)?,
                ID_PRIVILEGE => {
                    infos.privilege.get_or_insert(body);
                }
                ID_TOKEN_ID => {
                    let parsed = id16(body)?;
                    infos.token_id.get_or_insert(parsed);
                }
                _ => return Err(Status::UnknownFrameInfo),
            }
        }
        Ok(infos)
    }

    /// Iterates over all privileges named in `framing`, in order. Entries after a malformed one are skipped;
    /// [`Self::parse`] rejects such framing extras.
    pub fn privileges(framing: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut fields = FieldReader::new(framing);
        std::iter::from_fn(move || next_entry(&mut fields).ok())
            .filter(|(id, _)| *id == ID_PRIVILEGE)
            .map(|(_, name)| name)
    }

    /// Checks that `opcode` may carry these framing extras. Every opcode may have a stream id or barrier.
    ///
    /// # Errors
    /// [`Status::Invalid`] for durability on a command that does not support it, [`Status::NotSupported`] for
    /// preserve-TTL on one that does not use it.
    pub const fn check_opcode(&self, opcode: Opcode) -> Result<(), Status> {
        if self.durability.is_some() && !opcode.supports_durability() {
            Err(Status::Invalid)
        } else if self.preserve_ttl && !opcode.supports_preserve_ttl() {
            Err(Status::NotSupported)
        } else {
            Ok(())
        }
    }

    /// Appends the entries in their wire form, for a client.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.barrier {
            push_entry(out, ID_BARRIER, &[]);
        }
        if let Some(durability) = self.durability {
            let level = durability.level as u8;
            match durability.timeout_ms.map(u16::to_be_bytes) {
                Some([high, low]) => push_entry(out, ID_DURABILITY, &[level, high, low]),
                None => push_entry(out, ID_DURABILITY, &[level]),
            }
        }
        if let Some(id) = self.stream_id {
            push_entry(out, ID_STREAM_ID, &id.to_be_bytes());
        }
        if let Some(user) = self.impersonate {
            push_entry(out, ID_IMPERSONATE, user);
        }
        if self.preserve_ttl {
            push_entry(out, ID_PRESERVE_TTL, &[]);
        }
        if let Some(name) = self.privilege {
            push_entry(out, ID_PRIVILEGE, name);
        }
        if let Some(id) = self.token_id {
            push_entry(out, ID_TOKEN_ID, &id.to_be_bytes());
        }
    }
}

/// Appends one entry, with escapes where id or length need them. `body` is at most 270 bytes, the longest that an entry
/// can have; the rest is cut off.
fn push_entry(out: &mut Vec<u8>, id: u16, body: &[u8]) {
    let body = &body[..body.len().min(usize::from(ESCAPE) + usize::from(u8::MAX))];
    let len = body.len().min(usize::from(ESCAPE)) as u8;
    let short_id = id.min(u16::from(ESCAPE)) as u8;
    out.push(short_id << 4 | len);
    if short_id == ESCAPE {
        out.push((id - u16::from(ESCAPE)) as u8);
    }
    if len == ESCAPE {
        out.push((body.len() - usize::from(ESCAPE)) as u8);
    }
    out.extend_from_slice(body);
}
