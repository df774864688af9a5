//! Random commands with flushes of the whole bucket, compared to a map: expiring documents in several collections; GETs, key
//! lists, range scans, new and resumed streams, and statistics; clean restarts, kills and power losses, also during a flush.
//!
//! Bug: a flush changed memory and the log at once, and the files later. Range scans and backfills read the old files
//! meanwhile, because these had a seqno that was high enough.
//!
//! `KEDGE_SEED` runs one seed, `KEDGE_SEEDS` that many.

use crate::collections::{follow, key_in};
use crate::crash::seeds;
use crate::dcp::{Client, TestConnection};
use crate::tools::*;
use kedge_bucket::{
    Bucket, BucketChange, CompactionRequest, Completion, Cookie, EndReason, EvictionPolicy,
    Outcome, Read, ScanBound, ScanEnd, ScanFound, ScanId, ScanLimits, ScanRequest,
    ScanRequirements, ScanSelection, StoreMode, WarmupBehavior, Write,
};
use kedge_disk::{Fault, Rng, SimDisk};
use kedge_executor::Pool;
use kedge_types::{CollectionId, Datatype, DocKey, Expiry, Status, VbId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const COLLECTIONS: [u32; 3] = [0, 8, 9];
const NAMES: u64 = 20;
/// The maximum wait for a result, in tenths of a second of the bucket's clock.
const PATIENCE: u32 = 600;

struct Doc {
    value: Vec<u8>,
    expiry: Expiry,
}

/// The documents, including expired ones.
type Map = BTreeMap<(u32, String), Doc>;

type Found = BTreeMap<Vec<u8>, Vec<u8>>;

fn names() -> impl Iterator<Item = String> {
    (0..NAMES).map(|n| format!("key-{n:02}"))
}

/// Returns a collection's prefix and a name, or the version that a value contains.
fn brief(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(8)].escape_ascii().to_string()
}

fn vb_of(id: &(u32, String)) -> VbId {
    key_in(id.0, &id.1).vbucket(4)
}

/// An open range scan and its expected result.
struct OpenScan {
    vb: VbId,
    id: ScanId,
    must: Found,
    given: Found,
    /// True if the bucket was flushed since.
    is_void: bool,
}

/// A stream that stays open.
struct Follower {
    vb: VbId,
    client: Client,
    is_void: bool,
}

/// An open bucket with its streams and scans.
struct Session {
    open: Open,
    steps: Steps,
    scans: Vec<OpenScan>,
    followers: Vec<Follower>,
    line: TestConnection,
}

impl Session {
    fn now(&self) -> u64 {
        self.open.ctx().now.unix_secs()
    }

    /// Waits for the completion of a parked command.
    fn wait(&self, cookie: u64, what: &str) -> Completion {
        for _ in 0..PATIENCE {
            if let Some(completion) = self.open.sink.get(cookie) {
                return completion;
            }
            self.open
                .bucket
                .persistence()
                .writers()
                .request_flush(false);
            if self.steps.run() == 0 {
                self.steps.pass(MS * 100);
            }
        }
        panic!("{what} was never completed");
    }

    fn wait_write(&self, cookie: u64) -> Result<(), Status> {
        match self.wait(cookie, "a write") {
            Completion::SyncWrite { result, .. } => result.map(drop),
            other => panic!("{other:?}"),
        }
    }

    fn get(&self, key: &DocKey) -> Result<Vec<u8>, Status> {
        let cookie = self.open.next_cookie();
        let wanted = Read {
            cookie: Cookie(cookie),
            ..read(key)
        };
        let ctx = self.open.ctx();
        let outcome = self
            .open
            .bucket
            .documents()
            .get(ctx, &wanted, |it| it.item.value().to_vec())?;
        match outcome {
            Outcome::Done(value) => Ok(value),
            Outcome::Parked => match self.wait(cookie, "a GET") {
                Completion::Read { result } => result.map(|(item, _)| item.value().to_vec()),
                other => panic!("{other:?}"),
            },
        }
    }

