//! The state of a vBucket on its node.

/// The role of a vBucket on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VbState {
    /// Takes reads and writes.
    Active = 1,
    /// Follows an active on another node.
    Replica = 2,
    /// Becomes active soon.
    Pending = 3,
    /// Answers nothing.
    Dead = 4,
}

impl VbState {
    /// The state of a number: that of the wire and of the log.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Active),
            2 => Some(Self::Replica),
            3 => Some(Self::Pending),
            4 => Some(Self::Dead),
            _ => None,
        }
    }

    /// Returns whether it takes changes of another node.
    #[must_use]
    pub fn is_follower(self) -> bool {
        matches!(self, Self::Replica | Self::Pending)
    }
}
