//! The datatype bits of a document's value.

/// Datatype bits of a frame or a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Datatype(u8);

impl Datatype {
    /// A value without any datatype bit: neither JSON nor compressed, and without extended attributes.
    pub const RAW: Self = Self(0);
    /// The body is JSON text.
    pub const JSON: Self = Self(1);
    /// The whole value is one raw Snappy block.
    pub const SNAPPY: Self = Self(2);
    /// A section of extended attributes precedes the body.
    pub const XATTR: Self = Self(4);

    /// Parses the bits of the wire. Returns `None` when an undefined bit is set.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !7 == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Returns the bits as on the wire.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns `true` if all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits that are set in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these bits without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the bits that are set in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
