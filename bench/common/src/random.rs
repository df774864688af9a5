//! Cheap pseudorandom numbers, the same in every run.

/// Marsaglia's xorshift64*.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Starts the sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// Returns the next number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a sequence without an end")]
    pub fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns the next number below `limit`.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }

    /// Returns so many random bytes; `len` is a multiple of eight.
    #[must_use]
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes
    }

    /// Returns `count` distinct numbers below `limit`.
    pub fn distinct(&mut self, count: usize, limit: usize) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..limit as u32).collect();
        for at in 0..count {
            let other = at + self.below((limit - at) as u64) as usize;
            numbers.swap(at, other);
        }
        numbers.truncate(count);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_distinct_numbers_are_distinct() {
        let mut numbers = Random::new(1).distinct(50, 60);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        assert!(numbers.iter().all(|number| *number < 60));
    }
}