    fn keys(&self, vb: VbId, collection: u32) -> BTreeSet<Vec<u8>> {
        let first = key_in(collection, "\0");
        let cookie = self.open.next_cookie();
        let start = Read {
            vb,
            key: &first,
            cookie: Cookie(cookie),
        };
        let mut keys = BTreeSet::new();
        let each = |key: &[u8]| {
            keys.insert(key.to_vec());
        };
        let outcome = self
            .open
            .bucket
            .documents()
            .keys_from(self.open.ctx(), &start, 1_000, each);
        match outcome.unwrap() {
            Outcome::Done(()) => keys,
            Outcome::Parked => match self.wait(cookie, "a list of keys") {
                Completion::Keys { result } => {
                    result.unwrap().iter().map(|key| key.to_vec()).collect()
                }
                other => panic!("{other:?}"),
            },
        }
    }

    /// Creates a scan of a collection in a vBucket, as a client that knows of the latest writes.
    fn create(&self, vb: VbId, collection: u32) -> Result<ScanId, Status> {
        let bound = |key: &[u8]| ScanBound {
            key: key.to_vec(),
            exclusive: false,
        };
        let figures = self.open.bucket.vbucket_figures(vb).unwrap();
        let request = ScanRequest {
            collection: CollectionId(collection),
            selection: ScanSelection::Range {
                start: bound(b"\0"),
                end: bound(b"\xff"),
            },
            key_only: false,
            with_xattrs: false,
            requirements: Some(ScanRequirements {
                uuid: figures.failover[0].0,
                seqno: figures.high_seqno,
                seqno_exists: false,
                timeout_ms: Some(20_000),
            }),
            name: String::new(),
        };
        let cookie = self.open.next_cookie();
        let bucket = &self.open.bucket;
        bucket
            .scans()
            .create_scan(self.open.ctx(), vb, request, Cookie(cookie))?;
        match self.wait(cookie, "a scan") {
            Completion::ScanMade { result } => result,
            other => panic!("{other:?}"),
        }
    }

    /// Continues a scan for a few documents, or to its end.
    fn continue_scan(
        &self,
        vb: VbId,
        id: &ScanId,
        items: u32,
        found: &mut Found,
    ) -> Result<bool, Status> {
        let cookie = self.open.next_cookie();
        let limits = ScanLimits {
            items,
            ..ScanLimits::default()
        };
        let bucket = &self.open.bucket;
        bucket
            .scans()
            .continue_scan(self.open.ctx(), vb, id, limits, Cookie(cookie))?;
        let part = match self.wait(cookie, "a scan that goes on") {
            Completion::Scanned { result } => result?,
            other => panic!("{other:?}"),
        };
        let ScanFound::Documents { items, .. } = part.found else {
            panic!("keys only");
        };
        for item in items {
            found.insert(item.key().to_vec(), item.value().to_vec());
        }
        Ok(part.end == Some(ScanEnd::Complete))
    }

    fn scan(&self, vb: VbId, collection: u32) -> Found {
        let mut found = Found::new();
        match self.create(vb, collection) {
            Ok(id) => while !self.continue_scan(vb, &id, 0, &mut found).unwrap() {},
            Err(status) => assert_eq!(status, Status::KeyNotFound),
        }
        found
    }

    /// Reads a stream until it is idle or has ended.
    fn drain(&self, vb: VbId, client: &mut Client) {
        for _ in 0..PATIENCE {
            client.drain();
            let high = self.open.bucket.vbucket_figures(vb).unwrap().high_seqno;
            if client.ended.is_some() || client.copy.last == high.get() {
                return;
            }
            if self.steps.run() == 0 {
                self.steps.pass(MS * 100);
            }
        }
        panic!("the stream of vBucket {vb} does not come to its end");
    }
}

struct Model {
    seed: u64,
    random: Rng,
    disk: SimDisk,
    site: TestSite,
    map: Map,
    version: u64,
    uid: u64,
    /// The time on the bucket's clock before the last start.
    elapsed: Duration,
    done: [u64; 6],
}

/// The events that each run must include: flushes, non-empty scans, non-empty streams, streams and scans that a flush
/// ended, starts.
const FLUSHES: usize = 0;
const SCANS: usize = 1;
const STREAMS: usize = 2;
const STREAMS_ENDED: usize = 3;
const SCANS_ENDED: usize = 4;
const STARTS: usize = 5;

