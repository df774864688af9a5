//! Expiration times as clients write them.

use super::line;
use kedge_types::Expiry;
use kedge_types::limits::RELATIVE_EXPIRY_SECS_MAX;

/// A client's expiration time (memcached doc/protocol.txt, "Expiration times"): 0 is never, negative is at once, up to 30
/// days counts from now, and more is a Unix second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exptime(i64);

impl Exptime {
    /// Never.
    pub const NEVER: Self = Self(0);

    /// Returns the number as the client wrote it, in seconds.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns the time in the form of the binary protocol. That has no negative numbers; the earliest Unix second that
    /// is not taken for a time from now stands for them, and is always past.
    #[must_use]
    pub const fn to_wire(self) -> u32 {
        if self.0 < 0 {
            RELATIVE_EXPIRY_SECS_MAX + 1
        } else {
            // `parse` accepts nothing larger.
            self.0 as u32
        }
    }

    /// Returns the expiry of the document, seen from the Unix second `unix_secs`.
    #[must_use]
    pub const fn expiry(self, unix_secs: u64) -> Expiry {
        Expiry::from_wire(self.to_wire(), unix_secs)
    }

    /// Parses a decimal number from -2^31 to 2^31 - 1, as memcached does.
    pub(super) fn parse(token: &[u8]) -> Option<Self> {
        if let Some(digits) = token.strip_prefix(b"-") {
            let magnitude = i64::try_from(line::parse_digits(digits)?).ok()?;
            return (magnitude <= 1 << 31).then_some(Self(-magnitude));
        }
        let secs = i32::try_from(line::parse_u32(token)?).ok()?;
        Some(Self(secs.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exptime_is_never_past_relative_or_absolute() {
        let now = 1_700_000_000;
        for (token, number, expiry) in [
            ("0", 0, Expiry::NEVER),
            ("-0", 0, Expiry::NEVER),
            ("10", 10, Expiry(1_700_000_010)),
            ("2592000", 2_592_000, Expiry(1_702_592_000)),
            ("2592001", 2_592_001, Expiry(2_592_001)),
            ("1800000000", 1_800_000_000, Expiry(1_800_000_000)),
            ("2147483647", i32::MAX.into(), Expiry(2_147_483_647)),
            ("-1", -1, Expiry(2_592_001)),
            ("-2147483648", i32::MIN.into(), Expiry(2_592_001)),
        ] {
            let exptime = Exptime::parse(token.as_bytes()).expect(token);
            assert_eq!(exptime.get(), number, "{token}");
            assert_eq!(exptime.expiry(now), expiry, "{token}");
            assert!(number >= 0 || exptime.expiry(now).has_passed(now));
        }
        for token in [
            "",
            "-",
            "x",
            "1x",
            "--1",
            "-+1",
            "4294967296",
            "-2147483649",
        ] {
            assert_eq!(Exptime::parse(token.as_bytes()), None, "{token}");
        }
    }
}
