//! The durability requirements of a SyncWrite.

/// The condition under which a SyncWrite commits and its client receives success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DurabilityLevel {
    /// A majority of the chain's nodes have the write in memory.
    Majority = 1,
    /// A majority of the chain's nodes have the write in memory, and the active has it on disk.
    MajorityAndPersistOnActive = 2,
    /// A majority of the chain's nodes have the write on disk.
    PersistToMajority = 3,
}

impl DurabilityLevel {
    /// Returns the level with this number on the wire, or `None` if the number is undefined.
    #[must_use]
    pub const fn from_wire(level: u8) -> Option<Self> {
        match level {
            1 => Some(Self::Majority),
            2 => Some(Self::MajorityAndPersistOnActive),
            3 => Some(Self::PersistToMajority),
            _ => None,
        }
    }

    /// Returns `true` if the active itself must have the write on disk.
    #[must_use]
    pub const fn needs_persistence(self) -> bool {
        !matches!(self, Self::Majority)
    }
}

/// The durability requirements of one SyncWrite: a level and a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// The requested level.
    pub level: DurabilityLevel,
    /// The timeout in milliseconds, after which the write is aborted and its outcome is ambiguous. `None` means the
    /// server's default, [`crate::limits::DURABILITY_TIMEOUT_MS_DEFAULT`].
    pub timeout_ms: Option<u16>,
}
