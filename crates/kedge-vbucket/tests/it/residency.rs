//! Documents that leave memory and come back, against a map. What was read from the file may come late: for a key that
//! changed, was deleted, left memory again, or whose vBucket was reset.
//!
//! Long because one model is shared by all cases.

use crate::disk::{Applying, Disk, WHOLE};
use crate::tools::*;
use kedge_types::{Cas, Datatype, DocKey, Expiry, Status, VbUuid};
use kedge_vbucket::{
    ConcatMode, CounterOp, Eviction, FetchTicket, Fetched, Item, MinRatio, Mutated, PageOut,
    StepOutcome, StepWrite, StoreMode, VBucket, ValueCompressor,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Command {
    Get,
    Set(Vec<u8>),
    /// A value that is worth compressing.
    SetLong(u8),
    SetKeepingExpiry(Vec<u8>),
    Add(Vec<u8>),
    Replace(Vec<u8>),
    Append(Vec<u8>),
    Count,
    Delete,
    Touch(bool),
    Lock,
    Meta,
    Durable(Vec<u8>, bool),
}

#[derive(Clone, Debug)]
enum Step {
    Run(u8, Command),
    /// The file is read for a key, and the answer comes later.
    Read(u8),
    Answer(usize),
    PageOut(bool, u8, usize),
    /// Values are taken out to be compressed, and come back later.
    ToCompress,
    Compressed(bool),
    Log,
    FileChange(usize, usize, bool),
    Crash,
    Warm(usize),
    Warmed,
    NewFilter,
    Reset,
    Rollback,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || proptest::collection::vec(b'0'..=b'9', 1..6);
    let command = prop_oneof![
        6 => Just(Command::Get),
        6 => bytes().prop_map(Command::Set),
        4 => (b'0'..=b'9').prop_map(Command::SetLong),
        1 => bytes().prop_map(Command::SetKeepingExpiry),
        2 => bytes().prop_map(Command::Add),
        2 => bytes().prop_map(Command::Replace),
        2 => bytes().prop_map(Command::Append),
        2 => Just(Command::Count),
        4 => Just(Command::Delete),
        2 => any::<bool>().prop_map(Command::Touch),
        1 => Just(Command::Lock),
        2 => Just(Command::Meta),
        2 => (bytes(), any::<bool>()).prop_map(|(bytes, persist)| Command::Durable(bytes, persist)),
    ];
    let step = prop_oneof![
        20 => (0u8..6, command).prop_map(|(key, command)| Step::Run(key, command)),
        4 => (0u8..6).prop_map(Step::Read),
        4 => (0usize..4).prop_map(Step::Answer),
        6 => (any::<bool>(), 0u8..3, 1usize..200).prop_map(|(full, frequency, bytes)| Step::PageOut(full, frequency, bytes)),
        3 => Just(Step::ToCompress),
        3 => any::<bool>().prop_map(Step::Compressed),
        4 => Just(Step::Log),
        3 => (1usize..4, 0usize..4, any::<bool>()).prop_map(|(max, parts, ends)| Step::FileChange(max, parts, ends)),
        4 => Just(Step::FileChange(100, 100, true)),
        1 => Just(Step::Crash),
        3 => (0usize..6).prop_map(Step::Warm),
        1 => Just(Step::Warmed),
        1 => Just(Step::NewFilter),
        1 => Just(Step::Reset),
        1 => Just(Step::Rollback),
    ];
    proptest::collection::vec(step, 1..150)
}

/// What a client can know of a document.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    value: Vec<u8>,
    expiry: Expiry,
}

struct World {
    vb: VBucket,
    disk: Disk,
    documents: BTreeMap<u8, Known>,
    /// The highest revision that was ever seen of a key, in this history.
    revs: BTreeMap<u8, u64>,
    late: Vec<(FetchTicket, u8, Option<Item>)>,
    to_compress: Vec<Item>,
    packer: ValueCompressor,
    /// What a scan of the file has found and not handed over yet.
    scanned: Option<(u32, Vec<Item>, bool)>,
    uuid: u64,
    secs: u64,
}

