//! Model test of eviction, background fetches and warmup, against a map. A fetch may complete late: after its key was
//! changed, deleted or evicted again, or after its vBucket was reset.

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
    /// Reads the file for a key; the fetch completes later.
    Read(u8),
    Answer(usize),
    PageOut(bool, u8, usize),
    Defragment,
    /// Takes values to compress, which come back later.
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
        2 => Just(Step::Defragment),
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

/// The state of a document that clients see.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    value: Vec<u8>,
    expiry: Expiry,
}

struct World {
    vb: VBucket,
    disk: Disk,
    documents: BTreeMap<u8, Known>,
    /// The highest revision of each key in this history.
    revs: BTreeMap<u8, u64>,
    late: Vec<(FetchTicket, u8, Option<Item>)>,
    to_compress: Vec<Item>,
    packer: ValueCompressor,
    /// Documents that a scan of the file has found and not delivered yet.
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

    /// Runs a step of the vBucket until it needs no fetch, as a bucket would.
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
            Step::Defragment => {
                for shard in 0..self.vb.table().shard_count() {
                    let before = self.vb.table().bytes();
                    let done = self.vb.store_mut().defragment(shard);
                    assert!(done.moved <= done.visited);
                    assert_eq!(self.vb.table().bytes(), before);
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

    /// Builds a Bloom filter of the keys that were in the file at the start, while commands continue.
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

    /// Unlogged changes are lost.
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

/// The uncompressed value.
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

/// The documents of the log and the file.
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
    fn documents_equal_the_model_in_memory_and_on_disk(steps in steps()) {
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
