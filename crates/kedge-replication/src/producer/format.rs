//! How a connection wants its messages.

use kedge_protocol::binary::commands::dcp::{MarkerVersion, Open, OpenFlags};
use kedge_protocol::binary::{Feature, Features};

/// Which part of documents is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Whole,
    /// None, and the datatype is that of what is sent.
    No,
    /// None, and the datatype is that of the stored value.
    NoWithDatatype,
}

/// How a connection wants its messages: what HELLO, DCP_OPEN and DCP_CONTROL said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) collections: bool,
    pub(crate) snappy: bool,
    pub(crate) json: bool,
    pub(crate) body: Body,
    pub(crate) xattrs: bool,
    pub(crate) deleted_user_xattrs: bool,
    pub(crate) delete_times: bool,
    pub(crate) skip_deletes: bool,
    pub(crate) expiry_opcode: bool,
    pub(crate) force_compression: bool,
    pub(crate) hifi_mfu: bool,
    pub(crate) sync_writes: bool,
    pub(crate) marker_version: Option<MarkerVersion>,
}

impl Format {
    pub(crate) fn new(open: &Open<'_>, features: Features) -> Self {
        let has = |flag| open.flags.contains(flag);
        Self {
            collections: features.contains(Feature::Collections),
            snappy: features.contains(Feature::Snappy),
            json: features.contains(Feature::Json),
            body: if has(OpenFlags::NO_VALUE_WITH_DATATYPE) {
                Body::NoWithDatatype
            } else if has(OpenFlags::NO_VALUE) {
                Body::No
            } else {
                Body::Whole
            },
            xattrs: has(OpenFlags::XATTRS),
            deleted_user_xattrs: has(OpenFlags::DELETED_USER_XATTRS),
            delete_times: has(OpenFlags::DELETE_TIMES),
            skip_deletes: has(OpenFlags::SKIP_DELETES),
            expiry_opcode: false,
            force_compression: false,
            hifi_mfu: false,
            sync_writes: false,
            marker_version: None,
        }
    }

    /// Whether anything of values is sent.
    pub(crate) fn sends_values(&self) -> bool {
        self.body == Body::Whole || self.xattrs
    }

    /// A consumer of SyncWrites needs to hear what is completed, and knows markers that say it.
    pub(crate) fn marker_version(&self) -> MarkerVersion {
        self.marker_version.unwrap_or(if self.sync_writes {
            MarkerVersion::V2_0
        } else {
            MarkerVersion::V1
        })
    }

    /// SEQNO_ADVANCED came with collections and SyncWrites.
    pub(crate) fn knows_seqno_advanced(&self) -> bool {
        self.collections || self.sync_writes
    }
}
