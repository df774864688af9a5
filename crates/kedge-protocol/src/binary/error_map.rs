//! The error map: the description and attributes of each status, so that a client can handle statuses that it does not
//! know.
//!
//! Shape and attributes: Couchbase `docs/ErrorMap.md`. Names are the identifiers that clients log and match; the
//! descriptions are this server's. The map is complete: some clients drop the connection on a status that is neither
//! built in nor in the map they loaded.

use kedge_types::Status;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The newest version of the map's format.
pub const ERROR_MAP_VERSION_MAX: u16 = 2;
/// The revision of the table; every change of a row increments it.
const REVISION: u32 = 2;

/// A property of a status that directs a client's handling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    Success,
    ItemOnly,
    InvalidInput,
    FetchConfig,
    ConnStateInvalidated,
    Auth,
    SpecialHandling,
    Support,
    Internal,
    RetryNow,
    RetryLater,
    Temp,
    Dcp,
    ItemLocked,
    ItemDeleted,
    Subdoc,
    RateLimit,
    SystemConstraint,
    NoRetry,
}

use Attribute::{
    Auth, ConnStateInvalidated, Dcp, FetchConfig, Internal, InvalidInput, ItemDeleted, ItemLocked,
    ItemOnly, NoRetry, RateLimit, RetryLater, RetryNow, SpecialHandling, Subdoc, Success, Support,
    SystemConstraint, Temp,
};

impl Attribute {
    const fn name(self) -> &'static str {
        match self {
            Success => "success",
            ItemOnly => "item-only",
            InvalidInput => "invalid-input",
            FetchConfig => "fetch-config",
            ConnStateInvalidated => "conn-state-invalidated",
            Auth => "auth",
            SpecialHandling => "special-handling",
            Support => "support",
            Internal => "internal",
            RetryNow => "retry-now",
            RetryLater => "retry-later",
            Temp => "temp",
            Dcp => "dcp",
            ItemLocked => "item-locked",
            ItemDeleted => "item-deleted",
            Subdoc => "subdoc",
            RateLimit => "rate-limit",
            SystemConstraint => "system-constraint",
            NoRetry => "no-retry",
        }
    }

    /// Returns the version of the map that introduced the attribute; clients of older versions do not know it.
    const fn since(self) -> u16 {
        match self {
            SystemConstraint | NoRetry => 2,
            _ => 1,
        }
    }
}

struct ErrorMapRow {
    status: Status,
    name: &'static str,
    attributes: &'static [Attribute],
    description: &'static str,
}

const fn row(
    status: Status,
    name: &'static str,
    attributes: &'static [Attribute],
    description: &'static str,
) -> ErrorMapRow {
    ErrorMapRow {
        status,
        name,
        attributes,
        description,
    }
}

