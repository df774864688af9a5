//! Local documents: names and values in addition to the documents, in the same commit.

use super::Writer;
use crate::limits::{KEY_BYTES_MAX, LOCAL_BYTES_MAX};
use crate::tree::Local;
use crate::tree::build::TreeBuilder;
use crate::tree::node::NodeEntry;
use crate::tree::update::TreeChanges;
use crate::{Error, InvalidBatch};

/// The change of a local document; `None` removes it.
pub type LocalChange<'a> = (&'a [u8], Option<&'a [u8]>);

struct LocalChanges<'a> {
    /// Changes in ascending order of names.
    left: &'a [LocalChange<'a>],
}

impl TreeChanges<Local> for LocalChanges<'_> {
    fn next_key(&self) -> Option<&[u8]> {
        self.left.first().map(|(name, _)| *name)
    }

    fn apply(
        &mut self,
        _: Option<NodeEntry<'_>>,
        builder: &mut TreeBuilder<'_, Local>,
    ) -> Result<(), Error> {
        let Some(((name, value), rest)) = self.left.split_first() else {
            return Ok(());
        };
        self.left = rest;
        match value {
            Some(value) => builder.push(name, |out| out.extend_from_slice(value)),
            None => Ok(()),
        }
    }
}

impl Writer {
    /// Sets and removes local documents. The names must differ.
    ///
    /// # Errors
    /// [`Error::Refused`] before anything was changed; damage of the file; disk errors.
    pub fn save_locals(&mut self, changes: &[LocalChange<'_>]) -> Result<(), Error> {
        self.out.check()?;
        for (index, (name, value)) in changes.iter().enumerate() {
            if name.is_empty() || name.len() > KEY_BYTES_MAX {
                return Err(InvalidBatch::KeyLength(index).into());
            }
            if value.is_some_and(|value| value.len() > LOCAL_BYTES_MAX) {
                return Err(InvalidBatch::ValueLength(index).into());
            }
        }
        let mut indices: Vec<usize> = (0..changes.len()).collect();
        indices.sort_unstable_by_key(|index| changes[*index].0);
        if let Some(pair) = indices
            .windows(2)
            .find(|pair| changes[pair[0]].0 == changes[pair[1]].0)
        {
            return Err(
                InvalidBatch::DuplicateKey(pair[0].min(pair[1]), pair[0].max(pair[1])).into(),
            );
        }
        if changes.is_empty() {
            return Ok(());
        }
        let sorted: Vec<LocalChange<'_>> = indices.iter().map(|index| changes[*index]).collect();
        // A tree that was saved since the last commit may be in the buffer only.
        if self.draft.local != self.committed.local {
            self.out.write_all()?;
        }
        let mut changes = LocalChanges { left: &sorted };
        self.draft.local = self.update_tree(self.draft.local, &mut changes, 0)?;
        self.changed = true;
        Ok(())
    }
}
