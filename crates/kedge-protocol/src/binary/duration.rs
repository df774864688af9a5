//! The two-byte server duration of replies.
//!
//! Formula: Couchbase `docs/BinaryProtocol.md`, "Server duration": microseconds = e^1.74 / 2. The encoding trades
//! precision for range: 1 us steps at the bottom, two minutes at the top.

use std::sync::LazyLock;

const EXPONENT: f64 = 1.74;
/// Durations below this many microseconds are looked up in a table: `powf` costs more than the rest of a reply's
/// header.
const TABLE_US: usize = 4096;

static TABLE: LazyLock<Box<[u16]>> =
    LazyLock::new(|| (0..TABLE_US as u64).map(by_formula).collect());

/// The longest duration that can be encoded, in microseconds.
pub const SERVER_DURATION_US_MAX: u64 = 120_125_042;

fn by_formula(us: u64) -> u16 {
    let us = us.min(SERVER_DURATION_US_MAX);
    // Saturates at u16::MAX and cuts the fraction.
    (us as f64 * 2.0).powf(1.0 / EXPONENT) as u16
}

/// Encoded server durations.
#[derive(Clone, Copy, Debug)]
pub struct ServerDuration;

impl ServerDuration {
    /// Encodes a duration in microseconds. Anything longer than [`SERVER_DURATION_US_MAX`] is encoded as that.
    #[must_use]
    #[inline]
    pub fn encode(us: u64) -> u16 {
        match TABLE.get(us as usize) {
            Some(encoded) => *encoded,
            None => by_formula(us),
        }
    }

    /// Decodes a duration to microseconds, rounded to the nearest.
    #[must_use]
    pub fn decode(encoded: u16) -> u64 {
        (f64::from(encoded).powf(EXPONENT) / 2.0).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        for (us, encoded) in [
            (0, 0),
            (1, 1),
            (10, 5),
            (100, 21),
            (1_000, 78),
            (1_000_000, 4_181),
        ] {
            assert_eq!(ServerDuration::encode(us), encoded, "{us} us");
        }
        assert!(ServerDuration::encode(SERVER_DURATION_US_MAX) >= 65_534);
        assert_eq!(
            ServerDuration::encode(u64::MAX),
            ServerDuration::encode(SERVER_DURATION_US_MAX)
        );
    }

    #[test]
    fn every_duration_code_matches_the_formula_and_never_exceeds_the_time() {
        let mut us = 0_u64;
        while us < SERVER_DURATION_US_MAX {
            let encoded = ServerDuration::encode(us);
            assert_eq!(encoded, by_formula(us), "{us} us");
            // Truncation: a code stands for at most the time, and the next code for more.
            let exact = |code: u16| f64::from(code).powf(EXPONENT) / 2.0;
            assert!(exact(encoded) <= us as f64 + 1e-6, "{us} us");
            if encoded < u16::MAX {
                assert!(exact(encoded + 1) > us as f64, "{us} us");
            }
            us += 1 + us / 97;
        }
    }
}
