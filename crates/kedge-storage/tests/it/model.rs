//! Random commits, reads, reopens, replacements and removals, compared with a map for each vBucket.

use std::collections::BTreeMap;
use std::sync::Arc;

use kedge_disk::{Disk, Rng, SimDisk, seeds};
use kedge_storage::{FileRecordKind, Storage, StorageConfig};
use kedge_types::{Seqno, VbId};
use kedge_vbucket::{FileChange, PersistedState};

use crate::support::{
    Contents, Kept, abort, audit, contents, dir, document, keep, key, path_of, prepare, state,
    tombstone,
};

const VBUCKETS: u16 = 6;
const KEYS: u64 = 40;

/// The expected contents of a vBucket.
#[derive(Default)]
struct Model {
    /// `None` if there is no file.
    contents: Option<Contents>,
    seqno: u64,
    uuid: u64,
    prepared: u64,
    completed: u64,
    purge: u64,
}

impl Model {
    fn state(&self) -> PersistedState {
        PersistedState {
            prepared: Seqno(self.prepared),
            completed: Seqno(self.completed),
            purge: Seqno(self.purge),
            ..state(self.uuid, self.seqno)
        }
    }

    /// Items for one commit: each key once per namespace, with ascending seqnos.
    fn batch(&mut self, rng: &mut Rng) -> Vec<FileChange> {
        let mut batch: BTreeMap<(Vec<u8>, bool), FileChange> = BTreeMap::new();
        for _ in 0..rng.below(30) {
            self.seqno += 1 + rng.below(3);
            let (seqno, key) = (self.seqno, key(rng.below(KEYS)));
            let value = vec![b'v'; rng.below(200) as usize];
            let apply = match rng.below(10) {
                0 | 1 => tombstone(seqno, &key),
                2 => {
                    self.prepared = seqno;
                    prepare(seqno, &key, &value)
                }
                3 if self.prepared > 0 => {
                    self.completed = self.prepared;
                    abort(seqno, &key, self.prepared)
                }
                _ => document(seqno, &key, &value),
            };
            batch.insert((key, apply.is_committed_namespace()), apply);
        }
        let mut batch: Vec<FileChange> = batch.into_values().collect();
        batch.sort_by_key(|apply| apply.item().seqno());
        batch
    }

    fn commit(&mut self, storage: &Storage, vb: VbId, rng: &mut Rng) {
        if self.contents.is_none() {
            self.uuid = 1 + rng.below(1 << 40);
        }
        let batch = self.batch(rng);
        self.purge = self.purge.max(rng.below(self.seqno + 1));
        let committed = storage
            .commit(vb, &batch, &self.state(), 5)
            .expect("commit");
        let model = self.contents.get_or_insert_default();
        for (index, apply) in batch.iter().enumerate() {
            let place = (apply.item().key().to_vec(), apply.is_committed_namespace());
            let was_live = model.get(&place).is_some_and(|kept| match kept.kind {
                FileRecordKind::Document => kept.meta.deleted.is_none(),
                FileRecordKind::Prepare => true,
                FileRecordKind::Abort { .. } | FileRecordKind::SystemEvent => false,
            });
            assert_eq!(committed.was_live(index), was_live);
            keep(model, apply);
        }
        if let Some(last) = batch.last() {
            assert_eq!(committed.high_seqno, last.item().seqno());
        }
    }

    fn check(&self, storage: &Storage, vb: VbId, rng: &mut Rng) {
        let keys: Vec<Vec<u8>> = (0..rng.below(12))
            .map(|_| key(rng.below(KEYS + 5)))
            .collect();
        let wanted: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        let found = storage.get_many(vb, &wanted).expect("a look-up");
        for (key, found) in keys.iter().zip(found) {
            let model = self.contents.as_ref();
            let expected = model.and_then(|model| model.get(&(key.clone(), true)));
            let found = found.map(|item| Kept {
                meta: item.meta(),
                value: item.value().to_vec(),
                kind: FileRecordKind::Document,
            });
            assert_eq!(found.as_ref(), expected);
        }
    }

