//! Leak tests: creating, writing, flushing, compacting, rolling back and deleting vBuckets repeatedly leaves no files, no
//! descriptors and no memory behind.
//!
//! `KEDGE_CYCLES` sets the number of cycles.

use crate::counting::live_bytes;
use crate::tools::*;
use kedge_bucket::{BucketConfig, CompactionRequest, VbState};
use kedge_disk::{PosixDisk, SimDisk};
use kedge_types::{Seqno, VbId};
use std::sync::Arc;

/// The number of documents of a vBucket.
const DOCUMENTS: usize = 12;
/// The size of their values in bytes. Documents of this size are in no slab, so that the allocator of the tests counts them.
const VALUE_BYTES: usize = 5_000;
/// The number of cycles after which memory must not grow any more.
const WARM_UP: u64 = 80;
/// The tolerated growth of memory in bytes, for names that contain the number of a revision or segment, which gets longer. It
/// is less than a byte per cycle.
const NUMBERS_BYTES: i64 = 64;

fn cycles(few: u64) -> u64 {
    let asked = std::env::var("KEDGE_CYCLES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// The resources in use after a round.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Left {
    files: Vec<String>,
    mem_used: u64,
    handles: u64,
}

struct Cycles {
    open: Open,
    steps: Steps,
    names: Vec<Vec<String>>,
    number: u64,
    rolled_back: u64,
    reset: u64,
}

impl Cycles {
    fn new(site: &mut TestSite) -> Self {
        let (open, steps) = site.open_with_manual_tasks();
        Self {
            open,
            steps,
            names: all_vbuckets()
                .map(|vb| names_in(vb).take(DOCUMENTS).collect())
                .collect(),
            number: 0,
            rolled_back: 0,
            reset: 0,
        }
    }

    fn write(&self, vb: VbId, count: usize) {
        for name in &self.names[vb.index()][..count] {
            self.open
                .set(name, &[self.number as u8; VALUE_BYTES])
                .unwrap();
        }
        self.open.bucket.persistence().apply().unwrap();
    }

    /// Runs one lifecycle of a vBucket, which starts by ending the previous one.
    fn cycle(&mut self) {
        self.number += 1;
        let (open, number) = (&self.open, self.number);
        let vb = VbId((number % 4) as u16);
        open.bucket.states().delete_vbucket(vb).unwrap();
        if number.is_multiple_of(3) {
            self.steps.pass(MS * 20);
        }
        open.bucket
            .states()
            .set_vbucket(vb, VbState::Active)
            .unwrap();
        self.write(vb, DOCUMENTS);
        open.persist(&self.names[vb.index()][0], b"durable", number)
            .unwrap();
        open.bucket.persistence().sync().unwrap();
        open.sink.forget();
        if number.is_multiple_of(5) {
            open.bucket.flush_all(open.ctx()).unwrap();
            self.write(vb, DOCUMENTS);
        }
        if number.is_multiple_of(2) {
            open.bucket
                .persistence()
                .compactions()
                .compact(&CompactionRequest::default())
                .unwrap();
            self.steps.run();
        }
        open.bucket.persistence().apply().unwrap();
        let to = open.bucket.vbucket_figures(vb).unwrap().high_seqno;
        self.write(vb, 3);
        open.bucket
            .states()
            .set_vbucket(vb, VbState::Replica)
            .unwrap();
        let to = if number.is_multiple_of(7) {
            Seqno(1)
        } else {
            to
        };
        let done = open
            .bucket
            .persistence()
            .rollbacks()
            .rollback(vb, to)
            .unwrap();
        self.rolled_back += u64::from(!done.is_reset);
        self.reset += u64::from(done.is_reset);
        open.bucket
            .states()
            .set_vbucket(vb, VbState::Active)
            .unwrap();
        self.steps.pass(MS * 20);
    }

    fn run(&mut self, cycles: u64) {
        for _ in 0..cycles {
            self.cycle();
        }
    }

    /// Measures the resources when all vBuckets have the same contents, since a flush follows the last round.
    fn left(&self, site: &TestSite) -> Left {
        let open = &self.open;
        open.bucket.flush_all(open.ctx()).unwrap();
        open.bucket.persistence().apply().unwrap();
        self.steps.pass(SEC * 5);
        let names = site.disk.list(&site.dir).unwrap().into_iter();
        // The revisions differ.
        let without_number = |name: String| {
            name.trim_end_matches(|c: char| c.is_ascii_digit())
                .to_owned()
        };
        let mut files: Vec<String> = names.map(without_number).collect();
        files.sort();
        Left {
            files,
            mem_used: open.figure("mem_used"),
            handles: open.figure("ep_storage_handles"),
        }
    }
}

fn small(config: &mut BucketConfig) {
    config.quota_bytes = 64 << 20;
    config.apply_max_lag_ms = 10;
    // Segments of 64 KiB, so that the log is recycled all the time.
    config.log_bytes_max = 256 << 10;
    config.compaction.fragmentation_percent = 100;
}

#[test]
fn vbucket_lifecycles_leak_no_files_or_file_handles() {
    for (commit_log, keep_files_open) in [(true, true), (true, false), (false, true)] {
        let disk = SimDisk::new(1);
        let mut site = sim(&disk);
        small(&mut site.config);
        site.config.commit_log = commit_log;
        site.config.keep_files_open = keep_files_open;
        let mut cycles_of = Cycles::new(&mut site);
        // The log keeps as many segments as it once needed, which a measurement changes, too.
        cycles_of.run(WARM_UP);
        cycles_of.left(&site);
        cycles_of.run(WARM_UP);
        let before = (cycles_of.left(&site), disk.used_bytes());
        let count = cycles(300);
        cycles_of.run(count);
        let after = (cycles_of.left(&site), disk.used_bytes());
        assert_eq!(after.0, before.0);
        assert!(after.1 <= before.1, "{before:?} {after:?}");
        assert!(cycles_of.rolled_back > count / 2 && cycles_of.reset > count / 10);
        let files = after.0.files;
        let couch = files.iter().filter(|name| name.contains(".couch."));
        assert_eq!(couch.count(), 4, "{files:?}");
        assert!(files.iter().all(|name| !name.contains("deleted")));
        cycles_of.open.bucket.shutdown();
        site.executor.shutdown();
    }
}

/// Returns the number of this process's descriptors of files below `dir`.
#[cfg(target_os = "linux")]
fn descriptors(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.starts_with(dir)).count()
}

