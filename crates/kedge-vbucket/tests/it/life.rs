//! Model test of a vBucket with log and file, against the list of its changes. After a crash at any moment, the vBucket
//! has the state of the last logged change.

use crate::disk::{Applying, Disk, apply, documents};
use crate::tools::*;
use kedge_types::{Seqno, VbUuid};
use kedge_vbucket::{Change, StateChange, StoreMode, VBucket, VbState};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Set(u8, Vec<u8>),
    Delete(u8),
    Durable(u8, Vec<u8>, bool),
    Lock(u8),
    /// SyncWrites in flight time out.
    Late,
    Log(usize),
    FileChange(Applying),
    Release,
    Reset,
    DeleteVbucket,
    MakeVbucket,
    /// Rolls back to a header this far back, if it is consistent, and crashes after this number of steps.
    Rollback(usize, u8),
    /// Crashes after this number of further changes was logged without notification of the vBucket.
    Crash(usize),
}

impl Step {
    /// Returns whether the step does not apply to a deleted vBucket.
    fn is_a_command(&self) -> bool {
        matches!(
            self,
            Self::Set(..)
                | Self::Delete(_)
                | Self::Durable(..)
                | Self::Lock(_)
                | Self::Reset
                | Self::Rollback(..)
        )
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || proptest::collection::vec(b'0'..=b'9', 1..6);
    let applying =
        (1usize..6, 0usize..6, any::<bool>()).prop_map(|(max_items, parts, ends)| Applying {
            max_items,
            parts,
            ends,
        });
    let whole = Applying {
        max_items: 100,
        parts: 100,
        ends: true,
    };
    let step = prop_oneof![
        8 => (0u8..5, bytes()).prop_map(|(key, bytes)| Step::Set(key, bytes)),
        3 => (0u8..5).prop_map(Step::Delete),
        6 => (0u8..5, bytes(), any::<bool>()).prop_map(|(key, bytes, persist)| Step::Durable(key, bytes, persist)),
        1 => (0u8..5).prop_map(Step::Lock),
        1 => Just(Step::Late),
        6 => (0usize..6).prop_map(Step::Log),
        4 => applying.prop_map(Step::FileChange),
        2 => Just(Step::FileChange(whole)),
        2 => Just(Step::Release),
        1 => Just(Step::Reset),
        1 => Just(Step::DeleteVbucket),
        2 => Just(Step::MakeVbucket),
        1 => (0usize..4, 0u8..4).prop_map(|(back, steps)| Step::Rollback(back, steps)),
        1 => (0usize..4).prop_map(Step::Crash),
    ];
    proptest::collection::vec(step, 1..120)
}

struct Life {
    vb: VBucket,
    disk: Disk,
    secs: u64,
    uuid: u64,
}

fn name(key: u8) -> String {
    format!("key-{key}")
}

impl Life {
    fn new() -> Self {
        Self {
            vb: vbucket(),
            disk: Disk::default(),
            secs: 0,
            uuid: 1,
        }
    }

    fn next_uuid(&mut self) -> VbUuid {
        self.uuid += 1;
        VbUuid(self.uuid)
    }

    fn step(&mut self, step: &Step) {
        let now = at(self.secs);
        if self.vb.is_deleted() && step.is_a_command() {
            return;
        }
        match step {
            Step::Set(id, bytes) => {
                let key = key(&name(*id));
                let _ = store(&mut self.vb, now, &write(&key), StoreMode::Set, bytes);
            }
            Step::Delete(id) => {
                let key = key(&name(*id));
                let _ = self.vb.at(now).delete(&write(&key));
            }
            Step::Durable(id, bytes, persist) => {
                let key = key(&name(*id));
                let level = level(*persist);
                let write = durable(&key, level, 1);
                let _ = store(&mut self.vb, now, &write, StoreMode::Set, bytes);
            }
            Step::Lock(id) => {
                let _ = self
                    .vb
                    .at(now)
                    .get_and_lock(&key(&name(*id)), 1, None, |_| ());
                self.secs += 2;
            }
            Step::Late => {
                self.secs += 100;
                self.vb.on_time(at(self.secs));
            }
            Step::Log(max) => self.disk.log(&mut self.vb, *max),
            Step::FileChange(how) => {
                self.disk.apply(&mut self.vb, *how);
                if !how.ends {
                    self.crash();
                }
            }
            Step::Release => self.disk.release(&self.vb),
            Step::Reset => {
                let uuid = self.next_uuid();
                self.vb.reset(uuid);
            }
            Step::DeleteVbucket if self.vb.is_deleted() => {}
            Step::DeleteVbucket => drop(self.vb.delete_vbucket()),
            Step::MakeVbucket => {
                let uuid = self.next_uuid();
                self.vb.set_state(StateChange::to(VbState::Active, uuid));
            }
            Step::Rollback(back, steps) => self.rollback(*back, *steps),
            Step::Crash(logged) => {
                self.disk.append(&self.vb, *logged);
                self.crash();
            }
        }
    }

