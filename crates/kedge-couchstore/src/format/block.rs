//! Blocks: every 4096 bytes of a file begin with a type byte, and payload flows around those bytes (couchstore file
//! format, section 1.1).
//!
//! Invariant: a position that is a multiple of 4096 is *before* the type byte. A writer at that position writes the
//! byte first, and a reader skips it.

use crate::limits::BLOCK_BYTES;

/// Type byte of a block that begins with data.
pub(crate) const DATA: u8 = 0;
/// Type byte of a block that begins with a header.
pub(crate) const HEADER: u8 = 1;
/// Type byte of the first block of an encrypted file.
pub(crate) const METADATA: u8 = 2;

/// Size of the payload of a whole block, in bytes.
const PAYLOAD: u64 = BLOCK_BYTES - 1;

/// Returns the end of `payload` bytes that are written at `pos`.
pub(crate) fn end_of(pos: u64, payload: u64) -> u64 {
    if payload == 0 {
        return pos;
    }
    // Counted from the start of the block, the bytes written and those before them are payload.
    let before = (pos % BLOCK_BYTES).saturating_sub(1);
    let all = before + payload;
    let blocks = (all - 1) / PAYLOAD;
    pos - pos % BLOCK_BYTES + blocks * BLOCK_BYTES + 1 + (all - blocks * PAYLOAD)
}

/// Returns the first block that begins at or after `pos`.
pub(crate) fn boundary(pos: u64) -> u64 {
    pos.next_multiple_of(BLOCK_BYTES)
}

/// Returns the number of raw bytes to skip to reach `payload` bytes at `pos` that no type byte interrupts; `None` if
/// one does.
pub(crate) fn uninterrupted(pos: u64, payload: u64) -> Option<usize> {
    let within = pos % BLOCK_BYTES;
    let skip = u64::from(within == 0);
    (within + skip + payload <= BLOCK_BYTES).then_some(skip as usize)
}

/// Appends `payload` bytes from `raw`, the bytes of the file from `pos` on, to `out`. `raw` has to extend to
/// [`end_of`].
pub(crate) fn strip(pos: u64, mut raw: &[u8], payload: usize, out: &mut Vec<u8>) {
    let mut left = payload;
    let mut within = pos % BLOCK_BYTES;
    out.reserve(payload);
    while left > 0 {
        if within == 0 {
            raw = &raw[1..];
            within = 1;
        }
        let take = left.min((BLOCK_BYTES - within) as usize);
        let (now, rest) = raw.split_at(take);
        out.extend_from_slice(now);
        raw = rest;
        left -= take;
        within = 0;
    }
}

/// Appends `payload` to `out`, raw bytes that end at `pos` of the file, with the type bytes of data blocks.
pub(crate) fn insert(mut pos: u64, mut payload: &[u8], out: &mut Vec<u8>) {
    while !payload.is_empty() {
        if pos.is_multiple_of(BLOCK_BYTES) {
            out.push(DATA);
            pos += 1;
        }
        let room = (BLOCK_BYTES - pos % BLOCK_BYTES) as usize;
        let (now, rest) = payload.split_at(payload.len().min(room));
        out.extend_from_slice(now);
        pos += now.len() as u64;
        payload = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule, byte by byte.
    fn naive_insert(mut pos: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for byte in payload {
            if pos.is_multiple_of(4096) {
                out.push(0);
                pos += 1;
            }
            out.push(*byte);
            pos += 1;
        }
        out
    }

    #[test]
    fn payload_flows_around_type_bytes() {
        let starts = [0, 1, 2, 4094, 4095, 4096, 4097, 8191, 12_288, 20_000];
        let lengths = [
            0, 1, 2, 3, 4094, 4095, 4096, 4097, 8189, 8190, 8191, 8192, 20_000,
        ];
        for pos in starts {
            for len in lengths {
                let payload: Vec<u8> = (0..len).map(|n| (n % 251) as u8 + 1).collect();
                let raw = naive_insert(pos, &payload);
                assert_eq!(end_of(pos, len), pos + raw.len() as u64, "{len} at {pos}");
                let mut out = Vec::new();
                insert(pos, &payload, &mut out);
                assert_eq!(out, raw, "{len} at {pos}");
                let mut back = Vec::new();
                strip(pos, &raw, payload.len(), &mut back);
                assert_eq!(back, payload, "{len} at {pos}");
                match uninterrupted(pos, len) {
                    Some(skip) => assert_eq!(&raw[skip.min(raw.len())..], payload),
                    None => assert!(raw[1..].contains(&0), "{len} at {pos}"),
                }
            }
        }
    }
}
