//! A heap of (time, id), earliest first, whose entries are found by a linear search, as in the old design.
//!
//! Invariant: no entry is earlier than its parent, which stands at half its index.

/// The heap; see the header of the file.
#[derive(Debug, Default)]
pub(crate) struct FutureHeap {
    entries: Vec<(u64, u64)>,
}

impl FutureHeap {
    /// Returns the earliest entry.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.entries.first().copied()
    }

    /// Adds an entry; its id must not be in the heap.
    pub(crate) fn push(&mut self, time: u64, id: u64) {
        self.entries.push((time, id));
        self.rise(self.entries.len() - 1);
    }

    /// Removes the earliest entry.
    pub(crate) fn pop(&mut self) -> Option<(u64, u64)> {
        let first = self.first()?;
        self.remove_at(0);
        Some(first)
    }

    /// Removes an entry by its id, in time that grows with the heap.
    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(at) = self.find(id) {
            self.remove_at(at);
        }
    }

    /// Moves an entry to another time, in time that grows with the heap.
    pub(crate) fn update(&mut self, id: u64, time: u64) {
        if let Some(at) = self.find(id) {
            self.entries[at].0 = time;
            self.rise(at);
            self.sink(at);
        }
    }

    fn find(&self, id: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.1 == id)
    }

    fn remove_at(&mut self, at: usize) {
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            self.rise(at);
            self.sink(at);
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.entries[parent].0 <= self.entries[at].0 {
                break;
            }
            self.entries.swap(parent, at);
            at = parent;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = (2 * at + 1)..self.entries.len().min(2 * at + 3);
            let Some(least) = children.min_by_key(|child| self.entries[*child].0) else {
                break;
            };
            if self.entries[at].0 <= self.entries[least].0 {
                break;
            }
            self.entries.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn agrees_with_a_map() {
        let mut heap = FutureHeap::default();
        let mut model = BTreeMap::new();
        let mut random = kedge_bench_common::random::Random::new(7);
        for turn in 0..20_000u64 {
            let id = random.below(64);
            match (random.below(4), model.contains_key(&id)) {
                (0, _) if !model.is_empty() => {
                    let earliest = model.values().min().copied();
                    let popped = heap.pop().expect("the heap is not empty");
                    assert_eq!(Some(popped.0), earliest, "turn {turn}");
                    assert_eq!(model.remove(&popped.1), Some(popped.0));
                }
                (1, true) => {
                    heap.remove(id);
                    model.remove(&id);
                }
                (_, true) => {
                    let time = random.below(1000);
                    heap.update(id, time);
                    model.insert(id, time);
                }
                (_, false) => {
                    let time = random.below(1000);
                    heap.push(time, id);
                    model.insert(id, time);
                }
            }
            assert_eq!(
                heap.first().map(|first| first.0),
                model.values().min().copied()
            );
        }
    }
}
