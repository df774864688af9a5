//! Range scans, compared to the documents at their creation.

use crate::crash::seeds;
use crate::tools::*;
use kedge_bucket::{
    BucketChange, Completion, Cookie, EvictionPolicy, Item, Outcome, ScanBound, ScanEnd, ScanFound,
    ScanId, ScanLimits, ScanPart, ScanRequest, ScanSelection, Write,
};
use kedge_disk::SimDisk;
use kedge_types::{CollectionId, Status, VbId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

type Map = BTreeMap<String, Vec<u8>>;

/// xorshift64 (G. Marsaglia, 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn bound(key: &str, exclusive: bool) -> ScanBound {
    ScanBound {
        key: key.as_bytes().to_vec(),
        exclusive,
    }
}

fn request(selection: ScanSelection, key_only: bool) -> ScanRequest {
    ScanRequest {
        collection: CollectionId::DEFAULT,
        selection,
        key_only,
        with_xattrs: false,
        requirements: None,
        name: String::new(),
    }
}

pub(crate) fn all() -> ScanRequest {
    let selection = ScanSelection::Range {
        start: bound("\0", false),
        end: bound("\u{7f}", false),
    };
    request(selection, false)
}

pub(crate) fn create(open: &Open, vb: VbId, request: &ScanRequest) -> Result<ScanId, Status> {
    let cookie = open.next_cookie();
    let bucket = &open.bucket;
    bucket
        .scans()
        .create_scan(open.ctx(), vb, request.clone(), Cookie(cookie))?;
    made(open.sink.wait_any(cookie))
}

fn made(completion: Completion) -> Result<ScanId, Status> {
    match completion {
        Completion::ScanMade { result } => result,
        other => panic!("{other:?}"),
    }
}

fn scanned(completion: Completion) -> Result<ScanPart, Status> {
    match completion {
        Completion::Scanned { result } => result,
        other => panic!("{other:?}"),
    }
}

/// Runs one continue of a scan that is small enough for one part.
pub(crate) fn continue_scan(
    open: &Open,
    vb: VbId,
    id: &ScanId,
    limits: ScanLimits,
) -> Result<ScanPart, Status> {
    let cookie = open.next_cookie();
    let bucket = &open.bucket;
    bucket
        .scans()
        .continue_scan(open.ctx(), vb, id, limits, Cookie(cookie))?;
    scanned(open.sink.wait_any(cookie))
}

fn text(key: &[u8]) -> String {
    // The key follows the prefix of the default collection.
    String::from_utf8(key[1..].to_vec()).unwrap()
}

/// An open scan and its expected result.
struct OpenScanModel {
    vb: VbId,
    id: ScanId,
    key_only: bool,
    expected: Vec<(String, Vec<u8>)>,
    /// The size of a sample; `expected` is then the set it is chosen from.
    sample: Option<usize>,
    given: Vec<(String, Vec<u8>)>,
}

impl OpenScanModel {
    fn take(&mut self, found: ScanFound) {
        match found {
            ScanFound::Keys(keys) => {
                assert!(self.key_only);
                let given = keys.iter().map(|key| (text(key), Vec::new()));
                self.given.extend(given);
            }
            ScanFound::Documents { items, .. } => {
                assert!(!self.key_only);
                let pair = |item: &Item| (text(item.key()), item.value().to_vec());
                self.given.extend(items.iter().map(pair));
            }
        }
    }

    fn check(&self, what: &str) {
        match self.sample {
            None => assert_eq!(self.given, self.expected, "{what}"),
            Some(count) => {
                assert_eq!(self.given.len(), count.min(self.expected.len()), "{what}");
                assert!(self.given.is_sorted(), "{what}");
                let is_there = |pair| self.expected.contains(pair);
                assert!(self.given.iter().all(is_there), "{what}");
            }
        }
    }
}

struct Run {
    open: Open,
    random: Random,
    map: Map,
    scans: Vec<OpenScanModel>,
    ended: usize,
    seed: u64,
}

