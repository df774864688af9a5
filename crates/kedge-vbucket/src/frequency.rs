//! The access frequency of a document, in eight bits.
//!
//! A logarithmic counter (R. Morris, "Counting large numbers of events in small registers", 1978): the higher the
//! value, the less likely an access increments it. The maximum of 255 stands for about a million accesses. A new
//! document starts above the lowest values, so that it is not the first to be evicted. All values decay with time, so
//! that formerly popular documents are evicted eventually.

/// The value of a new document.
pub(crate) const FIRST: u8 = 64;
/// Above [`FIRST`], an access counts with a probability of 1 in (distance from [`FIRST`] x this).
const SLOWNESS: u64 = 50;

/// Returns whether an access increments the value; `random` is any number.
pub(crate) fn counts(frequency: u8, random: u64) -> bool {
    if frequency == u8::MAX {
        return false;
    }
    let above = u64::from(frequency.saturating_sub(FIRST));
    // This is true for one in (above * SLOWNESS + 1) numbers. A multiplication is cheaper than a remainder.
    ((random >> 32) * (above * SLOWNESS + 1)) >> 32 == 0
}

/// Returns the value after one decay round.
pub(crate) fn decayed(frequency: u8) -> u8 {
    frequency - frequency.div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(accesses: u64) -> u8 {
        let mut random = 1u64;
        let mut frequency = FIRST;
        for _ in 0..accesses {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            frequency += u8::from(counts(frequency, random));
        }
        frequency
    }

    #[test]
    fn frequency_grows_with_the_logarithm_of_accesses() {
        let counts: Vec<u8> = [0, 1, 1_000, 10_000, 100_000, 2_000_000]
            .map(after)
            .to_vec();
        assert_eq!(counts[..2], [FIRST, FIRST + 1]);
        assert!(counts.is_sorted_by(|low, high| low < high), "{counts:?}");
        assert!((67..75).contains(&counts[2]), "{counts:?}");
        assert!((120..140).contains(&counts[4]), "{counts:?}");
        assert_eq!(counts[5], u8::MAX);
        assert!(!super::counts(u8::MAX, 0));
    }

    #[test]
    fn frequency_decays_to_zero_high_values_faster() {
        let mut frequency = u8::MAX;
        let mut rounds = 0;
        while frequency > 0 {
            let next = decayed(frequency);
            assert!(next < frequency);
            frequency = next;
            rounds += 1;
        }
        assert!((20..40).contains(&rounds), "{rounds}");
        assert_eq!(decayed(0), 0);
    }
}
