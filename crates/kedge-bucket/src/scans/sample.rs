//! Choosing documents at random while they go by.

/// Chooses exactly as many as it was told, each with the same likelihood: of those that are still to come the next one is
/// taken with the probability (still wanted) / (still to come). D. Knuth, "The Art of Computer Programming", volume 2,
/// 3.4.2, algorithm S.
#[derive(Debug)]
pub(super) struct Sample {
    wanted: u64,
    to_come: u64,
    random: u64,
}

impl Sample {
    pub(super) fn new(seed: u64, wanted: u64, to_come: u64) -> Self {
        Self {
            wanted: wanted.min(to_come),
            to_come,
            random: seed,
        }
    }

    /// Whether all that were wanted were chosen.
    pub(super) fn is_over(&self) -> bool {
        self.wanted == 0
    }

    /// Whether the next one is chosen.
    pub(super) fn chooses(&mut self) -> bool {
        // A number below `to_come`, as its part of all numbers of 64 bits.
        let below = (u128::from(self.next_random()) * u128::from(self.to_come)) >> 64;
        let chosen = below < u128::from(self.wanted);
        self.to_come = self.to_come.saturating_sub(1);
        self.wanted -= u64::from(chosen);
        chosen
    }

    /// splitmix64 (S. Vigna, 2015).
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
        let mut sample = Sample::new(seed, wanted, of);
        (0..of).filter(|_| sample.chooses()).collect()
    }

    #[test]
    fn as_many_as_wanted_and_each_as_likely() {
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
        assert!(Sample::new(1, 5, 0).is_over());
    }
}