    fn rollback(&mut self, back: usize, steps: u8) {
        let headers = &self.disk.headers;
        let file = headers.len().checked_sub(back + 1).map(|at| &headers[at]);
        let Some(to) = file
            .filter(|file| file.is_consistent())
            .map(|file| file.high)
        else {
            return;
        };
        let figures = self.vb.unapplied();
        if figures.replaces_file || figures.removes_file {
            return;
        }
        let uuid = self.next_uuid();
        let keys = self.vb.rollback(to, uuid);
        if steps > 0 {
            self.disk.log(&mut self.vb, usize::MAX);
        }
        if steps > 1 {
            self.disk.rewind(to, &self.vb);
        }
        if steps <= 2 {
            return self.crash();
        }
        self.disk.rewound(&mut self.vb, &keys);
    }

    /// Recovers in a new process from log and file.
    fn crash(&mut self) {
        let branch = self.next_uuid();
        self.vb = self.disk.recover(vbucket(), Some(branch));
        let expected = self.disk.expected(at(self.secs));
        assert_eq!(
            table(&self.vb),
            expected,
            "at the last change that was logged"
        );
        let was_deleted = matches!(self.disk.logged.last(), Some(Change::Delete));
        assert!(self.vb.is_deleted() || !was_deleted);
        if self.vb.high_seqno() > Seqno(0) {
            assert_eq!(self.vb.failover().uuid(), branch);
        }
    }

    /// Checks that the hash table agrees with the changes, logged or not.
    fn check(&mut self) {
        drop(self.vb.take_effects());
        let mut changes = self.disk.logged.clone();
        let mut queued = Vec::new();
        self.vb
            .changes()
            .for_log(usize::MAX, usize::MAX, &mut queued);
        for change in queued {
            apply(&mut changes, change);
        }
        assert_eq!(table(&self.vb), documents(&changes, at(self.secs)));
        assert_eq!(self.vb.documents().count(), table(&self.vb).len());
        assert!(self.vb.applied_seqno() <= self.vb.persisted_seqno());
        assert!(self.vb.persisted_seqno() <= self.vb.high_seqno());
        let last = changes
            .iter()
            .filter_map(Change::item)
            .map(|item| item.seqno())
            .max();
        assert_eq!(self.vb.high_seqno(), last.unwrap_or(Seqno(0)));
    }
}

/// Returns the live documents.
fn table(vb: &VBucket) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let live = vb.table().iter().filter(|item| !item.is_deleted());
    live.map(|item| (item.key().to_vec(), item.value().to_vec()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn crash_keeps_logged_changes(steps in steps()) {
        let mut life = Life::new();
        for step in &steps {
            life.step(step);
            life.check();
        }
        // After everything is logged and applied, the file alone restores the vBucket.
        let whole = Applying { max_items: 3, parts: usize::MAX, ends: true };
        for _ in 0..3 {
            life.disk.log(&mut life.vb, usize::MAX);
            life.disk.apply(&mut life.vb, whole);
        }
        let figures = life.vb.unapplied();
        prop_assert_eq!((figures.items, figures.pinned_bytes), (0, 0));
        life.disk.release(&life.vb);
        prop_assert!(life.disk.log.is_empty());
        let before = table(&life.vb);
        let failover = life.vb.failover().clone();
        let applied = life.vb.applied_seqno();
        let again = life.disk.recover(vbucket(), None);
        prop_assert_eq!(table(&again), before);
        prop_assert_eq!(again.is_deleted(), life.vb.is_deleted());
        prop_assert_eq!(again.state(), life.vb.state());
        if life.disk.file().is_some() {
            prop_assert_eq!(again.failover(), &failover);
            prop_assert_eq!(again.applied_seqno(), applied);
            prop_assert!(again.history().last_cas() >= life.disk.file().unwrap().state.max_cas);
        }
    }
}
