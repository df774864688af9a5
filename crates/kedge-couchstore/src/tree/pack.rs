//! Compressing a node: raw Snappy that any decoder reads, made by comparing each entry with the one before it.
//!
//! Entries that follow each other in a node resemble each other field by field, so there is no need to search for
//! matches with a table: they are at the distance of the entry before. That is faster than a general compressor and,
//! as it finds the shortest distance every time, no larger.

use super::Tree;
use super::node::{FIRST_ENTRY, LEAF, entry_at};
use crate::compress::deflate;

/// Copies shorter than this take more than they save.
const COPY_BYTES_MIN: usize = 4;
/// From this distance on a copy takes three bytes instead of two.
const NEAR_BYTES: usize = 2048;
/// Longest distance of a copy of three bytes.
const FAR_BYTES_MAX: usize = u16::MAX as usize;
/// Longest copy in one element.
const COPY_BYTES_MAX: usize = 64;

/// Appends the compressed form of a node to `out`.
pub(crate) fn pack<T: Tree>(node: &[u8], encoder: &mut snap::raw::Encoder, out: &mut Vec<u8>) {
    let first = entry_at(node, FIRST_ENTRY).expect("no node is empty");
    let is_leaf = node[0] == LEAF;
    if is_leaf && T::tail_bytes(first.value).is_none() {
        deflate(encoder, node, out);
        return;
    }
    let mut packer = Packer::new(node, out);
    let mut before = first;
    while let Some(entry) = entry_at(node, before.end()) {
        let tail = if is_leaf {
            T::tail_bytes(entry.value).expect("all entries of a tree have one")
        } else {
            entry.value.len()
        };
        let head_distance = entry.start - before.start;
        let tail_distance = entry.raw.len();
        let split = entry.end() - tail;
        if head_distance == tail_distance {
            packer.compare(entry.start, entry.end(), head_distance);
        } else {
            packer.compare(entry.start, split, head_distance);
            packer.compare(split, entry.end(), tail_distance);
        }
        before = entry;
    }
    packer.finish();
}

struct Packer<'a> {
    node: &'a [u8],
    out: &'a mut Vec<u8>,
    /// Everything before it is in `out`.
    done: usize,
    /// Start of the run of equal bytes that reaches up to where the comparison stands.
    run: usize,
    /// Its distance; 0 if there is no run.
    distance: usize,
    /// Where the comparison stands.
    at: usize,
}

impl<'a> Packer<'a> {
    fn new(node: &'a [u8], out: &'a mut Vec<u8>) -> Self {
        let mut len = node.len();
        while len >= 0x80 {
            out.push(len as u8 | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        Packer {
            node,
            out,
            done: 0,
            run: 0,
            distance: 0,
            at: 0,
        }
    }

    /// Compares the bytes from `from` to `to` with those that are `distance` before them.
    fn compare(&mut self, from: usize, to: usize, distance: usize) {
        if self.at != from || self.distance != distance {
            self.end_run();
        }
        let mut at = from.max(distance).min(to);
        while at < to {
            let equal = self.equal_bytes(at, to, distance);
            if equal > 0 && self.distance == 0 {
                self.run = at;
                self.distance = distance;
            }
            at += equal;
            self.at = at;
            if at < to {
                self.end_run();
                at += 1;
                while at < to && self.node[at] != self.node[at - distance] {
                    at += 1;
                }
            }
        }
        self.at = to;
    }

    /// How many bytes from `at` on are those that are `distance` before them.
    fn equal_bytes(&self, at: usize, to: usize, distance: usize) -> usize {
        let here = &self.node[at..to];
        let there = &self.node[at - distance..to - distance];
        let mut equal = 0;
        for (a, b) in here.chunks_exact(8).zip(there.chunks_exact(8)) {
            let differ = u64::from_le_bytes(a.try_into().expect("eight bytes"))
                ^ u64::from_le_bytes(b.try_into().expect("eight bytes"));
            if differ != 0 {
                return equal + differ.trailing_zeros() as usize / 8;
            }
            equal += 8;
        }
        while equal < here.len() && here[equal] == there[equal] {
            equal += 1;
        }
        equal
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
            // What is left has to be long enough for a copy.
            let now = (left - COPY_BYTES_MIN).min(COPY_BYTES_MAX);
            self.copy(now, distance);
            left -= now;
        }
        self.copy(left, distance);
    }

    fn copy(&mut self, len: usize, distance: usize) {
        if len < 12 && distance < NEAR_BYTES {
            let tag = 1 | (len - 4) << 2 | (distance >> 8) << 5;
            self.out.extend_from_slice(&[tag as u8, distance as u8]);
        } else {
            let tag = 2 | (len - 1) << 2;
            self.out
                .extend_from_slice(&[tag as u8, distance as u8, (distance >> 8) as u8]);
        }
    }

    /// Writes everything before `to` that was not written yet as it is.
    fn literal(&mut self, to: usize) {
        let bytes = &self.node[self.done..to];
        let Some(last) = bytes.len().checked_sub(1) else {
            return;
        };
        match last {
            0..60 => self.out.push((last << 2) as u8),
            60..0x100 => self.out.extend_from_slice(&[60 << 2, last as u8]),
            _ => {
                self.out.push(63 << 2);
                self.out.extend_from_slice(&(last as u32).to_le_bytes());
            }
        }
        self.out.extend_from_slice(bytes);
    }

    fn finish(mut self) {
        self.end_run();
        self.literal(self.node.len());
    }
}

#[cfg(test)]
mod tests;
