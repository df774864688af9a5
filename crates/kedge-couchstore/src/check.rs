//! Checking all that a header reaches: what reading relies on, and what it takes on trust as looking costs too much.
//!
//! Memory: one node per level, and the interior nodes in the cache. Nothing grows with the file.

use kedge_types::Seqno;

use crate::format::pointer::{Pointer, Reduce};
use crate::limits::DEPTH_MAX;
use crate::tree::search::{Nodes, Windows};
use crate::tree::{ById, BySeqno, Local, Tree};
use crate::{Error, Form, Offset, Problem, Snapshot};

/// What a check of a snapshot went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Documents that are not tombstones.
    pub live: u64,
    /// Tombstones.
    pub deleted: u64,
    /// Local documents.
    pub locals: u64,
    /// Nodes of all three trees.
    pub nodes: u64,
    /// Bytes on disk of bodies.
    pub body_bytes: u64,
}

/// What was found below a pointer.
struct Below<R> {
    reduce: R,
    subtree_bytes: u64,
    last_key: Vec<u8>,
}

struct Trees<'a, 'n> {
    nodes: &'a mut Nodes<'n>,
    checked: &'a mut Checked,
}

impl Snapshot {
    /// Walks everything: nodes, their order, sums and sizes; that both trees say the same; every body.
    ///
    /// `progress` is told the number of documents that were compared.
    ///
    /// # Errors
    /// The first damage that is found; those of the disk.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<Checked, Error> {
        let mut checked = Checked::default();
        let header = self.header();
        self.check_tree::<Local>(header.local.as_ref(), &mut checked)?;
        checked.locals = self.locals()?.count() as u64;
        self.check_tree::<BySeqno>(header.by_seqno.as_ref(), &mut checked)?;
        self.check_tree::<ById>(header.by_id.as_ref(), &mut checked)?;
        let seqnos = header.by_seqno.map_or(0, |root| root.reduce.count);
        let mut documents = 0;
        for document in self.scan_ids(..)?.with_bodies(Form::Plain) {
            let entry = document?.entry;
            let other = self.get_by_seqno(entry.seqno())?;
            if other.as_ref() != Some(&entry) || entry.seqno() > header.update_seqno() {
                return Err(self.disagrees(entry.seqno()));
            }
            checked.body_bytes += u64::from(entry.disk_bytes());
            if entry.is_deleted() {
                checked.deleted += 1;
            } else {
                checked.live += 1;
            }
            documents += 1;
            progress(documents);
        }
        // Each document has a seqno of its own, so equal numbers of entries mean that there are no others.
        if documents != seqnos {
            return Err(self.disagrees(Seqno(0)));
        }
        Ok(checked)
    }

    fn disagrees(&self, seqno: Seqno) -> Error {
        self.shared()
            .corrupt(self.header().offset(), Problem::TreesDiffer(seqno.0))
    }

    fn check_tree<T: Tree>(
        &self,
        root: Option<&Pointer<T::Reduce>>,
        checked: &mut Checked,
    ) -> Result<(), Error> {
        let Some(root) = root else {
            return Ok(());
        };
        let mut windows = Windows::exact();
        let mut trees = Trees {
            nodes: &mut Nodes::new(self.shared(), self.header().offset(), &mut windows),
            checked,
        };
        trees.subtree::<T>(root, None, 0)?;
        Ok(())
    }
}

impl Trees<'_, '_> {
    /// Checks a subtree whose keys have to be above `after`.
    fn subtree<T: Tree>(
        &mut self,
        pointer: &Pointer<T::Reduce>,
        after: Option<&[u8]>,
        depth: usize,
    ) -> Result<Below<T::Reduce>, Error> {
        if depth == DEPTH_MAX {
            return Err(self.nodes.too_deep::<T>(pointer));
        }
        let at = Offset(pointer.offset);
        let (node, chunk_bytes) = self.nodes.node_and_bytes::<T>(pointer)?;
        self.checked.nodes += 1;
        let corrupt = |nodes: &Nodes<'_>, problem| Err(nodes.shared.corrupt(at, problem));
        let mut below = Below {
            reduce: T::Reduce::default(),
            subtree_bytes: chunk_bytes,
            last_key: after.unwrap_or_default().to_vec(),
        };
        for entry in node.entries() {
            if (after.is_some() || entry.start > 1) && entry.key <= &*below.last_key {
                return corrupt(self.nodes, Problem::KeyOrder(entry.start as u32));
            }
            if node.is_leaf() {
                below.reduce.add(&T::reduce(entry.value));
            } else {
                let child = entry.pointer::<T>();
                let first = after.is_none() && entry.start == 1;
                let after = (!first).then_some(&*below.last_key);
                let found = self.subtree::<T>(&child, after, depth + 1)?;
                if found.last_key != entry.key {
                    return corrupt(self.nodes, Problem::LastKey(entry.start as u32));
                }
                below.reduce.add(&found.reduce);
                below.subtree_bytes += found.subtree_bytes;
            }
            below.last_key.clear();
            below.last_key.extend_from_slice(entry.key);
        }
        if below.reduce != pointer.reduce {
            return corrupt(self.nodes, Problem::Reduce);
        }
        if below.subtree_bytes != pointer.subtree_bytes {
            return corrupt(
                self.nodes,
                Problem::SubtreeBytes {
                    expected: below.subtree_bytes,
                    found: pointer.subtree_bytes,
                },
            );
        }
        Ok(below)
    }
}