#[rustfmt::skip]
const ROWS: &[ErrorMapRow] = &[
    row(Status::Success, "SUCCESS", &[Success], "The operation worked."),
    row(Status::KeyNotFound, "KEY_ENOENT", &[ItemOnly], "There is no such key, or no such thing where a command names something else."),
    row(Status::KeyExists, "KEY_EEXISTS", &[ItemOnly], "The key exists already, or its CAS is not the one given."),
    row(Status::TooBig, "E2BIG", &[ItemOnly, InvalidInput], "The value, key or request is larger than allowed."),
    row(Status::Invalid, "EINVAL", &[Internal, InvalidInput], "The request is malformed."),
    row(Status::NotStored, "NOT_STORED", &[Internal, ItemOnly], "The value was not stored because a condition was not met."),
    row(Status::DeltaBadValue, "DELTA_BADVAL", &[ItemOnly, InvalidInput], "The stored value is no number that can be counted."),
    row(Status::NotMyVbucket, "NOT_MY_VBUCKET", &[FetchConfig, InvalidInput], "This node does not hold the vBucket in the needed state; the body may be a newer cluster map."),
    row(Status::NoBucket, "NO_BUCKET", &[ConnStateInvalidated], "The connection has no bucket; select one first."),
    row(Status::Locked, "LOCKED", &[ItemLocked, ItemOnly, RetryNow], "Somebody holds a lock on the document."),
    row(Status::StreamNotFound, "STREAM_NOT_FOUND", &[ConnStateInvalidated], "No DCP stream is open for this request."),
    row(Status::OpaqueNoMatch, "OPAQUE_NO_MATCH", &[ConnStateInvalidated], "The opaque is not that of the DCP stream."),
    row(Status::EwouldThrottle, "EWOULD_THROTTLE", &[Temp, RetryLater, RateLimit], "The bucket is throttled; try again later."),
    row(Status::ConfigOnly, "ECONFIG_ONLY", &[FetchConfig, RetryNow], "The bucket holds no data on this node, only configuration."),
    row(Status::NotLocked, "NOT_LOCKED", &[ItemOnly], "The document is not locked."),
    row(Status::CasValueInvalid, "CAS_VALUE_INVALID", &[ItemOnly], "The CAS given for the document cannot be used."),
    row(Status::AuthStale, "AUTH_STALE", &[ConnStateInvalidated, Auth], "The credentials changed; authenticate again."),
    row(Status::AuthError, "AUTH_ERROR", &[ConnStateInvalidated, Auth], "The credentials were refused."),
    row(Status::AuthContinue, "AUTH_CONTINUE", &[SpecialHandling], "Authentication needs another step."),
    row(Status::OutOfRange, "ERANGE", &[InvalidInput], "A number is outside its range."),
    row(Status::Rollback, "ROLLBACK", &[Dcp, SpecialHandling], "The DCP client must roll back to the seqno in the body."),
    row(Status::AccessDenied, "EACCESS", &[Support], "The user lacks a privilege for this."),
    row(Status::NotInitialized, "NOT_INITIALIZED", &[ConnStateInvalidated], "The node is not initialised yet."),
    row(Status::EncryptionKeyNotAvailable, "ENCRYPTION_KEY_NOT_AVAILABLE", &[SpecialHandling], "An encryption key that is needed is not there."),
    row(Status::ChecksumMismatch, "CHECKSUM_MISMATCH", &[SpecialHandling], "A checksum does not match its data."),
    row(Status::ExpiryOverflow, "EXPIRY_OVERFLOW", &[ItemOnly, SystemConstraint, NoRetry], "The expiry would not fit 32 bits."),
    row(Status::LockExpiryOverflow, "LOCK_EXPIRY_OVERFLOW", &[ItemOnly, SystemConstraint, NoRetry], "The lock time would not fit 32 bits."),
    row(Status::RateLimitedNetworkIngress, "RATE_LIMITED_NETWORK_INGRESS", &[Temp, RetryLater, RateLimit], "The limit of incoming traffic is reached."),
    row(Status::RateLimitedNetworkEgress, "RATE_LIMITED_NETWORK_EGRESS", &[Temp, RetryLater, RateLimit], "The limit of outgoing traffic is reached."),
    row(Status::RateLimitedMaxConnections, "RATE_LIMITED_MAX_CONNECTIONS", &[ConnStateInvalidated, RateLimit], "The limit of connections is reached."),
    row(Status::RateLimitedMaxCommands, "RATE_LIMITED_MAX_COMMANDS", &[Temp, RetryLater, RateLimit], "The limit of commands is reached."),
    row(Status::BucketSizeLimitExceeded, "BUCKET_SIZE_LIMIT_EXCEEDED", &[ItemOnly, SystemConstraint, NoRetry], "The bucket reached its size limit."),
    row(Status::BucketResidentRatioTooLow, "BUCKET_RESIDENT_RATIO_TOO_LOW", &[ItemOnly, SystemConstraint, NoRetry], "Too little of the bucket is in memory to take more writes."),
    row(Status::BucketDataSizeTooBig, "BUCKET_DATA_SIZE_TOO_BIG", &[ItemOnly, SystemConstraint, NoRetry], "The bucket holds too much data to take more writes."),
    row(Status::BucketDiskSpaceTooLow, "BUCKET_DISK_SPACE_TOO_LOW", &[ItemOnly, SystemConstraint, NoRetry], "The disk has too little room to take more writes."),
    row(Status::BucketPaused, "BUCKET_PAUSED", &[Support], "The bucket is paused."),
    row(Status::Cancelled, "CANCELLED", &[ItemOnly, RetryNow], "The operation was cancelled and changed nothing."),
    row(Status::UnknownFrameInfo, "UNKNOWN_FRAME_INFO", &[Support], "A framing extra of the request is not known."),
    row(Status::UnknownCommand, "UNKNOWN_COMMAND", &[Support], "The opcode is not known."),
    row(Status::NoMemory, "ENOMEM", &[Temp, RetryLater], "The memory quota leaves no room for this write."),
    row(Status::NotSupported, "NOT_SUPPORTED", &[Support], "The server knows the command but does not support it."),
    row(Status::Internal, "EINTERNAL", &[Internal, ConnStateInvalidated], "The server failed in a way it did not foresee."),
    row(Status::Busy, "EBUSY", &[Temp, RetryNow], "The server is busy; try again."),
    row(Status::TemporaryFailure, "ETMPFAIL", &[Temp, RetryNow], "The server cannot do this at the moment; try again."),
    row(Status::XattrInvalid, "XATTR_EINVAL", &[InvalidInput], "The extended attributes are malformed."),
    row(Status::UnknownCollection, "UNKNOWN_COLLECTION", &[InvalidInput], "The collection is not known; the body tells the manifest the server has."),
    row(Status::CannotApplyCollectionsManifest, "CANNOT_APPLY_COLLECTIONS_MANIFEST", &[InvalidInput], "The collections manifest cannot be applied."),
    row(Status::UnknownScope, "UNKNOWN_SCOPE", &[InvalidInput], "The scope is not known; the body tells the manifest the server has."),
    row(Status::DcpStreamIdInvalid, "DCP_STREAMID_INVALID", &[InvalidInput], "The DCP stream id is used wrongly."),
    row(Status::DurabilityInvalidLevel, "DURABILITY_INVALID_LEVEL", &[InvalidInput], "The durability level does not exist or cannot be had here."),
    row(Status::DurabilityImpossible, "DURABILITY_IMPOSSIBLE", &[ItemOnly, InvalidInput], "Too few nodes for the durability level."),
    row(Status::SyncWriteInProgress, "SYNC_WRITE_IN_PROGRESS", &[ItemOnly, RetryLater], "Another durable write to this key is pending."),
    row(Status::SyncWriteAmbiguous, "SYNC_WRITE_AMBIGUOUS", &[ItemOnly], "The outcome of the durable write is not known."),
    row(Status::SyncWriteReCommitInProgress, "SYNC_WRITE_RE_COMMIT_IN_PROGRESS", &[ItemOnly, RetryLater], "A durable write from before a failover is still being completed."),
    row(Status::RangeScanCancelled, "RANGE_SCAN_CANCELLED", &[Success], "The range scan was cancelled."),
    row(Status::RangeScanMore, "RANGE_SCAN_MORE", &[Success], "The range scan has more; continue it."),
    row(Status::RangeScanComplete, "RANGE_SCAN_COMPLETE", &[Success], "The range scan is complete."),
    row(Status::VbUuidNotEqual, "VB_UUID_NOT_EQUAL", &[InvalidInput], "The vBucket uuid is not the one required."),
    row(Status::SubdocPathEnoent, "SUBDOC_PATH_ENOENT", &[Subdoc, ItemOnly], "The path is not in the document."),
    row(Status::SubdocPathMismatch, "SUBDOC_PATH_MISMATCH", &[Subdoc, ItemOnly], "The path treats a part of the document as what it is not."),
    row(Status::SubdocPathEinval, "SUBDOC_PATH_EINVAL", &[Subdoc, InvalidInput], "The path does not parse or makes no sense for this operation."),
    row(Status::SubdocPathE2big, "SUBDOC_PATH_E2BIG", &[Subdoc, InvalidInput], "The path is too long."),
    row(Status::SubdocPathE2deep, "SUBDOC_PATH_E2DEEP", &[Subdoc, InvalidInput], "The path has too many components, or the document is nested too deep."),
    row(Status::SubdocValueCantinsert, "SUBDOC_VALUE_CANTINSERT", &[Subdoc, InvalidInput], "The value is not valid JSON at that place, or the sum would not fit 64 bits."),
    row(Status::SubdocDocNotjson, "SUBDOC_DOC_NOTJSON", &[Subdoc, ItemOnly], "The document is not JSON."),
    row(Status::SubdocNumErange, "SUBDOC_NUM_ERANGE", &[Subdoc, ItemOnly], "The whole number there does not fit 64 bits."),
    row(Status::SubdocDeltaEinval, "SUBDOC_DELTA_EINVAL", &[Subdoc, ItemOnly], "The delta is zero or no whole number of 64 bits."),
    row(Status::SubdocPathEexists, "SUBDOC_PATH_EEXISTS", &[Subdoc, ItemOnly], "The path exists already."),
    row(Status::SubdocValueEtoodeep, "SUBDOC_VALUE_ETOODEEP", &[Subdoc, InvalidInput, ItemOnly], "The result would be nested too deep."),
    row(Status::SubdocInvalidCombo, "SUBDOC_INVALID_COMBO", &[Subdoc, InvalidInput], "The request mixes lookups and mutations."),
    row(Status::SubdocMultiPathFailure, "SUBDOC_MULTI_PATH_FAILURE", &[Subdoc, SpecialHandling], "One or more paths failed; the body tells which."),
    row(Status::SubdocSuccessDeleted, "SUBDOC_SUCCESS_DELETED", &[ItemDeleted, Success, Subdoc], "The operation worked, on a deleted document."),
    row(Status::SubdocXattrInvalidFlagCombo, "SUBDOC_XATTR_INVALID_FLAG_COMBO", &[Subdoc, InvalidInput], "The flags exclude each other."),
    row(Status::SubdocXattrInvalidKeyCombo, "SUBDOC_XATTR_INVALID_KEY_COMBO", &[Subdoc, InvalidInput], "The request names several extended attributes where one is allowed."),
    row(Status::SubdocXattrUnknownMacro, "SUBDOC_XATTR_UNKNOWN_MACRO", &[Subdoc, InvalidInput], "The macro is not known."),
    row(Status::SubdocXattrUnknownVattr, "SUBDOC_XATTR_UNKNOWN_VATTR", &[Subdoc, InvalidInput], "The virtual attribute is not known."),
    row(Status::SubdocXattrCantModifyVattr, "SUBDOC_XATTR_CANT_MODIFY_VATTR", &[Subdoc, InvalidInput], "Virtual attributes cannot be changed."),
    row(Status::SubdocMultiPathFailureDeleted, "SUBDOC_MULTI_PATH_FAILURE_DELETED", &[ItemDeleted, Subdoc, SpecialHandling], "One or more paths failed on a deleted document; the body tells which."),
    row(Status::SubdocInvalidXattrOrder, "SUBDOC_INVALID_XATTR_ORDER", &[Subdoc, InvalidInput], "Extended attributes must come before the body."),
    row(Status::SubdocXattrUnknownVattrMacro, "SUBDOC_XATTR_UNKNOWN_VATTR_MACRO", &[Subdoc, InvalidInput], "The field of the virtual attribute is not known."),
    row(Status::SubdocCanOnlyReviveDeletedDocuments, "SUBDOC_CAN_ONLY_REVIVE_DELETED_DOCUMENTS", &[Subdoc, ItemOnly], "Only a deleted document can be revived."),
    row(Status::SubdocDeletedDocumentCantHaveValue, "SUBDOC_DELETED_DOCUMENT_CANT_HAVE_VALUE", &[Subdoc, ItemOnly], "A deleted document cannot have a body."),
    row(Status::SubdocFieldNotBinaryValue, "SUBDOC_FIELD_NOT_BINARY_VALUE", &[Subdoc, ItemOnly], "The attribute holds no binary value."),
];

