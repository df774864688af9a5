//! Tests of retrievals against a source that parks documents and completes them in the order of the test.

use std::collections::HashMap;

use kedge_protocol::binary::Features;
use proptest::prelude::*;

use super::*;
use crate::inbox::Port;
use crate::session::Halt;
use crate::session::tests::{Rig, item, read, turn};

/// A source whose result for a key depends on its first letter: `m`emory, `n`othing, `d`isk, `v`oid on disk, `f`ailure,
/// `e`rror of the disk.
struct Source {
    /// Slot and key of parked documents, in the order of requests.
    parked: Vec<(u8, String)>,
    most: usize,
}

fn document(key: &str) -> RetrievalState {
    RetrievalState::Document(item(key, key.as_bytes()), Cas(1))
}

impl Source {
    fn look(
        &mut self,
        session: &mut Session,
        turn: &mut SessionTurn<'_>,
        key: &[u8],
    ) -> Result<RetrievalState, Status> {
        let key = String::from_utf8(key.to_vec()).unwrap();
        match key.as_bytes()[0] {
            b'm' => Ok(document(&key)),
            b'n' => Ok(RetrievalState::Missing),
            b'f' => Err(Status::TemporaryFailure),
            _ => {
                let found = park(session, turn, 0);
                let RetrievalState::Parked(slot) = found else {
                    unreachable!("it was parked");
                };
                self.parked.push((slot, key));
                self.most = self.most.max(self.parked.len());
                Ok(found)
            }
        }
    }

    fn completion(key: &str) -> Completion {
        let failed = |status| Completion::Read {
            result: Err(status),
        };
        match key.as_bytes()[0] {
            b'v' => failed(Status::KeyNotFound),
            b'e' => failed(Status::TemporaryFailure),
            _ => read(key, key.as_bytes()),
        }
    }
}

/// Requests as many documents of the retrieval as fit its window, and answers those that are there.
fn ask(rig: &mut Rig, source: &mut Source, retrieval: Box<Retrieval>) {
    go_on(
        &mut rig.session,
        &mut turn(&rig.shared, &mut rig.flush_requests),
        retrieval,
        &mut rig.out,
        |session, turn, _, key| source.look(session, turn, key),
    );
}

/// Runs a retrieval of `keys`; `pick` chooses the parked document that is completed next. Returns the reply, and the
/// largest number of documents parked at a time.
fn run(keys: &[String], window: usize, mut pick: impl FnMut(usize) -> usize) -> (String, usize) {
    let mut rig = Rig::new(Port::Memcached, Features::NONE);
    let mut source = Source {
        parked: Vec::new(),
        most: 0,
    };
    rig.give(b"mn\r\n");
    rig.fresh();
    let retrieval = Box::new(Retrieval {
        with_cas: false,
        touch: None,
        window,
        start_ns: 0,
        parts: VecDeque::new(),
        rest: keys.iter().map(|key| key.as_bytes().into()).collect(),
        failed: None,
        needs_task: false,
    });
    ask(&mut rig, &mut source, retrieval);
    let mut replies = Vec::new();
    while rig.session.text.retrieval.is_some() {
        if source.parked.is_empty() {
            // It paused, as the output was above its limit.
            assert!(rig.out.queued() > rig.shared.limits.queued_bytes_max);
            assert!(rig.session.has_long_answer());
            replies.extend(rig.fresh());
            rig.send();
            let retrieval = rig.session.text.retrieval.take().unwrap();
            ask(&mut rig, &mut source, retrieval);
            continue;
        }
        assert_eq!(rig.give(b"mn\r\n"), Halt::Parked, "nothing overtakes");
        rig.waiting.clear();
        let (slot, key) = source.parked.swap_remove(pick(source.parked.len()));
        let request = rig.session.in_flight.take(slot).unwrap();
        assert!(matches!(request.kind, ReplyKind::TextDocument));
        let mut retrieval = rig.session.text.retrieval.take().unwrap();
        retrieval.arrived(slot, Source::completion(&key));
        ask(&mut rig, &mut source, retrieval);
    }
    assert_eq!(rig.session.in_flight(), 0);
    replies.extend(rig.fresh());
    (String::from_utf8(replies).unwrap(), source.most)
}

fn value(key: &str) -> String {
    format!("VALUE {key} 5 {}\r\n{key}\r\n", key.len())
}

#[test]
fn documents_are_answered_in_request_order() {
    let keys = ["d1", "m2", "v3", "d4", "n5", "d6"].map(str::to_owned);
    let expected = ["d1", "m2", "d4", "d6"].map(value).concat() + "END\r\n";
    assert_eq!(run(&keys, 32, |_| 0), (expected.clone(), 4));
    assert_eq!(run(&keys, 32, |count| count - 1), (expected.clone(), 4));
    assert_eq!(run(&keys, 1, |_| 0), (expected, 1), "one by one");
}

#[test]
fn failure_ends_the_reply_and_waits_for_requested_documents() {
    let keys = ["m1", "d2", "e3", "d4"].map(str::to_owned);
    let error = "SERVER_ERROR temporary failure\r\n";
    let (reply, most) = run(&keys, 32, |_| 0);
    assert_eq!(most, 3);
    assert_eq!(reply, value("m1") + &value("d2") + error);
    let (reply, _) = run(&keys, 32, |count| count - 1);
    assert_eq!(reply, value("m1") + error, "the failure came before d2");
    let keys = ["m1", "d2", "f3", "d4"].map(str::to_owned);
    let (reply, most) = run(&keys, 32, |_| 0);
    assert_eq!(most, 1, "nothing is asked for behind a failure");
    assert_eq!(reply, value("m1") + error);
}

#[test]
fn retrieval_uses_at_most_all_slots() {
    let keys: Vec<String> = (0..1_000).map(|n| format!("d{n}")).collect();
    let (reply, most) = run(&keys, UNORDERED_COMMANDS_MAX, |count| count / 2);
    assert_eq!(most, UNORDERED_COMMANDS_MAX);
    let expected: String = keys.iter().map(|key| value(key)).collect();
    assert_eq!(reply, expected + "END\r\n");
}

proptest! {
    #[test]
    fn parked_retrieval_replies_like_one_from_memory(
        keys in prop::collection::vec("[mndv][0-9]{1,3}", 1..80),
        window in 1..=UNORDERED_COMMANDS_MAX,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 80),
    ) {
        let mut picks = picks.into_iter();
        let (reply, most) = run(&keys, window, |count| picks.next().unwrap().index(count));
        let known: HashMap<char, bool> = [('m', true), ('d', true), ('n', false), ('v', false)].into();
        let there = keys.iter().filter(|key| known[&key.chars().next().unwrap()]);
        let expected: String = there.map(|key| value(key)).collect();
        prop_assert_eq!(reply, expected + "END\r\n");
        prop_assert!(most <= window);
    }
}
