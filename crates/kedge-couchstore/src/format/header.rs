//! Headers, which a commit writes: the roots of the three trees (couchstore file format, sections 1.4 and 1.5).

use kedge_types::Seqno;

use super::block::HEADER;
use super::bytes::{be48, u16_at, u32_at, u48_at, u64_at};
use super::checksum::{crc32, crc32c};
use super::pointer::{IdReduce, NoReduce, Pointer, Reduce, SeqnoReduce};
use crate::limits::HEADER_BYTES_MAX;
use crate::{DamageKind, Offset};

/// The value for "no previous header": 47 bits, all set.
const NO_PREVIOUS: u64 = (1 << 47) - 1;
/// Size of block type, length and checksum, in bytes.
pub(crate) const PREFIX_BYTES: usize = 9;

/// A version of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// CRC-32 everywhere.
    V11,
    /// CRC-32C everywhere, as in all later ones.
    V12,
    /// A time in every header.
    V13,
    /// A pointer to the previous header in every header; encryption.
    V14,
}

impl Version {
    /// Returns the version with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            11 => Some(Version::V11),
            12 => Some(Version::V12),
            13 => Some(Version::V13),
            14 => Some(Version::V14),
            _ => None,
        }
    }

    /// Returns the number of the version, as in a header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Version::V11 => 11,
            Version::V12 => 12,
            Version::V13 => 13,
            Version::V14 => 14,
        }
    }

    /// Returns the size of a header's body before the roots, in bytes.
    fn fixed_bytes(self) -> usize {
        match self {
            Version::V11 | Version::V12 => 25,
            Version::V13 => 33,
            Version::V14 => 39,
        }
    }

    fn crc(self, body: &[u8]) -> u32 {
        match self {
            Version::V11 => crc32(body),
            _ => crc32c(body),
        }
    }
}

/// The pointer to the previous header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Previous {
    /// The version has no such field, and the file has to be searched.
    Unknown,
    /// There is no previous header.
    None,
    /// The offset of the previous header. The first header of a compacted file has 0, where there is none.
    At(Offset),
}

/// A sound header.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    pub(crate) offset: Offset,
    pub(crate) version: Version,
    pub(crate) update_seqno: Seqno,
    pub(crate) purge_seqno: Seqno,
    pub(crate) purge_pointer: u64,
    pub(crate) timestamp_ns: u64,
    pub(crate) previous: Previous,
    pub(crate) encrypted: bool,
    pub(crate) by_seqno: Option<Pointer<SeqnoReduce>>,
    pub(crate) by_id: Option<Pointer<IdReduce>>,
    pub(crate) local: Option<Pointer<NoReduce>>,
}

/// The reason why bytes are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvalidHeader {
    Damaged(DamageKind),
    UnknownVersion(u8),
}

impl From<DamageKind> for InvalidHeader {
    fn from(problem: DamageKind) -> Self {
        InvalidHeader::Damaged(problem)
    }
}

impl Header {
    /// Creates the header of an empty file.
    pub(crate) fn empty(offset: Offset, version: Version, encrypted: bool) -> Self {
        Header {
            offset,
            version,
            update_seqno: Seqno(0),
            purge_seqno: Seqno(0),
            purge_pointer: 0,
            timestamp_ns: 0,
            previous: Previous::None,
            encrypted,
            by_seqno: None,
            by_id: None,
            local: None,
        }
    }

    /// Returns the header as it is read back: without values that its version has no fields for.
    pub(crate) fn into_read(mut self) -> Self {
        if self.version < Version::V14 {
            self.previous = Previous::Unknown;
        }
        if self.version < Version::V13 {
            self.timestamp_ns = 0;
        }
        self
    }

    /// Appends the encoded header for a block boundary, type byte included.
    pub(crate) fn put(&self, block_type: u8, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(block_type);
        out.extend_from_slice(&[0; PREFIX_BYTES - 1]);
        out.push(self.version.number());
        for number in [self.update_seqno.0, self.purge_seqno.0, self.purge_pointer] {
            out.extend_from_slice(&be48(number));
        }
        for size in [
            root_bytes(self.by_seqno.as_ref()),
            root_bytes(self.by_id.as_ref()),
            root_bytes(self.local.as_ref()),
        ] {
            out.extend_from_slice(&size.to_be_bytes());
        }
        if self.version >= Version::V13 {
            out.extend_from_slice(&self.timestamp_ns.to_be_bytes());
        }
        if self.version >= Version::V14 {
            let previous = match self.previous {
                Previous::At(offset) => offset.0,
                Previous::None | Previous::Unknown => NO_PREVIOUS,
            };
            out.extend_from_slice(&be48(previous << 1 | u64::from(self.encrypted)));
        }
        if let Some(root) = &self.by_seqno {
            root.put_root(out);
        }
        if let Some(root) = &self.by_id {
            root.put_root(out);
        }
        if let Some(root) = &self.local {
            root.put_root(out);
        }
        let body = &out[start + PREFIX_BYTES..];
        let length = body.len() as u32 + 4;
        let crc = self.version.crc(body);
        out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
        out[start + 5..start + 9].copy_from_slice(&crc.to_be_bytes());
    }

    /// Parses the header at `offset`, a block boundary with the type byte of a header. `bytes` are those from `offset`
    /// on, up to the end of the file or the largest size of a header.
    pub(crate) fn parse(offset: Offset, bytes: &[u8]) -> Result<Self, InvalidHeader> {
        let body = framed_body(bytes)?;
        let crc = u32_at(bytes, 5);
        let (&number, _) = body.split_first().ok_or(DamageKind::HeaderParts)?;
        let Some(version) = Version::from_number(number) else {
            // The checksum of a newer version is unknown. If it is neither of ours, the version number is damaged.
            let sound = crc == crc32c(body) || crc == crc32(body);
            return Err(if sound {
                InvalidHeader::UnknownVersion(number)
            } else {
                DamageKind::HeaderChecksum.into()
            });
        };
        if crc != version.crc(body) {
            return Err(DamageKind::HeaderChecksum.into());
        }
        Ok(Self::parse_body(offset, version, body)?)
    }

