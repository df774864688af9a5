//! What becomes of a range scan, as its client is told.

use crate::item::Item;

/// A part of what a range scan found.
#[derive(Clone, Debug)]
pub struct ScanPart {
    /// In the order of keys.
    pub found: ScanFound,
    /// Why it is the last part for now; `None`: more come.
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
        /// True if their extended attributes are wanted.
        with_xattrs: bool,
    },
}

/// Why a part of a scan is the last for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    /// A limit was met: the client asks for more.
    More,
    /// There is nothing more, and the scan is gone.
    Complete,
}
