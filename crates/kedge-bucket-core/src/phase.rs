//! The phases of a bucket, and the roles of its vBuckets.

use kedge_vbucket::{VBucket, VbState};

/// The phase that a bucket is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BucketPhase {
    /// Files and log are being read.
    Loading = 0,
    /// Commands are served.
    Open = 1,
    /// It was shut down.
    Closed = 2,
    /// It cannot go on.
    Failed = 3,
}

impl BucketPhase {
    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Loading,
            1 => Self::Open,
            2 => Self::Closed,
            _ => Self::Failed,
        }
    }
}

/// The state of a vBucket that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredRole {
    /// The vBucket that clients write to.
    Active,
    /// A replica.
    Replica,
    /// Active, replica or pending.
    Any,
    /// Active, replica or pending, for replication: an active needs no lease.
    Followed,
}

impl RequiredRole {
    /// Returns whether a vBucket plays this role.
    #[must_use]
    pub fn is_of(self, vbucket: &VBucket) -> bool {
        match self {
            Self::Active => vbucket.state() == VbState::Active,
            Self::Replica => vbucket.state() == VbState::Replica,
            Self::Any | Self::Followed => vbucket.state() != VbState::Dead && !vbucket.is_deleted(),
        }
    }
}
