//! A stored document: one reference-counted allocation that is immutable after its creation.
//!
//! Invariants:
//! * An [`Item`] points to a live allocation of [`ItemHeader`] followed by `key_len` bytes of key and `value_len` bytes
//!   of value. All of it is initialised before the first `Item` exists.
//! * Only the reference count, the state bits and the access frequency are written while an item is shared. A document
//!   changes by replacement, so a front-end thread may send a value, and the commit log may write it, without a lock
//!   and without a copy.
//! * [`ITEM_OVERHEAD_BYTES`] is the cost of a document beside its key and value, without its slot in the hash table.

mod slab;

pub use slab::{SlabFigures, slab_figures};

use crate::frequency;
use kedge_types::limits::LONG_VALUE_BYTES;
use kedge_types::{Cas, Datatype, DurabilityLevel, Expiry, RevSeqno, Seqno};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::fmt;
use std::ptr::{NonNull, copy_nonoverlapping};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// The size of an item without its key and value, in bytes.
pub const ITEM_OVERHEAD_BYTES: usize = size_of::<ItemHeader>();

const _: () = assert!(ITEM_OVERHEAD_BYTES == 40 && align_of::<ItemHeader>() <= slab::BLOCK_ALIGN);
const _: () = assert!(size_of::<Item>() == 8 && size_of::<Option<Item>>() == 8);

/// The mask of seqno and revision. Both share words with small fields and have 48 bits, as on disk.
const LOW_48: u64 = (1 << 48) - 1;
/// The size of a cache line of the processor.
const CACHE_LINE_BYTES: usize = 64;
/// The least length of a value to be compressed, in bytes.
const COMPRESSED_BYTES_MIN: usize = 64;
/// The number of references at which the process stops instead of wrapping. It is far above the number of cursors and
/// connections.
const REFS_MAX: u32 = u32::MAX / 2;

const STATE_DELETED: u8 = 1;
const STATE_EXPIRED: u8 = 2;
const STATE_LEVEL_SHIFT: u8 = 2;
/// On a live document, where the expired bit is unused: compression of the value does not pay.
const STATE_STAYS_PLAIN: u64 = (STATE_EXPIRED as u64) << 48;
/// The value is on disk only.
const STATE_NOT_RESIDENT: u64 = 32 << 48;
/// The item was written without knowledge of whether the file has the key.
const STATE_BLIND: u64 = 128 << 48;
/// The copy that GET_LOCKED made, whose CAS is not on disk.
const STATE_LOCK_COPY: u64 = 16 << 48;
/// The item was replaced in the hash table by a newer version.
const STATE_REPLACED: u64 = 64 << 48;

#[repr(C)]
struct ItemHeader {
    refs: AtomicU32,
    value_len: u32,
    cas: u64,
    /// The seqno in the low 48 bits, then the key length in 8 bits, then the datatype in 8 bits.
    seqno_key_datatype: u64,
    /// The revision in the low 48 bits, then the state in 8 bits, then the access frequency in 8 bits.
    rev_state: AtomicU64,
    flags: u32,
    /// The expiry of a document, or the time of deletion of a tombstone, in Unix seconds.
    expiry: u32,
}

impl ItemHeader {
    fn new(meta: &ItemMeta, key_len: u8, value_len: u32) -> Self {
        Self {
            refs: AtomicU32::new(1),
            value_len,
            cas: meta.cas.get(),
            seqno_key_datatype: (meta.seqno.get() & LOW_48)
                | (u64::from(key_len) << 48)
                | (u64::from(meta.datatype.bits()) << 56),
            rev_state: AtomicU64::new(
                (meta.rev.get() & LOW_48)
                    | (u64::from(state_bits(meta)) << 48)
                    | (u64::from(frequency::FIRST) << 56),
            ),
            flags: meta.flags,
            expiry: meta.expiry.0,
        }
    }
}

/// The metadata of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemMeta {
    /// The CAS.
    pub cas: Cas,
    /// The seqno.
    pub seqno: Seqno,
    /// The revision: the number of changes.
    pub rev: RevSeqno,
    /// The flags that the client set.
    pub flags: u32,
    /// The expiry. For a tombstone, the time of deletion.
    pub expiry: Expiry,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// The cause of the deletion, for a tombstone.
    pub deleted: Option<Deletion>,
    /// The durability level, for an item that is or was a prepare.
    pub level: Option<DurabilityLevel>,
}