impl Run {
    fn change(&mut self) {
        let name = format!("k{:02}", self.random.below(60));
        let k = key(&name);
        let cookie = self.open.next_cookie();
        let write = Write {
            cookie: Cookie(cookie),
            ..write(&k)
        };
        if self.random.below(3) == 0 {
            let outcome = self.open.bucket.documents().delete(self.open.ctx(), &write);
            if outcome == Ok(Outcome::Parked) {
                let _ = self.open.sink.wait(cookie);
            }
            self.map.remove(&name);
        } else {
            let value =
                vec![b'a' + self.random.below(26) as u8; self.random.below(300) as usize + 1];
            self.open.set(&name, &value).unwrap();
            self.map.insert(name, value);
        }
    }

    fn begin(&mut self) {
        let vb = VbId(self.random.below(4) as u16);
        let key_only = self.random.below(2) == 0;
        let mut end = || format!("k{:02}", self.random.below(60));
        let (first, last) = (end(), end());
        let exclusive = [self.random.below(2) == 0, self.random.below(2) == 0];
        let count = self.random.below(12) as usize + 1;
        let is_sample = self.random.below(3) == 0;
        let is_in = |name: &str| {
            is_sample
                || (first.as_str() <= name
                    && name <= last.as_str()
                    && !(exclusive[0] && name == first)
                    && !(exclusive[1] && name == last))
        };
        let of_vb = |name: &str| key(name).vbucket(4) == vb;
        let expected: Vec<_> = self
            .map
            .iter()
            .filter(|(name, _)| is_in(name) && of_vb(name))
            .map(|(name, value)| {
                let value = if key_only { Vec::new() } else { value.clone() };
                (name.clone(), value)
            })
            .collect();
        let selection = if is_sample {
            ScanSelection::Sample {
                seed: self.seed,
                count: count as u64,
            }
        } else {
            ScanSelection::Range {
                start: bound(&first, exclusive[0]),
                end: bound(&last, exclusive[1]),
            }
        };
        match create(&self.open, vb, &request(selection, key_only)) {
            Ok(id) => self.scans.push(OpenScanModel {
                vb,
                id,
                key_only,
                expected,
                sample: is_sample.then_some(count),
                given: Vec::new(),
            }),
            Err(status) => {
                assert_eq!(status, Status::KeyNotFound, "seed {}", self.seed);
                assert!(expected.is_empty(), "seed {}", self.seed);
            }
        }
    }

    fn continue_scan(&mut self) {
        if self.scans.is_empty() {
            return;
        }
        let at = self.random.below(self.scans.len() as u64) as usize;
        let limits = ScanLimits {
            items: self.random.below(5) as u32,
            ms: 0,
            bytes: self.random.below(2) as u32 * 200,
        };
        let scan = &mut self.scans[at];
        let part = continue_scan(&self.open, scan.vb, &scan.id, limits).unwrap();
        scan.take(part.found);
        if part.end == Some(ScanEnd::Complete) {
            self.scans
                .swap_remove(at)
                .check(&format!("seed {}", self.seed));
            self.ended += 1;
        }
    }

    fn evict(&self) {
        self.open.bucket.persistence().apply().unwrap();
        let quota_bytes = self.open.bucket.config().quota_bytes;
        let quota = |quota_bytes| BucketChange {
            quota_bytes: Some(quota_bytes),
            ..BucketChange::default()
        };
        self.open.bucket.update(&quota(1)).unwrap();
        until("all values have left", || {
            self.open.bucket.persistence().apply().unwrap();
            self.open.figure("ep_num_non_resident") == self.open.figure("curr_items")
        });
        self.open.bucket.update(&quota(quota_bytes)).unwrap();
    }
}

#[test]
fn range_scan_returns_the_snapshot_at_its_creation() {
    let mut ended = 0;
    for seed in seeds(12) {
        let mut site = sim(&SimDisk::new(seed));
        site.config.eviction_policy = match seed % 2 {
            0 => EvictionPolicy::ValueOnly,
            _ => EvictionPolicy::FullEviction,
        };
        site.config.commit_log = seed % 3 != 0;
        let mut run = Run {
            open: site.open(),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            map: Map::new(),
            scans: Vec::new(),
            ended: 0,
            seed,
        };
        for _ in 0..400 {
            match run.random.below(40) {
                0 => run.evict(),
                1 => run.open.bucket.persistence().apply().unwrap(),
                2..8 => run.begin(),
                8..20 => run.continue_scan(),
                _ => run.change(),
            }
        }
        ended += run.ended;
        assert!(run.open.sink.fatal().is_empty());
        run.open.bucket.shutdown();
    }
    assert!(ended > 100, "{ended} scans came to their end");
}

