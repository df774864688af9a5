//! Files of this crate are read by an independent reader, `tests/couchstore/reader.py`, written from the description of
//! the format alone.
//!
//! `KEDGE_SEED` runs one seed instead of those below. Without Python the tests print a note and do nothing; if `CI` is
//! set they fail instead.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kedge_couchstore::kv::{EntryMeta, RevMeta, SyncWrite, ValueMeta};
use kedge_couchstore::{
    ContentMeta, CreateOptions, Mutation, MutationBody, Offset, Options, Snapshot, Version, Writer,
};
use kedge_disk::{PosixDisk, Rng};
use kedge_types::{Cas, Datatype, DurabilityLevel, Expiry, RevSeqno, Seqno};
use serde_json::{Value, json};

const SEEDS: RangeInclusive<u64> = 1..=3;
const STEPS: u64 = 14;

fn reader_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/couchstore")
}

/// Runs the reader in Python; `None` if there is no Python.
fn python(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("python3");
    match command.args(arguments).current_dir(reader_dir()).output() {
        Ok(output) => Some(output),
        Err(error) => {
            let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!is_ci, "python3 cannot be run: {error}");
            eprintln!("skipped: python3 cannot be run: {error}");
            None
        }
    }
}

/// Returns the lines that the reader prints, or its errors.
pub(crate) fn read(arguments: &[&str]) -> Option<Vec<Value>> {
    let output = python(&[&["reader.py"], arguments].concat())?;
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text} {errors}");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    Some(lines.collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn python_reader_agrees_with_couchbases_tools() {
    if let Some(output) = python(&["-m", "unittest"]) {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }
}

#[test]
fn histories_of_version_14() {
    histories(Version::V14);
}

#[test]
fn histories_of_version_13() {
    histories(Version::V13);
}

fn histories(version: Version) {
    let seed = std::env::var("KEDGE_SEED").ok();
    let seeds = match seed.map(|seed| seed.parse().expect("KEDGE_SEED is a number")) {
        Some(seed) => seed..=seed,
        None => SEEDS,
    };
    for seed in seeds {
        eprintln!("seed {seed}, {version:?}");
        let dir = tempfile::tempdir().expect("a directory");
        let mut history = History::new(dir.path().join("0.couch.1"), version, seed);
        for _ in 0..STEPS {
            history.step();
        }
        history.commit();
        if !history.compare() {
            return;
        }
    }
}

struct Random(Rng);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        self.0.bytes(len as usize)
    }

    /// Mostly short, sometimes longer than a block, rarely longer than many.
    fn body(&mut self) -> Vec<u8> {
        let len = match self.below(400) {
            0 => 100_000,
            1..=20 => self.below(10_000),
            21..=80 => 0,
            _ => self.below(300),
        };
        if self.one_in(2) {
            self.bytes(len)
        } else {
            vec![b'a'; len as usize]
        }
    }
}

/// The expected properties of a stored document.
#[derive(Clone)]
struct Stored {
    seqno: u64,
    rev: u64,
    deleted: bool,
    content_meta: u8,
    rev_meta: Vec<u8>,
    body: Option<Vec<u8>>,
    kv: Value,
}

/// The expected properties of the whole file.
#[derive(Clone, Default)]
struct State {
    documents: BTreeMap<Vec<u8>, Stored>,
    locals: BTreeMap<Vec<u8>, Vec<u8>>,
    update_seqno: u64,
    purge_seqno: u64,
}

/// A file, its expected contents, and the expected state of each commit.
struct History {
    path: PathBuf,
    random: Random,
    writer: Option<Writer>,
    state: State,
    commits: Vec<(Offset, State)>,
}

impl History {
    fn new(path: PathBuf, version: Version, seed: u64) -> Self {
        let create = CreateOptions {
            version,
            ..CreateOptions::default()
        };
        let writer = Writer::create(&PosixDisk, &path, &create, &Options::default());
        Self {
            path,
            random: Random(Rng::new(seed)),
            writer: Some(writer.expect("a new file")),
            state: State::default(),
            commits: Vec::new(),
        }
    }

    fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().expect("an open file")
    }

    fn step(&mut self) {
        let before = self.state.clone();
        for _ in 0..=self.random.below(2) {
            self.save();
        }
        self.save_locals();
        match self.random.below(10) {
            0 => {
                self.writer().give_up();
                self.state = before;
            }
            1 => {
                // As after a crash: the documents are in the file, the commit is not.
                self.writer().sync().expect("a sync");
                self.reopen();
                self.state = before;
            }
            2 if !self.commits.is_empty() => {
                self.commit();
                self.roll_back();
            }
            3 => {
                self.commit();
                self.reopen();
            }
            _ => self.commit(),
        }
    }

    fn reopen(&mut self) {
        self.writer = None;
        let writer = Writer::open(&PosixDisk, &self.path, &Options::default());
        self.writer = Some(writer.expect("a sound file"));
    }

    fn commit(&mut self) {
        let timestamp = self.random.0.next();
        let offset = self.writer().commit(timestamp).expect("a commit");
        self.commits.push((offset, self.state.clone()));
    }

    fn roll_back(&mut self) {
        let at = self.random.below(self.commits.len() as u64) as usize;
        let (offset, state) = self.commits[at].clone();
        let older = self
            .writer()
            .snapshot()
            .at(offset)
            .expect("an older commit");
        let writer = self.writer();
        writer.rewind(older.header()).expect("a header of the file");
        self.state = state;
        self.commit();
    }

    fn save(&mut self) {
        let count = [1, 10, 200][self.random.below(3) as usize];
        let mut batch = BTreeMap::new();
        for _ in 0..count {
            let key = self.key();
            self.state.update_seqno += 1 + self.random.below(3);
            let rev = self.state.documents.get(&key).map_or(0, |old| old.rev) + 1;
            let (seqno, deleted) = (self.state.update_seqno, self.random.one_in(6));
            let (stored, given) = self.document(seqno, rev, deleted);
            batch.insert(key, (stored, given));
        }
        // The order of a batch is the caller's, and the seqnos are in none.
        let mut mutations: Vec<Mutation<'_>> = batch
            .iter()
            .map(|(key, (stored, given))| Mutation {
                key,
                seqno: Seqno(stored.seqno),
                rev: RevSeqno(stored.rev),
                deleted: stored.deleted,
                content_meta: ContentMeta(stored.content_meta),
                rev_meta: &stored.rev_meta,
                body: match (&stored.body, given) {
                    (None, _) => MutationBody::None,
                    (Some(_), Some(given)) => MutationBody::Stored(given),
                    (Some(body), None) => MutationBody::Compress(body),
                },
            })
            .collect();
        if self.random.one_in(2) {
            mutations.sort_by_key(|mutation| mutation.seqno);
        }
        let writer = self.writer.as_mut().expect("an open file");
        let mut observed = 0;
        writer
            .save(&mutations, &mut |_| observed += 1)
            .expect("a batch");
        assert_eq!(observed, mutations.len());
        let stored = batch.into_iter().map(|(key, (stored, _))| (key, stored));
        self.state.documents.extend(stored);
    }

    /// One of some hundred keys, long and short.
    fn key(&mut self) -> Vec<u8> {
        let n = self.random.below(500);
        match n {
            0..5 => [format!("{n}").as_bytes(), &[0xff; 1000]].concat(),
            5..50 => vec![n as u8],
            _ => [&[0], format!("key-{n:06}").as_bytes()].concat(),
        }
    }

    /// Creates a document, and its stored form unless the writer is to compress it.
    fn document(&mut self, seqno: u64, rev: u64, deleted: bool) -> (Stored, Option<Vec<u8>>) {
        let body = self.random.body();
        let datatype = [Datatype::RAW, Datatype::JSON, Datatype::XATTR];
        let datatype = datatype[self.random.below(3) as usize];
        let value = ValueMeta {
            flags: (self.random.0.next() as u32).to_be_bytes(),
            datatype,
            bytes: body.len(),
        };
        let level = DurabilityLevel::PersistToMajority;
        let (cas, expiry) = (
            Cas(self.random.0.next()),
            Expiry(self.random.0.next() as u32),
        );
        let meta = match (deleted, self.random.below(4)) {
            (true, 0) => EntryMeta::abort(cas, expiry.0, Seqno(seqno - 1)),
            (true, _) => EntryMeta::tombstone(cas, expiry.0, Default::default(), value),
            (false, 0) => EntryMeta::prepare(cas, expiry, value, level),
            (false, _) => EntryMeta::live(cas, expiry, value),
        };
        let mut stored = Stored {
            seqno,
            rev,
            deleted,
            content_meta: meta.content_meta.0,
            rev_meta: meta.rev_meta.encode().as_slice().to_vec(),
            body: Some(body.clone()),
            kv: print(&meta.rev_meta, deleted),
        };
        match self.random.below(8) {
            // Without a body.
            0 => {
                stored.body = None;
                stored.content_meta = ContentMeta::NOT_JSON.0;
                (stored, None)
            }
            // As the client sent it.
            1 => {
                stored.content_meta = ContentMeta::NOT_JSON.0;
                (stored, Some(body))
            }
            // Compressed by the caller.
            2 => {
                stored.content_meta = ContentMeta::COMPRESSED_JSON.0;
                let compressed = snap::raw::Encoder::new().compress_vec(&body);
                (stored, Some(compressed.expect("a short body")))
            }
            // With metadata that only its owner understands.
            3 => {
                stored.rev_meta = self.random.bytes(seqno % 17);
                stored.kv = Value::Null;
                stored.content_meta = ContentMeta::COMPRESSED_JSON.0;
                (stored, None)
            }
            _ if stored.content_meta & ContentMeta::COMPRESSED == 0 => (stored, Some(body)),
            _ => (stored, None),
        }
    }

    fn save_locals(&mut self) {
        let mut changes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for _ in 0..self.random.below(6) {
            let name = format!("_local/{}", self.random.below(40)).into_bytes();
            let value = (!self.random.one_in(4)).then(|| self.random.body());
            changes.insert(name, value);
        }
        let borrowed: Vec<_> = changes
            .iter()
            .map(|(name, value)| (&name[..], value.as_deref()))
            .collect();
        self.writer()
            .save_locals(&borrowed)
            .expect("local documents");
        if self.random.one_in(3) {
            self.state.purge_seqno = self.random.below(self.state.update_seqno + 1);
            let purge = Seqno(self.state.purge_seqno);
            self.writer().set_purge_seqno(purge);
        }
        for (name, value) in changes {
            match value {
                Some(value) => self.state.locals.insert(name, value),
                None => self.state.locals.remove(&name),
            };
        }
    }

    /// Compares every commit with the output of the reader. Returns `false` if there is no reader.
    fn compare(&mut self) -> bool {
        self.reopen();
        let path = self.path.to_str().expect("a path in UTF-8").to_owned();
        let Some(checked) = read(&["--check", &path, "--every-header"]) else {
            return false;
        };
        let newest = self.writer().header().offset().0;
        assert_eq!(checked[0]["header"], newest);
        assert_eq!(checked[0]["damaged_headers"], json!([]));
        // The initial header counts, too.
        let headers = 1 + self.commits.len();
        assert_eq!(checked[0]["headers"], headers);
        compare_commit(&path, newest, &self.state);
        for _ in 0..2 {
            let at = self.random.below(self.commits.len() as u64) as usize;
            let (offset, state) = &self.commits[at];
            compare_commit(&path, offset.0, state);
        }
        let history = self.writer().snapshot();
        let chain: Result<Vec<Snapshot>, _> = history.history().collect();
        assert_eq!(checked[0]["chain"], chain.expect("sound headers").len());
        true
    }
}

