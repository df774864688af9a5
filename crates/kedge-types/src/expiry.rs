//! The expiry time of a document.

use crate::limits::RELATIVE_EXPIRY_SECS_MAX;

/// The Unix second at which a document expires. 0 means that it never does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(pub u32);

impl Expiry {
    /// The expiry of a document that never expires.
    pub const NEVER: Self = Self(0);

    /// Converts the number that a client sends: 0 means never, up to 30 days is relative to `unix_secs`, and a larger
    /// number is a Unix second. A Unix second in the past makes the document expire at once.
    #[must_use]
    pub const fn from_wire(wire: u32, unix_secs: u64) -> Self {
        if wire == 0 || wire > RELATIVE_EXPIRY_SECS_MAX {
            return Self(wire);
        }
        let at = unix_secs.saturating_add(wire as u64);
        Self(if at > u32::MAX as u64 {
            u32::MAX
        } else {
            at as u32
        })
    }

    /// Returns `true` if a document with this expiry has expired at `unix_secs`.
    #[must_use]
    pub const fn has_passed(self, unix_secs: u64) -> bool {
        self.0 != 0 && (self.0 as u64) <= unix_secs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_relative_up_to_30_days_and_absolute_above() {
        let now = 1_700_000_000;
        assert_eq!(Expiry::from_wire(0, now), Expiry::NEVER);
        assert_eq!(Expiry::from_wire(1, now), Expiry(1_700_000_001));
        assert_eq!(Expiry::from_wire(2_592_000, now), Expiry(1_702_592_000));
        assert_eq!(Expiry::from_wire(2_592_001, now), Expiry(2_592_001));
        assert!(
            Expiry::from_wire(2_592_001, now).has_passed(now),
            "an absolute time in the past"
        );
        assert!(!Expiry::NEVER.has_passed(u64::MAX));
        assert!(!Expiry(10).has_passed(9));
        assert!(Expiry(10).has_passed(10));
    }
}