    fn parse_body(offset: Offset, version: Version, body: &[u8]) -> Result<Self, DamageKind> {
        let fixed = version.fixed_bytes();
        if body.len() < fixed {
            return Err(DamageKind::HeaderParts);
        }
        let mut header = Header::empty(offset, version, false);
        header.update_seqno = Seqno(u48_at(body, 1));
        header.purge_seqno = Seqno(u48_at(body, 7));
        header.purge_pointer = u48_at(body, 13);
        header.previous = Previous::Unknown;
        if version >= Version::V13 {
            header.timestamp_ns = u64_at(body, 25);
        }
        if version >= Version::V14 {
            let packed = u48_at(body, 33);
            header.encrypted = packed & 1 == 1;
            header.previous = match packed >> 1 {
                NO_PREVIOUS => Previous::None,
                at => Previous::At(Offset(at)),
            };
        }
        if header.purge_pointer > offset.0 {
            return Err(DamageKind::PurgePointer(header.purge_pointer));
        }
        let sizes = [19, 21, 23].map(|at| u16_at(body, at));
        if fixed + sizes.iter().copied().map(usize::from).sum::<usize>() != body.len() {
            return Err(DamageKind::HeaderParts);
        }
        let (by_seqno, rest) = body[fixed..].split_at(sizes[0].into());
        let (by_id, local) = rest.split_at(sizes[1].into());
        header.by_seqno = parse_root(offset, by_seqno)?;
        header.by_id = parse_root(offset, by_id)?;
        header.local = parse_root(offset, local)?;
        Ok(header)
    }

    /// Returns the offset of the header.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// Returns the version of the format.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the highest seqno that the file had reached.
    #[must_use]
    pub fn update_seqno(&self) -> Seqno {
        self.update_seqno
    }

    /// Returns the highest seqno of a purged tombstone.
    #[must_use]
    pub fn purge_seqno(&self) -> Seqno {
        self.purge_seqno
    }

    /// Returns the time of the commit that its caller gave, in nanoseconds since 1970; 0 before version 13.
    #[must_use]
    pub fn timestamp_ns(&self) -> u64 {
        self.timestamp_ns
    }

    /// Returns the pointer to the previous header.
    #[must_use]
    pub fn previous(&self) -> Previous {
        self.previous
    }

    /// Returns `true` if the file is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Returns the number of documents that are not tombstones.
    #[must_use]
    pub fn live_count(&self) -> u64 {
        self.by_id.map_or(0, |root| root.reduce.live)
    }

    /// Returns the number of tombstones.
    #[must_use]
    pub fn deleted_count(&self) -> u64 {
        self.by_id.map_or(0, |root| root.reduce.deleted)
    }

    /// Returns the size of all referenced bodies, in bytes on disk.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.by_id.map_or(0, |root| root.reduce.body_bytes)
    }

    /// Returns the size of the nodes of the three trees, in bytes on disk.
    #[must_use]
    pub fn tree_bytes(&self) -> TreeBytes {
        TreeBytes {
            by_id: self.by_id.map_or(0, |root| root.subtree_bytes),
            by_seqno: self.by_seqno.map_or(0, |root| root.subtree_bytes),
            local: self.local.map_or(0, |root| root.subtree_bytes),
        }
    }

    /// Returns the number of bytes of the file that this header refers to: bodies and nodes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let trees = self.tree_bytes();
        self.body_bytes() + trees.by_id + trees.by_seqno + trees.local
    }
}

/// Size of the nodes of each tree, in bytes on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeBytes {
    /// The tree by document key.
    pub by_id: u64,
    /// The tree by seqno.
    pub by_seqno: u64,
    /// The tree of local documents.
    pub local: u64,
}

/// Returns the body of a framed header of any kind, located by its length alone; `bytes` begin with the type byte.
pub(crate) fn framed_body(bytes: &[u8]) -> Result<&[u8], DamageKind> {
    if bytes.len() < 5 {
        return Err(DamageKind::HeaderShort);
    }
    let length = u32_at(bytes, 1);
    if !(4..=HEADER_BYTES_MAX).contains(&length) {
        return Err(DamageKind::HeaderLength(length));
    }
    bytes
        .get(PREFIX_BYTES..5 + length as usize)
        .ok_or(DamageKind::HeaderShort)
}

/// Appends the framed body of a metadata header.
pub(crate) fn put_framed(block_type: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(block_type);
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(&crc32c(body).to_be_bytes());
    out.extend_from_slice(body);
}

fn root_bytes<R: Reduce>(root: Option<&Pointer<R>>) -> u16 {
    root.map_or(0, |_| Pointer::<R>::ROOT_BYTES as u16)
}

fn parse_root<R: Reduce>(header: Offset, bytes: &[u8]) -> Result<Option<Pointer<R>>, DamageKind> {
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() != Pointer::<R>::ROOT_BYTES {
        return Err(DamageKind::RootSize {
            expected: Pointer::<R>::ROOT_BYTES as u16,
            found: bytes.len() as u16,
        });
    }
    let root = Pointer::take_root(bytes);
    if root.offset == 0 || root.offset >= header.0 {
        return Err(DamageKind::RootOffset(root.offset));
    }
    Ok(Some(root))
}

const _: () = assert!(HEADER == 1, "a header in the first byte of a block says so");

#[cfg(test)]
mod tests;