/// The bucket runs entirely on this thread, so the memory of this thread is that of the bucket.
#[test]
#[cfg(target_os = "linux")]
fn vbucket_lifecycles_leak_no_descriptors_or_memory() {
    let temporary = tempfile::tempdir().unwrap();
    for commit_log in [true, false] {
        let dir = temporary
            .path()
            .canonicalize()
            .unwrap()
            .join(format!("{commit_log}"));
        let mut site = TestSite {
            disk: Arc::new(PosixDisk),
            dir: dir.clone(),
            ..sim(&SimDisk::new(1))
        };
        small(&mut site.config);
        site.config.commit_log = commit_log;
        let mut cycles_of = Cycles::new(&mut site);
        cycles_of.run(WARM_UP / 2);
        cycles_of.left(&site);
        cycles_of.run(WARM_UP / 2);
        let before = (cycles_of.left(&site), descriptors(&dir));
        let bytes = live_bytes();
        let count = cycles(60);
        cycles_of.run(count);
        let after = (cycles_of.left(&site), descriptors(&dir));
        assert_eq!(after, before);
        drop(after);
        let grown = live_bytes() - bytes;
        eprintln!("{count} cycles: {grown} bytes of memory more, {before:?}");
        assert!(grown <= NUMBERS_BYTES, "{grown} bytes in {count} cycles");
        cycles_of.open.bucket.shutdown();
        site.executor.shutdown();
        drop(cycles_of);
        assert_eq!(descriptors(&dir), 0, "of a bucket that has ended");
    }
}

#[test]
fn memory_of_a_large_batch_is_returned_when_the_log_is_quiet() {
    const BYTES: usize = 8 << 20;
    let temporary = tempfile::tempdir().unwrap();
    let mut site = TestSite {
        disk: Arc::new(PosixDisk),
        dir: temporary.path().canonicalize().unwrap().join("bucket"),
        ..sim(&SimDisk::new(3))
    };
    let (open, steps) = site.open_with_manual_tasks();
    steps.pass(SEC * 30);
    let before = live_bytes();
    let names: Vec<String> = (0..BYTES / VALUE_BYTES)
        .map(|n| format!("key-{n}"))
        .collect();
    for name in &names {
        open.set(name, &[1; VALUE_BYTES]).unwrap();
    }
    steps.pass(MS * 100);
    assert_eq!(open.figure("ep_queue_size"), 0);
    for name in &names {
        open.delete(name);
    }
    steps.pass(SEC * 30);
    open.bucket.persistence().apply().unwrap();
    let grown = live_bytes() - before;
    assert!(grown < BYTES as i64 / 8, "{grown} bytes more");
    open.bucket.shutdown();
}
