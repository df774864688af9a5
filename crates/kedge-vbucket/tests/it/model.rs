//! Model test of random commands against a map, with crashes.

use crate::tools::*;
use kedge_types::{Expiry, Seqno, Status, VbUuid};
use kedge_vbucket::{Change, ConcatMode, CounterOp, StepOutcome, StoreMode, VBucket};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Store(u8, StoreMode, Vec<u8>),
    Durable(u8, Vec<u8>, bool),
    Append(u8, Vec<u8>),
    Delete(u8),
    Count(u8),
    Log(usize),
    Crash,
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || proptest::collection::vec(b'0'..=b'9', 1..6);
    let mode = prop_oneof![
        Just(StoreMode::Set),
        Just(StoreMode::Add),
        Just(StoreMode::Replace)
    ];
    let step = prop_oneof![
        6 => (0u8..6, mode, bytes()).prop_map(|(key, mode, bytes)| Step::Store(key, mode, bytes)),
        4 => (0u8..6, bytes(), any::<bool>()).prop_map(|(key, bytes, persist)| Step::Durable(key, bytes, persist)),
        2 => (0u8..6, bytes()).prop_map(|(key, bytes)| Step::Append(key, bytes)),
        3 => (0u8..6).prop_map(Step::Delete),
        2 => (0u8..6).prop_map(Step::Count),
        4 => (0usize..5).prop_map(Step::Log),
        1 => Just(Step::Crash),
        1 => Just(Step::Reset),
    ];
    proptest::collection::vec(step, 1..80)
}

/// The expected documents, and the log that a crash leaves.
#[derive(Default)]
struct Model {
    documents: BTreeMap<u8, Vec<u8>>,
    /// The open prepares in order: key, value, persistence requirement, seqno.
    prepared: Vec<(u8, Vec<u8>, bool, Seqno)>,
    log: Vec<Change>,
    last_seqno: Seqno,
}

fn name(key: u8) -> String {
    format!("key-{key}")
}

impl Model {
    fn is_prepared(&self, key: u8) -> bool {
        self.prepared.iter().any(|(other, ..)| *other == key)
    }

    /// Commits prepares in order as far as they are ready.
    fn resolve(&mut self, persisted: Seqno) {
        while let Some((key, bytes, persist, seqno)) = self.prepared.first().cloned() {
            if persist && seqno > persisted {
                return;
            }
            self.prepared.remove(0);
            self.documents.insert(key, bytes);
        }
    }

