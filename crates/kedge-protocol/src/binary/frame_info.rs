//! Framing extras of requests: durability, barrier, preserve-TTL and the like.
//!
//! An entry is one byte `id << 4 | length`, then `length` bytes. An id or length of 15 says that the real one is 15
//! plus the next byte (id first, when both are escaped). Source of ids and bodies: Couchbase `docs/BinaryProtocol.md`,
//! section "Request header with flexible framing extras".

use super::fields::Fields;
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

/// What the framing extras of a request say. The default is a request without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameInfos<'a> {
    /// Run after everything before this command and before everything after it, also with UnorderedExecution.
    pub barrier: bool,
    /// How safe the write must be before it is answered.
    pub durability: Option<Durability>,
    /// Which of several DCP streams of one vBucket this message belongs to.
    pub stream_id: Option<u16>,
    /// User to run the command as; a leading `^` says that the user is an external one.
    pub impersonate: Option<&'a [u8]>,
    /// Keep the expiry that the document has.
    pub preserve_ttl: bool,
    /// Registered token to run the command under.
    pub token_id: Option<u16>,
    /// Name of a privilege added to the impersonated user's, the first when there are several;
    /// [`FrameInfos::privileges`] gives all.
    pub privilege: Option<&'a [u8]>,
}

/// One raw entry.
fn next_entry<'a>(fields: &mut Fields<'a>) -> Result<(u16, &'a [u8]), Status> {
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
    let mut fields = Fields::new(body);
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
    /// Parses framing extras. Where an entry stands more than once, the first counts (privileges add up).
    ///
    /// Some clients (libcouchbase on little-endian machines) send the durability timeout with its bytes swapped;
    /// that cannot be told from a real timeout, so it is taken as it stands.
    ///
    /// # Errors
    /// [`Status::UnknownFrameInfo`] for an id without meaning, [`Status::DurabilityInvalidLevel`] for a durability
    /// level without one, [`Status::Invalid`] for an entry that runs past the end or has the wrong length, and for a
    /// durability timeout of 0 or 0xffff.
    #[inline]
    pub fn parse(framing: &'a [u8]) -> Result<Self, Status> {
        let mut infos = Self::default();
        let mut fields = Fields::new(framing);
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

    /// Every privilege named in `framing`, in order. Entries after a malformed one are not seen; [`Self::parse`]
    /// refuses those.
    pub fn privileges(framing: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut fields = Fields::new(framing);
        std::iter::from_fn(move || next_entry(&mut fields).ok())
            .filter(|(id, _)| *id == ID_PRIVILEGE)
            .map(|(_, name)| name)
    }

    /// Whether `opcode` may carry these. A stream id or barrier may stand anywhere.
    ///
    /// # Errors
    /// [`Status::Invalid`] for durability on a command that cannot have it, [`Status::NotSupported`] for preserve-TTL
    /// on one that has no use for it.
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

/// Appends one entry, with escapes where id or length need them. `body` is at most 270 bytes; what is longer cannot
/// be said on the wire and is cut.
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