/// Bug: a flush makes the files void, and they are replaced later. Range scans read the old files until then, because their
/// seqnos were high enough for the seqnos that clients knew of the new history. Scans returned too few documents, or deleted
/// ones, also after a restart.
#[test]
fn range_scan_after_a_flush_returns_only_new_documents() {
    let disk = SimDisk::new(1);
    let site = sim(&disk);
    let vb = VbId(0);
    let names: Vec<String> = names_in(vb).take(1_000).collect();
    let seen = |open: &Open| {
        let figures = open.bucket.vbucket_figures(vb).unwrap();
        let mut request = all();
        request.requirements = Some(kedge_bucket::ScanRequirements {
            uuid: figures.failover[0].0,
            seqno: figures.high_seqno,
            seqno_exists: true,
            timeout_ms: Some(60_000),
        });
        let id = create(open, vb, &request).unwrap();
        let part = continue_scan(open, vb, &id, ScanLimits::default()).unwrap();
        assert_eq!(part.end, Some(ScanEnd::Complete));
        let ScanFound::Documents { items, .. } = part.found else {
            panic!("keys only");
        };
        let values: Vec<_> = items.iter().map(|item| item.value().to_vec()).collect();
        assert!(values.iter().all(|value| *value == values[0]));
        (values.len(), String::from_utf8(values[0].clone()).unwrap())
    };
    let open = site.open();
    for round in 0..3 {
        // The number decreases, so the previous file has all the seqnos.
        let count = 1_000 - 100 * round;
        for name in &names[..count] {
            open.set(name, round.to_string().as_bytes()).unwrap();
        }
        open.bucket.persistence().apply().unwrap();
        open.bucket.flush_all(open.ctx()).unwrap();
        for name in &names[..count - 50] {
            open.set(name, b"new").unwrap();
        }
        assert_eq!(seen(&open), (count - 50, "new".to_owned()), "{round}");
    }
    // The new history stays in the log.
    open.bucket.flush_all(open.ctx()).unwrap();
    for name in &names[..10] {
        open.set(name, b"last").unwrap();
    }
    open.bucket.persistence().sync().unwrap();
    open.bucket.shutdown_within(std::time::Duration::ZERO);
    let open = site.open();
    assert_eq!(seen(&open), (10, "last".to_owned()), "a clean start");
    open.bucket.flush_all(open.ctx()).unwrap();
    for name in &names[..7] {
        open.set(name, b"end").unwrap();
    }
    open.bucket.persistence().sync().unwrap();
    disk.kill_process();
    open.bucket.shutdown();
    let open = site.open();
    assert_eq!(seen(&open), (7, "end".to_owned()), "after a kill");
    open.bucket.shutdown();
}

#[test]
fn range_scan_sees_concurrent_writes_up_to_one_point_in_time() {
    let site = sim(&SimDisk::new(1));
    let open = site.open();
    let vb = VbId(0);
    // The documents in the order in which they are written, round by round.
    let names: Vec<String> = (0..2_000)
        .map(|n| format!("k{n:04}"))
        .filter(|name| key(name).vbucket(4) == vb)
        .take(150)
        .collect();
    let round = |number: u32| {
        for name in &names {
            open.set(name, number.to_string().as_bytes()).unwrap();
        }
    };
    round(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1;
            while !is_over.load(Ordering::Relaxed) {
                round(number);
                number += 1;
            }
        });
        let mut last_seen = (0, 0);
        for _ in 0..30 {
            let id = create(&open, vb, &all()).unwrap();
            let mut seen = Vec::new();
            loop {
                let limits = ScanLimits {
                    items: 40,
                    ..ScanLimits::default()
                };
                let part = continue_scan(&open, vb, &id, limits).unwrap();
                let ScanFound::Documents { items, .. } = part.found else {
                    panic!("keys only");
                };
                for item in &items {
                    let number: u32 = std::str::from_utf8(item.value()).unwrap().parse().unwrap();
                    seen.push((text(item.key()), number));
                }
                if part.end == Some(ScanEnd::Complete) {
                    break;
                }
            }
            assert!(seen.iter().map(|(name, _)| name).eq(&names));
            let (first, last) = (seen[0].1, seen.last().unwrap().1);
            assert!(seen.is_sorted_by(|a, b| a.1 >= b.1), "{seen:?}");
            assert!(first - last <= 1, "{first} {last}");
            let reached = seen.iter().filter(|(_, number)| *number == first).count();
            assert!((first, reached) >= last_seen, "what was seen stays");
            last_seen = (first, reached);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    open.bucket.shutdown();
}

