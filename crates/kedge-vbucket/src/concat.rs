//! APPEND and PREPEND.

use crate::ahead::MadeAhead;
use crate::item::Item;
use crate::modify::{Modified, Modify, NextVersion};
use crate::value::Parts;
use crate::write::{ConcatMode, body_of};
use kedge_types::{DocKey, Status};

/// Bytes that are put in front of or behind a value.
#[derive(Debug)]
pub struct Concat<'a> {
    mode: ConcatMode,
    bytes: &'a [u8],
    ahead: MadeAhead<Result<Modified, Status>>,
}

impl<'a> Concat<'a> {
    /// Bytes that are put to this end of a value.
    #[must_use]
    pub fn new(mode: ConcatMode, bytes: &'a [u8]) -> Self {
        Self {
            mode,
            bytes,
            ahead: MadeAhead::default(),
        }
    }

    fn join(&self, there: Option<&Item>) -> Result<Modified, Status> {
        let old = there.ok_or(Status::NotStored)?;
        let there = Parts::of(old)?.into_body();
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

impl Modify for Concat<'_> {
    fn wants_tombstones(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn prepare(&self, key: &DocKey, there: Option<&Item>) {
        self.ahead.prepare(key, there, |there| self.join(there));
    }

    fn modify(&self, there: Option<&Item>, _next: &NextVersion) -> Result<Modified, Status> {
        let made = self.ahead.take(there);
        made.unwrap_or_else(|| self.join(there))
    }
}