    fn check_all(&self, storage: &Storage, disk: &SimDisk, vb: VbId) {
        assert_eq!(contents(storage, vb).expect("a scan"), self.contents);
        audit(disk, vb);
        let loaded = storage.load(vb).expect("load");
        assert_eq!(loaded.is_some(), self.contents.is_some());
        let (Some(loaded), Some(model)) = (loaded, &self.contents) else {
            assert_eq!(path_of(disk, vb), None);
            assert_eq!(storage.file_figures(vb).expect("figures"), None);
            return;
        };
        let live =
            |kept: &Kept| kept.kind == FileRecordKind::Document && kept.meta.deleted.is_none();
        let lives: Vec<_> = model.iter().filter(|(_, kept)| live(kept)).collect();
        assert_eq!(loaded.documents, lives.len() as u64);
        let state = PersistedState {
            snap_start: loaded.state.snap_start,
            snap_end: loaded.state.snap_end,
            ..self.state()
        };
        assert_eq!(loaded.state, state);
        let open = self.completed + 1..=self.prepared;
        let mut prepares: Vec<u64> = model
            .values()
            .filter(|kept| kept.kind == FileRecordKind::Prepare)
            .map(|kept| kept.meta.seqno.get())
            .filter(|seqno| open.contains(seqno))
            .collect();
        prepares.sort_unstable();
        let found: Vec<u64> = loaded
            .prepares
            .iter()
            .map(|item| item.seqno().get())
            .collect();
        assert_eq!(found, prepares);
        let keys: Vec<_> = lives.iter().map(|((key, _), _)| key.clone()).collect();
        assert_eq!(storage.keys(vb, b"", usize::MAX).expect("keys"), keys);
        let from = key(KEYS / 2);
        let some: Vec<_> = keys
            .into_iter()
            .filter(|key| *key >= from)
            .take(5)
            .collect();
        assert_eq!(storage.keys(vb, &from, 5).expect("keys"), some);
        let figures = storage.file_figures(vb).expect("figures").expect("a file");
        let path = path_of(disk, vb).expect("a file");
        assert_eq!(figures.file_bytes, disk.len(&path).expect("a length"));
        assert_eq!(figures.revision, loaded.revision);
        assert!(figures.data_bytes <= figures.file_bytes);
    }
}

fn run(seed: u64, config: &StorageConfig) {
    let mut rng = Rng::new(seed);
    let disk = SimDisk::new(seed);
    let open = |disk: &SimDisk| Storage::open(Arc::new(disk.clone()), dir(), config).expect("open");
    let mut storage = open(&disk);
    let mut models: Vec<Model> = (0..VBUCKETS).map(|_| Model::default()).collect();
    for _ in 0..400 {
        let vb = VbId(rng.below(VBUCKETS.into()) as u16);
        let model = &mut models[usize::from(vb.get())];
        match rng.below(40) {
            0 => {
                assert_eq!(storage.stats().scans, 0);
                drop(storage);
                storage = open(&disk);
            }
            1 => {
                storage.remove(vb).expect("remove");
                *model = Model::default();
            }
            2 => {
                *model = Model {
                    contents: Some(Contents::new()),
                    uuid: 1 + rng.below(1 << 40),
                    ..Model::default()
                };
                storage.replace(vb, &model.state(), 6).expect("replace");
            }
            3 => storage.make_durable(vb).expect("sync"),
            4..6 => model.check_all(&storage, &disk, vb),
            6..20 => model.commit(&storage, vb, &mut rng),
            _ => model.check(&storage, vb, &mut rng),
        }
        let stats = storage.stats();
        let kept = if config.keep_files_open {
            config.max_open_files as u64
        } else {
            0
        };
        assert!(stats.kept_files <= kept && stats.kept_bytes <= config.open_files_bytes_max);
        assert_eq!(stats.handles, stats.kept_files, "no other handle is open");
    }
    for (vb, model) in (0..).map(VbId).zip(&models) {
        model.check_all(&storage, &disk, vb);
    }
}

#[test]
fn files_agree_with_the_model() {
    for seed in seeds(1, 1) {
        eprintln!("seed {seed}");
        rounds(seed);
    }
}

fn rounds(seed: u64) {
    for round in 0..8 {
        let config = StorageConfig {
            keep_files_open: round % 4 != 0,
            max_open_files: [100, 1, 3, 0][round as usize % 4],
            open_files_bytes_max: if round == 5 { 2500 } else { 1 << 20 },
            file_cache_bytes_max: if round < 4 { 1 << 20 } else { 2000 },
            ..StorageConfig::new(VBUCKETS)
        };
        run(seed * 100 + round, &config);
    }
}