fn doc_key(id: u8) -> DocKey {
    key(&format!("key-{id}"))
}

impl World {
    fn new() -> Self {
        Self {
            vb: vbucket(),
            disk: Disk::default(),
            documents: BTreeMap::new(),
            revs: BTreeMap::new(),
            late: Vec::new(),
            to_compress: Vec::new(),
            packer: ValueCompressor::default(),
            scanned: None,
            uuid: 1,
            secs: 0,
        }
    }

    fn next_uuid(&mut self) -> VbUuid {
        self.uuid += 1;
        VbUuid(self.uuid)
    }

    fn read(&self, id: u8) -> Option<Item> {
        let file = self.disk.file()?;
        file.documents.get(doc_key(id).as_bytes()).cloned()
    }

    /// Runs a step of the vBucket until it needs nothing from the disk, as a bucket would.
    fn run<R>(
        &mut self,
        id: u8,
        mut step: impl FnMut(&mut VBucket) -> Result<StepOutcome<R>, Status>,
    ) -> Result<StepOutcome<R>, Status> {
        for _ in 0..3 {
            let before = (self.vb.high_seqno(), self.vb.history().last_cas());
            let result = step(&mut self.vb);
            if !matches!(result, Ok(StepOutcome::Fetch)) {
                return result;
            }
            let after = (self.vb.high_seqno(), self.vb.history().last_cas());
            assert_eq!(before, after, "nothing was done");
            let ticket = self.vb.store().fetch_ticket();
            let found = self.read(id);
            let fetched = self
                .vb
                .store_mut()
                .fetched(ticket, doc_key(id).as_bytes(), found);
            assert_eq!(fetched, Fetched::Known, "nothing happened meanwhile");
        }
        panic!("it asks for ever");
    }

    fn wrote(&mut self, id: u8, result: Result<StepOutcome<Mutated>, Status>, value: &[u8]) {
        if let Ok(StepOutcome::Done(_)) = result {
            let known = Known {
                value: value.to_vec(),
                expiry: Expiry::NEVER,
            };
            self.documents.insert(id, known);
        }
    }

