//! What a value is made of.

/// Datatype bits of a frame or a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Datatype(u8);

impl Datatype {
    /// Neither JSON, nor compressed, nor with extended attributes.
    pub const RAW: Self = Self(0);
    /// The body is a JSON text.
    pub const JSON: Self = Self(1);
    /// The whole value is one raw Snappy block.
    pub const SNAPPY: Self = Self(2);
    /// An extended-attribute section stands in front of the body.
    pub const XATTR: Self = Self(4);

    /// The bits as they stand on the wire, or `None` when a bit is set that has no meaning.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !7 == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

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

    /// These bits without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Bits of both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
