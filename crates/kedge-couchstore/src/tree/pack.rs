//! Compression of a node: raw Snappy for any decoder, created by comparing each entry with the one before it.
//!
//! Consecutive entries of a node resemble each other field by field, so a search for matches with a hash table is
//! unnecessary: they are at the distance of the entry before. That is faster than a general compressor and no larger,
//! because it always finds the shortest distance.

use super::Tree;
use super::node::{FIRST_ENTRY, LEAF, entry_at};
use crate::compress::deflate_over;

/// Length of the shortest copy that saves space, in bytes.
const COPY_BYTES_MIN: usize = 4;
/// Distance from which a copy takes three bytes instead of two.
const NEAR_BYTES: usize = 2048;
/// Longest distance of a copy of three bytes.
const FAR_BYTES_MAX: usize = u16::MAX as usize;
/// Longest copy in one element, in bytes.
const COPY_BYTES_MAX: usize = 64;
/// Length up to which literals are copied with this fixed length, which takes one instruction.
const SHORT_BYTES: usize = 16;

/// Writes the compressed form of a node to `scratch`, which grows if necessary. Returns its length.
pub(crate) fn pack<T: Tree>(
    node: &[u8],
    encoder: &mut snap::raw::Encoder,
    scratch: &mut Vec<u8>,
) -> usize {
    let first = entry_at(node, FIRST_ENTRY).expect("no node is empty");
    let is_leaf = node[0] == LEAF;
    if is_leaf && T::tail_bytes(first.value).is_none() {
        return deflate_over(encoder, node, scratch);
    }
    // The copy after a literal saves two bytes or more. So only a literal of more than 256 bytes, whose tag has five,
    // makes the result longer than the node, and the last one, which has no copy after it.
    let longest = node.len() + node.len() / 64 + 5 + 5 + SHORT_BYTES;
    if scratch.len() < longest {
        scratch.resize(longest, 0);
    }
    let mut packer = NodePacker::new(node, scratch);
    let mut before = first;
    while let Some(entry) = entry_at(node, before.end()) {
        let tail = if is_leaf {
            T::tail_bytes(entry.value).expect("all entries of a tree have one")
        } else {
            entry.value.len()
        };
        let head_distance = entry.start - before.start;
        let tail_distance = entry.raw.len();
        if head_distance == tail_distance {
            packer.compare(entry.start, entry.end(), head_distance);
        } else {
            let split = entry.end() - tail;
            packer.compare(entry.start, split, head_distance);
            packer.compare(split, entry.end(), tail_distance);
        }
        before = entry;
    }
    packer.finish()
}

/// Number of bytes that are compared at a time.
const MASK_BYTES: usize = 64;

/// Returns a bit for each of eight bytes: 1 if it is equal in both.
fn equal_of_eight(eight: &[u8], other: &[u8]) -> u8 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // Moves the high bit of each byte, once it is its lowest, into the highest byte of the product, one beside the
    // other.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let differing = word(eight) ^ word(other);
    // The high bit of every byte that is zero.
    let zeros = !(((differing & LOW) + LOW) | differing | LOW);
    ((zeros >> 7).wrapping_mul(GATHER) >> 56) as u8
}

struct NodePacker<'a> {
    node: &'a [u8],
    out: &'a mut [u8],
    /// Number of written bytes of `out`.
    len: usize,
    /// Everything in the node before it is written.
    done: usize,
    /// Start of the run of equal bytes that extends to the current position.
    run: usize,
    /// Its distance; 0 if there is no run.
    distance: usize,
    /// The current position of the comparison.
    at: usize,
}

