//! Local documents of the target: those of the source, with the changes of the hooks.
//!
//! Invariant: the local documents after a commit depend on those of the source and on the changes that the hooks made
//! before this commit, and not on changes before an earlier one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;

use crate::limits::{KEY_BYTES_MAX, LOCAL_BYTES_MAX};
use crate::read::Locals;
use crate::tree::Local;
use crate::tree::build::{NodeSizes, TreeBuilder};
use crate::{Error, InvalidBatch, Snapshot, Writer};

type NamedLocal = (Vec<u8>, Vec<u8>);

/// The local documents of the next commit of the target: those of the source, and changes of them.
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

    /// Returns the state of the source that the target is about to have.
    #[must_use]
    pub fn source(&self) -> &Snapshot {
        &self.source
    }

    /// Returns the value that the target will have: the changed one, or that of the source.
    ///
    /// # Errors
    /// Damage of the source, and disk errors.
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

    /// Removes a local document from the target.
    pub fn remove(&mut self, name: &[u8]) {
        self.changes.insert(name.to_vec(), None);
    }

    /// Returns all local documents of the target, in the order of names.
    fn into_documents(self) -> Result<MergedLocals, Error> {
        let changes = self.changes.iter().enumerate();
        for (index, (name, value)) in changes {
            if name.is_empty() || name.len() > KEY_BYTES_MAX {
                return Err(InvalidBatch::KeyLength(index).into());
            }
            if value
                .as_ref()
                .is_some_and(|value| value.len() > LOCAL_BYTES_MAX)
            {
                return Err(InvalidBatch::ValueLength(index).into());
            }
        }
        Ok(MergedLocals {
            source: self.source.locals()?,
            next: None,
            changes: self.changes.into_iter().peekable(),
        })
    }
}

/// Builds the local tree of a new file.
pub(super) fn build(patch: LocalPatch, writer: &mut Writer) -> Result<(), Error> {
    let mut documents = patch.into_documents()?;
    let mut builder = TreeBuilder::<Local>::new(&mut writer.out, NodeSizes::COPY);
    while let Some((name, value)) = documents.next()? {
        builder.push(&name, |out| out.extend_from_slice(&value))?;
    }
    writer.draft.local = builder.finish()?;
    writer.changed = true;
    Ok(())
}

/// Updates the local tree of a file that has one. Returns `true` if there was a difference.
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

/// The source's local documents merged with changes, both in ascending order.
struct MergedLocals {
    source: Locals,
    /// The next document of the source, if it has been read.
    next: Option<NamedLocal>,
    changes: Peekable<btree_map::IntoIter<Vec<u8>, Option<Vec<u8>>>>,
}

impl MergedLocals {
    fn next(&mut self) -> Result<Option<NamedLocal>, Error> {
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