/// The cause of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// A client deleted the document.
    Explicit,
    /// The document expired.
    Expired,
}

/// True if this process ever created an item with a long value.
static ANY_LONG: AtomicBool = AtomicBool::new(false);
/// The highest compression ratio of Snappy, rounded up: an element has two or three bytes and yields at most 64.
const SNAPPY_RATIO_MAX: usize = 32;

/// Returns whether this process ever had an item for which [`Item::is_long`] holds. Until then, no caller has to check
/// for long values.
#[must_use]
#[inline]
pub fn any_long_value() -> bool {
    ANY_LONG.load(Ordering::Relaxed)
}

/// A document, tombstone or prepare. A clone increments the reference count.
pub struct Item {
    header: NonNull<ItemHeader>,
}

// SAFETY: the allocation is immutable except for atomic fields.
#[expect(unsafe_code, reason = "a thin pointer that is shared between threads")]
unsafe impl Send for Item {}
// SAFETY: as above; `&Item` gives shared access to immutable bytes and atomic fields only.
#[expect(unsafe_code, reason = "a thin pointer that is shared between threads")]
unsafe impl Sync for Item {}

/// Requests all cache lines of a value from memory. The command that needs them then waits less.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    let lines = size_of::<T>().div_ceil(CACHE_LINE_BYTES);
    prefetch(std::ptr::from_ref(value).cast(), lines);
}

