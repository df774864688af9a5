//! Random histories compared with a `BTreeMap`: batches, deletions, local documents, commits, discarded changes,
//! reopens, rollbacks, and reads at old headers. `KEDGE_SEED` runs one other seed.

use std::collections::BTreeMap;

use kedge_couchstore::{Options, Snapshot, Writer};
use kedge_disk::{Rng, SimDisk, seed};
use kedge_types::Seqno;

use crate::support::{Doc, by_id, by_seqno, create, disk, open, path, save};

/// The expected contents of a file.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    docs: BTreeMap<Vec<u8>, Doc>,
    locals: BTreeMap<Vec<u8>, Vec<u8>>,
    update_seqno: u64,
    purge_seqno: u64,
}

struct Run {
    rng: Rng,
    disk: SimDisk,
    writer: Writer,
    now: State,
    /// The state at each header, oldest first.
    committed: Vec<(u64, State)>,
    /// Number of distinct keys.
    keys: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let disk = disk(seed);
        let writer = create(&disk);
        let keys = [5, 60, 3000][rng.below(3) as usize];
        Run {
            rng,
            disk,
            writer,
            now: State::default(),
            committed: vec![(0, State::default())],
            keys,
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let n = self.rng.below(self.keys);
        // Some keys are prefixes of others, some are long.
        match n % 7 {
            0 => vec![b'p'; n as usize % 300 + 1],
            1 => [vec![b'q'; 200], n.to_string().into_bytes()].concat(),
            _ => format!("key-{n:09}").into_bytes(),
        }
    }

    fn doc(&mut self, key: Vec<u8>, seqno: u64) -> Doc {
        let body_bytes = match self.rng.below(20) {
            0 => 5000 + self.rng.below(20_000),
            1 => 0,
            _ => self.rng.below(300),
        };
        let rev = self.now.docs.get(&key).map_or(1, |doc| doc.rev + 1);
        let deleted = self.rng.below(4) == 0;
        let meta_bytes = [18, 25, 0][self.rng.below(30) as usize / 14];
        Doc {
            rev,
            deleted,
            compress: self.rng.below(3) > 0,
            rev_meta: self.rng.bytes(meta_bytes),
            body: (self.rng.below(30) > 0).then(|| self.rng.bytes(body_bytes as usize)),
            ..Doc::new(key, seqno)
        }
        .sound()
    }

    fn batch(&mut self) {
        let count = [1, 3, 40, 700][self.rng.below(4) as usize];
        let mut docs: BTreeMap<Vec<u8>, Doc> = BTreeMap::new();
        for _ in 0..count {
            let key = self.key();
            self.now.update_seqno += 1 + self.rng.below(3) / 2;
            let doc = self.doc(key.clone(), self.now.update_seqno);
            docs.insert(key, doc);
        }
        // In the order of keys, or in that of seqnos.
        let mut docs: Vec<Doc> = docs.into_values().collect();
        if self.rng.below(2) == 0 {
            docs.sort_by_key(|doc| doc.seqno);
        }
        self.now.update_seqno = docs.iter().map(|doc| doc.seqno).max().expect("one or more");
        save(&mut self.writer, &docs).expect("save");
        let docs = docs.into_iter().map(|doc| (doc.key.clone(), doc));
        self.now.docs.extend(docs);
    }

    fn locals(&mut self) {
        let mut changes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for _ in 0..=self.rng.below(8) {
            let name = format!("_local/{}", self.rng.below(25)).into_bytes();
            let bytes = self.rng.below(400) as usize;
            let value = (self.rng.below(3) > 0).then(|| self.rng.bytes(bytes));
            changes.insert(name, value);
        }
        let list: Vec<(&[u8], Option<&[u8]>)> = changes
            .iter()
            .map(|(name, value)| (&**name, value.as_deref()))
            .collect();
        self.writer.save_locals(&list).expect("save");
        for (name, value) in changes {
            match value {
                Some(value) => self.now.locals.insert(name, value),
                None => self.now.locals.remove(&name),
            };
        }
    }

    fn commit(&mut self) {
        if self.rng.below(4) == 0 {
            self.now.purge_seqno = self.now.update_seqno / 2;
            self.writer.set_purge_seqno(Seqno(self.now.purge_seqno));
        }
        let offset = self
            .writer
            .commit(self.committed.len() as u64)
            .expect("commit");
        self.committed.push((offset.0, self.now.clone()));
        self.check();
    }

