//! Random sampling of a known number of documents in one pass.

/// A selector of exactly `wanted` documents, each with the same probability. The next document is selected with the
/// probability wanted / remaining. Source: D. Knuth, "The Art of Computer Programming", volume 2, 3.4.2, algorithm S.
#[derive(Debug)]
pub(super) struct SampleSelector {
    wanted: u64,
    remaining: u64,
    random: u64,
}

impl SampleSelector {
    pub(super) fn new(seed: u64, wanted: u64, remaining: u64) -> Self {
        Self {
            wanted: wanted.min(remaining),
            remaining,
            random: seed,
        }
    }

    /// Returns whether the sample is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.wanted == 0
    }

    /// Returns whether the next document belongs to the sample.
    pub(super) fn selects(&mut self) -> bool {
        // Scales a random number of 64 bits to the range below `remaining`.
        let below = (u128::from(self.next_random()) * u128::from(self.remaining)) >> 64;
        let chosen = below < u128::from(self.wanted);
        self.remaining = self.remaining.saturating_sub(1);
        self.wanted -= u64::from(chosen);
        chosen
    }

    /// Returns the next output of splitmix64 (S. Vigna, 2015).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(seed: u64, wanted: u64, of: u64) -> Vec<u64> {
        let mut sample = SampleSelector::new(seed, wanted, of);
        (0..of).filter(|_| sample.selects()).collect()
    }

    #[test]
    fn sample_has_the_wanted_size_and_is_uniform() {
        let mut times = [0; 20];
        for seed in 0..2_000 {
            let found = chosen(seed, 5, 20);
            assert_eq!(found.len(), 5, "seed {seed}");
            found.iter().for_each(|at| times[*at as usize] += 1);
        }
        // 500 each; the standard deviation is 19.
        assert!(
            times.iter().all(|times| (400..600).contains(times)),
            "{times:?}"
        );
        assert_eq!(chosen(7, 30, 20).len(), 20);
        assert_eq!(chosen(7, 5, 20), chosen(7, 5, 20));
        assert_ne!(chosen(7, 5, 20), chosen(8, 5, 20));
        assert!(SampleSelector::new(1, 5, 0).is_complete());
    }
}
