//! The generated requests: their items, sizes and times.

use std::ops::Range;

use super::options::LoadPlan;

/// Random bytes from which values are cut, in addition to the longest value.
const POOL_BYTES: usize = 1 << 20;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators"): good enough for keys.
#[derive(Clone, Debug)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    #[inline]
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}

/// The values of SETs.
#[derive(Debug)]
pub(super) struct ValueSource {
    pool: Vec<u8>,
    size_min: usize,
    size_spread: u64,
    random_body: bool,
}

impl ValueSource {
    pub(super) fn new(plan: &LoadPlan, random: &mut SplitMix64) -> Self {
        let pool = if plan.random_body {
            let words = (plan.size_max + POOL_BYTES).div_ceil(8);
            (0..words)
                .flat_map(|_| random.next().to_le_bytes())
                .collect()
        } else {
            vec![b'#'; plan.size_max]
        };
        Self {
            pool,
            size_min: plan.size_min,
            size_spread: (plan.size_max - plan.size_min) as u64 + 1,
            random_body: plan.random_body,
        }
    }

    /// Returns the next value.
    #[inline]
    pub(super) fn next(&self, random: &mut SplitMix64) -> &[u8] {
        let size = if self.size_spread == 1 {
            self.size_min
        } else {
            self.size_min + random.below(self.size_spread) as usize
        };
        let start = if self.random_body {
            random.below((self.pool.len() - size) as u64 + 1) as usize
        } else {
            0
        };
        &self.pool[start..start + size]
    }
}

/// Returns the part of `0..items` that belongs to number `at` of `of`; parts differ by at most one item.
pub(super) fn share(items: u64, at: usize, of: usize) -> Range<u64> {
    let cut = |at: usize| (u128::from(items) * at as u128 / of as u128) as u64;
    cut(at)..cut(at + 1)
}

/// The times at which requests of one connection are due.
///
/// All connections together have one request due every `1 / rate` seconds; this one has every n-th of them. Times are
/// nanoseconds since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    first_ns: f64,
    step_ns: f64,
    sent: u64,
}

impl Schedule {
    pub(super) fn new(rate: f64, connection: usize, connections: usize) -> Self {
        let interval_ns = 1e9 / rate;
        Self {
            first_ns: interval_ns * connection as f64,
            step_ns: interval_ns * connections as f64,
            sent: 0,
        }
    }

    /// Returns the time of the next request.
    pub(super) fn due_ns(&self) -> u64 {
        // Multiplied each time, so that rounding errors do not accumulate.
        self.step_ns.mul_add(self.sent as f64, self.first_ns) as u64
    }

    /// Notes that the next request was sent.
    pub(super) const fn advance(&mut self) {
        self.sent += 1;
    }

    /// Returns the number of requests that were due before `end_ns` and are not sent.
    pub(super) fn behind(&self, end_ns: u64) -> u64 {
        let until_end = end_ns as f64 - self.due_ns() as f64;
        if until_end > 0.0 {
            (until_end / self.step_ns).ceil() as u64
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_shares_cover_all_items_once() {
        for (items, of) in [(10, 3), (2, 5), (1_000_000, 7), (u64::MAX, 2), (1, 1)] {
            let mut next = 0;
            for at in 0..of {
                let part = share(items, at, of);
                assert_eq!(part.start, next);
                next = part.end;
            }
            assert_eq!(next, items);
        }
    }

    #[test]
    fn schedule_keeps_its_rate() {
        let mut due = Vec::new();
        for connection in 0..4 {
            let mut schedule = Schedule::new(1000.0, connection, 4);
            while schedule.due_ns() < 1_000_000_000 {
                due.push(schedule.due_ns());
                schedule.advance();
            }
            assert_eq!(schedule.behind(1_000_000_000), 0);
            assert_eq!(schedule.behind(1_004_000_000), 1);
        }
        due.sort_unstable();
        assert_eq!(due.len(), 1000);
        assert!(due.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
    }

    #[test]
    fn random_numbers_stay_below_their_bound() {
        let mut random = SplitMix64::new(7);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(
            seen.iter().all(|&count| (800..1200).contains(&count)),
            "{seen:?}"
        );
    }
}
