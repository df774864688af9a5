//! Couchstore files: append-only, copy-on-write files with two B+trees over the documents of a vBucket, by id and by
//! seqno, and a third one of local documents. The crate opens, reads, writes and rolls back files like Couchbase's own
//! library. It is independent of logs and buckets.
//!
//! # Example
//!
//! A file is created, written, committed, opened again, read, rolled back and compacted. `SimDisk` keeps the example in
//! memory; [`PosixDisk`](kedge_disk::PosixDisk) is the disk of the operating system.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use kedge_couchstore::compact::{Compaction, KeepAll, CompactionSettings, target_path};
//! use kedge_couchstore::{MutationBody, ContentMeta, CreateOptions, BodyForm, Mutation, Options, Snapshot, Writer};
//! use kedge_disk::{Disk, SimDisk};
//! use kedge_types::{RevSeqno, Seqno};
//!
//! # fn main() -> Result<(), kedge_couchstore::Error> {
//! let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
//! let (dir, path) = (Path::new("/data"), Path::new("/data/0.couch.1"));
//! disk.create_dir_all(dir)?;
//!
//! // A change: the caller assigns seqnos and revisions. `rev_meta` and the key are the caller's own bytes; the module `kv`
//! // encodes those of Couchbase's key-value engine.
//! let change = |seqno, key, body| Mutation {
//!     key,
//!     seqno: Seqno(seqno),
//!     rev: RevSeqno(1),
//!     deleted: false,
//!     content_meta: ContentMeta(0),
//!     rev_meta: &[0; 18],
//!     body: MutationBody::Compress(body),
//! };
//!
//! // CreateOptions and write. A batch becomes visible and durable with its commit.
//! let mut writer = Writer::create(&*disk, path, &CreateOptions::default(), &Options::default())?;
//! writer.save(&[change(1, b"tea", b"{}"), change(2, b"milk", b"[1]")], &mut |_| {})?;
//! writer.save_locals(&[(b"_local/vbstate", Some(b"{}"))])?;
//! writer.commit(0)?;
//! disk.sync_dir(dir)?;
//! drop(writer);
//!
//! // Open again and replace a document. The observer receives the version that a change replaces.
//! let mut writer = Writer::open(&*disk, path, &Options::default())?;
//! let mut replaced = 0;
//! writer.save(&[change(3, b"tea", b"{\"hot\": true}")], &mut |saved| {
//!     replaced += usize::from(saved.old.is_some());
//! })?;
//! writer.commit(0)?;
//! assert_eq!(replaced, 1);
//!
//! // Read: a snapshot never changes. By key, or all documents in the order of seqnos or keys.
//! let snapshot = Snapshot::open(&*disk, path, &Options::default())?;
//! let entry = snapshot.get(b"tea")?.expect("it was written");
//! assert_eq!(entry.seqno(), Seqno(3));
//! assert_eq!(snapshot.body(&entry, BodyForm::Plain)?.as_deref(), Some(&b"{\"hot\": true}"[..]));
//! let mut keys = Vec::new();
//! for document in snapshot.scan_seqnos(..)?.with_bodies(BodyForm::Plain) {
//!     keys.push(document?.entry.key().to_vec());
//! }
//! assert_eq!(keys, [b"milk".to_vec(), b"tea".to_vec()]);
//!
//! // Older commits stay readable; rolling back makes one of them the newest.
//! let older = snapshot.older()?.expect("there are two commits");
//! assert_eq!(older.get(b"tea")?.expect("it was written").seqno(), Seqno(1));
//! writer.rewind(older.header())?;
//! writer.commit(0)?;
//! assert_eq!(writer.snapshot().header().update_seqno(), Seqno(2));
//!
//! // Compact into a new file, which takes the place of the old one when it is complete.
//! let target = target_path(path);
//! let source = writer.snapshot();
//! let mut compaction = Compaction::run(&disk, &source, &target, &CompactionSettings::default(), &mut KeepAll)?;
//! compaction.catch_up(&writer.snapshot(), &mut KeepAll)?;
//! compaction.finish()?;
//! disk.rename(&target, Path::new("/data/0.couch.2"))?;
//! disk.sync_dir(dir)?;
//! disk.remove(path)?;
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! * Files of versions 11 to 14 are read like in Couchbase's library, which can read all files that this crate writes.
//! * Every later open finds a commit that has returned. One that has not is found as a whole or not at all.
//! * A snapshot never changes and never waits.
//! * Hostile bytes cause an error with file, offset and kind of damage: never a panic, an endless walk, or more memory
//!   than the size of the file justifies.

mod check;
pub mod compact;
mod compress;
mod crypto;
mod error;
mod file;
mod format;
pub mod kv;
pub mod limits;
mod problem;
mod read;
mod tree;
mod write;

use std::fmt;

pub use check::{CheckObserver, Checked};
pub use crypto::EncryptionKey;
pub use error::{Error, InvalidBatch};
pub use format::header::{Header, Previous, TreeBytes, Version};
pub use problem::DamageKind;
pub use read::{
    BodyForm, ContentMeta, Document, DocumentScan, Entry, IdScan, Locals, LocatedBody, NodeItem,
    SeqnoScan, Snapshot, SubtreeTotals, TreeKind, TreeNode, TreeNodes,
};
pub use write::{
    CreateOptions, LocalChange, Mutation, MutationBody, OldVersion, SavedChange, Writer,
};

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A position in a couchstore file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(
    /// The position.
    pub u64,
);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The options of opening a file.
#[derive(Debug, Clone)]
pub struct Options {
    /// The reaction to a damaged newest header.
    pub on_damage: OnDamage,
    /// Keys of encrypted files.
    pub keys: Vec<EncryptionKey>,
    /// Memory limit of the node cache of each open file, in bytes. All interior nodes take about 16 bytes per document.
    pub cache_bytes_max: usize,
    /// `true` if leaves that key lookups read are cached, too. They take 60 bytes and more per document, and save a
    /// read from disk.
    pub cache_leaves: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            on_damage: OnDamage::Refuse,
            keys: Vec::new(),
            cache_bytes_max: 32 << 20,
            cache_leaves: false,
        }
    }
}

/// The reaction to damage after the newest sound header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// Return an error, because a commit may be lost.
    Refuse,
    /// Use an older header.
    Recover,
}