#[test]
fn range_scans_end_when_cancelled_idle_or_shut_down() {
    let mut site = sim(&SimDisk::new(1));
    let (open, steps) = site.open_with_manual_tasks();
    let bucket = &open.bucket;
    let vb = key("k").vbucket(4);
    open.set("k", b"1").unwrap();
    let make = || {
        let cookie = open.next_cookie();
        let outcome = bucket
            .scans()
            .create_scan(open.ctx(), vb, all(), Cookie(cookie));
        assert!(matches!(outcome, Ok(Outcome::Parked)));
        cookie
    };
    let id_of = |cookie| {
        steps.run();
        made(open.sink.get(cookie).unwrap()).unwrap()
    };
    let limits = ScanLimits::default();
    let continue_scan = |id: &ScanId| {
        let cookie = open.next_cookie();
        let outcome = bucket
            .scans()
            .continue_scan(open.ctx(), vb, id, limits, Cookie(cookie));
        outcome.map(|_| cookie)
    };

    // Only one continue at a time is allowed; the one in progress is notified of the cancellation.
    let first = id_of(make());
    let under_way = continue_scan(&first).unwrap();
    assert_eq!(continue_scan(&first), Err(Status::Busy));
    assert!(bucket.scans().scan_figures()[0].is_busy);
    assert_eq!(
        bucket.scans().cancel_scan(VbId(3 - vb.get()), &first),
        Err(Status::KeyNotFound)
    );
    bucket.scans().cancel_scan(vb, &first).unwrap();
    steps.run();
    let ended = scanned(open.sink.get(under_way).unwrap());
    assert_eq!(ended.unwrap_err(), Status::RangeScanCancelled);
    assert_eq!(continue_scan(&first), Err(Status::KeyNotFound));

    // The scan exceeds its idle timeout.
    let second = id_of(make());
    steps.pass(SEC * 170);
    assert_eq!(open.figure("ep_range_scans_open"), 1);
    steps.pass(SEC * 20);
    assert_eq!(open.figure("ep_range_scans_open"), 0);
    assert_eq!(open.figure("ep_range_scans_idle"), 1);
    assert_eq!(continue_scan(&second), Err(Status::KeyNotFound));

    // The file does not reach the required seqno.
    open.set("k", b"2").unwrap();
    let mut late = all();
    late.requirements = Some(kedge_bucket::ScanRequirements {
        uuid: bucket.failover_log(open.ctx(), vb).unwrap()[0].0,
        seqno: 99.into(),
        seqno_exists: false,
        timeout_ms: Some(5_000),
    });
    let cookie = open.next_cookie();
    bucket
        .scans()
        .create_scan(open.ctx(), vb, late, Cookie(cookie))
        .unwrap();
    steps.pass(SEC * 4);
    assert!(open.sink.get(cookie).is_none());
    steps.pass(SEC * 2);
    let failed = made(open.sink.get(cookie).unwrap());
    assert_eq!(failed, Err(Status::TemporaryFailure));

    let third = id_of(make());
    let (continued, making) = (continue_scan(&third).unwrap(), make());
    bucket.shutdown();
    let ended = scanned(open.sink.get(continued).unwrap());
    assert_eq!(ended.unwrap_err(), Status::TemporaryFailure);
    let ended = made(open.sink.get(making).unwrap());
    assert_eq!(ended, Err(Status::TemporaryFailure));
    assert_eq!(continue_scan(&third), Err(Status::KeyNotFound));
}
