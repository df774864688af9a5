//! Lookups of documents.

use std::ops::{Bound, RangeBounds};

use kedge_types::Seqno;

use super::bodies::read_body;
use super::{BodyForm, Document, Entry, Snapshot};
use crate::Error;
use crate::file::cache::NodeCache;
use crate::file::window::ReadWindow;
use crate::format::bytes::be48;
use crate::limits::U48_MAX;
use crate::tree::node::NodeEntry;
use crate::tree::search::{NodeReader, ReadWindows};
use crate::tree::{ById, BySeqno, Local};

impl Snapshot {
    fn nodes<'a>(&'a self, windows: &'a mut ReadWindows) -> NodeReader<'a> {
        NodeReader::new(&self.shared, self.header.offset, windows)
    }

    /// Looks up the document or tombstone of a key. It reads one leaf of the tree, and the interior nodes that are not
    /// cached.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn get(&self, key: &[u8]) -> Result<Option<Entry>, Error> {
        let Some(root) = &self.header.by_id else {
            return Ok(None);
        };
        let mut windows = ReadWindows::exact();
        let mut nodes = self.nodes(&mut windows);
        nodes.find::<ById, _>(root, key, |entry| Entry::copied_from_id(&entry))
    }

    /// Reads nodes of the tree by id into the cache, from the root down, as many as fit, so that lookups need not.
    /// Leaves are included only with [`crate::Options::cache_leaves`].
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn remember_ids(&self) -> Result<(), Error> {
        let cache = self.shared.cache();
        // Counts visited nodes, not new ones, so that the walk ends whatever the pointers of a hostile file are.
        let mut room = cache.bytes_max();
        let mut windows = ReadWindows::exact();
        let mut nodes = self.nodes(&mut windows);
        let mut level: Vec<_> = self.header.by_id.into_iter().collect();
        while !level.is_empty() {
            let mut below = Vec::new();
            for pointer in level {
                let node = nodes.node::<ById>(&pointer)?;
                let Some(left) = room.checked_sub(NodeCache::bytes_of(&node)) else {
                    return Ok(());
                };
                room = left;
                if !node.is_leaf() {
                    below.extend(node.entries().map(|entry| entry.pointer::<ById>()));
                } else if !cache.has_leaves() {
                    return Ok(());
                }
            }
            level = below;
        }
        Ok(())
    }

    /// Looks up the document or tombstone of a seqno.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn get_by_seqno(&self, seqno: Seqno) -> Result<Option<Entry>, Error> {
        let Some(root) = &self.header.by_seqno else {
            return Ok(None);
        };
        if seqno.0 > U48_MAX {
            return Ok(None);
        }
        let mut windows = ReadWindows::exact();
        let mut nodes = self.nodes(&mut windows);
        let copied = |entry: NodeEntry<'_>| Entry::copied_from_seqno(&entry);
        nodes.find::<BySeqno, _>(root, &be48(seqno.0), copied)
    }

    /// Looks up the documents and tombstones of many keys in one walk over the tree. The result is in the order of
    /// `keys`.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Entry>>, Error> {
        let mut entries = vec![None; keys.len()];
        let Some(root) = &self.header.by_id else {
            return Ok(entries);
        };
        let mut sorted: Vec<(usize, &[u8])> = keys.iter().map(AsRef::as_ref).enumerate().collect();
        sorted.sort_unstable_by_key(|(_, key)| *key);
        let found = &mut |index: usize, entry: NodeEntry<'_>| {
            entries[index] = Some(Entry::copied_from_id(&entry));
        };
        self.nodes(&mut ReadWindows::exact())
            .find_many::<ById, &[u8]>(root, &sorted, 0, found)?;
        Ok(entries)
    }

    /// Looks up documents like [`Snapshot::get_many`], with their bodies, which are read in the order of their offsets.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn get_many_documents<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        form: BodyForm,
    ) -> Result<Vec<Option<Document>>, Error> {
        let entries = self.get_many(keys)?;
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_unstable_by_key(|at| entries[*at].as_ref().map(|entry| entry.fields().body));
        let mut window = ReadWindow::exact();
        let mut documents: Vec<Option<Document>> = vec![None; entries.len()];
        for at in order {
            if let Some(entry) = &entries[at] {
                let end = self.header.offset;
                let body = read_body(&self.shared, &mut window, end, entry, form)?;
                documents[at] = Some(Document {
                    entry: entry.clone(),
                    body,
                });
            }
        }
        Ok(documents)
    }

    /// Returns the number of documents and tombstones with a seqno in this range, from the sums in the tree.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn count_seqnos(&self, range: impl RangeBounds<Seqno>) -> Result<u64, Error> {
        let Some(root) = &self.header.by_seqno else {
            return Ok(0);
        };
        let from = match range.start_bound() {
            Bound::Included(seqno) => seqno.0,
            Bound::Excluded(seqno) => seqno.0.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(seqno) => seqno.0.saturating_add(1),
            Bound::Excluded(seqno) => seqno.0,
            Bound::Unbounded => u64::MAX,
        };
        let mut windows = ReadWindows::exact();
        let mut nodes = self.nodes(&mut windows);
        let below = |nodes: &mut NodeReader<'_>, seqno: u64| {
            if seqno > U48_MAX {
                return Ok(root.reduce.count);
            }
            nodes.count_below(root, &be48(seqno))
        };
        let (to, from) = (below(&mut nodes, to)?, below(&mut nodes, from)?);
        Ok(to.saturating_sub(from))
    }

    /// Reads a local document.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn local(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Some(root) = &self.header.local else {
            return Ok(None);
        };
        let mut windows = ReadWindows::exact();
        let mut nodes = self.nodes(&mut windows);
        nodes.find::<Local, _>(root, name, |entry| entry.value.to_vec())
    }
}
