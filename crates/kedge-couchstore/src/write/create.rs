//! New files (couchstore file format, section 4.1).

use std::path::Path;
use std::sync::Arc;

use kedge_disk::{Disk, File};

use super::Writer;
use crate::crypto::EncryptionKey;
use crate::file::shared::{OpenFile, Protection};
use crate::format::block::{DATA, HEADER, METADATA};
use crate::format::chunk::Codec;
use crate::format::header::{self, Header, Version};
use crate::format::metadata::{self, EncryptionHeader};
use crate::limits::BLOCK_BYTES;
use crate::{DamageKind, Error, InvalidBatch, Offset, Options};

/// The properties of a new file.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// The version of the format: [`Version::V13`] for tools of Couchbase 7.0 to 7.6, else [`Version::V14`].
    pub version: Version,
    /// The encryption key; requires version 14.
    pub encryption: Option<EncryptionKey>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions {
            version: Version::V14,
            encryption: None,
        }
    }
}

impl Writer {
    /// Creates a file with an empty header. Later opens find it once the first commit has returned, and its name is
    /// durable once the directory was synced.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`InvalidBatch::Version`]; disk errors.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        create: &CreateOptions,
        options: &Options,
    ) -> Result<Self, Error> {
        check_version(create)?;
        at_start(new_file(disk, path)?, path, create, options)
    }

    /// Creates a file without a header, for a copy of another file. Its only header will be that of its first commit,
    /// which states a previous one at 0, where there is none. Version 11 is possible here, for copies of such files.
    pub(crate) fn create_target(
        disk: &dyn Disk,
        path: &Path,
        create: &CreateOptions,
        options: &Options,
    ) -> Result<Self, Error> {
        if create.version != Version::V11 || create.encryption.is_some() {
            check_version(create)?;
        }
        let file = new_file(disk, path)?;
        let (protection, start) = begin(&*file, create)?;
        let shared = Arc::new(OpenFile::new(file, path, protection, options));
        let header = Header::empty(Offset(0), create.version, create.encryption.is_some());
        let mut position = start;
        if start == 0 {
            // Offset 0 means "none" in every pointer, so nothing may be there.
            shared.file().write_at(&[DATA], 0)?;
            position = 1;
        }
        Ok(Writer::new(shared, header, position))
    }
}

fn check_version(create: &CreateOptions) -> Result<(), Error> {
    let enough = if create.encryption.is_some() {
        Version::V14
    } else {
        Version::V13
    };
    if create.version < enough {
        return Err(InvalidBatch::Version.into());
    }
    Ok(())
}

fn new_file(disk: &dyn Disk, path: &Path) -> Result<Box<dyn File>, Error> {
    if disk.exists(path)? {
        return Err(Error::Exists {
            file: path.to_owned(),
        });
    }
    Ok(disk.create(path)?)
}

/// Writes the first header of an empty file.
pub(super) fn at_start(
    file: Box<dyn File>,
    path: &Path,
    create: &CreateOptions,
    options: &Options,
) -> Result<Writer, Error> {
    let (protection, start) = begin(&*file, create)?;
    let header = Header::empty(Offset(start), create.version, create.encryption.is_some());
    let mut bytes = Vec::new();
    header.put(HEADER, &mut bytes);
    file.write_at(&bytes, start)?;
    let shared = Arc::new(OpenFile::new(file, path, protection, options));
    let end = start + bytes.len() as u64;
    Ok(Writer::new(shared, header.into_read(), end))
}

/// Writes the metadata header, if one is required. Returns the offset of the first header.
fn begin(file: &dyn File, create: &CreateOptions) -> Result<(Protection, u64), Error> {
    let Some(key) = &create.encryption else {
        let codec = match create.version {
            Version::V11 => Codec::Crc32,
            _ => Codec::Crc32c,
        };
        return Ok((codec.into(), 0));
    };
    let mut context = vec![0; metadata::CONTEXT_BYTES];
    getrandom::fill(&mut context).expect("the system has random numbers");
    let metadata = EncryptionHeader {
        version: metadata::VERSION,
        key_id: key.id().to_owned(),
        context,
    };
    let file_key = key
        .file_key(metadata.version, &metadata.context)
        .unwrap_or_else(|problem: DamageKind| unreachable!("a new metadata header: {problem}"));
    let mut body = Vec::new();
    metadata.put(&mut body);
    let mut block = Vec::new();
    header::put_framed(METADATA, &body, &mut block);
    file.write_at(&block, 0)?;
    let protection = Protection {
        codec: Codec::Sealed(Arc::new(file_key)),
        key_id: Some(metadata.key_id.into()),
    };
    Ok((protection, BLOCK_BYTES))
}
