//! APPEND and PREPEND.

use crate::item::Item;
use crate::modify::{Modified, Modify, NextVersion};
use crate::precompute::Precomputed;
use crate::value::ValueParts;
use crate::write::{ConcatMode, body_of};
use kedge_types::{DocKey, Status};

/// Bytes to be added to the front or the end of a value.
#[derive(Debug)]
pub struct ConcatChange<'a> {
    mode: ConcatMode,
    bytes: &'a [u8],
    precomputed: Precomputed<Result<Modified, Status>>,
}

impl<'a> ConcatChange<'a> {
    /// Creates the change for this end of a value.
    #[must_use]
    pub fn new(mode: ConcatMode, bytes: &'a [u8]) -> Self {
        Self {
            mode,
            bytes,
            precomputed: Precomputed::default(),
        }
    }

    fn join(&self, there: Option<&Item>) -> Result<Modified, Status> {
        let old = there.ok_or(Status::NotStored)?;
        let there = ValueParts::of(old)?.into_body();
        let joined = match self.mode {
            ConcatMode::Append => [&there, self.bytes].concat(),
            ConcatMode::Prepend => [self.bytes, &there].concat(),
        };
        let value = body_of(joined, Some(old))?;
        Ok(Modified {
            datatype: value.datatype,
            value: value.bytes.into_owned(),
            draft: None,
            flags: old.flags(),
            deleted: false,
        })
    }
}

impl Modify for ConcatChange<'_> {
    fn wants_tombstones(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
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
