//! Commands on the documents of a vBucket, at a moment.
//!
//! The commands lie in files of their own: `read`, `write`, `modify`, `with_meta`, `locking`, `observe`.

use crate::durability::DurabilityMonitor;
use crate::store::VbStore;
use kedge_types::Now;

/// A vBucket for which commands run. See [`crate::VBucket::at`].
#[derive(Debug)]
pub struct Step<'a> {
    pub(crate) now: Now,
    pub(crate) store: &'a mut VbStore,
    pub(crate) durability: &'a mut DurabilityMonitor,
}
