//! Statuses for clients that did not negotiate XERROR.
//!
//! Such a client knows the statuses of memcached and a few more. An unknown status is replaced by the nearest known
//! one. Where none is near, the connection is closed, so that the client does not misinterpret an unknown number.

use kedge_types::Status;

/// The replacement of a status for a client without XERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remap {
    /// This status.
    Send(Status),
    /// No reply; close the connection.
    Close,
}

/// Returns the replacement of `status` on a connection without XERROR; `collections` is true if it negotiated
/// Collections.
///
/// A lock is reported in two ways, as by Couchbase. A write to a locked document gets the status of a CAS mismatch
/// ([`Status::KeyExists`]). For GET_LOCKED and UNLOCK the caller sends [`Status::TemporaryFailure`] itself.
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
