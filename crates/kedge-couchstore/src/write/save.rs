//! Saves of a batch: first the bodies, then the tree by id, which has the old versions, then the tree by seqno
//! (couchstore file format, section 4.2).

use kedge_types::Seqno;

use super::append::FileAppender;
use super::batch::{BatchOrder, Mutation, MutationBody, by_key, by_seqno, check_fields};
use super::{OldVersion, SavedChange, Writer};
use crate::compress::deflate_over;
use crate::format::bytes::be48;
use crate::format::entry::{EntryFields, ID_FIXED_BYTES};
use crate::format::pointer::{Pointer, SeqnoReduce};
use crate::limits::BLOCK_BYTES;
use crate::tree::build::TreeBuilder;
use crate::tree::node::NodeEntry;
use crate::tree::search::{NodeReader, ReadWindows};
use crate::tree::update::{TreeChanges, update};
use crate::tree::{ById, BySeqno, Tree};
use crate::{ContentMeta, DamageKind, Error, Offset};

/// Read-ahead for leaves of the old trees, in bytes, when many of them change.
const AHEAD_BYTES_MAX: usize = 128 << 10;
/// Read-ahead per document of a batch, in bytes: the fewer there are, the farther apart are the leaves that change.
const AHEAD_BYTES_PER_DOCUMENT: usize = 4;
/// Number of documents of a tree for each one of a batch up to which most leaves change. A leaf has about as many.
const DOCUMENTS_PER_CHANGE: u64 = 8;

/// Number of bytes of bodies between two calls of `between`.
const BETWEEN_BYTES: u64 = 32 << 10;

/// Returns the read-ahead for the leaves of a tree of this many documents and bytes that a batch changes.
fn ahead_bytes(batch: usize, documents: u64, tree_bytes: u64) -> usize {
    let all = usize::try_from(tree_bytes.saturating_add(BLOCK_BYTES)).unwrap_or(usize::MAX);
    let wanted = if documents <= DOCUMENTS_PER_CHANGE.saturating_mul(batch as u64) {
        all
    } else {
        batch.saturating_mul(AHEAD_BYTES_PER_DOCUMENT)
    };
    wanted.min(AHEAD_BYTES_MAX)
}

/// The locations of a batch's bodies.
struct StoredBodies {
    offsets: Vec<u64>,
    disk_bytes: Vec<u32>,
}

impl StoredBodies {
    fn append(
        out: &mut FileAppender,
        batch: &[Mutation<'_>],
        between: &mut dyn FnMut(),
    ) -> Result<Self, Error> {
        let mut bodies = StoredBodies {
            offsets: Vec::with_capacity(batch.len()),
            disk_bytes: Vec::with_capacity(batch.len()),
        };
        let mut next_at = out.position();
        for mutation in batch {
            if out.position() >= next_at {
                between();
                next_at = out.position() + BETWEEN_BYTES;
            }
            let (offset, disk_bytes) = match mutation.body {
                MutationBody::None => (0, 0),
                MutationBody::Stored(body) => out.append(body)?,
                MutationBody::Compress(body) => {
                    out.append_with(|encoder, out| deflate_over(encoder, body, out))?
                }
            };
            bodies.offsets.push(offset);
            bodies.disk_bytes.push(disk_bytes);
        }
        Ok(bodies)
    }

    fn fields(&self, index: usize, mutation: &Mutation<'_>) -> EntryFields {
        let mut content_meta = mutation.content_meta;
        if matches!(mutation.body, MutationBody::Compress(_)) {
            content_meta.0 |= ContentMeta::COMPRESSED;
        }
        EntryFields {
            seqno: mutation.seqno.0,
            rev: mutation.rev.0,
            body: self.offsets[index],
            body_bytes: self.disk_bytes[index],
            deleted: mutation.deleted,
            content_meta: content_meta.0,
        }
    }
}

/// Number of mutations that are prefetched.
const WARM_MUTATIONS: usize = 32;

/// Prefetches a part of the data that the next mutations of an order need. In an order other than that of the batch,
/// these are scattered in memory, and reading them together overlaps the cache misses.
fn warm(batch: &[Mutation<'_>], order: &BatchOrder, bodies: &StoredBodies, at: usize) {
    let BatchOrder::Indices(indices) = order else {
        return;
    };
    let end = indices.len().min(at + WARM_MUTATIONS);
    let next = || indices[at..end].iter().map(|index| *index as usize);
    let mut sum = 0;
    for index in next() {
        sum ^= batch[index].seqno.0 ^ bodies.offsets[index] ^ u64::from(bodies.disk_bytes[index]);
    }
    for index in next() {
        let first = |bytes: &[u8]| u64::from(bytes.first().copied().unwrap_or(0));
        sum ^= first(batch[index].key) ^ first(batch[index].rev_meta);
    }
    std::hint::black_box(sum);
}

/// The batch as changes of the tree by id.
struct IdChanges<'a> {
    batch: &'a [Mutation<'a>],
    order: BatchOrder,
    at: usize,
    bodies: &'a StoredBodies,
    /// Seqnos of the replaced versions.
    replaced: Vec<u64>,
    observe: &'a mut dyn FnMut(SavedChange<'_>),
    between: &'a mut dyn FnMut(),
}