    fn step(&mut self, vb: &mut VBucket, step: &Step) {
        let now = at(1);
        match step {
            Step::Store(id, mode, bytes) => {
                let key = key(&name(*id));
                let result = store(vb, now, &write(&key), *mode, bytes);
                let there = self.documents.contains_key(id);
                let expected = match mode {
                    _ if self.is_prepared(*id) => Some(Status::SyncWriteInProgress),
                    StoreMode::Add if there => Some(Status::KeyExists),
                    StoreMode::Replace if !there => Some(Status::KeyNotFound),
                    _ => None,
                };
                assert_eq!(result.err(), expected);
                if expected.is_none() {
                    self.documents.insert(*id, bytes.clone());
                }
            }
            Step::Durable(id, bytes, persist) => {
                let key = key(&name(*id));
                let level = level(*persist);
                let result = store(vb, now, &durable(&key, level, 1), StoreMode::Set, bytes);
                if self.is_prepared(*id) {
                    assert_eq!(result, Err(Status::SyncWriteInProgress));
                } else {
                    let at_once = self.prepared.is_empty() && !persist;
                    assert_eq!(
                        matches!(result, Ok(StepOutcome::Done(_))),
                        at_once,
                        "{result:?}"
                    );
                    let seqno = if at_once {
                        vb.high_seqno()
                    } else {
                        vb.high_seqno().max(Seqno(1))
                    };
                    self.prepared.push((*id, bytes.clone(), *persist, seqno));
                    self.resolve(vb.persisted_seqno());
                }
            }
            Step::Append(id, bytes) => {
                let key = key(&name(*id));
                let result = vb.at(now).concat(&write(&key), ConcatMode::Append, bytes);
                match self.documents.get_mut(id) {
                    _ if self.prepared.iter().any(|(other, ..)| other == id) => {
                        assert_eq!(result, Err(Status::SyncWriteInProgress));
                    }
                    Some(value) => value.extend(bytes),
                    None => assert_eq!(result, Err(Status::NotStored)),
                }
            }
            Step::Delete(id) => {
                let key = key(&name(*id));
                let result = vb.at(now).delete(&write(&key));
                if self.is_prepared(*id) {
                    assert_eq!(result, Err(Status::SyncWriteInProgress));
                } else {
                    assert_eq!(result.is_ok(), self.documents.remove(id).is_some());
                }
            }
            Step::Count(id) => {
                let key = key(&name(*id));
                let op = CounterOp {
                    negative: false,
                    delta: 3,
                    initial: Some(1),
                    expiry: Expiry::NEVER,
                };
                let result = vb.at(now).arithmetic(&write(&key), &op);
                if self.is_prepared(*id) {
                    assert_eq!(result, Err(Status::SyncWriteInProgress));
                    return;
                }
                let there = self
                    .documents
                    .get(id)
                    .map(|value| String::from_utf8(value.clone()).unwrap());
                match there.map(|text| text.parse::<u64>()) {
                    Some(Err(_)) => assert_eq!(result, Err(Status::DeltaBadValue)),
                    other => {
                        let expected = other.map_or(1, |number| number.unwrap().wrapping_add(3));
                        assert_eq!(done(result.unwrap()).1, expected);
                        self.documents
                            .insert(*id, expected.to_string().into_bytes());
                    }
                }
            }
            Step::Log(max) => {
                let to = vb.changes().for_log(*max, usize::MAX, &mut self.log);
                vb.on_logged(to);
                self.resolve(vb.persisted_seqno());
            }
            Step::Crash => self.crash(vb),
            Step::Reset => {
                vb.reset(VbUuid(77));
                self.documents.clear();
                self.prepared.clear();
                self.last_seqno = Seqno(0);
            }
        }
    }

    /// Recovers from the log alone. The model adopts the recovered documents.
    fn crash(&mut self, vb: &mut VBucket) {
        let mut again = vbucket();
        for change in &self.log {
            again.recovery().replay(change.clone()).unwrap();
        }
        again.recovery().finish(Some(VbUuid(99))).unwrap();
        self.documents.clear();
        for item in again.table().iter().filter(|item| !item.is_deleted()) {
            let id = item.key().last().unwrap() - b'0';
            self.documents.insert(id, item.value().to_vec());
        }
        self.prepared.clear();
        self.last_seqno = again.high_seqno();
        *vb = again;
    }

    fn check(&mut self, vb: &mut VBucket) {
        drop(vb.take_effects());
        for id in 0..6 {
            assert_eq!(
                get(vb, at(1), &name(id)).ok().as_ref(),
                self.documents.get(&id),
                "key {id}"
            );
        }
        assert_eq!(vb.documents().count(), self.documents.len());
        assert!(vb.high_seqno() >= self.last_seqno, "seqnos only grow");
        assert!(
            vb.persisted_seqno() <= vb.high_seqno()
                && vb.history().visible_seqno() <= vb.high_seqno()
        );
        self.last_seqno = vb.high_seqno();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn behaves_like_a_map(steps in steps()) {
        let mut vb = vbucket();
        let mut model = Model::default();
        for step in &steps {
            model.step(&mut vb, step);
            model.check(&mut vb);
        }
        // Everything is recovered if all of it is logged.
        model.step(&mut vb, &Step::Log(usize::MAX));
        model.step(&mut vb, &Step::Log(usize::MAX));
        let before = model.documents.clone();
        model.step(&mut vb, &Step::Crash);
        prop_assert_eq!(before, model.documents);
    }
}
