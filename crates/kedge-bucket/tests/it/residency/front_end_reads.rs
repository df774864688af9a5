//! Documents that the thread of their command reads itself.

use super::*;
use kedge_bucket::Fetch;
use kedge_disk::{PosixDisk, ReadRing};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A bucket on a real disk, whose documents are only known by their file position. `None` if the system has no such reads.
struct Located {
    open: Open,
    ring: ReadRing,
    _dir: TempDir,
}

fn on_a_real_disk(policy: EvictionPolicy) -> (TestSite, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut site = small(&SimDisk::new(1), policy, 1 << 30);
    site.disk = Arc::new(PosixDisk);
    site.dir = dir.path().join("bucket");
    site.disk.create_dir_all(&site.dir).unwrap();
    (site, dir)
}

impl Open {
    /// Begins a GET. Returns whether the command waits for the disk.
    fn begin_get(&self, name: &str, cookie: u64) -> bool {
        let key = key(name);
        let wanted = Read {
            cookie: Cookie(cookie),
            ..read(&key)
        };
        let outcome = self.bucket.documents().get(self.ctx(), &wanted, |_| ());
        outcome.unwrap() == Outcome::Parked
    }

    fn take_fetches(&self) -> Vec<Fetch> {
        let mut taken = Vec::new();
        self.bucket
            .residency()
            .fetcher()
            .take_fetches(0, &mut taken);
        taken
    }
}

impl Located {
    fn new(policy: EvictionPolicy) -> Option<Self> {
        let ring = ReadRing::new(8).ok()?;
        let (site, dir) = on_a_real_disk(policy);
        let open = site.open();
        for (name, n) in NAMES.iter().zip(0..) {
            open.set(name, &value(n)).unwrap();
        }
        open.set("large", &noise(100 << 10)).unwrap();
        open.evict_all();
        // Tasks read the tree nodes of the files, which stay in memory.
        for name in NAMES.iter().chain(&["large"]) {
            open.get(name).unwrap();
        }
        open.evict_all();
        open.sink.reads.store(true, Ordering::SeqCst);
        Some(Self {
            open,
            ring,
            _dir: dir,
        })
    }

    /// Begins a GET of a document that is only on disk.
    fn get(&self, name: &str, cookie: u64) {
        assert!(self.open.begin_get(name, cookie));
    }

    fn take(&self) -> Vec<Fetch> {
        self.open.take_fetches()
    }

    fn take_one(&self) -> Fetch {
        let mut taken = self.take();
        assert_eq!(taken.len(), 1);
        taken.remove(0)
    }

    fn read(&mut self, fetch: &Fetch) -> io::Result<Vec<u8>> {
        let position = fetch.place();
        let len = (position.end - position.start) as usize;
        self.ring.read(fetch.file().clone(), position.start, len, 0);
        self.ring.submit().unwrap();
        let mut result = None;
        until("it is read", || {
            self.ring.take_done(|_, read| result = Some(read));
            result.is_some()
        });
        result.unwrap()
    }

    fn ended(&self, cookie: u64) -> Result<Vec<u8>, Status> {
        match self.open.sink.wait_any(cookie) {
            Completion::Read { result } => result.map(|(item, _)| item.value().to_vec()),
            other => panic!("{other:?}"),
        }
    }
}

/// Runs `test` for each eviction policy.
fn each(test: impl Fn(Located)) {
    for policy in POLICIES {
        if let Some(located) = Located::new(policy) {
            test(located);
        }
    }
}

#[test]
fn front_end_thread_reads_documents_with_known_file_position() {
    each(|mut located| {
        for (cookie, name) in (0..).zip(NAMES) {
            located.get(name, cookie);
        }
        let fetches = located.take();
        assert_eq!(fetches.len(), NAMES.len());
        assert_eq!(located.open.figure("ep_bg_remaining_items"), 3);
        for fetch in fetches {
            let bytes = located.read(&fetch);
            located
                .open
                .bucket
                .residency()
                .fetcher()
                .end_fetch(fetch, bytes);
        }
        for n in 0..3 {
            assert_eq!(located.ended(n), Ok(value(n as u32)));
        }
        let figure = |name| located.open.figure(name);
        assert_eq!(figure("ep_bg_fetched_by_front_ends"), 3);
        assert_eq!(figure("ep_bg_remaining_items"), 0);
        let waits = located.open.bucket.timings().snapshot("bg_wait").unwrap();
        assert_eq!(waits.count, figure("ep_bg_num_samples"));
        // The documents are in memory now.
        assert_eq!(located.open.get("a"), Ok(value(0)));
        located.open.bucket.shutdown();
    });
}