    fn give_up(&mut self) {
        self.writer.give_up();
        self.now = self.committed.last().expect("there is one").1.clone();
    }

    fn reopen(&mut self) {
        self.give_up();
        self.writer = Writer::open(&self.disk, path(), &Options::default()).expect("open");
    }

    fn rollback(&mut self) {
        self.give_up();
        let seqno = self.rng.below(self.now.update_seqno + 1);
        let point = self.writer.rollback_point(Seqno(seqno)).expect("search");
        let point = point.expect("the first header is empty");
        let offset = point.header().offset().0;
        let (_, state) = self
            .committed
            .iter()
            .find(|(at, _)| *at == offset)
            .expect("a header that was committed");
        assert!(state.update_seqno <= seqno);
        self.writer.rewind(point.header()).expect("rewind");
        self.now = state.clone();
    }

    fn check(&mut self) {
        let snapshot = open(&self.disk).expect("open");
        assert_eq!(snapshot.header(), self.writer.header());
        snapshot.check(&mut |_| {}).expect("sound");
        check_state(&snapshot, &self.now);
        check_state(&self.writer.snapshot(), &self.now);
        self.check_lookups(&snapshot);
        // An old state, through the cached nodes of the newest.
        let pick = self.rng.below(self.committed.len() as u64) as usize;
        let (offset, state) = &self.committed[pick];
        let old = snapshot
            .at(kedge_couchstore::Offset(*offset))
            .expect("a header");
        check_state(&old, state);
    }

    fn check_lookups(&mut self, snapshot: &Snapshot) {
        let keys: Vec<Vec<u8>> = (0..30).map(|_| self.key()).collect();
        let many = snapshot.get_many(&keys).expect("get");
        for (key, found) in keys.iter().zip(&many) {
            assert_eq!(&snapshot.get(key).expect("get"), found);
            let expected = self.now.docs.get(key);
            assert_eq!(
                found.as_ref().map(|entry| entry.seqno().0),
                expected.map(|doc| doc.seqno)
            );
        }
        let to = self.now.update_seqno + 3;
        let from = self.rng.below(to);
        let to = from + self.rng.below(to - from);
        let range = Seqno(from)..Seqno(to);
        let seqnos: Vec<u64> = {
            let inside = self.now.docs.values().map(|doc| doc.seqno);
            let mut inside: Vec<u64> = inside.filter(|seqno| (from..to).contains(seqno)).collect();
            inside.sort_unstable();
            inside
        };
        assert_eq!(
            snapshot.count_seqnos(range.clone()).expect("count"),
            seqnos.len() as u64
        );
        let scan = snapshot.scan_seqnos(range).expect("scan");
        let scanned: Vec<u64> = scan
            .map(|entry| entry.expect("an entry").seqno().0)
            .collect();
        assert_eq!(scanned, seqnos);
    }
}

impl Doc {
    /// A missing or empty body cannot be compressed.
    fn sound(mut self) -> Self {
        if self.body.is_none() {
            self.compress = false;
        }
        self
    }
}

fn check_state(snapshot: &Snapshot, state: &State) {
    let header = snapshot.header();
    assert_eq!(header.update_seqno().0, state.update_seqno);
    assert_eq!(header.purge_seqno().0, state.purge_seqno);
    let expected: Vec<Doc> = state.docs.values().cloned().collect();
    assert!(by_id(snapshot).expect("scan") == expected, "by id");
    let mut expected = expected;
    expected.sort_by_key(|doc| doc.seqno);
    assert!(by_seqno(snapshot).expect("scan") == expected, "by seqno");
    let locals: Result<BTreeMap<_, _>, _> = snapshot.locals().expect("scan").collect();
    assert_eq!(locals.expect("locals"), state.locals);
}

fn run(seed: u64) {
    eprintln!("seed {seed}");
    let mut run = Run::new(seed);
    for _ in 0..60 {
        match run.rng.below(20) {
            0..9 => run.batch(),
            9..12 => run.locals(),
            12..17 => run.commit(),
            17 => run.give_up(),
            18 => run.reopen(),
            _ => run.rollback(),
        }
    }
    run.commit();
}

#[test]
fn random_histories_agree_with_a_map() {
    let first = seed(1);
    for seed in first..first + 24 {
        run(seed);
    }
}