    fn command(&mut self, id: u8, command: &Command) {
        let now = at(self.secs);
        let key = &doc_key(id);
        let w = write(key);
        let there = self.documents.get(&id).cloned();
        match command {
            Command::Get => {
                let get = |vb: &mut VBucket| {
                    vb.at(now).get(key, |document| Known {
                        value: plain(document.item),
                        expiry: document.item.expiry(),
                    })
                };
                let found = self.run(id, get).ok().map(done);
                assert_eq!(found, there);
            }
            Command::Set(bytes) => {
                let result =
                    self.vb
                        .at(now)
                        .store(&w, StoreMode::Set, &value(bytes), 0, Expiry::NEVER);
                assert!(!matches!(result, Ok(StepOutcome::Fetch)), "needs nothing");
                self.wrote(id, result, bytes);
            }
            Command::SetLong(byte) => {
                let long = [*byte; 100];
                let value = value(&long);
                let result = self
                    .vb
                    .at(now)
                    .store(&w, StoreMode::Set, &value, 0, Expiry::NEVER);
                self.wrote(id, result, &long);
            }
            Command::SetKeepingExpiry(bytes) => {
                let w = StepWrite {
                    preserve_ttl: true,
                    ..w
                };
                let result = self.run(id, |vb| store(vb, now, &w, StoreMode::Set, bytes));
                self.wrote(id, result, bytes);
                if let Some(there) = there.filter(|_| result.is_ok()) {
                    self.documents.get_mut(&id).unwrap().expiry = there.expiry;
                }
            }
            Command::Add(bytes) | Command::Replace(bytes) => {
                let (mode, refused) = match command {
                    Command::Add(_) => (StoreMode::Add, there.is_some()),
                    _ => (StoreMode::Replace, there.is_none()),
                };
                let result = self.run(id, |vb| store(vb, now, &w, mode, bytes));
                assert_eq!(result.is_err(), refused);
                self.wrote(id, result, bytes);
            }
            Command::Append(bytes) => {
                let result = self.run(id, |vb| vb.at(now).concat(&w, ConcatMode::Append, bytes));
                assert_eq!(result.is_err(), there.is_none());
                if let Some(known) = self.documents.get_mut(&id) {
                    known.value.extend(bytes);
                }
            }
            Command::Count => {
                let op = CounterOp {
                    negative: false,
                    delta: 1,
                    initial: Some(7),
                    expiry: Expiry::NEVER,
                };
                let result = self.run(id, |vb| vb.at(now).arithmetic(&w, &op));
                if let Ok(outcome) = result {
                    let number = done(outcome).1.to_string().into_bytes();
                    if there.is_none() {
                        assert_eq!(number, b"7");
                    }
                    let expiry = there.map_or(Expiry::NEVER, |there| there.expiry);
                    self.documents.insert(
                        id,
                        Known {
                            value: number,
                            expiry,
                        },
                    );
                }
            }
            Command::Delete => {
                let result = self.run(id, |vb| vb.at(now).delete(&w));
                assert_eq!(result.is_err(), there.is_none());
                self.documents.remove(&id);
            }
            Command::Touch(and_get) => {
                let expiry = Expiry(2_000_000_000 + u32::try_from(self.secs).unwrap());
                let result = if *and_get {
                    self.run(id, |vb| {
                        vb.at(now)
                            .get_and_touch(&w, expiry, |document| plain(document.item))
                    })
                    .map(|outcome| Some(done(outcome)))
                } else {
                    self.run(id, |vb| vb.at(now).touch(&w, expiry))
                        .map(|_| None)
                };
                assert_eq!(result.is_err(), there.is_none());
                if let (Ok(Some(shown)), Some(there)) = (result, &there) {
                    assert_eq!(shown.1, there.value);
                }
                if let Some(known) = self.documents.get_mut(&id) {
                    known.expiry = expiry;
                }
            }
            Command::Lock => {
                let locked = self.run(id, |vb| {
                    vb.at(now)
                        .get_and_lock(key, 1, None, |document| plain(document.item))
                });
                assert_eq!(locked.ok().map(done), there.map(|there| there.value));
                self.secs += 2;
            }
            Command::Meta => {
                let meta = self.run(id, |vb| vb.at(now).get_meta(key)).ok().map(done);
                let live = meta.filter(|meta| !meta.deleted);
                assert_eq!(
                    live.map(|meta| meta.expiry),
                    there.map(|there| there.expiry)
                );
                if let Some(meta) = meta {
                    let rev = meta.rev_seqno.get();
                    let highest = self.revs.entry(id).or_default();
                    assert!(rev >= *highest, "a revision does not fall");
                    *highest = rev;
                }
            }
            Command::Durable(bytes, persist) => {
                let level = level(*persist);
                let w = durable(key, level, 1);
                let result = store(&mut self.vb, now, &w, StoreMode::Set, bytes);
                if *persist && result.is_ok() {
                    self.disk.log(&mut self.vb, usize::MAX);
                    drop(self.vb.take_effects());
                }
                self.wrote(id, result.map(|_| StepOutcome::Done(no_mutation())), bytes);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Run(id, command) => self.command(*id, command),
            Step::Read(id) => {
                let late = (self.vb.store().fetch_ticket(), *id, self.read(*id));
                self.late.push(late);
            }
            Step::Answer(index) => {
                if *index < self.late.len() {
                    let (ticket, id, found) = self.late.remove(*index);
                    let fetched =
                        self.vb
                            .store_mut()
                            .fetched(ticket, doc_key(id).as_bytes(), found);
                    assert_ne!(fetched, Fetched::Lost);
                }
            }
            Step::PageOut(full, frequency, bytes) => {
                let how = PageOut {
                    eviction: if *full {
                        Eviction::Full
                    } else {
                        Eviction::ValueOnly
                    },
                    frequency_max: [0, 64, 255][usize::from(*frequency)],
                    bytes: *bytes,
                    decay: *frequency == 0,
                };
                for shard in 0..self.vb.table().shard_count() {
                    let before = self.vb.table().bytes();
                    let out = self.vb.at(at(self.secs)).page_out(shard, &how);
                    assert!(self.vb.table().bytes() + out.bytes <= before);
                }
            }
            Step::ToCompress => self.begin_compressing(),
            Step::Compressed(well) => self.compressed(*well),
            Step::Log => self.disk.log(&mut self.vb, usize::MAX),
            Step::FileChange(max_items, parts, ends) => {
                let how = Applying {
                    max_items: *max_items,
                    parts: *parts,
                    ends: *ends,
                };
                self.disk.apply(&mut self.vb, how);
                if !ends {
                    self.crash();
                }
            }
            Step::Crash => self.crash(),
            Step::Warm(count) => self.warm(*count),
            Step::Warmed => {
                if let Some((history, items, complete)) = self.scanned.take() {
                    self.vb
                        .store_mut()
                        .warmed(history, complete && items.is_empty());
                }
            }
            Step::NewFilter => self.new_filter(),
            Step::Reset => {
                let uuid = self.next_uuid();
                self.vb.reset(uuid);
                self.documents.clear();
                self.revs.clear();
            }
            Step::Rollback => self.rollback(),
        }
    }

    fn begin_compressing(&mut self) {
        for shard in 0..self.vb.table().shard_count() {
            self.vb
                .store()
                .to_compress(shard, usize::MAX, &mut self.to_compress);
        }
    }

    fn compressed(&mut self, well: bool) {
        let min_ratio = if well {
            MinRatio::DEFAULT
        } else {
            MinRatio::NEVER
        };
        for item in self.to_compress.drain(..) {
            let (before, changes) = (self.vb.table().bytes(), self.vb.changes().queued());
            let packed = self.packer.pack(item.value(), min_ratio);
            assert_eq!(packed.is_some(), well);
            let saved = self.vb.store_mut().compressed(&item, packed);
            assert_eq!(self.vb.table().bytes() + saved, before);
            assert_eq!(self.vb.changes().queued(), changes, "that is no change");
        }
    }

    fn scan(&mut self, complete: bool) {
        let items = self
            .disk
            .file()
            .map(|file| file.documents.values().cloned().collect());
        self.scanned = Some((self.vb.history_id(), items.unwrap_or_default(), complete));
    }

    fn warm(&mut self, count: usize) {
        if let Some((history, items, _)) = &mut self.scanned {
            for item in items.split_off(items.len().saturating_sub(count)) {
                self.vb.store_mut().warm(*history, item);
            }
        }
    }

    /// A filter is made while things go on: of what was in the file when it was begun.
    fn new_filter(&mut self) {
        let Some(file) = self.disk.file().cloned() else {
            return;
        };
        if self.vb.unapplied().replaces_file {
            return;
        }
        self.vb.documents_mut().begin_filter();
        let keys = file.documents.keys().map(Vec::as_slice);
        self.vb.documents_mut().add_to_filter(keys);
        let everything = PageOut {
            eviction: Eviction::Full,
            frequency_max: 255,
            bytes: usize::MAX,
            decay: false,
        };
        self.disk.apply(&mut self.vb, WHOLE);
        self.vb.at(at(self.secs)).page_out(0, &everything);
        self.vb.documents_mut().finish_filter();
    }

    /// What was not logged is lost.
    fn crash(&mut self) {
        let branch = self.next_uuid();
        self.vb = self.disk.recover_cold(vbucket(), Some(branch));
        self.late.clear();
        self.revs.clear();
        self.documents = expected(&self.disk);
        self.scan(true);
    }

    fn rollback(&mut self) {
        let Some(file) = self.disk.file().filter(|file| file.is_consistent()) else {
            return;
        };
        if self.vb.unapplied().replaces_file {
            return;
        }
        let (to, uuid) = (file.high, self.next_uuid());
        let keys = self.vb.rollback(to, uuid);
        self.disk.log(&mut self.vb, usize::MAX);
        self.disk.rewind(to, &self.vb);
        let file = self.disk.file().unwrap().clone();
        self.vb.recovery().rewound(&file.base()).unwrap();
        self.documents = expected(&self.disk);
        self.revs.clear();
        self.scan(true);
        let history = self.vb.history_id();
        for key in keys {
            if let Some(item) = file.documents.get(&key[..]) {
                self.vb.store_mut().warm(history, item.clone());
            }
        }
    }

    fn check(&mut self) {
        drop(self.vb.take_effects());
        for (id, known) in &self.documents {
            let key = doc_key(*id);
            let there = self
                .vb
                .table()
                .find(self.vb.table().hash(key.as_bytes()), key.as_bytes());
            match there {
                Some(item) => {
                    assert!(!item.is_deleted());
                    assert!(!item.is_resident() || plain(item) == known.value);
                }
                None => assert!(
                    self.vb.documents().may_be_on_disk(key.as_bytes()),
                    "key {id} is lost"
                ),
            }
        }
        let figures = self.vb.documents().residency();
        let table = self.vb.table();
        let without = table.iter().filter(|item| !item.is_resident()).count();
        assert_eq!(table.without_value(), without);
        assert_eq!(figures.without_value, without);
        assert!(
            self.vb.documents().count() >= self.documents.len(),
            "never too low"
        );
        if !table.iter().any(Item::is_blind) {
            assert_eq!(
                self.vb.documents().count(),
                self.documents.len(),
                "exact when all is known"
            );
        }
    }
}

/// The value as clients without compression see it.
fn plain(item: &Item) -> Vec<u8> {
    if item.datatype().contains(Datatype::SNAPPY) {
        let mut decoder = snap::raw::Decoder::new();
        return decoder.decompress_vec(item.value()).unwrap();
    }
    item.value().to_vec()
}

fn no_mutation() -> Mutated {
    Mutated {
        cas: Cas(0),
        uuid: VbUuid(0),
        seqno: 0.into(),
    }
}

/// What the log and the file amount to.
fn expected(disk: &Disk) -> BTreeMap<u8, Known> {
    let mut changes = disk.logged.clone();
    let open = crate::disk::open_prepares(&changes);
    changes.extend(open.into_iter().map(kedge_vbucket::Change::Document));
    let mut documents = BTreeMap::new();
    for change in &changes {
        use kedge_vbucket::Change::{Commit, Document};
        if let Document(item) | Commit { item, .. } = change {
            let id = item.key().last().unwrap() - b'0';
            let known = Known {
                value: plain(item),
                expiry: item.expiry(),
            };
            documents.insert(id, (!item.is_deleted()).then_some(known));
        }
    }
    documents
        .into_iter()
        .filter_map(|(id, known)| Some((id, known?)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn a_document_is_what_it_was_wherever_it_is(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        for id in 0..6 {
            world.command(id, &Command::Get);
        }
        for _ in 0..3 {
            world.disk.log(&mut world.vb, usize::MAX);
            world.disk.apply(&mut world.vb, WHOLE);
        }
        world.check();
        prop_assert!(!world.vb.table().iter().any(Item::is_blind), "all was found out");
        world.begin_compressing();
        world.compressed(true);
        prop_assert_eq!(world.vb.table().compressible(), 0, "all was tried");
        world.check();
    }
}

fn page_out(vb: &mut VBucket, eviction: Eviction) -> kedge_vbucket::PagedOut {
    let how = PageOut {
        eviction,
        frequency_max: 255,
        bytes: usize::MAX,
        decay: false,
    };
    let mut all = kedge_vbucket::PagedOut::default();
    for shard in 0..vb.table().shard_count() {
        let out = vb.at(at(0)).page_out(shard, &how);
        all.values += out.values;
        all.items += out.items;
        all.bytes += out.bytes;
    }
    all
}

fn applied(names: &[&str]) -> (VBucket, Disk) {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    for name in names {
        set(&mut vb, at(0), name, b"12345678");
    }
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    (vb, disk)
}

#[test]
fn only_what_the_file_has_leaves_memory() {
    let (mut vb, mut disk) = applied(&["a", "b", "locked", "prepared"]);
    set(&mut vb, at(0), "a", b"newer");
    disk.log(&mut vb, usize::MAX);
    vb.at(at(0))
        .get_and_lock(&key("locked"), 10, None, |_| ())
        .unwrap();
    persist(&mut vb, at(0), "prepared", b"x", 1);
    let bytes = vb.table().bytes();
    let out = page_out(&mut vb, Eviction::ValueOnly);
    assert_eq!((out.values, out.items, out.bytes), (1, 0, 8));
    assert_eq!(vb.table().bytes(), bytes - 8);
    let out = page_out(&mut vb, Eviction::Full);
    assert_eq!((out.values, out.items), (0, 1));
    assert_eq!((vb.table().documents(), vb.documents().count()), (3, 4));
}

#[test]
fn a_document_that_was_locked_keeps_the_cas_that_no_disk_has() {
    let (mut vb, disk) = applied(&["a"]);
    let k = key("a");
    let cas = done(
        vb.at(at(0))
            .get_and_lock(&k, 10, None, |document| document.cas)
            .unwrap(),
    );
    vb.at(at(0)).unlock(&k, cas).unwrap();
    let out = page_out(&mut vb, Eviction::Full);
    assert_eq!((out.values, out.items), (1, 0));
    let stored = disk.file().unwrap().documents.values().next().cloned();
    assert_ne!(stored.as_ref().unwrap().cas(), cas);
    let ticket = vb.store().fetch_ticket();
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), stored),
        Fetched::Known
    );
    assert_eq!(get(&mut vb, at(0), "a").unwrap(), b"12345678");
    assert_eq!(meta(&mut vb, at(0), &k).cas, cas);
}