impl TreeChanges<ById> for IdChanges<'_> {
    fn next_key(&self) -> Option<&[u8]> {
        let more = self.at < self.order.len();
        more.then(|| self.batch[self.order.get(self.at)].key)
    }

    fn apply(
        &mut self,
        old: Option<NodeEntry<'_>>,
        builder: &mut TreeBuilder<'_, ById>,
    ) -> Result<(), Error> {
        if self.at.is_multiple_of(WARM_MUTATIONS) {
            (self.between)();
            warm(self.batch, &self.order, self.bodies, self.at);
        }
        let index = self.order.get(self.at);
        self.at += 1;
        let mutation = &self.batch[index];
        let fields = self.bodies.fields(index, mutation);
        let old = old.map(|entry| {
            let fields = EntryFields::take_id(entry.value).expect("the node was checked");
            self.replaced.push(fields.seqno);
            OldVersion {
                fields,
                rev_meta: &entry.value[ID_FIXED_BYTES..],
            }
        });
        (self.observe)(SavedChange {
            index,
            disk_bytes: fields.body_bytes,
            old,
        });
        builder.push(mutation.key, |value| {
            fields.put_id(value);
            value.extend_from_slice(mutation.rev_meta);
        })
    }
}

/// The batch, and the versions it replaces, as changes of the tree by seqno.
struct SeqnoChanges<'a> {
    batch: &'a [Mutation<'a>],
    order: BatchOrder,
    at: usize,
    bodies: &'a StoredBodies,
    /// Ascending seqnos. All of them are below those of the batch.
    replaced: &'a [u64],
    /// The key of the next change.
    key: [u8; 6],
    /// A seqno that should be removed and is missing.
    missing: Option<u64>,
    between: &'a mut dyn FnMut(),
}

impl SeqnoChanges<'_> {
    fn prepare(&mut self) {
        if let Some(seqno) = self.replaced.first() {
            self.key = be48(*seqno);
        } else if self.at < self.order.len() {
            self.key = be48(self.batch[self.order.get(self.at)].seqno.0);
        }
    }
}

impl TreeChanges<BySeqno> for SeqnoChanges<'_> {
    fn next_key(&self) -> Option<&[u8]> {
        let more = !self.replaced.is_empty() || self.at < self.order.len();
        more.then_some(&self.key)
    }

    fn remove_leaf(&mut self, last: &[u8], reduce: &SeqnoReduce) -> bool {
        // Everything before the leaf has been taken, so as many seqnos up to its last one are all that it has.
        let entries = usize::try_from(reduce.count).unwrap_or(usize::MAX);
        let Some((gone, rest)) = self.replaced.split_at_checked(entries) else {
            return false;
        };
        let is_within = |seqno: &u64| be48(*seqno).as_slice() <= last;
        let is_all = gone.last().is_some_and(is_within)
            && !rest.first().is_some_and(is_within)
            && gone.is_sorted_by(|a, b| a < b);
        if is_all {
            if rest.len() / WARM_MUTATIONS < self.replaced.len() / WARM_MUTATIONS {
                (self.between)();
            }
            self.replaced = rest;
            self.prepare();
        }
        is_all
    }

    fn apply(
        &mut self,
        old: Option<NodeEntry<'_>>,
        builder: &mut TreeBuilder<'_, BySeqno>,
    ) -> Result<(), Error> {
        if let Some((seqno, rest)) = self.replaced.split_first() {
            self.replaced = rest;
            if rest.len().is_multiple_of(WARM_MUTATIONS) {
                (self.between)();
            }
            if old.is_none() {
                self.missing = Some(*seqno);
            }
        } else {
            if self.at.is_multiple_of(WARM_MUTATIONS) {
                (self.between)();
                warm(self.batch, &self.order, self.bodies, self.at);
            }
            let index = self.order.get(self.at);
            self.at += 1;
            let mutation = &self.batch[index];
            let fields = self.bodies.fields(index, mutation);
            builder.push(&self.key, |value| {
                fields.put_seqno(mutation.key.len(), value);
                value.extend_from_slice(mutation.key);
                value.extend_from_slice(mutation.rev_meta);
            })?;
        }
        self.prepare();
        Ok(())
    }
}

