//! The shared state of an open file: the handle, the protection of its chunks, and the cached nodes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kedge_disk::{Disk, File};

use super::cache::NodeCache;
use super::find::{self, NewestHeader};
use crate::crypto::EncryptionKey;
use crate::format::block::METADATA;
use crate::format::checksum::crc32c;
use crate::format::chunk::Codec;
use crate::format::header::{self, Header, Version};
use crate::format::metadata::EncryptionHeader;
use crate::limits::HEADER_BYTES_MAX;
use crate::{DamageKind, Error, Offset, OnDamage, Options};

/// The protection of the chunks of a file.
#[derive(Debug)]
pub(crate) struct Protection {
    pub(crate) codec: Codec,
    /// The name of the key of an encrypted file.
    pub(crate) key_id: Option<Box<str>>,
}

impl From<Codec> for Protection {
    fn from(codec: Codec) -> Self {
        Protection {
            codec,
            key_id: None,
        }
    }
}

/// An open file. It never changes after the open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: Box<dyn File>,
    path: PathBuf,
    protection: Protection,
    cache: NodeCache,
    on_damage: OnDamage,
}

impl OpenFile {
    /// Opens a file and finds its newest header.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: &Path,
        options: &Options,
    ) -> Result<(Arc<Self>, NewestHeader), Error> {
        OpenFile::of_file(disk.open(path)?, path, options)
    }

    /// Opens a file with this known header.
    pub(crate) fn open_at(
        disk: &dyn Disk,
        path: &Path,
        options: &Options,
        header: &Header,
    ) -> Result<Arc<Self>, Error> {
        let file = disk.open(path)?;
        let found = find::at(&*file, path, header.offset, file.len()?)?;
        if found != *header {
            return Err(Error::Corrupt {
                file: path.to_owned(),
                offset: header.offset,
                problem: DamageKind::NotAHeader,
            });
        }
        let protection = protection_of(&*file, path, header, &options.keys)?;
        Ok(Arc::new(OpenFile::new(file, path, protection, options)))
    }

    /// Finds the newest header of an open file.
    pub(crate) fn of_file(
        file: Box<dyn File>,
        path: &Path,
        options: &Options,
    ) -> Result<(Arc<Self>, NewestHeader), Error> {
        let found = find::newest(&*file, path, file.len()?, options.on_damage)?;
        let protection = protection_of(&*file, path, &found.header, &options.keys)?;
        let shared = OpenFile::new(file, path, protection, options);
        Ok((Arc::new(shared), found))
    }

    pub(crate) fn new(
        file: Box<dyn File>,
        path: &Path,
        protection: Protection,
        options: &Options,
    ) -> Self {
        OpenFile {
            file,
            path: path.to_owned(),
            protection,
            cache: NodeCache::new(options.cache_bytes_max, options.cache_leaves),
            on_damage: options.on_damage,
        }
    }

    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn codec(&self) -> &Codec {
        &self.protection.codec
    }

    /// Returns the name of the key of an encrypted file.
    pub(crate) fn key_id(&self) -> Option<&str> {
        self.protection.key_id.as_deref()
    }

    pub(crate) fn cache(&self) -> &NodeCache {
        &self.cache
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.path.capacity() + self.cache.bytes()
    }

    pub(crate) fn on_damage(&self) -> OnDamage {
        self.on_damage
    }

    pub(crate) fn read_at(&self, bytes: &mut [u8], at: Offset) -> Result<(), Error> {
        Ok(self.file.read_at(bytes, at.0)?)
    }

    /// Creates the error of a damaged place.
    pub(crate) fn corrupt(&self, offset: Offset, problem: DamageKind) -> Error {
        Error::Corrupt {
            file: self.path.clone(),
            offset,
            problem,
        }
    }

    /// Returns `true` if a header that was found later belongs to a file with the same protection of chunks.
    pub(crate) fn fits(&self, header: &Header) -> bool {
        match self.codec() {
            Codec::Crc32 => header.version == Version::V11,
            Codec::Crc32c => header.version > Version::V11 && !header.encrypted,
            Codec::Sealed(_) => header.encrypted,
        }
    }
}

fn protection_of(
    file: &dyn File,
    path: &Path,
    header: &Header,
    keys: &[EncryptionKey],
) -> Result<Protection, Error> {
    if header.version == Version::V11 {
        return Ok(Codec::Crc32.into());
    }
    if !header.encrypted {
        return Ok(Codec::Crc32c.into());
    }
    let metadata = metadata_header(file, path, header.offset.0)?;
    let metadata = metadata.ok_or_else(|| corrupt_metadata(path, DamageKind::MetadataHeader))?;
    let key = keys.iter().find(|key| key.id() == metadata.key_id);
    let key = key.ok_or_else(|| Error::KeyNeeded {
        file: path.to_owned(),
        key_id: metadata.key_id.clone(),
    })?;
    let file_key = key.file_key(metadata.version, &metadata.context);
    let file_key = file_key.map_err(|problem| corrupt_metadata(path, problem))?;
    Ok(Protection {
        codec: Codec::Sealed(Arc::new(file_key)),
        key_id: Some(metadata.key_id.into()),
    })
}

/// Returns the metadata header of a file; `None` if the file is not encrypted. It ends before `end`.
pub(crate) fn metadata_header(
    file: &dyn File,
    path: &Path,
    end: u64,
) -> Result<Option<EncryptionHeader>, Error> {
    let corrupt = |problem| corrupt_metadata(path, problem);
    let mut block = vec![0; end.min(u64::from(HEADER_BYTES_MAX) + 5) as usize];
    file.read_at(&mut block, 0)?;
    if block.first() != Some(&METADATA) {
        return Ok(None);
    }
    let body = header::framed_body(&block).map_err(corrupt)?;
    if block[5..9] != crc32c(body).to_be_bytes() {
        return Err(corrupt(DamageKind::HeaderChecksum));
    }
    EncryptionHeader::parse(body).map(Some).map_err(corrupt)
}

fn corrupt_metadata(path: &Path, problem: DamageKind) -> Error {
    Error::Corrupt {
        file: path.to_owned(),
        offset: Offset(0),
        problem,
    }
}
