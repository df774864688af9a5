//! The clocks of random histories.

use kedge_coordination::Moment;
use kedge_disk::Rng;

/// A millisecond, in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// One, in parts per million.
const PPM: u64 = 1_000_000;

/// A clock that is wrong by up to the bound.
pub(crate) struct DriftingClock {
    offset: u64,
    /// In parts per million of the true rate.
    rate: u64,
}

impl DriftingClock {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        DriftingClock {
            offset: rng.below(1_000_000) * MS,
            rate: PPM - 1_000 + rng.below(2_001),
        }
    }

    pub(crate) fn at(&self, true_ns: u64) -> Moment {
        let passed = u128::from(true_ns) * u128::from(self.rate) / u128::from(PPM);
        Moment::at_ns(self.offset + u64::try_from(passed).expect("a few minutes"))
    }
}
