//! Batches of mutations, in the caller's order, and the orders that the trees need.

use kedge_types::{RevSeqno, Seqno};

use crate::limits::{BODY_BYTES_MAX, KEY_BYTES_MAX, REV_META_BYTES_MAX, U48_MAX};
use crate::{ContentMeta, InvalidBatch};

/// A document or tombstone to store.
#[derive(Debug, Clone, Copy)]
pub struct Mutation<'a> {
    /// The stored key, of 1 to 4095 bytes.
    pub key: &'a [u8],
    /// The seqno, above all seqnos in the file.
    pub seqno: Seqno,
    /// The revision: the number of changes of the document.
    pub rev: RevSeqno,
    /// `true` for a tombstone.
    pub deleted: bool,
    /// The type of the body. The writer sets [`ContentMeta::COMPRESSED`] if it compresses.
    pub content_meta: ContentMeta,
    /// Private metadata: CAS, expiry, flags, datatype, as the owner of the file encodes them.
    pub rev_meta: &'a [u8],
    /// The body.
    pub body: MutationBody<'a>,
}

/// The body of a [`Mutation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MutationBody<'a> {
    /// No body. A tombstone of Couchbase has `Stored(&[])` instead.
    None,
    /// Stored unchanged.
    Stored(&'a [u8]),
    /// Compressed by the writer, which sets the flag in the content metadata.
    Compress(&'a [u8]),
}

impl<'a> MutationBody<'a> {
    /// Returns the bytes as given.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        match self {
            MutationBody::None => &[],
            MutationBody::Stored(body) | MutationBody::Compress(body) => body,
        }
    }
}

/// An order of the mutations of a batch.
#[derive(Debug)]
pub(crate) enum BatchOrder {
    AsGiven(usize),
    Indices(Vec<u32>),
}

impl BatchOrder {
    pub(crate) fn len(&self) -> usize {
        match self {
            BatchOrder::AsGiven(len) => *len,
            BatchOrder::Indices(indices) => indices.len(),
        }
    }

    /// Returns the index of the mutation at this position of the order.
    pub(crate) fn get(&self, at: usize) -> usize {
        match self {
            BatchOrder::AsGiven(_) => at,
            BatchOrder::Indices(indices) => indices[at] as usize,
        }
    }
}

/// Rejects values that no field can hold.
pub(crate) fn check_fields(batch: &[Mutation<'_>], newest: Seqno) -> Result<(), InvalidBatch> {
    if u32::try_from(batch.len()).is_err() {
        return Err(InvalidBatch::BatchLength);
    }
    for (index, mutation) in batch.iter().enumerate() {
        if mutation.key.is_empty() || mutation.key.len() > KEY_BYTES_MAX {
            return Err(InvalidBatch::KeyLength(index));
        }
        let Mutation { seqno, rev, .. } = *mutation;
        if seqno.0 == 0 || seqno.0 > U48_MAX || rev.0 > U48_MAX {
            return Err(InvalidBatch::NumberRange(index));
        }
        if seqno <= newest {
            return Err(InvalidBatch::OldSeqno { seqno, newest });
        }
        let body = match mutation.body {
            MutationBody::None => 0,
            MutationBody::Stored(body) => body.len(),
            MutationBody::Compress(body) => snap::raw::max_compress_len(body.len()).max(body.len()),
        };
        if body > BODY_BYTES_MAX {
            return Err(InvalidBatch::BodyLength(index));
        }
        if mutation.rev_meta.len() > REV_META_BYTES_MAX {
            return Err(InvalidBatch::ValueLength(index));
        }
    }
    Ok(())
}

/// Returns the order by key. No two keys may be equal.
pub(crate) fn by_key(batch: &[Mutation<'_>]) -> Result<BatchOrder, InvalidBatch> {
    if batch.windows(2).all(|pair| pair[0].key < pair[1].key) {
        return Ok(BatchOrder::AsGiven(batch.len()));
    }
    // The keys of a batch often have a common prefix. With the bytes after it in the sorted array itself, few
    // comparisons have to access the keys.
    let common = common_prefix(batch);
    let mut order: Vec<(u64, u32)> = batch
        .iter()
        .enumerate()
        .map(|(index, mutation)| (prefix(&mutation.key[common..]), index as u32))
        .collect();
    let key = |index: u32| batch[index as usize].key;
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))));
    let mut indices = Vec::with_capacity(order.len());
    indices.extend(order.iter().map(|(_, index)| *index));
    let equal = order
        .windows(2)
        .find(|pair| pair[0].0 == pair[1].0 && key(pair[0].1) == key(pair[1].1));
    if let Some(pair) = equal {
        let (a, b) = (pair[0].1 as usize, pair[1].1 as usize);
        return Err(InvalidBatch::DuplicateKey(a.min(b), a.max(b)));
    }
    Ok(BatchOrder::Indices(indices))
}

/// Returns the order by seqno. No two seqnos may be equal.
pub(crate) fn by_seqno(batch: &[Mutation<'_>]) -> Result<BatchOrder, InvalidBatch> {
    if batch.windows(2).all(|pair| pair[0].seqno < pair[1].seqno) {
        return Ok(BatchOrder::AsGiven(batch.len()));
    }
    let mut indices: Vec<u32> = (0..batch.len() as u32).collect();
    let seqno = |index: u32| batch[index as usize].seqno;
    indices.sort_unstable_by_key(|index| seqno(*index));
    let equal = indices
        .windows(2)
        .find(|pair| seqno(pair[0]) == seqno(pair[1]));
    if let Some(pair) = equal {
        return Err(InvalidBatch::DuplicateSeqno(seqno(pair[0])));
    }
    Ok(BatchOrder::Indices(indices))
}

/// Returns the length of the common prefix of all keys, in bytes.
fn common_prefix(batch: &[Mutation<'_>]) -> usize {
    let Some(first) = batch.first() else {
        return 0;
    };
    let mut common = first.key;
    for mutation in batch {
        if !mutation.key.starts_with(common) {
            let equal = common
                .iter()
                .zip(mutation.key)
                .take_while(|(a, b)| a == b)
                .count();
            common = &common[..equal];
        }
    }
    common.len()
}

/// Returns the first eight bytes as a number with the same order. Shorter keys are padded with zeros, so equal numbers
/// do not mean equal keys.
fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

#[cfg(test)]
mod tests;
