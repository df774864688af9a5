//! The state of a vBucket on its node.

/// The role of a vBucket on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VbState {
    /// Accepts reads and writes.
    Active = 1,
    /// Receives the changes of an active vBucket on another node.
    Replica = 2,
    /// Waits to become active.
    Pending = 3,
    /// Accepts no requests.
    Dead = 4,
}

impl VbState {
    /// Returns the state of a number in the protocol or the log.
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

    /// Returns whether the vBucket receives changes from another node.
    #[must_use]
    pub fn is_follower(self) -> bool {
        matches!(self, Self::Replica | Self::Pending)
    }
}
