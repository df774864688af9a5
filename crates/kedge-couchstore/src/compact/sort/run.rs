//! A run: records in contiguous memory, and their sort order.

use super::record;

/// Size of one entry of the order, in bytes.
const INDEX_BYTES: usize = size_of::<(u64, u32)>();
/// Share of the memory for records; the rest is for their order. With typical key lengths both are full at the same
/// time.
const RECORDS_SHARE: (usize, usize) = (4, 5);
/// Lower bound of the memory, in bytes.
const CAPACITY_BYTES_MIN: usize = 4 << 10;

/// Records that are sorted together.
#[derive(Debug)]
pub(super) struct SortedRun {
    bytes: Vec<u8>,
    /// A part of each key as a number with the same order, and the start of its record.
    order: Vec<(u64, u32)>,
    bytes_max: usize,
    records_max: usize,
    /// Length of the common prefix of all keys, in bytes.
    common: usize,
    /// `true` if the keys arrived in ascending order.
    is_ascending: bool,
}

impl SortedRun {
    pub(super) fn new(memory_bytes: usize) -> Self {
        let bytes_max = memory_bytes / RECORDS_SHARE.1 * RECORDS_SHARE.0;
        SortedRun {
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

    /// Returns `true` if a record of `record_bytes` fits. The first one always does.
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
        // The common prefix has no information. With the bytes after it in the array itself, few comparisons have to
        // access the records.
        for (prefix, at) in &mut self.order {
            *prefix = prefix_of(&key(*at)[self.common..]);
        }
        self.order
            .sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))));
    }

    /// Returns the record at this index of the order.
    pub(super) fn record(&self, number: usize) -> &[u8] {
        let at = self.order[number].1 as usize;
        record::first(&self.bytes[at..]).expect("it was put there")
    }

    /// Returns the capacity in bytes of records, and in records.
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

/// Makes room for `more` elements by doubling, limited to `max`, because plain doubling would take twice the limit.
fn grow<T>(elements: &mut Vec<T>, more: usize, min: usize, max: usize) {
    let needed = elements.len() + more;
    if elements.capacity() < needed {
        let wanted = (elements.capacity() * 2).max(min).min(max).max(needed);
        elements.reserve_exact(wanted - elements.len());
    }
}

/// Returns the first eight bytes as a number with the same order. Shorter keys are padded with zeros, so equal numbers
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
