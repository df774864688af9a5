//! Saving batches: documents, local documents and commit.

use std::path::{Path, PathBuf};

use kedge_bench_common::measure::{WorkCost, measure};
use kedge_bench_common::site::Site;
use kedge_couchstore::{CreateOptions, Error, Mutation, Options, Writer};

use crate::documents::{Batch, Bodies, vbstate};

/// Saves a prepared batch, from the first document to the end of its commit.
fn save(writer: &mut Writer, batch: &[Mutation<'_>]) -> Result<(), Error> {
    let mut bytes = 0;
    let mut documents = 0;
    // The owner of a file does this with each change: it adds up the figures of a collection.
    writer.save(batch, &mut |change| {
        bytes += u64::from(change.disk_bytes);
        if let Some(old) = &change.old {
            bytes = bytes.wrapping_sub(u64::from(old.disk_bytes()));
        } else {
            documents += 1;
        }
    })?;
    let seqno = writer.update_seqno().0;
    let (vbstate, totals) = (
        vbstate(seqno),
        [documents, seqno, bytes].map(u64::to_be_bytes),
    );
    writer.save_locals(&[
        (b"_local/vbstate", Some(vbstate.as_bytes())),
        (b"|0x0|", Some(totals.as_flattened())),
    ])?;
    writer.commit(seqno)?;
    Ok(())
}

/// Saves documents 0 to `documents` in a new file.
///
/// # Errors
/// The errors of the library.
pub fn insert(
    site: &Site,
    name: &str,
    documents: u32,
    bodies: &Bodies,
) -> Result<(PathBuf, WorkCost), Error> {
    let path = site.path(name);
    let (create, options) = (CreateOptions::default(), Options::default());
    let mut writer = Writer::create(&*site.disk, &path, &create, &options)?;
    writer.commit(0)?;
    let batch = Batch::new(0..documents, 1);
    let batch = batch.mutations(bodies);
    let (saved, taken) = measure(&site.disk, || save(&mut writer, &batch));
    saved?;
    Ok((path, taken))
}

/// Opens a file, saves new versions of some documents, and closes it.
///
/// # Errors
/// The errors of the library.
pub fn reopen_and_update(
    site: &Site,
    path: &Path,
    numbers: Vec<u32>,
    bodies: &Bodies,
) -> Result<WorkCost, Error> {
    let options = Options::default();
    let newest = Writer::open(&*site.disk, path, &options)?.update_seqno();
    let batch = Batch::new(numbers, newest.0 + 1);
    let batch = batch.mutations(bodies);
    let (saved, taken) = measure(&site.disk, || {
        let mut writer = Writer::open(&*site.disk, path, &options)?;
        save(&mut writer, &batch)
    });
    saved?;
    Ok(taken)
}

/// Saves new versions of some documents.
///
/// # Errors
/// The errors of the library.
pub fn update(
    site: &Site,
    writer: &mut Writer,
    numbers: Vec<u32>,
    bodies: &Bodies,
) -> Result<WorkCost, Error> {
    let batch = Batch::new(numbers, writer.update_seqno().0 + 1);
    let batch = batch.mutations(bodies);
    let (saved, taken) = measure(&site.disk, || save(writer, &batch));
    saved?;
    Ok(taken)
}
