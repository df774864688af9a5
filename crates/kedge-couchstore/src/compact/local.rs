//! Local documents: those of the source, with what the hooks change about them.
//!
//! Invariant: what the target has after a commit depends on the source's local documents and on what the hooks said
//! before this commit, on nothing that was said before an earlier one.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::iter::Peekable;

use crate::limits::{KEY_BYTES_MAX, LOCAL_BYTES_MAX};
use crate::read::Locals;
use crate::tree::Local;
use crate::tree::build::{Builder, NodeSizes};
use crate::{Error, Refusal, Snapshot, Writer};

type Named = (Vec<u8>, Vec<u8>);

/// What the target's local documents will be: those of the source, and changes of them.
#[derive(Debug)]
pub struct LocalPatch {
    source: Snapshot,
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl LocalPatch {
    pub(super) fn new(source: &Snapshot) -> Self {
        LocalPatch {
            source: source.clone(),
            changes: BTreeMap::new(),
        }
    }

    /// The state of the source that the target is about to have.
    #[must_use]
    pub fn source(&self) -> &Snapshot {
        &self.source
    }

    /// What the target will have: what was said before, or else what the source has.
    ///
    /// # Errors
    /// Damage of the source, or those of the disk.
    pub fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match self.changes.get(name) {
            Some(change) => Ok(change.clone()),
            None => self.source.local(name),
        }
    }

    /// Sets a local document of the target.
    pub fn set(&mut self, name: &[u8], value: Vec<u8>) {
        self.changes.insert(name.to_vec(), Some(value));
    }

    /// Leaves a local document out of the target.
    pub fn remove(&mut self, name: &[u8]) {
        self.changes.insert(name.to_vec(), None);
    }

    /// All that the target will have, in the order of names.
    fn into_documents(self) -> Result<Documents, Error> {
        let changes = self.changes.iter().enumerate();
        for (index, (name, value)) in changes {
            if name.is_empty() || name.len() > KEY_BYTES_MAX {
                return Err(Refusal::KeyLength(index).into());
            }
            if value
                .as_ref()
                .is_some_and(|value| value.len() > LOCAL_BYTES_MAX)
            {
                return Err(Refusal::ValueLength(index).into());
            }
        }
        Ok(Documents {
            source: self.source.locals()?,
            next: None,
            changes: self.changes.into_iter().peekable(),
        })
    }
}

/// Builds the local tree of a new file.
pub(super) fn build(patch: LocalPatch, writer: &mut Writer) -> Result<(), Error> {
    let mut documents = patch.into_documents()?;
    let mut builder = Builder::<Local>::new(&mut writer.out, NodeSizes::COPY);
    while let Some((name, value)) = documents.next()? {
        builder.push(&name, |out| out.extend_from_slice(&value))?;
    }
    writer.draft.local = builder.finish()?;
    writer.changed = true;
    Ok(())
}

/// Changes the local tree of a file that has one to what it has to be. Whether there was a difference.
pub(super) fn update(patch: LocalPatch, writer: &mut Writer) -> Result<bool, Error> {
    let mut wanted = patch.into_documents()?;
    let mut present = writer.snapshot().locals()?;
    let mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    let mut want = wanted.next()?;
    let mut have = present.next().transpose()?;
    loop {
        let order = match (&want, &have) {
            (Some(want), Some(have)) => want.0.cmp(&have.0),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => break,
        };
        match order {
            Ordering::Less => {
                changes.extend(want.map(|(name, value)| (name, Some(value))));
                want = wanted.next()?;
            }
            Ordering::Greater => {
                changes.extend(have.map(|(name, _)| (name, None)));
                have = present.next().transpose()?;
            }
            Ordering::Equal => {
                if want != have {
                    changes.extend(want.map(|(name, value)| (name, Some(value))));
                }
                want = wanted.next()?;
                have = present.next().transpose()?;
            }
        }
    }
    let borrowed: Vec<_> = changes
        .iter()
        .map(|(name, value)| (&**name, value.as_deref()))
        .collect();
    writer.save_locals(&borrowed)?;
    Ok(!borrowed.is_empty())
}

/// The source's local documents with changes, both ascending.
struct Documents {
    source: Locals,
    /// What the source has next, if it was looked at.
    next: Option<Named>,
    changes: Peekable<btree_map::IntoIter<Vec<u8>, Option<Vec<u8>>>>,
}

impl Documents {
    fn next(&mut self) -> Result<Option<Named>, Error> {
        loop {
            if self.next.is_none() {
                self.next = self.source.next().transpose()?;
            }
            let order = match (&self.next, self.changes.peek()) {
                (Some((name, _)), Some((change, _))) => name.cmp(change),
                (Some(_), None) => Ordering::Less,
                (None, _) => Ordering::Greater,
            };
            if order == Ordering::Less {
                return Ok(self.next.take());
            }
            if order == Ordering::Equal {
                self.next = None;
            }
            match self.changes.next() {
                None => return Ok(None),
                Some((name, Some(value))) => return Ok(Some((name, value))),
                Some((_, None)) => {}
            }
        }
    }
}
