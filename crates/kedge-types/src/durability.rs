//! What a client asks of a SyncWrite.

/// How safe a SyncWrite must be before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DurabilityLevel {
    /// In the memory of a majority of the chain.
    Majority = 1,
    /// The same, and on the active's disk.
    MajorityAndPersistOnActive = 2,
    /// On the disks of a majority.
    PersistToMajority = 3,
}

impl DurabilityLevel {
    /// The level with this number on the wire.
    #[must_use]
    pub const fn from_wire(level: u8) -> Option<Self> {
        match level {
            1 => Some(Self::Majority),
            2 => Some(Self::MajorityAndPersistOnActive),
            3 => Some(Self::PersistToMajority),
            _ => None,
        }
    }

    /// Whether the active itself must have it on disk.
    #[must_use]
    pub const fn needs_persistence(self) -> bool {
        !matches!(self, Self::Majority)
    }
}

/// A level and how long it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// The level asked for.
    pub level: DurabilityLevel,
    /// Milliseconds after which the write is aborted and its outcome is ambiguous; `None` is the server's default,
    /// [`crate::limits::DURABILITY_TIMEOUT_MS_DEFAULT`].
    pub timeout_ms: Option<u16>,
}
