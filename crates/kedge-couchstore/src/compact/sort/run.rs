//! A run: records in one piece of memory, and the order in which to visit them.

use super::record;

/// Bytes of one entry of the order.
const INDEX_BYTES: usize = size_of::<(u64, u32)>();
/// How much of the memory is for records; the rest is for their order. With the usual lengths of keys both are full at
/// the same time.
const RECORDS_SHARE: (usize, usize) = (4, 5);
/// Memory is this much at least, in bytes.
const CAPACITY_BYTES_MIN: usize = 4 << 10;

/// Records that are sorted together.
#[derive(Debug)]
pub(super) struct Run {
    bytes: Vec<u8>,
    /// Bytes of a key as a number that orders as they do, and where its record starts.
    order: Vec<(u64, u32)>,
    bytes_max: usize,
    records_max: usize,
    /// How many bytes all keys begin with.
    common: usize,
    /// Whether the keys came in their order.
    is_ascending: bool,
}

impl Run {
    pub(super) fn new(memory_bytes: usize) -> Self {
        let bytes_max = memory_bytes / RECORDS_SHARE.1 * RECORDS_SHARE.0;
        Run {
            bytes: Vec::new(),
            order: Vec::new(),
            bytes_max,
            records_max: (memory_bytes - bytes_max) / INDEX_BYTES,
            common: usize::MAX,
            is_ascending: true,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether a record of so many bytes fits. One always does.
    pub(super) fn has_room(&self, record_bytes: usize) -> bool {
        let fits = self.bytes.len() + record_bytes <= self.bytes_max
            && self.order.len() < self.records_max;
        fits || self.order.is_empty()
    }

    pub(super) fn push(
        &mut self,
        key: &[u8],
        value_bytes: usize,
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        let record_bytes = record::bytes(key, value_bytes);
        grow(
            &mut self.bytes,
            record_bytes,
            CAPACITY_BYTES_MIN,
            self.bytes_max,
        );
        let records_min = CAPACITY_BYTES_MIN / INDEX_BYTES;
        grow(&mut self.order, 1, records_min, self.records_max);
        if let Some((_, last)) = self.order.last() {
            let first = record::key(&self.bytes);
            let common = self.common.min(key.len());
            if !first.starts_with(&key[..common]) {
                let pairs = first.iter().zip(key);
                self.common = pairs.take_while(|(a, b)| a == b).count();
            } else {
                self.common = common;
            }
            let last = record::key(&self.bytes[*last as usize..]);
            self.is_ascending &= last <= key;
        } else {
            self.common = key.len();
        }
        self.order.push((0, self.bytes.len() as u32));
        record::put(key, value_bytes, value, &mut self.bytes);
    }

    pub(super) fn sort(&mut self) {
        if self.is_ascending {
            return;
        }
        let bytes = &*self.bytes;
        let key = |at: u32| record::key(&bytes[at as usize..]);
        // What keys have in common tells nothing. With the bytes behind it in the array itself, few comparisons have
        // to look at the records.
        for (prefix, at) in &mut self.order {
            *prefix = prefix_of(&key(*at)[self.common..]);
        }
        self.order
            .sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))));
    }

    /// The record at this place of the order.
    pub(super) fn record(&self, number: usize) -> &[u8] {
        let at = self.order[number].1 as usize;
        record::first(&self.bytes[at..]).expect("it was put there")
    }

    /// Room for bytes of records, and for records.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> (usize, usize) {
        (self.bytes.capacity(), self.order.capacity())
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.order.clear();
        self.common = usize::MAX;
        self.is_ascending = true;
    }
}

/// Makes room for `more` elements by doubling, but up to `max`: twice what is allowed would be taken otherwise.
fn grow<T>(elements: &mut Vec<T>, more: usize, min: usize, max: usize) {
    let needed = elements.len() + more;
    if elements.capacity() < needed {
        let wanted = (elements.capacity() * 2).max(min).min(max).max(needed);
        elements.reserve_exact(wanted - elements.len());
    }
}

/// The first eight bytes as a number that orders as they do. Shorter keys are filled up with zeros, so equal numbers
/// do not mean equal keys.
fn prefix_of(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}
