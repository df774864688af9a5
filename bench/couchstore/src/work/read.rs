//! Opening, looking up, scanning.

use std::path::Path;

use kedge_bench_common::measure::{WorkCost, measure};
use kedge_bench_common::random::Random;
use kedge_bench_common::site::Site;
use kedge_couchstore::{BodyForm, Error, Options, Snapshot, Writer};

use crate::documents::{BODY_BYTES, Key, key};

/// Opens a file for reading and closes it, so many times.
///
/// # Errors
/// The errors of the library.
pub fn open_and_close(site: &Site, path: &Path, times: u32) -> Result<WorkCost, Error> {
    let options = Options::default();
    let (opened, taken) = measure(&site.disk, || {
        (0..times).try_for_each(|_| Snapshot::open(&*site.disk, path, &options).map(drop))
    });
    opened?;
    Ok(taken)
}

/// Opens a file for appending and closes it, so many times.
///
/// # Errors
/// The errors of the library.
pub fn open_to_append_and_close(site: &Site, path: &Path, times: u32) -> Result<WorkCost, Error> {
    let options = Options::default();
    let (opened, taken) = measure(&site.disk, || {
        (0..times).try_for_each(|_| Writer::open(&*site.disk, path, &options).map(drop))
    });
    opened?;
    Ok(taken)
}

/// Reads all documents in seqno order. Returns their number, and the cost.
///
/// # Errors
/// The errors of the library.
///
/// # Panics
/// If the body of a document has not the stored length.
pub fn scan(site: &Site, snapshot: &Snapshot, with_bodies: bool) -> Result<(u64, WorkCost), Error> {
    let (scanned, taken) = measure(&site.disk, || {
        let (mut documents, mut bytes) = (0, 0);
        let scan = snapshot.scan_seqnos(..)?;
        if with_bodies {
            for document in scan.with_bodies(BodyForm::Plain) {
                bytes += document?.body.map_or(0, |body| body.len());
                documents += 1;
            }
        } else {
            for entry in scan {
                bytes += entry?.disk_bytes() as usize;
                documents += 1;
            }
        }
        Ok::<_, Error>((documents, bytes))
    });
    let (documents, bytes) = scanned?;
    assert!(!with_bodies || bytes == documents * BODY_BYTES);
    Ok((documents as u64, taken))
}

fn random_keys(seed: u64, count: u32, documents: u32) -> Vec<Key> {
    let mut random = Random::new(seed);
    let numbers = (0..count).map(|_| random.below(documents.into()) as u32);
    numbers.map(key).collect()
}

/// Reads `count` random documents of the first `documents`, one by one.
///
/// # Errors
/// The errors of the library.
///
/// # Panics
/// If a document is missing.
pub fn gets(
    site: &Site,
    snapshot: &Snapshot,
    (count, documents): (u32, u32),
    seed: u64,
) -> Result<WorkCost, Error> {
    let keys = random_keys(seed, count, documents);
    let (read, taken) = measure(&site.disk, || {
        keys.iter().try_for_each(|key| {
            let entry = snapshot.get(key)?.expect("it was stored");
            let body = snapshot.body(&entry, BodyForm::Plain)?;
            assert_eq!(body.map(|body| body.len()), Some(BODY_BYTES));
            Ok::<_, Error>(())
        })
    });
    read?;
    Ok(taken)
}

/// Reads `count` random documents of the first `documents` in one go.
///
/// # Errors
/// The errors of the library.
///
/// # Panics
/// If a document is missing.
pub fn multi_get(
    site: &Site,
    snapshot: &Snapshot,
    (count, documents): (u32, u32),
    seed: u64,
) -> Result<WorkCost, Error> {
    let keys = random_keys(seed, count, documents);
    let (read, taken) = measure(&site.disk, || {
        let found = snapshot.get_many_documents(&keys, BodyForm::Plain)?;
        let has_body = |document: kedge_couchstore::Document| {
            document.body.is_some_and(|body| body.len() == BODY_BYTES)
        };
        assert!(found.into_iter().all(|found| found.is_some_and(has_body)));
        Ok::<_, Error>(())
    });
    read?;
    Ok(taken)
}