impl<'a> NodePacker<'a> {
    fn new(node: &'a [u8], out: &'a mut [u8]) -> Self {
        let mut packer = NodePacker {
            node,
            out,
            len: 0,
            done: 0,
            run: 0,
            distance: 0,
            at: 0,
        };
        let mut len = node.len();
        while len >= 0x80 {
            packer.put(&[len as u8 | 0x80]);
            len >>= 7;
        }
        packer.put(&[len as u8]);
        packer
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Compares the bytes from `from` to `to` with those that are `distance` before them.
    fn compare(&mut self, from: usize, to: usize, distance: usize) {
        if self.at != from || self.distance != distance {
            self.end_run();
        }
        let mut at = from.max(distance).min(to);
        while at < to {
            let len = (to - at).min(MASK_BYTES);
            let equal = self.equal(at, len, distance);
            self.take(at, len, equal, distance);
            at += len;
        }
        self.at = to;
    }

    /// Returns a bit for each of the `len` bytes at `at`: 1 if it equals the byte that is `distance` before it. No
    /// branch depends on the result, because differences are unpredictable.
    fn equal(&self, at: usize, len: usize, distance: usize) -> u64 {
        let (bytes, before) = (&self.node[at..], &self.node[at - distance..]);
        let mut equal = 0;
        if let (Some(bytes), Some(before)) = (bytes.first_chunk(), before.first_chunk()) {
            let (bytes, before): (&[u8; MASK_BYTES], &[u8; MASK_BYTES]) = (bytes, before);
            for (index, (eight, before)) in bytes.chunks(8).zip(before.chunks(8)).enumerate() {
                if index * 8 < len {
                    equal |= u64::from(equal_of_eight(eight, before)) << (index * 8);
                }
            }
            return equal & (u64::MAX >> (MASK_BYTES - len));
        }
        for (index, (byte, before)) in bytes.iter().zip(before).take(len).enumerate() {
            equal |= u64::from(byte == before) << index;
        }
        equal
    }

    /// Processes the `len` bytes at `at`, of which those with a bit in `equal` match the bytes that are `distance`
    /// before them.
    fn take(&mut self, at: usize, len: usize, equal: u64, distance: usize) {
        let mut done = 0;
        if self.distance != 0 {
            let more = equal.trailing_ones() as usize;
            self.at = at + more;
            if more == len {
                return;
            }
            self.end_run();
            done = more;
        }
        // The start of a run that is long enough for a copy, or may become so after `len`.
        let long = equal & (equal >> 1) & (equal >> 2) & (equal >> 3);
        let last = (equal << (MASK_BYTES - len)).leading_ones() as usize;
        let last = u64::from(last > 0) << ((len - last) % MASK_BYTES);
        let mut begins = (long | last) & (u64::MAX << done);
        while begins != 0 {
            let begin = begins.trailing_zeros() as usize;
            let run = (equal >> begin).trailing_ones() as usize;
            self.run = at + begin;
            self.distance = distance;
            self.at = self.run + run;
            if begin + run == len {
                return;
            }
            self.end_run();
            begins &= u64::MAX << (begin + run);
        }
    }

    /// Writes the run as a copy, if that is shorter.
    fn end_run(&mut self) {
        let distance = std::mem::take(&mut self.distance);
        let len = self.at - self.run;
        let min = COPY_BYTES_MIN + usize::from(distance >= NEAR_BYTES);
        if distance == 0 || distance > FAR_BYTES_MAX || len < min {
            return;
        }
        self.literal(self.run);
        self.done = self.at;
        let mut left = len;
        while left > COPY_BYTES_MAX {
            // The rest has to be long enough for a copy.
            let now = (left - COPY_BYTES_MIN).min(COPY_BYTES_MAX);
            self.copy(now, distance);
            left -= now;
        }
        self.copy(left, distance);
    }

    fn copy(&mut self, len: usize, distance: usize) {
        if len < 12 && distance < NEAR_BYTES {
            let tag = 1 | (len - 4) << 2 | (distance >> 8) << 5;
            self.put(&[tag as u8, distance as u8]);
        } else {
            let tag = 2 | (len - 1) << 2;
            self.put(&[tag as u8, distance as u8, (distance >> 8) as u8]);
        }
    }

    /// Writes everything before `to` that is not written yet as a literal.
    fn literal(&mut self, to: usize) {
        let from = self.done;
        let bytes = to - from;
        let Some(last) = bytes.checked_sub(1) else {
            return;
        };
        match last {
            0..60 => self.put(&[(last << 2) as u8]),
            60..0x100 => self.put(&[60 << 2, last as u8]),
            _ => {
                self.put(&[63 << 2]);
                self.put(&(last as u32).to_le_bytes());
            }
        }
        if bytes <= SHORT_BYTES && from + SHORT_BYTES <= self.node.len() {
            let short = &self.node[from..from + SHORT_BYTES];
            self.out[self.len..self.len + SHORT_BYTES].copy_from_slice(short);
            self.len += bytes;
        } else {
            let bytes = &self.node[from..to];
            self.put(bytes);
        }
    }

    fn finish(mut self) -> usize {
        self.end_run();
        self.literal(self.node.len());
        self.len
    }
}

#[cfg(test)]
mod tests;