/// The file was read when the log had the reset already and the file had not followed; the new history came to the
/// same seqno.
#[test]
fn what_was_read_from_a_void_file_is_of_no_use() {
    let (mut vb, mut disk) = applied(&["a"]);
    vb.reset(VbUuid(9));
    let ticket = vb.store().fetch_ticket();
    let old = disk.file().unwrap().documents.values().next().cloned();
    set(&mut vb, at(0), "a", b"new");
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    page_out(&mut vb, Eviction::ValueOnly);
    let k = key("a");
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), old),
        Fetched::Stale
    );
    assert_eq!(vb.at(at(0)).get(&k, |_| ()), Ok(StepOutcome::Fetch));
}

/// The file was read when memory had gone back already and the file had not followed.
#[test]
fn what_was_read_from_a_file_before_it_went_back_is_of_no_use() {
    let (mut vb, mut disk) = applied(&["a"]);
    let kept = vb.high_seqno();
    set(&mut vb, at(0), "a", b"goes");
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    let old = disk.file().unwrap().documents.values().next().cloned();
    vb.rollback(kept, VbUuid(2));
    let ticket = vb.store().fetch_ticket();
    disk.rewind(kept, &vb);
    disk.rewound(&mut vb, &[]);
    let k = key("a");
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), old),
        Fetched::Stale
    );
    let now = disk.file().unwrap().documents.values().next().cloned();
    let ticket = vb.store().fetch_ticket();
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), now),
        Fetched::Known
    );
}