/// Requests cache lines from memory, from that of an address on. The command that needs them then waits less.
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction that has no safe wrapper")
)]
pub(crate) fn prefetch(address: *const i8, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines {
        // SAFETY: a prefetch reads nothing, and may have any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(line * CACHE_LINE_BYTES)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, lines);
}

impl Item {
    /// Requests the metadata and the key from memory.
    pub(crate) fn prefetch(&self) {
        prefetch(self.header.as_ptr().cast(), 2);
    }

    /// Creates an item from a stored key and the pieces of a value.
    ///
    /// # Panics
    /// If the key is longer than 255 bytes or the value than 4 GiB. Both are checked on receipt.
    #[must_use]
    pub fn new(meta: &ItemMeta, key: &[u8], value: &[&[u8]]) -> Self {
        let value_len: usize = value.iter().map(|piece| piece.len()).sum();
        let key_len = u8::try_from(key.len()).expect("a key has at most 251 bytes");
        let stored_len = u32::try_from(value_len).expect("a value has at most 20 MiB");
        let block = slab::allocate(ITEM_OVERHEAD_BYTES + key.len() + value_len);
        let header = ItemHeader::new(meta, key_len, stored_len);
        let item = Self {
            header: write_block(block, header, key, value),
        };
        item.record_length();
        item
    }

    /// Records that there was a long value, if this is one.
    fn record_length(&self) {
        if self.header().value_len as usize >= LONG_VALUE_BYTES / SNAPPY_RATIO_MAX && self.is_long()
        {
            ANY_LONG.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the uncompressed value has [`LONG_VALUE_BYTES`] or more.
    #[must_use]
    pub fn is_long(&self) -> bool {
        let value = self.value();
        value.len() >= LONG_VALUE_BYTES
            || self.datatype().contains(Datatype::SNAPPY)
                && value.len() >= LONG_VALUE_BYTES / SNAPPY_RATIO_MAX
                && snap::raw::decompress_len(value).is_ok_and(|len| len >= LONG_VALUE_BYTES)
    }

    #[expect(unsafe_code, reason = "reads the header behind the thin pointer")]
    fn header(&self) -> &ItemHeader {
        // SAFETY: `self.header` points at an initialised header for as long as `self` holds its reference.
        unsafe { self.header.as_ref() }
    }

    #[expect(unsafe_code, reason = "key and value lie behind the header")]
    fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        // SAFETY: callers pass offsets inside `key_len + value_len`, which `new` initialised behind the header; the
        // bytes are immutable and live as long as `self`.
        unsafe {
            let start = self.header.as_ptr().add(1).cast::<u8>().add(offset);
            std::slice::from_raw_parts(start, len)
        }
    }

    fn key_len(&self) -> usize {
        usize::from((self.header().seqno_key_datatype >> 48) as u8)
    }

    /// Returns revision, state and access frequency. Readers need no ordering with other memory.
    fn rev_state(&self) -> u64 {
        self.header().rev_state.load(Ordering::Relaxed)
    }

    fn state(&self) -> u8 {
        (self.rev_state() >> 48) as u8
    }

    fn mark(&self, bits: u64) {
        self.header().rev_state.fetch_or(bits, Ordering::Relaxed);
    }

    /// Marks the item as replaced in the hash table by a newer version.
    pub(crate) fn mark_replaced(&self) {
        self.mark(STATE_REPLACED);
    }

    pub(crate) fn is_replaced(&self) -> bool {
        self.rev_state() & STATE_REPLACED != 0
    }

    /// Marks the item as blind: the file may have a document of this key that memory does not know.
    pub(crate) fn mark_blind(&self) {
        self.mark(STATE_BLIND);
    }

    /// Clears the blind mark, because the state of the file is known.
    pub(crate) fn unmark_blind(&self) {
        let rev_state = &self.header().rev_state;
        rev_state.fetch_and(!STATE_BLIND, Ordering::Relaxed);
    }

    /// Returns whether the item is blind: it was written without knowledge of whether the file has a document of its
    /// key. The writer of the file finds out and calls [`crate::VbStore::applied_over`].
    #[must_use]
    pub fn is_blind(&self) -> bool {
        self.rev_state() & STATE_BLIND != 0
    }

    /// Returns a copy with the CAS of a lock. A lock is not a change, so the copy is not written to disk.
    pub(crate) fn lock_copy(&self, cas: Cas, draft: Option<Draft>) -> Self {
        let meta = ItemMeta { cas, ..self.meta() };
        let copy = match draft {
            Some(draft) => draft.finish(&meta),
            None => self.with_meta(&meta),
        };
        copy.mark(STATE_LOCK_COPY);
        copy.inherit_frequency(self);
        copy
    }

    /// Returns whether the value has extended attributes before its body.
    #[must_use]
    pub fn has_xattrs(&self) -> bool {
        self.datatype().contains(Datatype::XATTR)
    }

    /// Returns whether the value is in memory. A document without a value counts as resident.
    #[must_use]
    pub fn is_resident(&self) -> bool {
        self.rev_state() & STATE_NOT_RESIDENT == 0
    }

    /// Creates an item whose value is on disk. Tombstones have a value only if they have extended attributes.
    pub(crate) fn on_disk(meta: &ItemMeta, key: &[u8]) -> Self {
        let item = Self::new(meta, key, &[]);
        if meta.deleted.is_none() || item.has_xattrs() {
            item.mark(STATE_NOT_RESIDENT);
        }
        item
    }

    /// Returns a copy without the value, which is on disk.
    pub(crate) fn without_value(&self) -> Self {
        let copy = Self::new(&self.meta(), self.key(), &[]);
        copy.mark(STATE_NOT_RESIDENT | (self.rev_state() & STATE_LOCK_COPY));
        copy.inherit_frequency(self);
        copy
    }

    /// Returns a copy with the value of `stored`, which was read from disk.
    pub(crate) fn with_value(&self, stored: &Self) -> Self {
        let meta = ItemMeta {
            datatype: stored.datatype(),
            ..self.meta()
        };
        let copy = Self::new(&meta, self.key(), &[stored.value()]);
        copy.mark(self.rev_state() & STATE_LOCK_COPY);
        copy.inherit_frequency(self);
        copy
    }

    /// Returns whether compression of the value may be attempted.
    pub(crate) fn is_compressible(&self) -> bool {
        self.header().value_len as usize >= COMPRESSED_BYTES_MIN
            && self.rev_state() & (u64::from(STATE_DELETED) << 48 | STATE_STAYS_PLAIN) == 0
            && !self.datatype().contains(Datatype::SNAPPY)
    }

    /// Records that compression of the value does not pay.
    pub(crate) fn mark_stays_plain(&self) {
        self.mark(STATE_STAYS_PLAIN);
    }

    /// Returns a copy with the compressed value `packed`.
    pub(crate) fn with_packed(&self, packed: &[u8]) -> Self {
        let meta = ItemMeta {
            datatype: self.datatype().union(Datatype::SNAPPY),
            ..self.meta()
        };
        let copy = Self::new(&meta, self.key(), &[packed]);
        copy.mark(self.rev_state() & STATE_LOCK_COPY);
        copy.inherit_frequency(self);
        copy
    }

    /// Returns the access frequency, on a logarithmic scale from 0 to 255. A new document starts in between.
    #[must_use]
    pub fn frequency(&self) -> u8 {
        (self.rev_state() >> 56) as u8
    }

    /// Counts an access, with a probability that `random` decides.
    pub(crate) fn count_access(&self, random: u64) {
        let frequency = self.frequency();
        if frequency::counts(frequency, random) {
            self.set_frequency(frequency + 1);
        }
    }

    /// Returns whether the access frequency exceeds that of a new document.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        self.frequency() > frequency::FIRST
    }

    /// Reverts an access that must not count. `frequency` is the earlier [`Self::frequency`].
    pub fn forget_access(&self, frequency: u8) {
        self.set_frequency(frequency);
    }

    /// Decays the access frequency.
    pub fn decay(&self) {
        self.set_frequency(frequency::decayed(self.frequency()));
    }

    pub(crate) fn inherit_frequency(&self, from: &Self) {
        self.set_frequency(from.frequency());
    }

    /// Writers hold the vBucket's lock. For an item outside a vBucket, concurrent writers cost at most a wrong
    /// frequency.
    fn set_frequency(&self, frequency: u8) {
        let rev_state = &self.header().rev_state;
        let change = u64::from(self.frequency() ^ frequency) << 56;
        rev_state.fetch_xor(change, Ordering::Relaxed);
    }

    /// Returns whether both items are the same allocation.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.header == other.header
    }

    pub(crate) fn is_lock_copy(&self) -> bool {
        self.rev_state() & STATE_LOCK_COPY != 0
    }

    /// Returns the stored key: collection prefix and logical key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.bytes(0, self.key_len())
    }

    /// Returns the stored value. The datatype tells whether it is compressed.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.bytes(self.key_len(), self.header().value_len as usize)
    }

    /// Returns the CAS.
    #[must_use]
    pub fn cas(&self) -> Cas {
        Cas(self.header().cas)
    }

    /// Returns the seqno.
    #[must_use]
    pub fn seqno(&self) -> Seqno {
        Seqno(self.header().seqno_key_datatype & LOW_48)
    }

    /// Returns the revision: the number of changes.
    #[must_use]
    pub fn rev_seqno(&self) -> RevSeqno {
        RevSeqno(self.rev_state() & LOW_48)
    }

    /// Returns the flags that the client set.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.header().flags
    }

    /// Returns the expiry. For a tombstone, the time of deletion.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        Expiry(self.header().expiry)
    }

    /// Returns the datatype of the value.
    #[must_use]
    pub fn datatype(&self) -> Datatype {
        Datatype::from_bits((self.header().seqno_key_datatype >> 56) as u8).unwrap_or_default()
    }

    /// Returns whether it is a tombstone.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.state() & STATE_DELETED != 0
    }

    /// Returns the durability level, if the item is or was a prepare.
    #[must_use]
    pub fn level(&self) -> Option<DurabilityLevel> {
        DurabilityLevel::from_wire((self.state() >> STATE_LEVEL_SHIFT) & 3)
    }

    /// Returns the metadata: everything except key and value.
    #[must_use]
    pub fn meta(&self) -> ItemMeta {
        let deleted = self
            .is_deleted()
            .then(|| match self.state() & STATE_EXPIRED {
                0 => Deletion::Explicit,
                _ => Deletion::Expired,
            });
        ItemMeta {
            cas: self.cas(),
            seqno: self.seqno(),
            rev: self.rev_seqno(),
            flags: self.flags(),
            expiry: self.expiry(),
            datatype: self.datatype(),
            deleted,
            level: self.level(),
        }
    }

    /// Returns a copy with other metadata.
    #[must_use]
    pub fn with_meta(&self, meta: &ItemMeta) -> Self {
        Self::new(meta, self.key(), &[self.value()])
    }

    /// Returns the item with another seqno. Copies it only if it is shared.
    #[must_use]
    #[expect(
        unsafe_code,
        reason = "writes the header of an item that is not shared"
    )]
    pub fn with_seqno(mut self, seqno: Seqno) -> Self {
        if self.header().refs.load(Ordering::Acquire) != 1 {
            return self.with_meta(&ItemMeta {
                seqno,
                ..self.meta()
            });
        }
        // SAFETY: this is the only reference, and it is owned here, so no other thread reads the header or clones the item
        // meanwhile; what earlier holders did with it happened before, as their drop released the count read above.
        let header = unsafe { self.header.as_mut() };
        header.seqno_key_datatype = (header.seqno_key_datatype & !LOW_48) | (seqno.get() & LOW_48);
        self
    }

    /// Moves the item to another block if that saves memory and no other reference to the item exists. Returns whether it
    /// moved.
    #[expect(unsafe_code, reason = "copies an item that is not shared")]
    pub(crate) fn relocate(&mut self) -> bool {
        if self.header().refs.load(Ordering::Acquire) != 1 {
            return false;
        }
        let (block, size) = (self.header.cast::<u8>(), self.heap_bytes());
        // SAFETY: the block was allocated with this size, and the new one, which also has it, is another one. This is the
        // only reference, and it is borrowed exclusively, so nothing else accesses the item meanwhile.
        unsafe {
            let Some(new) = slab::relocate(block, size) else {
                return false;
            };
            copy_nonoverlapping(block.as_ptr(), new.as_ptr(), size);
            self.header = new.cast();
            slab::free(block, size);
        }
        true
    }

    /// Returns the size of the item in bytes: overhead, key and value.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        ITEM_OVERHEAD_BYTES + self.key_len() + self.header().value_len as usize
    }
}

