//! Reading the access log.

use super::format::{self, AccessLogError, BLOCK_HEADER_BYTES, BlockHeader, HEADER_BYTES};
use super::seal::{HEAD_BYTES_MAX, LogSeal, key_of_head};
use super::{NAME, NAME_WHILE_WRITTEN};
use kedge_bucket_core::{BucketCore, BucketError};
use kedge_disk::DiskError;
use kedge_types::VbId;

/// Returns keys of the access log, those that were used most first, about `max` of them.
pub(crate) fn read_access_log(core: &BucketCore, max: u64) -> Vec<(VbId, Vec<Box<[u8]>>)> {
    let path = core.setup.dir.join(NAME);
    let mut blocks = Vec::new();
    // The next log would replace it, and until then it may be in plain text.
    let incomplete = core.setup.dir.join(NAME_WHILE_WRITTEN);
    if core.setup.disk.exists(&incomplete).unwrap_or(false) {
        let _ = core.setup.disk.remove(&incomplete);
    }
    let why = match read_blocks(core, max, &mut blocks) {
        Ok(Ok(())) => return blocks,
        Ok(Err(unusable)) => unusable.to_string(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(
        bucket = core.name(),
        file = %path.display(),
        why,
        "the access log, or the rest of it, is ignored"
    );
    blocks
}

fn read_blocks(
    core: &BucketCore,
    max: u64,
    blocks: &mut Vec<(VbId, Vec<Box<[u8]>>)>,
) -> Result<Result<(), AccessLogError>, BucketError> {
    let path = core.setup.dir.join(NAME);
    if !core.setup.disk.exists(&path)? {
        return Ok(Ok(()));
    }
    let file = core.setup.disk.open(&path)?;
    let len = file.len()?;
    if len < (HEADER_BYTES + BLOCK_HEADER_BYTES) as u64 {
        return Ok(Err(AccessLogError::Damaged));
    }
    let mut header = [0; HEADER_BYTES];
    file.read_at(&mut header, 0)?;
    let uuid = core.setup.config.uuid_bytes().unwrap_or_default();
    let is_encrypted = match format::check_header(&header, uuid) {
        Ok(is_encrypted) => is_encrypted,
        Err(unusable) => return Ok(Err(unusable)),
    };
    let mut at = HEADER_BYTES as u64;
    let mut seal = None;
    if is_encrypted {
        let mut head = vec![0; (len - at).min(HEAD_BYTES_MAX as u64) as usize];
        file.read_at(&mut head, at)?;
        let keys = core.setup.keyring.as_ref().map(|keyring| keyring.keys());
        match LogSeal::read(&head, keys.as_deref()) {
            Ok((read, bytes)) => {
                seal = Some(read);
                at += bytes as u64;
            }
            Err(unusable) => return Ok(Err(unusable)),
        }
    }
    let mut keys = 0;
    let mut payload = Vec::new();
    while keys < max {
        let mut header = [0; BLOCK_HEADER_BYTES];
        let begins = at + BLOCK_HEADER_BYTES as u64;
        if begins > len {
            return Ok(Err(AccessLogError::Damaged));
        }
        file.read_at(&mut header, at)?;
        let block = match BlockHeader::parse(&header) {
            Ok(block) if begins + block.bytes as u64 <= len => block,
            _ => return Ok(Err(AccessLogError::Damaged)),
        };
        payload.resize(block.bytes, 0);
        file.read_at(&mut payload, begins)?;
        let found = match block.keys(seal.as_ref(), at, &mut payload) {
            Ok(found) => found,
            Err(unusable) => return Ok(Err(unusable)),
        };
        let Some(vb) = block.vb else {
            break;
        };
        if vb.get() >= core.vbucket_count() {
            return Ok(Err(AccessLogError::Damaged));
        }
        keys += found.len() as u64;
        blocks.push((vb, found));
        at = begins + block.bytes as u64;
    }
    Ok(Ok(()))
}

/// Removes an access log that is not encrypted like new data.
pub(crate) fn remove_access_log_of_another_key(core: &BucketCore) {
    let path = core.setup.dir.join(NAME);
    let keys = core.setup.keyring.as_ref().map(|keyring| keyring.keys());
    let active = keys.as_ref().and_then(|keys| keys.active());
    let active = active.map(|key| key.id().to_owned());
    let removed = match key_of_file(core) {
        Ok(Some(key)) if key != active => core.setup.disk.remove(&path),
        Ok(_) => return,
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        let bucket = core.name();
        tracing::warn!(bucket, %error, "an access log of another key cannot be removed");
    }
}

/// Returns the name of the key of the access log, `Some(None)` if it is in plain text, and `None` if there is none.
fn key_of_file(core: &BucketCore) -> Result<Option<Option<String>>, DiskError> {
    let path = core.setup.dir.join(NAME);
    if !core.setup.disk.exists(&path)? {
        return Ok(None);
    }
    let file = core.setup.disk.open(&path)?;
    let bytes = file.len()?.min((HEADER_BYTES + HEAD_BYTES_MAX) as u64);
    let mut bytes = vec![0; bytes as usize];
    file.read_at(&mut bytes, 0)?;
    let Some((header, head)) = bytes.split_first_chunk() else {
        return Ok(Some(None));
    };
    let uuid = core.setup.config.uuid_bytes().unwrap_or_default();
    let is_encrypted = format::check_header(header, uuid) == Ok(true);
    let key = is_encrypted.then(|| key_of_head(head).map(str::to_owned));
    Ok(Some(key.flatten()))
}