#[test]
fn a_blind_document_stays_until_someone_found_out() {
    let (_, mut disk) = applied(&["a"]);
    let mut vb = disk.recover_cold(vbucket(), None);
    set(&mut vb, at(0), "a", b"blind");
    disk.log(&mut vb, usize::MAX);
    let batch = vb.store_mut().begin_apply().unwrap();
    let item = batch.items()[0].item().clone();
    assert!(item.is_blind());
    vb.store_mut().on_applied(batch.history(), batch.upto());
    assert_eq!(page_out(&mut vb, Eviction::ValueOnly).values, 0);
    vb.store_mut().applied_over(batch.history(), &item, true);
    vb.store_mut().applied_over(batch.history(), &item, true);
    drop(vb.store_mut().end_apply(batch));
    assert_eq!(vb.documents().count(), 1, "counted off once");
    assert_eq!(page_out(&mut vb, Eviction::ValueOnly).values, 1);
}

#[test]
fn a_file_that_has_lost_a_document_is_told_of() {
    let (mut vb, _) = applied(&["a"]);
    page_out(&mut vb, Eviction::ValueOnly);
    let k = key("a");
    assert_eq!(vb.at(at(0)).get(&k, |_| ()), Ok(StepOutcome::Fetch));
    let ticket = vb.store().fetch_ticket();
    assert_eq!(
        vb.store_mut().fetched(ticket, k.as_bytes(), None),
        Fetched::Lost
    );
}

