//! Shared parts of the tests: files in memory and documents.

use std::path::{Path, PathBuf};

use kedge_couchstore::{
    ContentMeta, CreateOptions, Entry, Error, Mutation, MutationBody, Options, Snapshot, Writer,
};
use kedge_disk::{Disk, SimDisk};
use kedge_types::{RevSeqno, Seqno};

pub(crate) const FILE: &str = "/data/0.couch.1";

pub(crate) fn path() -> &'static Path {
    Path::new(FILE)
}

/// A disk with a directory for the file.
pub(crate) fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new("/data"))
        .expect("a directory");
    disk
}

/// A disk with a file of these bytes.
pub(crate) fn disk_with(bytes: &[u8]) -> SimDisk {
    let disk = disk(1);
    let file = disk.create(path()).expect("create");
    file.write_at(bytes, 0).expect("write");
    disk
}

pub(crate) fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

pub(crate) fn golden(name: &str) -> Vec<u8> {
    std::fs::read(golden_path(name)).expect("a golden file")
}

pub(crate) fn create(disk: &SimDisk) -> Writer {
    Writer::create(disk, path(), &CreateOptions::default(), &Options::default()).expect("create")
}

pub(crate) fn open(disk: &SimDisk) -> Result<Snapshot, Error> {
    Snapshot::open(disk, path(), &Options::default())
}

/// A document, as the tests keep it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doc {
    pub(crate) key: Vec<u8>,
    pub(crate) seqno: u64,
    pub(crate) rev: u64,
    pub(crate) deleted: bool,
    pub(crate) compress: bool,
    pub(crate) rev_meta: Vec<u8>,
    pub(crate) body: Option<Vec<u8>>,
}

impl Doc {
    pub(crate) fn new(key: impl Into<Vec<u8>>, seqno: u64) -> Self {
        let key = key.into();
        Doc {
            body: Some([b"body of ", &*key].concat()),
            key,
            seqno,
            rev: 1,
            deleted: false,
            compress: true,
            rev_meta: [&seqno.to_be_bytes()[..], &[0, 0, 0, 0, 2, 0, 0, 6, 1, 1]].concat(),
        }
    }

    pub(crate) fn mutation(&self) -> Mutation<'_> {
        Mutation {
            key: &self.key,
            seqno: Seqno(self.seqno),
            rev: RevSeqno(self.rev),
            deleted: self.deleted,
            content_meta: ContentMeta(3),
            rev_meta: &self.rev_meta,
            body: match &self.body {
                None => MutationBody::None,
                Some(body) if self.compress => MutationBody::Compress(body),
                Some(body) => MutationBody::Stored(body),
            },
        }
    }

    /// Converts a document that was read.
    pub(crate) fn read(entry: &Entry, body: Option<Vec<u8>>) -> Self {
        Doc {
            key: entry.key().to_vec(),
            seqno: entry.seqno().0,
            rev: entry.rev().0,
            deleted: entry.is_deleted(),
            compress: entry.content_meta().is_compressed(),
            rev_meta: entry.rev_meta().to_vec(),
            body,
        }
    }
}

pub(crate) fn save(writer: &mut Writer, docs: &[Doc]) -> Result<(), Error> {
    let batch: Vec<Mutation<'_>> = docs.iter().map(Doc::mutation).collect();
    writer.save(&batch, &mut |_| {})
}

/// Returns all documents in the order of keys.
pub(crate) fn by_id(snapshot: &Snapshot) -> Result<Vec<Doc>, Error> {
    let scan = snapshot
        .scan_ids(..)?
        .with_bodies(kedge_couchstore::BodyForm::Plain);
    scan.map(|document| document.map(|document| Doc::read(&document.entry, document.body)))
        .collect()
}

/// Returns all documents in the order of seqnos.
pub(crate) fn by_seqno(snapshot: &Snapshot) -> Result<Vec<Doc>, Error> {
    let scan = snapshot
        .scan_seqnos(..)?
        .with_bodies(kedge_couchstore::BodyForm::Plain);
    scan.map(|document| document.map(|document| Doc::read(&document.entry, document.body)))
        .collect()
}