fn state_bits(meta: &ItemMeta) -> u8 {
    let deleted = match meta.deleted {
        None => 0,
        Some(Deletion::Explicit) => STATE_DELETED,
        Some(Deletion::Expired) => STATE_DELETED | STATE_EXPIRED,
    };
    deleted | (meta.level.map_or(0, |level| level as u8) << STATE_LEVEL_SHIFT)
}

/// Writes an item to a block, which has as many bytes as header, key and value together.
#[expect(unsafe_code, reason = "one block for header, key and value")]
fn write_block(
    block: NonNull<u8>,
    header: ItemHeader,
    key: &[u8],
    value: &[&[u8]],
) -> NonNull<ItemHeader> {
    let start = block.cast::<ItemHeader>();
    // SAFETY: everything written stays inside the block: the header first, then the key, then the pieces of the value.
    unsafe {
        start.write(header);
        let mut at = start.as_ptr().add(1).cast::<u8>();
        for piece in std::iter::once(&key).chain(value) {
            copy_nonoverlapping(piece.as_ptr(), at, piece.len());
            at = at.add(piece.len());
        }
    }
    start
}

/// An item with key and value but without metadata, which no other thread holds. It is created from a long value before
/// a vBucket is locked, so that no lock is held during the copy.
#[derive(Debug)]
pub struct Draft(Item);

