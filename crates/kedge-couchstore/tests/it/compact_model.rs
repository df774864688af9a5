//! Random histories with compactions, compared with a `BTreeMap`. The history continues with each compacted file.
//! `KEDGE_SEED` runs one other seed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kedge_couchstore::compact::{CompactionHooks, CompactionSettings, FilterDecision, LocalPatch};
use kedge_couchstore::{CreateOptions, Entry, Error, Options, Version, Writer};
use kedge_disk::{Disk, Rng, SimDisk, seed};
use kedge_types::Seqno;

use crate::compact::{Content, content, shared};
use crate::support::{Doc, disk, save};

struct Run {
    rng: Rng,
    disk: SimDisk,
    revision: u64,
    writer: Writer,
    docs: BTreeMap<Vec<u8>, Doc>,
    locals: BTreeMap<Vec<u8>, Vec<u8>>,
    seqno: u64,
    purge_seqno: u64,
    timestamp_ns: u64,
}

/// Returns the decision about a document.
fn verdict(salt: u64, doc: &Doc) -> FilterDecision {
    let mut rng = Rng::new(salt ^ doc.seqno);
    match rng.below(12) {
        0 | 1 => FilterDecision::Drop,
        2 | 3 if doc.deleted => FilterDecision::Purge,
        4 => FilterDecision::NeedBody,
        _ => FilterDecision::Keep,
    }
}

struct Filter<'a> {
    salt: u64,
    docs: &'a BTreeMap<Vec<u8>, Doc>,
}

impl CompactionHooks for Filter<'_> {
    fn filter(&mut self, entry: &Entry, body: Option<&[u8]>) -> FilterDecision {
        let doc = &self.docs[entry.key()];
        let expected = doc.body.as_deref().unwrap_or_default();
        assert!(body.is_none_or(|body| body == expected));
        verdict(self.salt, doc)
    }

    fn locals(&mut self, locals: &mut LocalPatch) -> Result<(), Error> {
        locals.set(b"salt", self.salt.to_string().into_bytes());
        locals.remove(b"_local/7");
        Ok(())
    }
}

fn file(revision: u64) -> PathBuf {
    format!("/data/0.couch.{revision}").into()
}

impl Run {
    fn new(seed: u64) -> Self {
        let disk = disk(seed);
        let create = CreateOptions {
            version: Version::V13,
            encryption: None,
        };
        let writer = Writer::create(&disk, &file(1), &create, &Options::default());
        Run {
            rng: Rng::new(seed),
            disk,
            revision: 1,
            writer: writer.expect("create"),
            docs: BTreeMap::new(),
            locals: BTreeMap::new(),
            seqno: 0,
            purge_seqno: 0,
            timestamp_ns: 0,
        }
    }

    fn save(&mut self) {
        let count = [1, 10, 400][self.rng.below(3) as usize];
        let mut batch = BTreeMap::new();
        for _ in 0..count {
            let n = self.rng.below(1500);
            let key = match n % 9 {
                0 => vec![b'p'; n as usize % 200 + 1],
                _ => format!("key-{n:06}").into_bytes(),
            };
            self.seqno += 1 + self.rng.below(3);
            let body_bytes = [0, 10, 300, 9000][self.rng.below(4) as usize];
            let meta_bytes = [18, 25, 0][self.rng.below(3) as usize];
            let doc = Doc {
                deleted: self.rng.below(4) == 0,
                compress: self.rng.below(2) == 0,
                body: (self.rng.below(20) > 0).then(|| self.rng.bytes(body_bytes)),
                rev_meta: self.rng.bytes(meta_bytes),
                ..Doc::new(key.clone(), self.seqno)
            };
            let compress = doc.compress && doc.body.is_some();
            batch.insert(key, Doc { compress, ..doc });
        }
        let docs: Vec<Doc> = batch.values().cloned().collect();
        save(&mut self.writer, &docs).expect("save");
        self.seqno = self.writer.update_seqno().0;
        self.docs.extend(batch);
        for _ in 0..self.rng.below(4) {
            let name = format!("_local/{}", self.rng.below(30)).into_bytes();
            let value = (self.rng.below(3) > 0).then(|| vec![1; self.rng.below(900) as usize]);
            self.writer
                .save_locals(&[(&name, value.as_deref())])
                .expect("save");
            match value {
                Some(value) => self.locals.insert(name, value),
                None => self.locals.remove(&name),
            };
        }
    }

    fn commit(&mut self) {
        self.timestamp_ns = self.rng.next();
        self.writer.commit(self.timestamp_ns).expect("commit");
    }

    fn content(&self) -> Content {
        let mut docs: Vec<Doc> = self.docs.values().cloned().collect();
        docs.sort_by_key(|doc| doc.seqno);
        let locals = self.locals.iter();
        Content {
            docs,
            locals: locals
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            update_seqno: Seqno(self.seqno),
            purge_seqno: Seqno(self.purge_seqno),
            timestamp_ns: self.timestamp_ns,
        }
    }

    fn compact(&mut self) {
        let source = self.writer.snapshot();
        let salt = self.rng.next();
        let settings = CompactionSettings {
            create: CreateOptions {
                version: [Version::V13, Version::V14][self.rng.below(2) as usize],
                encryption: None,
            },
            memory_bytes: [1, 20_000, 16 << 20][self.rng.below(3) as usize],
            sync_each_bytes: 1 << self.rng.below(22),
        };
        let to = file(self.revision + 1);
        let target = kedge_couchstore::compact::target_path(&file(self.revision));
        let mut hooks = Filter {
            salt,
            docs: &self.docs,
        };
        let disk = shared(&self.disk);
        let compaction = kedge_couchstore::compact::Compaction::run(
            &disk, &source, &target, &settings, &mut hooks,
        );
        let progress = compaction.expect("compact").finish().expect("finish");

        let before = self.docs.len();
        let newest = self.seqno;
        let mut purged = 0;
        self.docs.retain(|_, doc| match verdict(salt, doc) {
            FilterDecision::Drop => false,
            FilterDecision::Purge if doc.seqno < newest => {
                purged = doc.seqno.max(purged);
                false
            }
            _ => true,
        });
        self.purge_seqno = self.purge_seqno.max(purged);
        self.locals
            .insert(b"salt".to_vec(), salt.to_string().into_bytes());
        self.locals.remove(&b"_local/7"[..]);
        assert_eq!(progress.dropped as usize, before - self.docs.len());

        self.disk.rename(&target, &to).expect("rename");
        self.disk.remove(&file(self.revision)).expect("remove");
        self.revision += 1;
        self.writer = Writer::open(&self.disk, &to, &Options::default()).expect("open");
        assert_eq!(self.writer.header().version(), settings.create.version);
    }
}

#[test]
fn histories_with_compactions_agree_with_a_map() {
    let first = seed(100);
    for seed in first..first + 25 {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        for _ in 0..4 {
            for _ in 0..run.rng.below(8) {
                run.save();
                run.commit();
            }
            run.compact();
            assert_eq!(content(&run.writer.snapshot()), run.content());
        }
    }
}
