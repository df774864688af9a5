//! Reading the access log.

use super::NAME;
use super::format::{self, AccessLogError, BLOCK_HEADER_BYTES, BlockHeader, HEADER_BYTES};
use kedge_bucket_core::{BucketCore, BucketError};
use kedge_types::VbId;

/// Returns keys of the access log, those that were used most first, about `max` of them.
pub(crate) fn read_access_log(core: &BucketCore, max: u64) -> Vec<(VbId, Vec<Box<[u8]>>)> {
    let path = core.setup.dir.join(NAME);
    let mut blocks = Vec::new();
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
    if let Err(unusable) = format::check_header(&header, uuid) {
        return Ok(Err(unusable));
    }
    let mut at = HEADER_BYTES as u64;
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
        let found = match block.keys(&payload) {
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
