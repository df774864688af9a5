//! Numbers that need not be good, only cheap.

/// Marsaglia's xorshift64*.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A sequence per seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }
}