impl Draft {
    /// Copies a stored key and the pieces of a value.
    ///
    /// # Panics
    /// As [`Item::new`].
    #[must_use]
    pub fn new(key: &[u8], value: &[&[u8]]) -> Self {
        Self(Item::new(&ItemMeta::default(), key, value))
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.0.value()
    }

    /// Sets the metadata and returns the item.
    #[expect(unsafe_code, reason = "writes the header behind the thin pointer")]
    pub(crate) fn finish(self, meta: &ItemMeta) -> Item {
        let mut item = self.0;
        let (key_len, value_len) = (item.key_len() as u8, item.header().value_len);
        // SAFETY: the header is initialised, and a draft's item is never cloned, so this is the only reference to it. The
        // lengths stay.
        unsafe { *item.header.as_mut() = ItemHeader::new(meta, key_len, value_len) };
        item.record_length();
        item
    }
}

impl Clone for Item {
    fn clone(&self) -> Self {
        let refs = self.header().refs.fetch_add(1, Ordering::Relaxed);
        assert!(refs < REFS_MAX, "an item has too many references");
        Self {
            header: self.header,
        }
    }
}

impl Drop for Item {
    #[expect(
        unsafe_code,
        reason = "gives the allocation back with the last reference"
    )]
    fn drop(&mut self) {
        if self.header().refs.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // The accesses of other holders happen before the deallocation.
        fence(Ordering::Acquire);
        let (block, size) = (self.header.cast(), self.heap_bytes());
        // SAFETY: this was the last reference. The block was allocated with this size, as the lengths in the header never
        // change.
        unsafe { slab::free(block, size) }
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", &self.key().escape_ascii().to_string())
            .field("value_bytes", &self.value().len())
            .field("meta", &self.meta())
            .finish()
    }
}

#[cfg(test)]
mod tests;
