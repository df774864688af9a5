//! The search for headers: the newest one, backwards from the end of the file, and older ones (couchstore file format,
//! section 5).

use std::path::Path;

use kedge_disk::File;

use super::window::read_up_to;
use crate::format::block::{DATA, HEADER, METADATA};
use crate::format::header::{Header, InvalidHeader, Previous};
use crate::limits::{BLOCK_BYTES, HEADER_BYTES_MAX};
use crate::{DamageKind, Error, Offset, OnDamage};

/// The newest header of a file, and the damage after it.
#[derive(Debug)]
pub(crate) struct NewestHeader {
    pub(crate) header: Header,
    /// Length of the file when it was searched.
    pub(crate) file_bytes: u64,
    /// Blocks after the header with the type byte of a header, but without a sound header.
    pub(crate) damaged: Vec<Offset>,
}

/// The start of a block.
enum BlockStart {
    Data,
    Header(Box<Header>),
    Damaged(DamageKind),
    UnknownVersion(u8),
}

/// Finds the newest header.
pub(crate) fn newest(
    file: &dyn File,
    path: &Path,
    file_bytes: u64,
    on_damage: OnDamage,
) -> Result<NewestHeader, Error> {
    let mut damaged = Vec::new();
    // The last byte of a file may be the type byte of a block that was never written.
    let last = file_bytes.saturating_sub(2);
    let first_block = last - last % BLOCK_BYTES;
    let search = HeaderSearch {
        file,
        path,
        file_bytes,
        on_damage,
    };
    match search.backwards(first_block, &mut damaged)? {
        Some(header) => Ok(NewestHeader {
            header,
            file_bytes,
            damaged,
        }),
        None => Err(Error::NoHeader {
            file: path.to_owned(),
        }),
    }
}

/// Finds the header before `header`, or returns `None` if it is the oldest.
pub(crate) fn older(
    file: &dyn File,
    path: &Path,
    header: &Header,
    on_damage: OnDamage,
) -> Result<Option<Header>, Error> {
    let search = HeaderSearch {
        file,
        path,
        file_bytes: header.offset.0,
        on_damage,
    };
    let below = match header.previous {
        Previous::None => return Ok(None),
        Previous::Unknown => header.offset.0,
        Previous::At(at) if at >= header.offset => header.offset.0,
        // If there is no header, as before the first one of a compacted file, the search continues below it.
        Previous::At(at) => at.0 + 1,
    };
    let Some(last) = below.checked_sub(1) else {
        return Ok(None);
    };
    search.backwards(last - last % BLOCK_BYTES, &mut Vec::new())
}

/// Reads the header at exactly this offset.
pub(crate) fn at(
    file: &dyn File,
    path: &Path,
    offset: Offset,
    file_bytes: u64,
) -> Result<Header, Error> {
    let search = HeaderSearch {
        file,
        path,
        file_bytes,
        on_damage: OnDamage::Refuse,
    };
    if !offset.0.is_multiple_of(BLOCK_BYTES) || offset.0 >= file_bytes {
        return Err(search.corrupt(offset.0, DamageKind::NotAHeader));
    }
    match search.block(offset.0)? {
        BlockStart::Header(header) => Ok(*header),
        BlockStart::Data => Err(search.corrupt(offset.0, DamageKind::NotAHeader)),
        BlockStart::Damaged(problem) => Err(search.corrupt(offset.0, problem)),
        BlockStart::UnknownVersion(version) => Err(search.unknown(offset.0, version)),
    }
}

struct HeaderSearch<'a> {
    file: &'a dyn File,
    path: &'a Path,
    file_bytes: u64,
    on_damage: OnDamage,
}

impl HeaderSearch<'_> {
    /// Finds the first sound header at or before the block at `at`.
    fn backwards(&self, mut at: u64, damaged: &mut Vec<Offset>) -> Result<Option<Header>, Error> {
        loop {
            match self.block(at)? {
                BlockStart::Header(header) => return Ok(Some(*header)),
                BlockStart::Data => {}
                BlockStart::UnknownVersion(version) => return Err(self.unknown(at, version)),
                BlockStart::Damaged(problem) => {
                    // Old compacted files have a stray type byte at 0, without a header.
                    let stray = at == 0 && !matches!(problem, DamageKind::BlockType(_));
                    if self.on_damage == OnDamage::Refuse && !stray {
                        return Err(self.corrupt(at, problem));
                    }
                    damaged.push(Offset(at));
                }
            }
            let Some(before) = at.checked_sub(BLOCK_BYTES) else {
                return Ok(None);
            };
            at = before;
        }
    }

    fn block(&self, at: u64) -> Result<BlockStart, Error> {
        let wanted = HEADER_BYTES_MAX as usize + 5;
        let bytes = read_up_to(self.file, at, wanted, self.file_bytes)?;
        Ok(match bytes.first() {
            None | Some(&(DATA | METADATA)) => BlockStart::Data,
            Some(&HEADER) => match Header::parse(Offset(at), &bytes) {
                Ok(header) => BlockStart::Header(Box::new(header)),
                Err(InvalidHeader::Damaged(problem)) => BlockStart::Damaged(problem),
                Err(InvalidHeader::UnknownVersion(version)) => BlockStart::UnknownVersion(version),
            },
            Some(&other) => BlockStart::Damaged(DamageKind::BlockType(other)),
        })
    }

    fn corrupt(&self, at: u64, problem: DamageKind) -> Error {
        Error::Corrupt {
            file: self.path.to_owned(),
            offset: Offset(at),
            problem,
        }
    }

    fn unknown(&self, at: u64, version: u8) -> Error {
        Error::UnknownVersion {
            file: self.path.to_owned(),
            offset: Offset(at),
            version,
        }
    }
}