/// Formats the fields of the metadata like the reader.
fn print(meta: &RevMeta, deleted: bool) -> Value {
    let mut kv = json!({
        "cas": meta.cas.get(),
        "expiry": meta.exptime,
        "flags": u32::from_be_bytes(meta.flags),
        "deleted_by": deleted.then_some("explicit"),
        "datatype": meta.datatype.bits(),
    });
    match meta.sync_write {
        None => {}
        Some(SyncWrite::Abort { prepare }) => {
            kv["operation"] = json!("abort");
            kv["prepare_seqno"] = json!(prepare.get());
        }
        Some(SyncWrite::Pending { is_delete, .. }) => {
            kv["operation"] = json!("pending");
            kv["level"] = json!("persistToMajority");
            kv["is_delete"] = json!(is_delete);
        }
        Some(SyncWrite::LegacyCommit { .. }) => panic!("nothing writes these"),
    }
    kv
}

fn compare_commit(path: &str, offset: u64, state: &State) {
    let offset = offset.to_string();
    let ask = |what: &str| read(&[what, path, "--header", &offset]).expect("Python was there");
    let by_id = ask("--by-id");
    assert_eq!(by_id.len(), state.documents.len());
    for (line, (key, stored)) in by_id.iter().zip(&state.documents) {
        compare_document(line, key, stored);
    }
    let mut expected: Vec<_> = state.documents.iter().collect();
    expected.sort_by_key(|(_, stored)| stored.seqno);
    let by_seqno = ask("--by-seqno");
    assert_eq!(by_seqno.len(), expected.len());
    for (line, (key, stored)) in by_seqno.iter().zip(expected) {
        compare_document(line, key, stored);
    }
    let locals: Vec<_> = ask("--locals")
        .iter()
        .map(|line| (line["name"].clone(), line["value"].clone()))
        .collect();
    let expected: Vec<_> = state
        .locals
        .iter()
        .map(|(name, value)| (json!(String::from_utf8_lossy(name)), json!(hex(value))))
        .collect();
    assert_eq!(locals, expected);
    let info = &ask("--info")[0];
    let deleted = state
        .documents
        .values()
        .filter(|stored| stored.deleted)
        .count();
    assert_eq!(info["update_seq"], state.update_seqno);
    assert_eq!(info["purge_seq"], state.purge_seqno);
    assert_eq!(info["deleted"], deleted);
    assert_eq!(info["live"], state.documents.len() - deleted);
}

fn compare_document(line: &Value, key: &[u8], stored: &Stored) {
    assert_eq!(line["key"], hex(key));
    assert_eq!(line["seqno"], stored.seqno, "{line}");
    assert_eq!(line["rev"], stored.rev, "{line}");
    assert_eq!(line["deleted"], stored.deleted, "{line}");
    assert_eq!(line["content_meta"], stored.content_meta, "{line}");
    assert_eq!(line["rev_meta"], hex(&stored.rev_meta), "{line}");
    assert_eq!(line["kv"], stored.kv, "{line}");
    assert_eq!(
        line["body"],
        json!(stored.body.as_deref().map(hex)),
        "of {}",
        hex(key)
    );
}
