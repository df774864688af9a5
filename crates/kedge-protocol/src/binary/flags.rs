//! Sets of flags in an integer.

/// Implements the common operations of a set of flags for a tuple struct of an integer.
macro_rules! flag_set {
    ($name:ident) => {
        impl $name {
            /// Returns whether all bits of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the bits of either set.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

pub(crate) use flag_set;