#[test]
fn tasks_read_large_documents_and_abandoned_fetches() {
    each(|located| {
        located.get("large", 1);
        assert!(located.take().is_empty());
        assert_eq!(located.ended(1), Ok(noise(100 << 10)));
        located.get("b", 2);
        let fetch = located.take_one();
        located
            .open
            .bucket
            .residency()
            .fetcher()
            .give_up_fetch(fetch);
        assert_eq!(located.ended(2), Ok(value(1)));
        assert_eq!(located.open.figure("ep_bg_fetched_by_front_ends"), 0);
        located.open.bucket.shutdown();
    });
}

#[test]
fn read_error_or_damage_fails_only_its_command() {
    each(|mut located| {
        located.get("a", 1);
        let fetch = located.take_one();
        let error = Err(io::Error::other("no"));
        located
            .open
            .bucket
            .residency()
            .fetcher()
            .end_fetch(fetch, error);
        assert_eq!(located.ended(1), Err(Status::Internal));
        located.get("a", 2);
        let fetch = located.take_one();
        let mut bytes = located.read(&fetch).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        located
            .open
            .bucket
            .residency()
            .fetcher()
            .end_fetch(fetch, Ok(bytes));
        assert_eq!(located.ended(2), Err(Status::Internal));
        assert_eq!(located.open.figure("ep_bg_fetch_failures"), 2);
        located.get("a", 3);
        let fetch = located.take_one();
        let bytes = located.read(&fetch);
        located
            .open
            .bucket
            .residency()
            .fetcher()
            .end_fetch(fetch, bytes);
        assert_eq!(located.ended(3), Ok(value(0)));
        located.open.bucket.shutdown();
    });
}

#[test]
fn document_that_changes_during_a_read_is_read_again() {
    each(|mut located| {
        located.get("a", 1);
        let fetch = located.take_one();
        let before = located.read(&fetch);
        located.open.set("a", b"newer").unwrap();
        located.open.evict_all();
        // The new version is in the file, and no longer in memory.
        located
            .open
            .bucket
            .residency()
            .fetcher()
            .end_fetch(fetch, before);
        assert_eq!(located.ended(1), Ok(b"newer".to_vec()));
        located.get("b", 2);
        let fetch = located.take_one();
        let before = located.read(&fetch);
        located.open.set("b", b"newest").unwrap();
        located
            .open
            .bucket
            .residency()
            .fetcher()
            .end_fetch(fetch, before);
        assert_eq!(located.ended(2), Ok(b"newest".to_vec()));
        located.open.bucket.shutdown();
    });
}

#[test]
fn shutdown_completes_waiting_reads() {
    each(|mut located| {
        located.get("a", 1);
        let fetch = located.take_one();
        let bytes = located.read(&fetch);
        located.get("b", 2);
        located.open.bucket.shutdown();
        assert_eq!(located.ended(2), Err(Status::TemporaryFailure));
        located
            .open
            .bucket
            .residency()
            .fetcher()
            .end_fetch(fetch, bytes);
        assert_eq!(located.ended(1), Err(Status::TemporaryFailure));
    });
}

#[test]
fn warmup_learns_the_file_positions_of_documents_on_disk() {
    if ReadRing::new(8).is_err() {
        return;
    }
    for policy in POLICIES {
        let (mut site, _dir) = on_a_real_disk(policy);
        let open = site.open();
        for n in 0..4_000 {
            open.set(&format!("key-{n}"), &noise(2 << 10)).unwrap();
        }
        open.bucket.shutdown();
        drop(open);
        // Values take 8 MB, the nodes of the by-id trees 300 kB.
        site.config.quota_bytes = 4 << 20;
        let open = site.open();
        open.sink.reads.store(true, Ordering::SeqCst);
        let waits = |n: &u64| open.begin_get(&format!("key-{n}"), *n);
        let waiting: Vec<_> = (0..4_000).step_by(41).filter(waits).collect();
        assert!(waiting.len() > 20, "{} wait", waiting.len());
        let fetches = open.take_fetches();
        assert_eq!(fetches.len(), waiting.len(), "{policy:?}");
        for fetch in fetches {
            open.bucket.residency().fetcher().give_up_fetch(fetch);
        }
        for cookie in waiting {
            let completion = open.sink.wait_any(cookie);
            assert!(matches!(completion, Completion::Read { result: Ok(_) }));
        }
        open.bucket.shutdown();
    }
}
