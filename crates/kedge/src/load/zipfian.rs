//! The choice of items: all equally often, or by a Zipfian distribution.
//!
//! With a Zipfian distribution, the item of rank r (from 1) is requested in proportion to 1 / r^theta. The algorithm is that of Gray,
//! Sundaresan, Englert, Baclawski and Weinberger: "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994, section 3,
//! which YCSB uses as well. It takes one random number and one power for each item. The first two ranks are exact, the others
//! follow a continuous curve.

use super::generate::SplitMix64;

/// The number of terms of zeta that are added one by one. The error of the integral for the others is below 1e-7.
const TERMS: u64 = 10_000;
/// The part of the items, the golden ratio's, between two neighbouring ranks.
const STRIDE: f64 = 0.618_033_988_749_895;

/// The source of the items of requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum ItemChoice {
    /// All of this number of items equally often.
    Uniform(u64),
    /// A few items much more often than others.
    Zipfian(Zipfian),
}

impl ItemChoice {
    /// Creates the source. `theta` is the skew, more than 0 and less than 1; `None` for a uniform distribution.
    pub(super) fn new(items: u64, theta: Option<f64>) -> Self {
        theta.map_or(Self::Uniform(items), |theta| {
            Self::Zipfian(Zipfian::new(items, theta))
        })
    }

    /// Returns the next item.
    #[inline]
    pub(super) fn next(&self, random: &mut SplitMix64) -> u64 {
        match self {
            Self::Uniform(items) => random.below(*items),
            Self::Zipfian(zipfian) => zipfian.item(zipfian.rank(random)),
        }
    }
}

/// A Zipfian distribution over items. The names of the fields are those of the paper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipfian {
    items: u64,
    theta: f64,
    alpha: f64,
    eta: f64,
    zetan: f64,
    /// Coprime to `items`, so that each rank has its own item.
    stride: u64,
}

impl Zipfian {
    fn new(items: u64, theta: f64) -> Self {
        let zetan = zeta(items, theta);
        let tail = 1.0 - zeta(2, theta) / zetan;
        Self {
            items,
            theta,
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / tail,
            zetan,
            stride: stride(items),
        }
    }

    /// Draws a rank. The most frequent one is 0.
    #[inline]
    fn rank(&self, random: &mut SplitMix64) -> u64 {
        // The upper 53 bits: a number of at least 0 and less than 1.
        let u = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let uz = u * self.zetan;
        let rank = if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            let base = self.eta.mul_add(u, 1.0 - self.eta);
            (self.items as f64 * base.powf(self.alpha)) as u64
        };
        rank.min(self.items - 1)
    }

    /// Returns the item of a rank. Frequent items are far from each other: they were not stored one after the other.
    #[inline]
    const fn item(&self, rank: u64) -> u64 {
        (rank as u128 * self.stride as u128 % self.items as u128) as u64
    }
}

/// Returns the sum of 1 / i^theta for i from 1 to n: term by term, and what exceeds [`TERMS`] by the Euler-Maclaurin formula.
fn zeta(n: u64, theta: f64) -> f64 {
    let term = |i: f64| i.powf(-theta);
    let exact: f64 = (1..=n.min(TERMS)).map(|i| term(i as f64)).sum();
    if n <= TERMS {
        return exact;
    }
    let (from, to) = (TERMS as f64, n as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    exact + integral + (term(to) - term(from)) / 2.0
}

/// Returns the number nearest above the golden part of `items` that has no divisor in common with it.
fn stride(items: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let first = (items as f64 * STRIDE) as u64 + 1;
    (first..)
        .find(|&stride| divisor(stride, items) == 1)
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 1_000_000;

    /// Returns how often each rank is drawn.
    fn drawn(items: u64, theta: f64) -> Vec<u32> {
        let (zipfian, mut random) = (Zipfian::new(items, theta), SplitMix64::new(1));
        let mut counts = vec![0; items as usize];
        for _ in 0..DRAWS {
            counts[zipfian.rank(&mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn zipfian_ranks_have_the_frequencies_of_the_distribution() {
        for theta in [0.5, 0.99] {
            let (counts, zetan) = (drawn(1000, theta), zeta(1000, theta));
            for upto in [1, 2, 10, 100, 500] {
                let seen = f64::from(counts[..upto].iter().sum::<u32>()) / f64::from(DRAWS);
                let expected = zeta(upto as u64, theta) / zetan;
                let off = (seen / expected - 1.0).abs();
                // The first two are exact, the others near.
                let limit = if upto <= 2 { 0.02 } else { 0.1 };
                assert!(off < limit, "{theta} {upto}: {seen} for {expected}");
            }
            assert!(counts.iter().all(|&count| count > 0), "every rank is drawn");
        }
    }

    #[test]
    fn zipfian_of_one_or_two_items() {
        assert_eq!(drawn(1, 0.99), [DRAWS]);
        let counts = drawn(2, 0.99);
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((ratio / 2_f64.powf(0.99) - 1.0).abs() < 0.02, "{counts:?}");
    }

    #[test]
    fn each_rank_has_its_own_item() {
        for items in [1, 2, 3, 10, 1000, 1024, 100_000] {
            let zipfian = Zipfian::new(items, 0.9);
            let mut seen = vec![false; items as usize];
            for rank in 0..items {
                let item = zipfian.item(rank) as usize;
                assert!(!seen[item], "{items} items, rank {rank}");
                seen[item] = true;
            }
        }
        assert!(Zipfian::new(u64::MAX, 0.9).item(u64::MAX - 1) < u64::MAX);
    }

    #[test]
    fn zeta_of_many_items_is_the_sum_of_all_terms() {
        for theta in [0.2, 0.99] {
            let sum: f64 = (1..=1_000_000).map(|i| f64::from(i).powf(-theta)).sum();
            let error = (zeta(1_000_000, theta) - sum).abs();
            assert!(error < 1e-6, "{theta}: {error}");
        }
    }

    #[test]
    fn uniform_items_stay_below_their_number() {
        let (choice, mut random) = (ItemChoice::new(3, None), SplitMix64::new(1));
        let mut seen = [0; 3];
        for _ in 0..3000 {
            seen[choice.next(&mut random) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
    }
}
