//! Compaction of files by the bucket's tasks.

mod blocked_applier;
mod failures;
mod hours;
mod manual_tasks;
mod threads;
mod throttle;

use crate::tools::*;
use kedge_bucket::{CompactionReport, CompactionRequest};
use kedge_types::VbId;
use std::path::PathBuf;

/// Returns the bucket's couchstore files with their lengths, sorted, including files that are being written.
fn files(site: &TestSite) -> Vec<(String, u64)> {
    let mut names = site.disk.list(&site.dir).unwrap();
    names.retain(|name| name.contains(".couch."));
    names.sort();
    let len = |name: &String| site.disk.len(&site.dir.join(name)).unwrap();
    names
        .into_iter()
        .map(|name| (name.clone(), len(&name)))
        .collect()
}

fn names(site: &TestSite) -> Vec<String> {
    files(site).into_iter().map(|(name, _)| name).collect()
}

/// Returns the names of all four files at one revision.
fn revision(revision: u32) -> Vec<String> {
    (0..4).map(|vb| format!("{vb}.couch.{revision}")).collect()
}

/// Returns the path of a vBucket's file.
fn file_of(site: &TestSite, vb: VbId) -> PathBuf {
    let prefix = format!("{vb}.couch.");
    let name = names(site)
        .into_iter()
        .find(|name| name.starts_with(&prefix));
    site.dir.join(name.expect("it has a file"))
}

/// Returns incompressible bytes.
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

/// Writes the same documents of 4 KiB into the files `times` times. Each round leaves about 40 KiB of garbage in every file.
fn churn(open: &Open, times: u64) {
    for round in 1..=times {
        for n in 0..KEYS {
            open.set(&format!("key-{n}"), &noise(round * KEYS + n, 4_096))
                .unwrap();
        }
        open.bucket.persistence().apply().unwrap();
    }
}

/// Checks the documents that [`churn`] wrote.
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

/// Opens a bucket and fills its files with [`churn`].
fn churned(site: &mut TestSite, times: u64) -> (Open, Steps) {
    let (open, steps) = site.open_with_manual_tasks();
    churn(&open, times);
    (open, steps)
}

/// Shuts the bucket down, and checks that a new one has the documents of [`churn`].
fn check_reopened(site: &mut TestSite, open: &Open, times: u64) {
    open.bucket.shutdown();
    let (again, _steps) = site.open_with_manual_tasks();
    check(&again, times);
    again.bucket.shutdown();
}

/// Runs a compaction to its end.
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
