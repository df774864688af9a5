//! A small random number generator without dependencies, so that a seed always gives the same run.

/// Random numbers for simulations and tests: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014). The sequence of a seed never changes.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Creates the generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "numbers without an end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number less than `bound`, which must not be 0. The distribution has a small bias.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }
}

/// Returns the seed of a randomized test: the environment variable `KEDGE_SEED`, or `default`. The seed is printed, so
/// that a failure shows it.
#[must_use]
pub fn seed(default: u64) -> u64 {
    let seed = std::env::var("KEDGE_SEED").ok();
    let seed = seed.and_then(|text| text.parse().ok()).unwrap_or(default);
    eprintln!("KEDGE_SEED={seed}");
    seed
}

/// Returns the seeds of a test that runs one history per seed: from `first` on, `few` of them or the number in the
/// environment variable `KEDGE_SEEDS`; or only the one in `KEDGE_SEED`. The test has to print each seed.
#[must_use]
pub fn seeds(first: u64, few: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("KEDGE_SEED") {
        Some(seed) => vec![seed],
        None => (first..first + number("KEDGE_SEEDS").unwrap_or(few)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn random_sequence_of_a_seed_never_changes() {
        let mut rng = Rng::new(1);
        let drawn = [rng.next(), rng.next(), rng.next()];
        // The first outputs of the reference implementation for seed 1.
        assert_eq!(
            drawn,
            [
                0x910a_2dec_8902_5cc1,
                0xbeeb_8da1_658e_ec67,
                0xf893_a2ee_fb32_555e
            ]
        );
    }
}