#[test]
fn metadata_is_enough_for_what_needs_no_value() {
    let (mut vb, _) = applied(&["a", "b", "c"]);
    page_out(&mut vb, Eviction::ValueOnly);
    let (a, b, c) = (key("a"), key("b"), key("c"));
    let cas = meta(&mut vb, at(0), &a).cas;
    let w = StepWrite { cas, ..write(&a) };
    done(store(&mut vb, at(0), &w, StoreMode::Replace, b"1").unwrap());
    done(vb.at(at(0)).delete(&write(&b)).unwrap());
    assert_eq!(
        vb.at(at(0)).touch(&write(&c), Expiry(u32::MAX)),
        Ok(StepOutcome::Fetch)
    );
    let same = vb.at(at(0)).touch(&write(&c), Expiry::NEVER).unwrap();
    assert!(matches!(same, StepOutcome::Done(_)), "nothing changes");
    let busy = StepWrite {
        cas: Cas(1),
        ..write(&c)
    };
    assert_eq!(vb.at(at(0)).delete(&busy), Err(Status::KeyExists));
    let default = kedge_types::CollectionId::DEFAULT;
    let shards = vb.table().shard_count();
    let picked = |shard| {
        vb.at(at(0))
            .random_document(default, shard, 0, |_| ())
            .is_some()
    };
    assert!((0..shards).any(picked));
}

