//! A step of a vBucket: commands at one moment.
//!
//! The commands are in the files `read`, `write`, `modify`, `with_meta`, `locking` and `observe`.

use crate::durability::DurabilityMonitor;
use crate::store::VbStore;
use kedge_types::Now;

/// A vBucket at a moment, on which commands run. See [`crate::VBucket::at`].
#[derive(Debug)]
pub struct Step<'a> {
    pub(crate) now: Now,
    pub(crate) store: &'a mut VbStore,
    pub(crate) durability: &'a mut DurabilityMonitor,
}
