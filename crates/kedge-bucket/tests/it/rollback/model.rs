//! Random histories of a vBucket that is written to, applied, compacted, rolled back, deleted and restarted, compared to
//! the list of its changes.
//!
//! `KEDGE_SEED` runs one seed, `KEDGE_SEEDS` that many.

use super::{Documents, VB, documents, look, names, roll_back};
use crate::crash::seeds;
use crate::tools::*;
use kedge_bucket::{CompactionRequest, VbState};
use kedge_disk::{Rng, SimDisk};
use kedge_types::Seqno;

#[derive(Default)]
struct Model {
    /// The changes, in order of seqnos.
    changes: Vec<Change>,
}

struct Change {
    name: String,
    /// The value; `None` for a deletion.
    value: Option<Vec<u8>>,
    seqno: Seqno,
    /// The seqno of the prepare, if the change is a SyncWrite.
    prepared: Seqno,
}

impl Model {
    fn documents(&self) -> Documents {
        let mut documents = Documents::new();
        for change in &self.changes {
            match &change.value {
                Some(value) => documents.insert(change.name.clone(), value.clone()),
                None => documents.remove(&change.name),
            };
        }
        documents
    }

    fn push(&mut self, name: &str, value: Option<Vec<u8>>, seqno: Seqno, prepared: Seqno) {
        self.changes.push(Change {
            name: name.to_owned(),
            value,
            seqno,
            prepared,
        });
    }

    /// Rolls the model back. Returns the prepares without commit, which are committed when the vBucket becomes active.
    fn roll_back_to(&mut self, to: Seqno) -> Vec<Change> {
        let kept = self.changes.partition_point(|change| change.seqno <= to);
        let mut open = self.changes.split_off(kept);
        open.retain(|change| change.prepared <= to);
        for change in &mut open {
            change.seqno = to.next();
        }
        open
    }
}

fn run(seed: u64) -> (u64, u64) {
    eprintln!("seed {seed}");
    let disk = SimDisk::new(seed);
    let mut site = sim(&disk);
    let config = &mut site.config;
    config.commit_log = !seed.is_multiple_of(3);
    config.flusher_batch_max_items = 1 + (seed % 4) as usize;
    config.keep_files_open = seed.is_multiple_of(2);
    config.apply_max_lag_ms = 50;
    let mut random = Rng::new(seed);
    let mut next = move |below: u64| random.below(below);
    let names: Vec<String> = names().take(12).collect();
    let (mut open, mut steps) = site.open_with_manual_tasks();
    let mut model = Model {
        changes: Vec::new(),
    };
    let (mut rolled_back, mut resets, mut cookie) = (0, 0, 0);
    for step in 0..160 {
        let name = &names[next(12) as usize];
        let value = format!("{step}").into_bytes();
        match next(24) {
            0..8 => {
                let mutated = open.set(name, &value).unwrap();
                model.push(name, Some(value), mutated.seqno, mutated.seqno);
            }
            8..11 => {
                let k = key(name);
                if let Ok(mutated) = done(open.bucket.documents().delete(open.ctx(), &write(&k))) {
                    model.push(name, None, mutated.seqno, mutated.seqno);
                }
            }
            11..13 => {
                cookie += 1;
                open.persist(name, &value, cookie).unwrap();
                open.bucket.persistence().sync().unwrap();
                let mutated = open.sink.wait(cookie).unwrap();
                let prepared = Seqno(mutated.seqno.get() - 1);
                model.push(name, Some(value), mutated.seqno, prepared);
            }
            13..16 => {
                steps.pass(MS * next(200) as u32);
            }
            16..18 => open.bucket.persistence().apply().unwrap(),
            18..21 => {
                let high = open.bucket.vbucket_figures(VB).unwrap().high_seqno;
                let to = Seqno(high.get().saturating_sub(next(12)));
                let back = roll_back(&open, to).unwrap();
                assert!(back.seqno <= to, "seed {seed}, step {step}");
                let mut open_then = model.roll_back_to(back.seqno);
                let figures = open.bucket.vbucket_figures(VB).unwrap();
                assert_eq!(
                    figures.documents,
                    model.documents().len(),
                    "seed {seed}, step {step}"
                );
                rolled_back += u64::from(back.seqno < high && !back.is_reset);
                resets += u64::from(back.is_reset);
                model.changes.append(&mut open_then);
                let found = look(&open, &names);
                assert_eq!(
                    found,
                    model.documents(),
                    "seed {seed}, step {step}: {back:?} of {high}"
                );
            }
            21 => {
                open.bucket
                    .persistence()
                    .compactions()
                    .compact(&CompactionRequest::default())
                    .unwrap();
                steps.run();
            }
            22 if next(4) == 0 => {
                open.bucket.states().delete_vbucket(VB).unwrap();
                model.changes.clear();
                if next(2) == 0 {
                    steps.pass(MS * 100);
                }
                open.bucket
                    .states()
                    .set_vbucket(VB, VbState::Active)
                    .unwrap();
            }
            22 => {}
            _ => {
                // Everything written so far survives the shutdown, clean or not.
                open.bucket.persistence().sync().unwrap();
                if next(2) == 0 {
                    disk.crash(seed + step);
                }
                open.bucket.shutdown();
                site.executor.shutdown();
                (open, steps) = site.open_with_manual_tasks();
                cookie = 0;
            }
        }
        assert!(
            open.sink.fatal().is_empty(),
            "seed {seed}: {:?}",
            open.sink.fatal()
        );
        assert_eq!(
            documents(&open, &names),
            model.documents(),
            "seed {seed}, step {step}"
        );
    }
    open.bucket.shutdown();
    site.executor.shutdown();
    (rolled_back, resets)
}

#[test]
fn rollback_restores_the_state_at_its_seqno_in_random_histories() {
    let (mut rolled_back, mut resets) = (0, 0);
    let seeds = seeds(120);
    for seed in &seeds {
        let (back, reset) = run(*seed);
        rolled_back += back;
        resets += reset;
    }
    if seeds.len() > 10 {
        let least = seeds.len() as u64;
        assert!(
            rolled_back > least && resets > least,
            "{rolled_back} {resets}"
        );
    }
}