fn json_text(version: u16) -> String {
    let errors: Map<String, Value> = ROWS
        .iter()
        .map(|row| {
            let attributes: Vec<&str> = row
                .attributes
                .iter()
                .filter(|attribute| attribute.since() <= version)
                .map(|attribute| attribute.name())
                .collect();
            (
                format!("{:x}", row.status.wire()),
                json!({"name": row.name, "desc": row.description, "attrs": attributes}),
            )
        })
        .collect();
    json!({"version": version, "revision": REVISION, "errors": errors}).to_string()
}

/// Returns the error map as JSON text, in the requested version or the newest below it (an old client treats a newer
/// version as a protocol error). `None` for version 0, which does not exist; the reply is then
/// [`kedge_types::Status::KeyNotFound`].
#[must_use]
pub fn error_map(version: u16) -> Option<&'static str> {
    static V1: LazyLock<String> = LazyLock::new(|| json_text(1));
    static V2: LazyLock<String> = LazyLock::new(|| json_text(2));
    match version {
        0 => None,
        1 => Some(&V1),
        _ => Some(&V2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_error_map_versions_describe_every_status_once() {
        for version in [1_u16, 2, 3, u16::MAX] {
            let map: Value = serde_json::from_str(error_map(version).unwrap()).unwrap();
            assert_eq!(map["version"], version.min(2));
            assert_eq!(map["revision"], REVISION);
            let errors = map["errors"].as_object().unwrap();
            assert_eq!(errors.len(), Status::ALL.len());
            for &status in Status::ALL {
                let entry = &errors[&format!("{:x}", status.wire())];
                assert!(!entry["name"].as_str().unwrap().is_empty(), "{status:?}");
                assert!(!entry["desc"].as_str().unwrap().is_empty(), "{status:?}");
                assert!(!entry["attrs"].as_array().unwrap().is_empty() || version == 1);
            }
        }
        assert_eq!(ROWS.len(), Status::ALL.len());
        assert_eq!(error_map(0), None);
    }

    #[test]
    fn error_map_version_one_has_only_attributes_of_version_one() {
        const KNOWN: &[&str] = &[
            "success",
            "item-only",
            "invalid-input",
            "fetch-config",
            "conn-state-invalidated",
            "auth",
            "special-handling",
            "support",
            "temp",
            "internal",
            "retry-now",
            "retry-later",
            "subdoc",
            "dcp",
            "auto-retry",
            "item-locked",
            "item-deleted",
            "rate-limit",
        ];
        let map: Value = serde_json::from_str(error_map(1).unwrap()).unwrap();
        for entry in map["errors"].as_object().unwrap().values() {
            for attribute in entry["attrs"].as_array().unwrap() {
                assert!(KNOWN.contains(&attribute.as_str().unwrap()), "{attribute}");
            }
        }
        let newest: Value = serde_json::from_str(error_map(2).unwrap()).unwrap();
        assert!(
            newest["errors"]["35"]["attrs"]
                .as_array()
                .unwrap()
                .contains(&json!("no-retry"))
        );
    }

    #[test]
    fn success_attribute_follows_the_status() {
        for row in ROWS {
            if row.attributes.contains(&Success) {
                // A cancelled scan ends a stream of replies; the request that started the scan has not failed.
                assert!(row.status.is_success() || row.status == Status::RangeScanCancelled);
            }
        }
    }
}
