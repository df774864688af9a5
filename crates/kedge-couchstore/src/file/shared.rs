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

/// An open file. It never changes after the open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: Box<dyn File>,
    path: PathBuf,
    codec: Codec,
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
        let codec = codec_of(&*file, path, header, &options.keys)?;
        Ok(Arc::new(OpenFile::new(file, path, codec, options)))
    }

    /// Finds the newest header of an open file.
    pub(crate) fn of_file(
        file: Box<dyn File>,
        path: &Path,
        options: &Options,
    ) -> Result<(Arc<Self>, NewestHeader), Error> {
        let found = find::newest(&*file, path, file.len()?, options.on_damage)?;
        let codec = codec_of(&*file, path, &found.header, &options.keys)?;
        let shared = OpenFile::new(file, path, codec, options);
        Ok((Arc::new(shared), found))
    }

    pub(crate) fn new(file: Box<dyn File>, path: &Path, codec: Codec, options: &Options) -> Self {
        OpenFile {
            file,
            path: path.to_owned(),
            codec,
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
        &self.codec
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
        match &self.codec {
            Codec::Crc32 => header.version == Version::V11,
            Codec::Crc32c => header.version > Version::V11 && !header.encrypted,
            Codec::Sealed(_) => header.encrypted,
        }
    }
}

fn codec_of(
    file: &dyn File,
    path: &Path,
    header: &Header,
    keys: &[EncryptionKey],
) -> Result<Codec, Error> {
    if header.version == Version::V11 {
        return Ok(Codec::Crc32);
    }
    if !header.encrypted {
        return Ok(Codec::Crc32c);
    }
    let corrupt = |problem| Error::Corrupt {
        file: path.to_owned(),
        offset: Offset(0),
        problem,
    };
    let mut block = vec![0; header.offset.0.min(u64::from(HEADER_BYTES_MAX) + 5) as usize];
    file.read_at(&mut block, 0)?;
    if block.first() != Some(&METADATA) {
        return Err(corrupt(DamageKind::MetadataHeader));
    }
    let body = header::framed_body(&block).map_err(corrupt)?;
    if block[5..9] != crc32c(body).to_be_bytes() {
        return Err(corrupt(DamageKind::HeaderChecksum));
    }
    let metadata = EncryptionHeader::parse(body).map_err(corrupt)?;
    let key = keys.iter().find(|key| key.id() == metadata.key_id);
    let key = key.ok_or_else(|| Error::KeyNeeded {
        file: path.to_owned(),
        key_id: metadata.key_id.clone(),
    })?;
    let file_key = key.file_key(metadata.version, &metadata.context);
    Ok(Codec::Sealed(Arc::new(file_key.map_err(corrupt)?)))
}
