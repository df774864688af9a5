//! Compaction of files by the bucket's tasks.

mod by_hand;
mod failures;
mod hours;
mod in_the_way;
mod threads;
mod throttle;

use crate::tools::*;
use kedge_bucket::{CompactionReport, CompactionRequest};
use kedge_types::VbId;
use std::path::PathBuf;

/// The bucket's couchstore files with their lengths, sorted; also those that are being made.
fn files(place: &Place) -> Vec<(String, u64)> {
    let mut names = place.disk.list(&place.dir).unwrap();
    names.retain(|name| name.contains(".couch."));
    names.sort();
    let len = |name: &String| place.disk.len(&place.dir.join(name)).unwrap();
    names
        .into_iter()
        .map(|name| (name.clone(), len(&name)))
        .collect()
}

fn names(place: &Place) -> Vec<String> {
    files(place).into_iter().map(|(name, _)| name).collect()
}

/// The names of all four files as of one revision.
fn revision(revision: u32) -> Vec<String> {
    (0..4).map(|vb| format!("{vb}.couch.{revision}")).collect()
}

/// The file of a vBucket.
fn file_of(place: &Place, vb: VbId) -> PathBuf {
    let prefix = format!("{vb}.couch.");
    let name = names(place)
        .into_iter()
        .find(|name| name.starts_with(&prefix));
    place.dir.join(name.expect("it has a file"))
}

/// Bytes that no compression makes shorter.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

const KEYS: u64 = 40;

/// Writes the same documents so many times, of 4 KiB each, into the files. Each time leaves about 40 KiB of garbage in
/// every file.
fn churn(open: &Open, times: u64) {
    for round in 1..=times {
        for n in 0..KEYS {
            open.set(&format!("key-{n}"), &noise(round * KEYS + n, 4_096))
                .unwrap();
        }
        open.bucket.persistence().apply().unwrap();
    }
}

/// What [`churn`] leaves is there.
fn check(open: &Open, times: u64) {
    for n in 0..KEYS {
        let value = open.get(&format!("key-{n}")).unwrap();
        assert!(value == noise(times * KEYS + n, 4_096), "key-{n}");
    }
}

fn all() -> CompactionRequest {
    CompactionRequest::default()
}

fn only(vb: VbId) -> CompactionRequest {
    CompactionRequest {
        vbuckets: Some(vec![vb]),
        ..all()
    }
}

/// A bucket whose files [`churn`] has filled.
fn churned(place: &mut Place, times: u64) -> (Open, Steps) {
    let (open, steps) = place.open_by_hand();
    churn(&open, times);
    (open, steps)
}

/// Ends the bucket. The next has what [`churn`] left.
fn check_reopened(place: &mut Place, open: &Open, times: u64) {
    open.bucket.shutdown();
    let (again, _steps) = place.open_by_hand();
    check(&again, times);
    again.bucket.shutdown();
}

/// Compacts at once.
fn compact(open: &Open, steps: &Steps, request: &CompactionRequest) -> CompactionReport {
    let ticket = open
        .bucket
        .persistence()
        .compactions()
        .compact(request)
        .unwrap();
    steps.run();
    ticket.report().expect("it has ended")
}