impl Model {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        let mut site = sim(&disk);
        let config = &mut site.config;
        config.commit_log = !seed.is_multiple_of(3);
        config.eviction_policy = match seed % 2 {
            0 => EvictionPolicy::ValueOnly,
            _ => EvictionPolicy::FullEviction,
        };
        if seed % 4 < 2 {
            config.memory.warmup_behavior = WarmupBehavior::Background;
        }
        config.apply_max_lag_ms = 500;
        config.num_shards = 2;
        config.flusher_batch_max_items = 4;
        config.keep_files_open = !seed.is_multiple_of(5);
        // Segments of 64 KiB, so that the log is recycled all the time.
        config.log_bytes_max = 256 << 10;
        Self {
            seed,
            random: Rng::new(seed),
            disk,
            site,
            map: Map::new(),
            version: 0,
            uid: 0,
            elapsed: Duration::ZERO,
            done: [0; 6],
        }
    }

    fn what(&self, what: &str) -> String {
        format!("seed {}, change {}: {what}", self.seed, self.version)
    }

    fn start(&mut self) -> Session {
        self.done[STARTS] += 1;
        let steps = self.site.manual_tasks();
        // The clock continues where it was.
        steps.jump(self.elapsed);
        let sink = Arc::new(Sink::default());
        let bucket = Bucket::open(self.site.setup(&sink)).unwrap();
        let open = self.site.opened(bucket, sink);
        // Work that the start does not need is left undone.
        while open.bucket.is_loading() {
            let pools = [Pool::Reader, Pool::Writer, Pool::AuxIo, Pool::NonIo];
            assert!(pools.iter().any(|pool| steps.run_one(*pool)));
        }
        open.bucket.wait_loaded().unwrap();
        self.uid += 1;
        follow(&open, self.uid, &COLLECTIONS[1..]);
        let line = TestConnection::new(&open);
        Session {
            open,
            steps,
            scans: Vec::new(),
            followers: Vec::new(),
            line,
        }
    }

    /// Returns the documents that a reader must find in a vBucket, of one collection or all.
    fn live(&self, now: u64, vb: VbId, collection: Option<u32>) -> Found {
        let all = self.map.iter().filter(|(id, doc)| {
            vb_of(id) == vb
                && collection.is_none_or(|wanted| wanted == id.0)
                && !doc.expiry.has_passed(now)
        });
        all.map(|(id, doc)| {
            let key = key_in(id.0, &id.1);
            (key.as_bytes().to_vec(), doc.value.clone())
        })
        .collect()
    }

    /// Compares results to the expected documents. Expired documents may still exist.
    fn compare(&self, found: &Found, must: &Found, may: Option<VbId>, what: &str) {
        let gone: Vec<_> = must
            .iter()
            .filter(|(key, value)| found.get(*key) != Some(*value))
            .map(|(key, value)| (brief(key), brief(value), found.get(key).map(|it| brief(it))))
            .collect();
        assert!(
            gone.is_empty(),
            "{}: not there, or another: {gone:?}",
            self.what(what)
        );
        let stored: Found = self
            .map
            .iter()
            .filter(|(id, _)| may == Some(vb_of(id)))
            .map(|(id, doc)| {
                let key = key_in(id.0, &id.1);
                (key.as_bytes().to_vec(), doc.value.clone())
            })
            .collect();
        let more: Vec<_> = found
            .iter()
            .filter(|(key, value)| {
                must.get(*key) != Some(*value) && stored.get(*key) != Some(*value)
            })
            .map(|(key, value)| (brief(key), brief(value)))
            .collect();
        assert!(more.is_empty(), "{}: {more:?} are gone", self.what(what));
    }

    fn random_id(&mut self) -> (u32, String) {
        let collection = COLLECTIONS[self.random.below(3) as usize];
        (collection, format!("key-{:02}", self.random.below(NAMES)))
    }

    fn set(&mut self, session: &Session) {
        let id = self.random_id();
        self.version += 1;
        let times = 1 + self.random.below(40) as usize;
        let value = format!("{:08}", self.version).into_bytes().repeat(times);
        let wire = match self.random.below(6) {
            0 => 1 + self.random.below(30) as u32,
            _ => 0,
        };
        let (key, cookie) = (key_in(id.0, &id.1), session.open.next_cookie());
        let write = Write {
            cookie: Cookie(cookie),
            ..write(&key)
        };
        let ctx = session.open.ctx();
        let outcome = session.open.bucket.documents().store(
            ctx,
            &write,
            &kedge_bucket::StoreArgs {
                mode: StoreMode::Set,
                value: &value,
                datatype: Datatype::RAW,
                flags: 0,
                expiry: wire,
            },
        );
        if outcome.unwrap() == Outcome::Parked {
            session.wait_write(cookie).unwrap();
        }
        let expiry = Expiry::from_wire(wire, ctx.now.unix_secs());
        self.map.insert(id, Doc { value, expiry });
    }

    fn delete(&mut self, session: &Session) {
        let id = self.random_id();
        let (key, cookie) = (key_in(id.0, &id.1), session.open.next_cookie());
        let write = Write {
            cookie: Cookie(cookie),
            ..write(&key)
        };
        let outcome = session
            .open
            .bucket
            .documents()
            .delete(session.open.ctx(), &write);
        let result = match outcome {
            Ok(Outcome::Parked) => session.wait_write(cookie),
            other => other.map(drop),
        };
        let is_live = |doc: &Doc| !doc.expiry.has_passed(session.now());
        let expected = match self.map.remove(&id).is_some_and(|doc| is_live(&doc)) {
            true => Ok(()),
            false => Err(Status::KeyNotFound),
        };
        assert_eq!(result, expected, "{}", self.what("a deletion"));
    }

    fn check_get(&self, session: &Session, id: &(u32, String)) {
        let found = session.get(&key_in(id.0, &id.1));
        let now = session.now();
        match (self.map.get(id), found) {
            (Some(doc), Ok(found)) => assert_eq!(doc.value, found, "{}", self.what("GET")),
            (Some(doc), Err(Status::KeyNotFound)) if doc.expiry.has_passed(now) => {}
            (None, Err(Status::KeyNotFound)) => {}
            (doc, found) => panic!(
                "{} of {id:?}: {found:?}, but it {}",
                self.what("GET"),
                if doc.is_some() { "is there" } else { "is not" }
            ),
        }
    }

    fn check_scan(&mut self, session: &Session, vb: VbId, collection: u32) {
        let before = self.live(session.now(), vb, Some(collection));
        let found = session.scan(vb, collection);
        let must = self.live(session.now(), vb, Some(collection));
        self.done[SCANS] += u64::from(!found.is_empty());
        self.compare(&found, &must, Some(vb), "a scan");
        let more = found.keys().find(|key| !before.contains_key(*key));
        assert_eq!(more, None, "{}", self.what("a scan shows what has expired"));
    }

    fn check_stream(&mut self, session: &Session, vb: VbId) {
        let mut client = session.line.open(&session.open, vb, 0);
        session.drain(vb, &mut client);
        assert_eq!(client.ended, None, "{}", self.what("a stream"));
        self.check_copy(session, vb, &client, "a stream");
    }

    fn check_copy(&mut self, session: &Session, vb: VbId, client: &Client, what: &str) {
        let documents = client.copy.documents.iter();
        let found: Found = documents
            .filter_map(|(key, (_, value))| Some((key.clone(), value.clone()?)))
            .collect();
        self.done[STREAMS] += u64::from(!found.is_empty());
        let must = self.live(session.now(), vb, None);
        self.compare(&found, &must, Some(vb), what);
    }

    fn check_keys(&self, session: &Session, vb: VbId, collection: u32) {
        let found = session.keys(vb, collection);
        // Keys follow the prefix of a collection with a small number. Expired documents may be listed.
        let keys_at = |secs| -> BTreeSet<Vec<u8>> {
            let live = self.live(secs, vb, Some(collection));
            live.keys().map(|key| key[1..].to_vec()).collect()
        };
        let (must, may) = (keys_at(session.now()), keys_at(0));
        assert!(
            found.is_subset(&may) && found.is_superset(&must),
            "{}: {:?}, not {:?}",
            self.what("keys"),
            found.iter().map(|it| brief(it)).collect::<Vec<_>>(),
            must.iter().map(|it| brief(it)).collect::<Vec<_>>(),
        );
    }

    /// Checks that warmup loaded exactly the existing documents.
    fn check_warmup(&self, session: &Session) {
        for _ in 0..PATIENCE {
            if !session.open.bucket.residency().warmup().is_warming() {
                break;
            }
            session.steps.pass(MS * 10);
        }
        let figures = ["ep_warmup_key_count", "ep_warmup_value_count"];
        let [keys, values] = figures.map(|name| session.open.figure(name));
        let live = all_vbuckets().map(|vb| self.live(session.now(), vb, None).len() as u64);
        let range = live.sum::<u64>()..=self.map.len() as u64;
        let mut all = Vec::new();
        let bucket = &session.open.bucket;
        bucket
            .residency()
            .warmup()
            .stats(&mut |name, value| all.push(format!("{name}={value}")));
        assert!(
            keys == values && range.contains(&keys),
            "{}: {keys} and {values} of {range:?}, {}: {all:?}",
            self.what("warmup"),
            session.open.figure("curr_items"),
        );
    }

    /// Checks the statistics when nothing is in progress.
    fn check_figures(&self, session: &Session) {
        let bucket = &session.open.bucket;
        for vb in all_vbuckets() {
            let figures = bucket.vbucket_figures(vb).unwrap();
            let high = figures.high_seqno;
            let all = [
                figures.persisted_seqno,
                figures.applied_seqno,
                figures.purge_seqno,
            ];
            assert!(
                all.iter().all(|seqno| *seqno <= high),
                "{}: {figures:?}",
                self.what("figures")
            );
        }
        bucket.persistence().apply().unwrap();
        let now = session.now();
        let live = all_vbuckets().map(|vb| self.live(now, vb, None).len() as u64);
        let range = live.sum::<u64>()..=self.map.len() as u64;
        let counted = session.open.figure("curr_items");
        assert!(
            range.contains(&counted),
            "{}: {counted} of {range:?}",
            self.what("curr_items")
        );
        let of_collections: u64 = crate::collections::items(bucket)
            .iter()
            .map(|it| it.1)
            .sum();
        assert_eq!(counted, of_collections, "{}", self.what("collections"));
        let in_files: u64 = crate::collections::live_in_files(&session.open);
        let events = 4 * (COLLECTIONS.len() as u64);
        assert!(
            (*range.start()..=*range.end() + events).contains(&in_files),
            "{}: {in_files} of {range:?}",
            self.what("files")
        );
    }

    fn check_all(&mut self, session: &mut Session) {
        for vb in all_vbuckets() {
            self.check_stream(session, vb);
            for collection in COLLECTIONS {
                self.check_scan(session, vb, collection);
                self.check_keys(session, vb, collection);
            }
        }
        for collection in COLLECTIONS {
            for name in names() {
                self.check_get(session, &(collection, name));
            }
        }
        self.check_followers(session);
        self.check_figures(session);
        assert_eq!(session.open.sink.fatal(), [""; 0]);
    }

    fn check_followers(&mut self, session: &mut Session) {
        for mut follower in std::mem::take(&mut session.followers) {
            session.drain(follower.vb, &mut follower.client);
            let ended = follower.client.ended;
            let figures = session.open.bucket.vbucket_figures(follower.vb).unwrap();
            // Tombstones that the stream had not sent were purged in the meantime.
            let is_late = figures.purge_seqno.get() > follower.client.copy.last;
            if !follower.is_void && is_late && ended == Some(EndReason::Rollback) {
                continue;
            }
            assert_eq!(ended.is_some(), follower.is_void, "{ended:?}");
            self.done[STREAMS_ENDED] += u64::from(follower.is_void);
            if !follower.is_void {
                self.check_copy(session, follower.vb, &follower.client, "one that follows");
                session.followers.push(follower);
            }
        }
    }

    fn begin_scan(&mut self, session: &mut Session) {
        let vb = VbId(self.random.below(4) as u16);
        let collection = COLLECTIONS[self.random.below(3) as usize];
        let must = self.live(session.now(), vb, Some(collection));
        match session.create(vb, collection) {
            Ok(id) => session.scans.push(OpenScan {
                vb,
                id,
                must,
                given: Found::new(),
                is_void: false,
            }),
            Err(status) => assert_eq!(status, Status::KeyNotFound, "{}", self.what("a scan")),
        }
    }

    /// Continues a scan, and checks that it returns the snapshot at its creation; after a flush it fails.
    fn continue_scan(&mut self, session: &mut Session) {
        if session.scans.is_empty() {
            return;
        }
        let at = self.random.below(session.scans.len() as u64) as usize;
        let mut scan = session.scans.swap_remove(at);
        let items = 1 + self.random.below(4) as u32;
        match session.continue_scan(scan.vb, &scan.id, items, &mut scan.given) {
            Ok(_) if scan.is_void => panic!("{}", self.what("a scan outlives a flush")),
            Ok(true) => {
                let wrong = scan
                    .given
                    .iter()
                    .find(|(key, value)| scan.must.get(*key) != Some(*value));
                assert_eq!(wrong, None, "{}", self.what("a scan under way"));
            }
            Ok(false) => session.scans.push(scan),
            Err(status) => {
                assert!(scan.is_void, "{}: {status:?}", self.what("a scan"));
                self.done[SCANS_ENDED] += 1;
            }
        }
    }

    fn follow(&mut self, session: &mut Session) {
        if session.followers.len() < 6 {
            let vb = VbId(self.random.below(4) as u16);
            let mut client = session.line_for(vb, &session.open);
            client.read();
            session.followers.push(Follower {
                vb,
                client,
                is_void: false,
            });
        }
    }

    fn flush(&mut self, session: &mut Session) {
        self.done[FLUSHES] += 1;
        session.open.bucket.flush_all(session.open.ctx()).unwrap();
        self.map.clear();
        session
            .scans
            .iter_mut()
            .for_each(|scan| scan.is_void = true);
        let followers = session.followers.iter_mut();
        followers.for_each(|follower| follower.is_void = true);
        for vb in all_vbuckets() {
            let file = session.open.bucket.file_figures(vb).unwrap();
            let live = file.map_or(0, |file| file.live);
            assert!(live <= COLLECTIONS.len() as u64, "{}", self.what("a flush"));
        }
    }

    /// Evicts documents that memory may evict.
    fn evict(&self, session: &Session) {
        let bucket = &session.open.bucket;
        bucket.persistence().apply().unwrap();
        let quota_bytes = bucket.config().quota_bytes;
        let quota = |quota_bytes| BucketChange {
            quota_bytes: Some(quota_bytes),
            ..BucketChange::default()
        };
        bucket.update(&quota(1)).unwrap();
        session.steps.pass(SEC);
        bucket.update(&quota(quota_bytes)).unwrap();
    }

    fn step(&mut self, session: &mut Session) {
        let vb = VbId(self.random.below(4) as u16);
        let collection = COLLECTIONS[self.random.below(3) as usize];
        match self.random.below(200) {
            0..80 => self.set(session),
            80..100 => self.delete(session),
            100..115 => {
                let id = self.random_id();
                self.check_get(session, &id);
            }
            115..123 => self.check_scan(session, vb, collection),
            123..129 => self.begin_scan(session),
            129..140 => self.continue_scan(session),
            140..147 => self.check_stream(session, vb),
            147..152 => self.follow(session),
            152..157 => self.check_keys(session, vb, collection),
            157..175 => {
                session.steps.pass(MS * self.random.below(400) as u32);
            }
            175..180 => {
                session.steps.run_one(Pool::AuxIo);
            }
            180..183 => session.open.bucket.persistence().sync().unwrap(),
            183..186 => session.open.bucket.persistence().apply().unwrap(),
            186..188 => self.evict(session),
            188..191 => {
                let request = CompactionRequest {
                    drop_deletes: true,
                    ..CompactionRequest::default()
                };
                drop(
                    session
                        .open
                        .bucket
                        .persistence()
                        .compactions()
                        .compact(&request),
                );
                if self.random.below(2) == 0 {
                    session.steps.run();
                }
            }
            191..196 => self.flush(session),
            196..198 => self.check_all(session),
            _ => {
                session.steps.pass(SEC * self.random.below(20) as u32);
            }
        }
    }

    /// Ends a bucket in one of several ways.
    fn end(&mut self, session: Session) {
        let bucket = &session.open.bucket;
        self.elapsed = Duration::from_nanos(session.open.ctx().now.mono_ns - 1_000_000_000);
        bucket.persistence().sync().unwrap();
        match self.random.below(5) {
            0 => bucket.shutdown(),
            // The log keeps its contents.
            1 => bucket.shutdown_within(Duration::ZERO),
            2 => {
                self.disk.kill_process();
                bucket.shutdown();
            }
            3 => {
                self.disk
                    .fail_after(self.random.below(60), Fault::PowerLoss);
                // Applies the log, or tries to.
                drop(bucket.persistence().apply());
                bucket.shutdown();
                self.disk.crash(self.random.below(1 << 40));
            }
            _ => {
                self.disk
                    .fail_after(self.random.below(60), Fault::PowerLoss);
                let flushed = bucket.flush_all(session.open.ctx());
                bucket.shutdown();
                self.disk.crash(self.random.below(1 << 40));
                self.disk.clear_faults();
                drop(session);
                self.site.executor.shutdown();
                return self.after_broken_flush(flushed);
            }
        }
        drop(session);
        self.site.executor.shutdown();
        self.disk.clear_faults();
    }

    /// Determines for each vBucket whether the interrupted flush took effect.
    fn after_broken_flush(&mut self, flushed: Result<(), Status>) {
        let session = self.start();
        for vb in all_vbuckets() {
            let live = self.live(session.now(), vb, None);
            let there = live.keys().filter(|key| {
                let key = DocKey::from_prefixed(key).unwrap();
                session.get(&key).is_ok()
            });
            let there = there.count();
            let now = self.live(session.now(), vb, None).len();
            let is_whole = flushed.is_err() && there >= now;
            assert!(there == 0 || is_whole, "{}", self.what("half a flush"));
            if !is_whole {
                self.map.retain(|id, _| vb_of(id) != vb);
            }
        }
        let mut session = session;
        self.check_all(&mut session);
        session.open.bucket.persistence().sync().unwrap();
        session.open.bucket.shutdown();
        self.elapsed = Duration::from_nanos(session.open.ctx().now.mono_ns - 1_000_000_000);
        drop(session);
        self.site.executor.shutdown();
    }

    fn run(&mut self) {
        for _ in 0..4 {
            let mut session = self.start();
            match self.random.below(3) {
                0 => {}
                1 => self.check_all(&mut session),
                _ => self.check_warmup(&session),
            }
            for _ in 0..self.random.below(300) {
                self.step(&mut session);
            }
            self.check_all(&mut session);
            for _ in 0..self.random.below(30) {
                self.step(&mut session);
            }
            self.end(session);
        }
        let mut session = self.start();
        self.check_all(&mut session);
        session.open.bucket.shutdown();
        drop(session);
        self.site.executor.shutdown();
    }
}

impl Session {
    fn line_for(&self, vb: VbId, open: &Open) -> Client {
        // A connection has at most one stream of a vBucket.
        TestConnection::new(open).open(open, vb, 0)
    }
}

#[test]
fn flush_is_atomic_for_all_readers_in_random_histories() {
    let seeds = seeds(24);
    let mut done = [0; 6];
    for seed in &seeds {
        eprintln!("seed {seed}");
        let mut model = Model::new(*seed);
        model.run();
        done.iter_mut()
            .zip(model.done)
            .for_each(|(all, one)| *all += one);
    }
    if seeds.len() > 10 {
        let least = seeds.len() as u64;
        assert!(done.iter().all(|times| *times > least), "{done:?}");
    }
}