impl Writer {
    /// Adds documents and tombstones to the next commit. Keys must differ. Seqnos must differ and be above all in the
    /// file. `observe` is called for each mutation, in key order, with the version that it replaces.
    ///
    /// Memory: about 28 bytes per mutation, 8 more for each that replaces a version, a buffer of 16 bytes per mutation
    /// (24 KiB to 1 MiB), and for leaves of the old trees 4 bytes per mutation, or the size of a tree of which most leaves
    /// change (128 KiB at most).
    ///
    /// # Errors
    /// [`Error::Refused`] before anything was changed. Damage of the old trees leaves the writer unchanged,
    /// although `observe` was called; disk errors make it unusable.
    pub fn save(
        &mut self,
        batch: &[Mutation<'_>],
        observe: &mut dyn FnMut(SavedChange<'_>),
    ) -> Result<(), Error> {
        self.save_with_breaks(batch, observe, &mut || {})
    }

    /// Saves a batch like [`Writer::save`], and calls `between` at the start and after every few dozens of documents or
    /// KiB of bodies. The caller can pause there to leave processor and disk to others.
    ///
    /// # Errors
    /// The errors of [`Writer::save`].
    pub fn save_with_breaks(
        &mut self,
        batch: &[Mutation<'_>],
        observe: &mut dyn FnMut(SavedChange<'_>),
        between: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        self.out.check()?;
        check_fields(batch, self.draft.update_seqno)?;
        let id_order = by_key(batch)?;
        let seqno_order = by_seqno(batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let last = seqno_order.get(batch.len() - 1);
        // Trees that were saved since the last commit may be in the buffer only.
        if self.draft.by_id != self.committed.by_id
            || self.draft.by_seqno != self.committed.by_seqno
        {
            self.out.write_all()?;
        }
        let body_bytes = batch.iter().map(|mutation| mutation.body.bytes().len());
        self.out.expect_documents(batch.len(), body_bytes.sum());
        let bodies = StoredBodies::append(&mut self.out, batch, between)?;

        let root = self.draft.by_id.as_ref();
        let documents = root.map_or(0, |root| {
            root.reduce.live.saturating_add(root.reduce.deleted)
        });
        let tree_bytes = root.map_or(0, |root| root.subtree_bytes);
        let ahead_max = ahead_bytes(batch.len(), documents, tree_bytes);
        let mut changes = IdChanges {
            batch,
            order: id_order,
            at: 0,
            bodies: &bodies,
            replaced: Vec::new(),
            observe,
            between,
        };
        let by_id = self.update_tree(self.draft.by_id, &mut changes, ahead_max)?;
        let mut replaced = changes.replaced;
        replaced.sort_unstable();

        let mut changes = SeqnoChanges {
            batch,
            order: seqno_order,
            at: 0,
            bodies: &bodies,
            replaced: &replaced,
            key: [0; 6],
            missing: None,
            between,
        };
        changes.prepare();
        let by_seqno = self.update_tree(self.draft.by_seqno, &mut changes, ahead_max)?;
        if let Some(seqno) = changes.missing {
            let root = self.draft.by_seqno.map_or(0, |root| root.offset);
            return Err(self
                .shared
                .corrupt(Offset(root), DamageKind::SeqnoMissing(seqno)));
        }
        self.draft.by_id = by_id;
        self.draft.by_seqno = by_seqno;
        self.draft.update_seqno = self.draft.update_seqno.max(Seqno(batch[last].seqno.0));
        self.changed = true;
        Ok(())
    }

    /// Applies changes to one of the trees, reading up to `ahead_max` bytes of leaves ahead. Returns its new root.
    pub(super) fn update_tree<T: Tree>(
        &mut self,
        root: Option<Pointer<T::Reduce>>,
        changes: &mut impl TreeChanges<T>,
        ahead_max: usize,
    ) -> Result<Option<Pointer<T::Reduce>>, Error> {
        let end = Offset(self.out.written());
        let mut windows = ReadWindows::update(ahead_max);
        let mut nodes = NodeReader::new(&self.shared, end, &mut windows);
        let mut builder = TreeBuilder::<T>::new(&mut self.out, self.sizes);
        update(&mut nodes, root.as_ref(), changes, &mut builder)?;
        builder.finish()
    }
}
