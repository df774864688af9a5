//! Results of range scans.

use crate::item::Item;

/// A part of the result of a range scan.
#[derive(Clone, Debug)]
pub struct ScanPart {
    /// The keys or documents, in key order.
    pub found: ScanFound,
    /// The reason why the scan returns no further part for now. `None` if more parts follow.
    pub end: Option<ScanEnd>,
}

/// Keys or documents.
#[derive(Clone, Debug)]
pub enum ScanFound {
    /// Stored keys.
    Keys(Vec<Box<[u8]>>),
    /// Documents with their values.
    Documents {
        /// The documents.
        items: Vec<Item>,
        /// True if the client requested extended attributes.
        with_xattrs: bool,
    },
}

/// The reason for the end of a scan request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// A limit was reached. The client may continue the scan.
    More,
    /// The scan is complete and was removed.
    Complete,
}
