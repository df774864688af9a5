//! Statuses for clients that did not negotiate XERROR.
//!
//! Such a client knows the statuses of memcached and a few more. What it does not know is told in the nearest status
//! that it does; where none is near, the connection is closed, so that the client does not take an unknown number for
//! something it is not.

use kedge_types::Status;

/// What a client without XERROR gets instead of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remap {
    /// This status.
    Send(Status),
    /// No reply: close the connection.
    Close,
}

/// What becomes of `status` on a connection without XERROR; `collections` is whether it negotiated Collections.
///
/// A lock is told in two ways, as Couchbase does: a write that meets a lock looks like a CAS that does not match
/// ([`Status::KeyExists`]); whoever wants GET_LOCKED or UNLOCK to fail softly sends [`Status::TemporaryFailure`]
/// itself.
#[must_use]
pub const fn remap_without_xerror(status: Status, collections: bool) -> Remap {
    match status {
        Status::Locked | Status::CasValueInvalid => Remap::Send(Status::KeyExists),
        Status::NotLocked | Status::SyncWriteInProgress | Status::SyncWriteReCommitInProgress => {
            Remap::Send(Status::TemporaryFailure)
        }
        Status::UnknownCollection | Status::UnknownScope => {
            if collections {
                Remap::Send(status)
            } else {
                Remap::Send(Status::Invalid)
            }
        }
        Status::RateLimitedMaxConnections => Remap::Send(Status::TooBig),
        Status::NoBucket
        | Status::AccessDenied
        | Status::AuthStale
        | Status::DurabilityInvalidLevel
        | Status::DurabilityImpossible
        | Status::SyncWriteAmbiguous
        | Status::DcpStreamIdInvalid
        | Status::RangeScanCancelled
        | Status::RangeScanMore
        | Status::RangeScanComplete
        | Status::VbUuidNotEqual
        | Status::Cancelled
        | Status::ChecksumMismatch
        | Status::ExpiryOverflow
        | Status::LockExpiryOverflow => Remap::Close,
        other => Remap::Send(other),
    }
}