#[test]
fn a_miss_asks_the_disk_only_if_the_filter_does_not_know() {
    let names: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut vb, _) = applied(&names);
    assert_eq!(get(&mut vb, at(0), "none"), Err(Status::KeyNotFound));
    assert_eq!(page_out(&mut vb, Eviction::Full).items, 200);
    assert_eq!((vb.table().documents(), vb.documents().count()), (0, 200));
    assert!(
        names
            .iter()
            .all(|name| vb.documents().may_be_on_disk(key(name).as_bytes()))
    );
    let others = (0..1_000).filter(|n| {
        vb.documents()
            .may_be_on_disk(key(&format!("x{n}")).as_bytes())
    });
    assert!(others.count() < 50);
    assert_eq!(vb.documents().residency().filter_keys, 200);
    vb.reset(VbUuid(9));
    assert!(
        names
            .iter()
            .all(|name| !vb.documents().may_be_on_disk(key(name).as_bytes()))
    );
}

#[test]
fn traffic_may_begin_before_anything_was_read() {
    let (vb, mut disk) = applied(&["a", "b"]);
    let rev = vb.table().iter().next().unwrap().rev_seqno();
    drop(vb);
    let mut vb = disk.recover_cold(vbucket(), None);
    assert!(!vb.documents().is_warm());
    assert_eq!((vb.documents().count(), vb.table().documents()), (2, 0));
    let (a, new) = (key("a"), key("new"));
    assert_eq!(vb.at(at(0)).get(&a, |_| ()), Ok(StepOutcome::Fetch));
    assert_eq!(vb.at(at(0)).get_meta(&new), Ok(StepOutcome::Fetch));
    assert_eq!(vb.at(at(0)).observe_key(&a), Ok(StepOutcome::Fetch));
    assert_eq!(
        store(&mut vb, at(0), &write(&a), StoreMode::Add, b"1"),
        Ok(StepOutcome::Fetch)
    );
    set(&mut vb, at(0), "a", b"written blindly");
    assert!(meta(&mut vb, at(0), &a).rev_seqno > rev);
    assert_eq!(
        vb.documents().count(),
        3,
        "counted twice until someone finds out"
    );
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    assert_eq!(vb.documents().count(), 2);
    let history = vb.history_id();
    for item in disk.file().unwrap().documents.values() {
        vb.store_mut().warm(history, item.clone());
    }
    vb.store_mut().warmed(history, true);
    assert_eq!(vb.at(at(0)).get(&new, |_| ()), Err(Status::KeyNotFound));
    assert_eq!((vb.documents().count(), vb.table().documents()), (2, 2));
}

