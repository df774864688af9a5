//! The message format of a connection.

use crate::source::Values;
use kedge_protocol::binary::commands::dcp::{DcpOpen, MarkerVersion, OpenFlags};
use kedge_protocol::binary::{Feature, Features};

/// The part of documents' bodies that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyMode {
    Whole,
    /// No body; the datatype is that of the sent document.
    No,
    /// No body; the datatype is that of the stored document.
    NoWithDatatype,
}

/// The support for disk snapshots out of seqno order (OSO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OsoSupport {
    No,
    Yes,
    /// Supported, with a final SEQNO_ADVANCED.
    WithSeqnoAdvanced,
}

/// The message format that the consumer chose with HELLO, DCP_OPEN and DCP_CONTROL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageFormat {
    pub(crate) collections: bool,
    pub(crate) snappy: bool,
    pub(crate) json: bool,
    pub(crate) body: BodyMode,
    pub(crate) xattrs: bool,
    pub(crate) deleted_user_xattrs: bool,
    pub(crate) delete_times: bool,
    pub(crate) skip_deletes: bool,
    pub(crate) expiry_opcode: bool,
    pub(crate) force_compression: bool,
    pub(crate) hifi_mfu: bool,
    pub(crate) sync_writes: bool,
    pub(crate) unordered: OsoSupport,
    /// System events are flatbuffers as in files, with more fields.
    pub(crate) flatbuffer_events: bool,
    pub(crate) marker_version: Option<MarkerVersion>,
}

impl MessageFormat {
    pub(crate) fn new(open: &DcpOpen<'_>, features: Features) -> Self {
        let has = |flag| open.flags.contains(flag);
        Self {
            collections: features.contains(Feature::Collections),
            snappy: features.contains(Feature::Snappy),
            json: features.contains(Feature::Json),
            body: if has(OpenFlags::NO_VALUE_WITH_DATATYPE) {
                BodyMode::NoWithDatatype
            } else if has(OpenFlags::NO_VALUE) {
                BodyMode::No
            } else {
                BodyMode::Whole
            },
            xattrs: has(OpenFlags::XATTRS),
            deleted_user_xattrs: has(OpenFlags::DELETED_USER_XATTRS),
            delete_times: has(OpenFlags::DELETE_TIMES),
            skip_deletes: has(OpenFlags::SKIP_DELETES),
            expiry_opcode: false,
            force_compression: false,
            hifi_mfu: false,
            sync_writes: false,
            unordered: OsoSupport::No,
            flatbuffer_events: false,
            marker_version: None,
        }
    }

    /// Returns the part of the values that is sent.
    pub(crate) fn values(&self) -> Values {
        match self.body {
            BodyMode::Whole => Values::Whole,
            _ if self.xattrs => Values::Xattrs,
            _ => Values::None,
        }
    }

    /// Returns the version of snapshot markers. A consumer of SyncWrites needs the completed seqno, and knows markers
    /// with that field.
    pub(crate) fn marker_version(&self) -> MarkerVersion {
        self.marker_version.unwrap_or(if self.sync_writes {
            MarkerVersion::V2_0
        } else {
            MarkerVersion::V1
        })
    }

    /// Returns whether the consumer knows SEQNO_ADVANCED, which was introduced with collections and SyncWrites.
    pub(crate) fn knows_seqno_advanced(&self) -> bool {
        self.collections || self.sync_writes
    }
}
