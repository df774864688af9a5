//! A hierarchical timer wheel: four levels of 256 buckets, ticks of 10 ms, everything but a cascade in constant time.
//!
//! Invariants:
//! * A timer stands in at most one bucket, as a node of its doubly linked list; `keys` are indices that the caller gives.
//! * A timer in level 0 is due within 256 ticks of `now_tick`; later ones are placed again when the wheel comes around.
//! * A timer never fires before its time: times are rounded up to a tick.

const LEVELS: usize = 4;
const SLOT_BITS: u32 = 8;
const SLOTS: usize = 1 << SLOT_BITS;
const NONE: u32 = u32::MAX;

/// Length of a tick.
pub(super) const TICK_NS: u64 = 10_000_000;

#[derive(Debug, Clone, Copy)]
struct Node {
    previous: u32,
    next: u32,
    /// Index of the bucket, or `NONE`.
    bucket: u32,
    tick: u64,
}

const FREE: Node = Node {
    previous: NONE,
    next: NONE,
    bucket: NONE,
    tick: 0,
};

/// The wheel; see the header of the file.
#[derive(Debug)]
pub(super) struct Wheel {
    nodes: Vec<Node>,
    heads: Vec<u32>,
    /// One bit per bucket of level 0 that is not empty.
    filled: [u64; SLOTS / 64],
    /// The last processed tick.
    now_tick: u64,
    timers: usize,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            heads: vec![NONE; LEVELS * SLOTS],
            filled: [0; SLOTS / 64],
            now_tick: 0,
            timers: 0,
        }
    }

    /// Sets the timer of `key`, and replaces an existing one.
    pub(super) fn set(&mut self, key: usize, due_ns: u64) {
        self.clear(key);
        if key >= self.nodes.len() {
            self.nodes.resize(key + 1, FREE);
        }
        let tick = due_ns.div_ceil(TICK_NS).max(self.now_tick + 1);
        self.link(key as u32, tick);
        self.timers += 1;
    }

    /// Removes the timer of `key`, if it has one.
    pub(super) fn clear(&mut self, key: usize) {
        let Some(node) = self.nodes.get(key).copied() else {
            return;
        };
        if node.bucket != NONE {
            self.unlink(key as u32, node);
            self.timers -= 1;
        }
    }

    /// Returns the time of the next action; `None` without timers.
    pub(super) fn next_ns(&self) -> Option<u64> {
        if self.timers == 0 {
            return None;
        }
        let start = (self.now_tick + 1) as usize % SLOTS;
        if start == 0 {
            // A turn begins: timers of the level above may be due in it at once.
            return Some((self.now_tick + 1) * TICK_NS);
        }
        // Up to the end of this turn of level 0; there the next level is processed.
        let in_turn = (start..SLOTS).find(|slot| self.filled[slot / 64] >> (slot % 64) & 1 == 1);
        let ticks = in_turn.unwrap_or(SLOTS) - start;
        Some((self.now_tick + 1 + ticks as u64) * TICK_NS)
    }

    /// Moves to `now_ns` and appends the keys of all due timers to `fired`.
    pub(super) fn advance(&mut self, now_ns: u64, fired: &mut Vec<usize>) {
        let target = now_ns / TICK_NS;
        if self.timers == 0 {
            self.now_tick = self.now_tick.max(target);
            return;
        }
        while self.now_tick < target {
            self.now_tick += 1;
            self.cascade();
            let bucket = self.now_tick as usize % SLOTS;
            for key in self.take(bucket) {
                self.timers -= 1;
                fired.push(key as usize);
            }
        }
    }

    /// At the start of a turn of a level, spreads the bucket of the level above that begins now.
    fn cascade(&mut self) {
        for level in 1..LEVELS {
            let below = SLOT_BITS * level as u32;
            if self.now_tick & ((1 << below) - 1) != 0 {
                break;
            }
            let slot = (self.now_tick >> below) as usize % SLOTS;
            for key in self.take(level * SLOTS + slot) {
                let tick = self.nodes[key as usize].tick;
                self.link(key, tick);
            }
        }
    }

    /// Unlinks all nodes of a bucket.
    fn take(&mut self, bucket: usize) -> Vec<u32> {
        let mut keys = Vec::new();
        while self.heads[bucket] != NONE {
            let key = self.heads[bucket];
            self.unlink(key, self.nodes[key as usize]);
            keys.push(key);
        }
        keys
    }

    fn link(&mut self, key: u32, tick: u64) {
        let ahead = tick.saturating_sub(self.now_tick);
        let level = (0..LEVELS - 1)
            .find(|level| ahead < 1 << (SLOT_BITS * (*level as u32 + 1)))
            .unwrap_or(LEVELS - 1);
        // Timers beyond the length of the wheel wait in the last bucket and are placed again from there.
        let within = tick.min(self.now_tick + (1 << (SLOT_BITS * LEVELS as u32)) - 1);
        let slot = (within >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        let bucket = level * SLOTS + slot;
        let head = self.heads[bucket];
        self.nodes[key as usize] = Node {
            previous: NONE,
            next: head,
            bucket: bucket as u32,
            tick,
        };
        if head != NONE {
            self.nodes[head as usize].previous = key;
        }
        self.heads[bucket] = key;
        if bucket < SLOTS {
            self.filled[bucket / 64] |= 1 << (bucket % 64);
        }
    }

    fn unlink(&mut self, key: u32, node: Node) {
        let bucket = node.bucket as usize;
        if node.previous == NONE {
            self.heads[bucket] = node.next;
            if node.next == NONE && bucket < SLOTS {
                self.filled[bucket / 64] &= !(1 << (bucket % 64));
            }
        } else {
            self.nodes[node.previous as usize].next = node.next;
        }
        if node.next != NONE {
            self.nodes[node.next as usize].previous = node.previous;
        }
        self.nodes[key as usize].bucket = NONE;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// No timer fires early or twice, none more than a tick late, and the wheel never asks for a sleep past one.
    #[test]
    fn agrees_with_a_map() {
        let mut wheel = Wheel::new();
        let mut model = BTreeMap::new();
        let mut random = kedge_bench_common::random::Random::new(11);
        let mut now = 0;
        let mut fired = Vec::new();
        for turn in 0..200_000u64 {
            let key = random.below(300) as usize;
            match random.below(8) {
                0..=4 => {
                    let far = [200, 20_000, 2_000_000, 400_000_000][random.below(4) as usize];
                    let due = now + random.below(far * 1_000_000);
                    wheel.set(key, due);
                    model.insert(key, due);
                }
                5 => {
                    wheel.clear(key);
                    model.remove(&key);
                }
                _ => {
                    let wanted = wheel.next_ns();
                    assert_eq!(wanted.is_none(), model.is_empty());
                    let earliest = model.values().min().map(|due| due + 2 * TICK_NS);
                    assert!(
                        wanted
                            .zip(earliest)
                            .is_none_or(|(wanted, latest)| wanted <= latest)
                    );
                    now = wanted.unwrap_or(now).max(now + random.below(50_000_000));
                    wheel.advance(now, &mut fired);
                    for key in fired.drain(..) {
                        let due = model.remove(&key).expect("a timer that fires was set");
                        assert!(due <= now, "turn {turn}: early");
                    }
                    let overdue = model.values().any(|due| due + 2 * TICK_NS < now);
                    assert!(!overdue, "turn {turn}: late");
                }
            }
        }
    }
}
