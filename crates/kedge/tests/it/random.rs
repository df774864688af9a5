//! Random numbers whose seed is printed and can be given again.

/// The number in `variable`, or this one.
pub(crate) fn count_from_environment(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in `variable`, or one from the clock. It is printed, so that a failure can be looked into.
    pub(crate) fn from_environment(variable: &str) -> Self {
        let given = std::env::var(variable)
            .ok()
            .and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.expect("the clock is after 1970").as_nanos() as u64
        });
        eprintln!("{variable}={seed}");
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8))
            .flat_map(|_| self.next().to_le_bytes())
            .collect();
        bytes.truncate(len);
        bytes
    }
}