#[test]
fn what_is_asked_for_often_stays() {
    let (mut vb, _) = applied(&["hot", "cold"]);
    for _ in 0..1_000 {
        get(&mut vb, at(0), "hot").unwrap();
    }
    let mut counts = [0; 256];
    let shards = 0..vb.table().shard_count();
    for shard in shards.clone() {
        vb.at(at(0))
            .count_frequencies(shard, Eviction::ValueOnly, &mut counts);
    }
    assert_eq!(counts.iter().sum::<u64>(), 2);
    let lowest = counts.iter().position(|count| *count > 0).unwrap();
    let how = PageOut {
        eviction: Eviction::ValueOnly,
        frequency_max: u8::try_from(lowest).unwrap(),
        bytes: usize::MAX,
        decay: true,
    };
    let frequency = |vb: &VBucket, name: &str| {
        let key = key(name);
        let hash = vb.table().hash(key.as_bytes());
        vb.table().find(hash, key.as_bytes()).unwrap().frequency()
    };
    let before = frequency(&vb, "hot");
    for shard in shards {
        vb.at(at(0)).page_out(shard, &how);
    }
    assert_eq!(
        vb.at(at(0)).get(&key("cold"), |_| ()),
        Ok(StepOutcome::Fetch)
    );
    assert!(get(&mut vb, at(0), "hot").is_ok());
    assert!(frequency(&vb, "hot") < before, "time goes by");
}

#[test]
fn a_value_is_compressed_while_its_document_stays_what_it_was() {
    let mut vb = vbucket();
    let mut disk = Disk::default();
    let long = [b'x'; 1_000];
    set(&mut vb, at(0), "a", &long);
    set(&mut vb, at(0), "short", b"x");
    let take = |vb: &VBucket| {
        let mut items = Vec::new();
        let shards = 0..vb.table().shard_count();
        shards.for_each(|shard| vb.store().to_compress(shard, usize::MAX, &mut items));
        items
    };
    assert_eq!(vb.table().compressible(), 1);
    assert!(take(&vb).is_empty(), "the file does not have it");
    disk.log(&mut vb, usize::MAX);
    disk.apply(&mut vb, WHOLE);
    let k = key("a");
    let lock = vb
        .at(at(0))
        .get_and_lock(&k, 10, None, |document| document.cas);
    let lock = done(lock.unwrap());
    let (before, bytes) = (meta(&mut vb, at(0), &k), vb.bytes());
    let items = take(&vb);
    let mut packer = ValueCompressor::default();
    let packed = packer.pack(items[0].value(), MinRatio::DEFAULT);
    let saved = vb.store_mut().compressed(&items[0], packed);
    assert!(saved > 900);
    assert_eq!(vb.bytes() + saved, bytes);
    assert_eq!(
        vb.store_mut().compressed(&items[0], packed),
        0,
        "it is another by now"
    );
    let after = meta(&mut vb, at(0), &k);
    assert_eq!(after.datatype, Datatype::SNAPPY);
    let datatype = before.datatype;
    assert_eq!(kedge_vbucket::Meta { datatype, ..after }, before);
    vb.at(at(0)).unlock(&k, lock).unwrap();
    // Who writes goes on from it.
    done(
        vb.at(at(0))
            .concat(&write(&k), ConcatMode::Append, b"y")
            .unwrap(),
    );
    assert_eq!(
        get(&mut vb, at(0), "a").unwrap(),
        [&long[..], b"y"].concat()
    );
}
