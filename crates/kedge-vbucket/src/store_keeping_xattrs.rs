//! Replacement of a body whose extended attributes are kept.

use crate::item::Item;
use crate::modify::{Modified, Modify, NextVersion};
use crate::precompute::Precomputed;
use crate::value::NewValue;
use crate::write::StoreMode;
use kedge_types::{DocKey, Status};

/// A store as a change of the existing document, so that attributes and body can be joined before the vBucket is
/// locked. Equivalent to [`crate::Step::store`].
#[derive(Debug)]
pub struct StoreKeepingXattrs<'a> {
    mode: StoreMode,
    value: &'a NewValue<'a>,
    flags: u32,
    precomputed: Precomputed<Result<Modified, Status>>,
}

impl<'a> StoreKeepingXattrs<'a> {
    /// Creates a store that keeps the extended attributes of the existing document.
    #[must_use]
    pub fn new(mode: StoreMode, value: &'a NewValue<'a>, flags: u32) -> Self {
        Self {
            mode,
            value,
            flags,
            precomputed: Precomputed::default(),
        }
    }

    fn join(&self, there: Option<&Item>) -> Result<Modified, Status> {
        match (self.mode, there) {
            (StoreMode::Add, Some(_)) => return Err(Status::KeyExists),
            (StoreMode::Replace, None) => return Err(Status::KeyNotFound),
            _ => {}
        }
        let (value, datatype) = match there {
            Some(old) if old.has_xattrs() => {
                let both = self.value.behind_xattrs_of(old)?;
                (both.bytes.into_owned(), both.datatype)
            }
            _ => (self.value.bytes.to_vec(), self.value.datatype),
        };
        Ok(Modified {
            value,
            draft: None,
            datatype,
            flags: self.flags,
            deleted: false,
        })
    }
}

impl Modify for StoreKeepingXattrs<'_> {
    fn wants_tombstones(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        self.value.bytes.len()
    }

    fn prepare(&self, key: &DocKey, there: Option<&Item>) {
        self.precomputed
            .prepare(key, there, |there| self.join(there));
    }

    fn modify(&self, there: Option<&Item>, _next: &NextVersion) -> Result<Modified, Status> {
        let made = self.precomputed.take(there);
        made.unwrap_or_else(|| self.join(there))
    }
}
