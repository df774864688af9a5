//! Sets of flags in an integer.

/// Gives a tuple struct of an integer what all sets of flags can.
macro_rules! flag_set {
    ($name:ident) => {
        impl $name {
            /// Whether all bits of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Bits of either.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

pub(crate) use flag_set;
