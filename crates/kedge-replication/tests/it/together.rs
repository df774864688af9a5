//! Both ends together.

use crate::pair::{Answer, Pair, SECOND_NS, consumer_config, history, resume};
use crate::script::{Script, abort, commit, disk, document, memory, prepare, stream, tombstone};
use kedge_replication::{
    ConsumerConfig, ConsumerEvent, Disconnect, EndReason, FillResult, ProducerAction, StreamFlags,
    StreamItem,
};
use kedge_types::{Datatype, Seqno, Status, VbId, XattrsBuf};
use kedge_vbucket::{Change, Deletion, Item, ItemMeta, Received, VbState};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

/// All that a stream can say, and what the consumer makes of it.
fn everything() -> (Vec<StreamItem>, Vec<&'static str>) {
    let items = vec![
        disk(1, 4, 4),
        document(1, "a"),
        tombstone(2, "b", Deletion::Explicit),
        tombstone(4, "c", Deletion::Expired),
        memory(5, 6, 5),
        document(5, "a"),
        prepare(6, "d"),
        memory(7, 9, 7),
        commit(6, 7, "d"),
        prepare(8, "d"),
        abort(8, 9, "d"),
        disk(10, 20, 11),
        document(11, "e"),
        StreamItem::SeqnoAdvanced(Seqno(20)),
    ];
    let events = vec![
        "3 begins, 2 branches",
        "3 disk 1..4",
        r"3 1 sets \x00a value 1",
        r"3 2 deletes \x00b",
        r"3 4 deletes \x00c",
        "3 memory 5..6",
        r"3 5 sets \x00a value 5",
        r"3 6 prepares \x00d prepared 6",
        "3 memory 7..9",
        r"3 7 commits \x00d 6",
        r"3 8 prepares \x00d prepared 8",
        r"3 9 aborts \x00d 8",
        "3 disk 10..20",
        r"3 11 sets \x00e value 11",
        "3 20 advances",
        "3 ended Ok",
    ];
    (items, events)
}

fn pair_with_everything() -> (Pair, Vec<&'static str>) {
    let (items, events) = everything();
    let mut script = Script::new();
    script.say(stream(3), items);
    script.end(stream(3), EndReason::Ok);
    let mut pair = Pair::new(script);
    pair.add_stream(3, 0);
    (pair, events)
}

#[test]
fn stream_arrives_unchanged_for_any_split_of_the_bytes() {
    let (mut pair, events) = pair_with_everything();
    pair.check(&events);
    assert!(pair.consumer.is_open());
    assert!(!pair.consumer.has_stream(VbId(3)));
    let figures = pair.producer().figures();
    assert_eq!((figures.streams, figures.items), (0, 9));
    assert_eq!(figures.bytes, pair.consumer.figures().bytes);
    for cut in (1..200).chain([1_000]) {
        let (mut pair, events) = pair_with_everything();
        pair.cuts = vec![cut];
        pair.check(&events);
    }
}

proptest! {
    /// Cuts, room and the size of what the source gives at once change nothing.
    #[test]
    fn received_events_do_not_depend_on_the_split_of_the_bytes(
        cuts in prop::collection::vec(1_usize..300, 1..20),
        step in 1_usize..20,
        room in 1_usize..500,
        buffer_bytes in 1_u32..2_000,
    ) {
        let (items, events) = everything();
        let mut script = Script::new();
        script.step = step;
        script.say(stream(3), items);
        script.end(stream(3), EndReason::Ok);
        let config = ConsumerConfig { buffer_bytes, ..consumer_config() };
        let mut pair = Pair::with(script, &config);
        pair.cuts = cuts;
        pair.room = room;
        pair.add_stream(3, 0);
        // What the consumer has not acknowledged yet it does in time.
        for _ in 0..100 {
            pair.run().unwrap();
            pair.tick(5 * SECOND_NS);
        }
        prop_assert_eq!(&pair.events, &events);
    }
}

/// The same with attributes of the system and of users in front of the body.
fn with_xattrs(of: StreamItem) -> StreamItem {
    let mut xattrs = XattrsBuf::default();
    xattrs.set(b"_sys", b"1");
    xattrs.set(b"user", b"2");
    let with = |item: &Item| {
        let meta = ItemMeta {
            datatype: item.datatype().union(Datatype::XATTR),
            ..item.meta()
        };
        Item::new(&meta, item.key(), &[&xattrs.section(), item.value()])
    };
    match of {
        StreamItem::Change(Change::Document(item)) => {
            StreamItem::Change(Change::Document(with(&item)))
        }
        StreamItem::Change(Change::Prepare(item)) => {
            StreamItem::Change(Change::Prepare(with(&item)))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn documents_arrive_unchanged() {
    let mut script = Script::new();
    let items = [
        memory(1, 8, 7),
        document(1, "a"),
        tombstone(2, "b", Deletion::Explicit),
        tombstone(3, "c", Deletion::Expired),
        prepare(4, "d"),
        with_xattrs(document(5, "e")),
        with_xattrs(tombstone(6, "f", Deletion::Explicit)),
        with_xattrs(tombstone(7, "g", Deletion::Expired)),
        with_xattrs(prepare(8, "h")),
    ];
    let changes = items.iter().filter_map(|item| match item {
        StreamItem::Change(change) => change.item().cloned(),
        _ => None,
    });
    let sent: Vec<Item> = changes.collect();
    script.say(stream(0), items.clone());
    let mut pair = Pair::new(script);
    pair.add_stream(0, 0);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let see = Rc::clone(&seen);
    pair.run_seeing(move |event| {
        if let ConsumerEvent::Received {
            received: Received::Document(item) | Received::Prepare(item),
            ..
        } = event
        {
            see.borrow_mut().push(item.clone());
        }
    });
    let seen = seen.borrow();
    assert_eq!(seen.len(), sent.len());
    for (seen, sent) in seen.iter().zip(&sent) {
        // A deletion does not carry the client's flags.
        let flags = if sent.is_deleted() { 0 } else { sent.flags() };
        let expected = ItemMeta {
            flags,
            ..sent.meta()
        };
        assert_eq!(seen.meta(), expected);
        assert_eq!((seen.key(), seen.value()), (sent.key(), sent.value()));
    }
}

#[test]
fn consumer_reports_rollbacks_and_refused_streams() {
    let mut script = Script::new();
    script.say(stream(1), [memory(6, 6, 6), document(6, "a")]);
    let mut pair = Pair::new(script);
    pair.answers.insert(VbId(1), Answer::Rollback(5));
    pair.answers
        .insert(VbId(2), Answer::Refuse(Status::NotMyVbucket));
    pair.add_stream(1, 9);
    pair.add_stream(2, 9);
    pair.check(&["1 back to 5", "2 refused 0x7"]);
    assert!(!pair.consumer.has_stream(VbId(1)));
    pair.answers.clear();
    pair.add_stream(1, 5);
    pair.check(&[
        "1 begins, 2 branches",
        "1 memory 6..6",
        r"1 6 sets \x00a value 6",
    ]);
    let request = pair.requests.last().unwrap();
    assert_eq!((request.start, request.sync_writes), (Seqno(5), true));
}

#[test]
fn takeover_waits_for_each_set_vbucket_state_reply() {
    let mut script = Script::new();
    let items = [
        memory(1, 1, 1),
        document(1, "a"),
        StreamItem::State(VbState::Pending),
        memory(2, 2, 2),
        document(2, "a"),
        StreamItem::State(VbState::Active),
    ];
    script.say(stream(0), items);
    script.end(stream(0), EndReason::Ok);
    let mut pair = Pair::new(script);
    let out = &mut pair.to_producer;
    pair.consumer
        .add_stream(VbId(0), &resume(0), StreamFlags::TAKEOVER, out);
    pair.check(&[
        "0 begins, 2 branches",
        "0 memory 1..1",
        r"0 1 sets \x00a value 1",
        "0 becomes Pending",
        "0 memory 2..2",
        r"0 2 sets \x00a value 2",
        "0 becomes Active",
        "0 ended Ok",
    ]);
    let id = stream(0);
    let answered = [VbState::Pending, VbState::Active]
        .map(|state| ProducerAction::TakeoverAnswered { stream: id, state });
    assert_eq!(&pair.todos[1..], answered);
    assert_eq!(pair.requests[0].flags, StreamFlags::TAKEOVER);
}

#[test]
fn refused_takeover_disconnects() {
    let mut script = Script::new();
    script.say(stream(0), [StreamItem::State(VbState::Pending)]);
    let mut pair = Pair::new(script);
    let out = &mut pair.to_producer;
    pair.consumer
        .add_stream(VbId(0), &resume(0), StreamFlags::TAKEOVER, out);
    pair.run_seeing(|_| ());
    let out = &mut pair.to_producer;
    pair.consumer
        .state_is_set(VbId(0), Status::NotMyVbucket, out);
    let refused = Disconnect::Refused {
        opcode: 0x5b,
        status: 7,
    };
    assert_eq!(pair.run(), Err(refused));
}

#[test]
fn consumer_accepts_only_requested_takeovers_in_order() {
    for (flags, state, status) in [
        (StreamFlags::default(), VbState::Pending, 0x83),
        (StreamFlags::default(), VbState::Active, 0x83),
        (StreamFlags::TAKEOVER, VbState::Active, 4),
        (StreamFlags::TAKEOVER, VbState::Dead, 4),
    ] {
        let mut script = Script::new();
        script.say(stream(0), [StreamItem::State(state)]);
        let mut pair = Pair::new(script);
        let out = &mut pair.to_producer;
        pair.consumer.add_stream(VbId(0), &resume(0), flags, out);
        let refused = Disconnect::Refused {
            opcode: 0x5b,
            status,
        };
        assert_eq!(pair.run(), Err(refused), "{flags:?} {state:?}");
    }
}

#[test]
fn seqno_acks_reach_the_producer() {
    let mut script = Script::new();
    script.say(stream(0), [memory(1, 1, 0), prepare(1, "a")]);
    let mut pair = Pair::new(script);
    let nothing = pair.to_producer.len();
    pair.consumer
        .acknowledge(VbId(0), Seqno(1), &mut pair.to_producer);
    assert_eq!(pair.to_producer.len(), nothing, "there is no stream");
    pair.add_stream(0, 0);
    pair.run().unwrap();
    pair.consumer
        .acknowledge(VbId(0), Seqno(1), &mut pair.to_producer);
    pair.run().unwrap();
    let ack = ProducerAction::Acknowledge {
        vb: VbId(0),
        prepared: Seqno(1),
    };
    assert_eq!(pair.todos.last(), Some(&ack));
    let name = pair.producer().consumer_name().map(ToString::to_string);
    assert_eq!(name.as_deref(), Some("n_1"));
    assert_eq!(pair.producer().name(), b"replication:n_0->n_1:default");
}

#[test]
fn closed_stream_returns_no_more_events() {
    let mut script = Script::new();
    script.say(stream(0), [memory(1, 2, 2), document(1, "a")]);
    let mut pair = Pair::new(script);
    pair.add_stream(0, 0);
    pair.check(&[
        "0 begins, 2 branches",
        "0 memory 1..2",
        r"0 1 sets \x00a value 1",
    ]);
    // The rest is on its way when the consumer closes the stream; an acknowledgement crosses too.
    pair.script.say(stream(0), [document(2, "a")]);
    pair.producer().ready(VbId(0));
    let now = pair.now_ns;
    let producer = pair.producer.as_mut().unwrap();
    producer.fill(now, &mut pair.script, &mut pair.to_consumer, 1 << 20);
    pair.consumer
        .acknowledge(VbId(0), Seqno(1), &mut pair.to_producer);
    assert!(pair.consumer.close_stream(VbId(0), &mut pair.to_producer));
    assert!(!pair.consumer.close_stream(VbId(0), &mut pair.to_producer));
    pair.check(&[]);
    assert_eq!(
        pair.todos.last(),
        Some(&ProducerAction::CloseStream(stream(0)))
    );
    // A new stream of the vBucket is another.
    pair.script
        .say(stream(0), [memory(2, 2, 2), document(2, "a")]);
    pair.add_stream(0, 1);
    pair.check(&[
        "0 begins, 2 branches",
        "0 memory 2..2",
        r"0 2 sets \x00a value 2",
    ]);
    // What was forgotten counts all the same.
    let unacknowledged = pair.producer().figures().unacknowledged;
    assert_eq!(unacknowledged, pair.consumer.figures().unacknowledged);
}

/// The pair's producer follows a map of epoch 5.
#[test]
fn nodes_with_maps_of_different_epochs_replicate_nothing() {
    for (epoch, ends) in [(4, true), (5, false), (6, true)] {
        let config = ConsumerConfig {
            map_epoch: Some(epoch),
            ..consumer_config()
        };
        let mut script = Script::new();
        script.say(stream(0), [memory(1, 1, 1), document(1, "a")]);
        let mut pair = Pair::with(script, &config);
        pair.add_stream(0, 0);
        let run = pair.run();
        assert_eq!(run == Err(Disconnect::OtherEpoch), ends, "{epoch}: {run:?}");
        assert_eq!(pair.requests.is_empty(), ends, "{epoch}");
    }
}

#[test]
fn long_connection_name_is_shortened_to_its_end() {
    let name = format!("replication:{}->n_1:default", "n".repeat(300));
    let end = name.as_bytes()[name.len() - 200..].to_vec();
    let config = ConsumerConfig {
        name,
        ..consumer_config()
    };
    let mut pair = Pair::with(Script::new(), &config);
    pair.run().unwrap();
    assert_eq!(pair.producer().name(), end);
}

#[test]
fn streams_are_served_round_robin() {
    let mut script = Script::new();
    for vb in 0..3 {
        let documents = (1..=500).map(|seqno| document(seqno, "k"));
        script.say(stream(vb), [memory(1, 500, 500)]);
        script.say(stream(vb), documents);
    }
    let mut pair = Pair::new(script);
    (0..3).for_each(|vb| pair.add_stream(vb, 0));
    pair.run().unwrap();
    let of = |pair: &Pair, vb: u16| {
        let prefix = format!("{vb} ");
        let events = pair.events.iter().enumerate();
        let mine = events.filter(|(_, event)| event.starts_with(&prefix));
        mine.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let ends = [0, 1, 2].map(|vb| *of(&pair, vb).last().unwrap());
    let begins = [0, 1, 2].map(|vb| of(&pair, vb)[1]);
    assert!(
        begins.iter().max() < ends.iter().min(),
        "{begins:?} {ends:?}"
    );
    assert_eq!(pair.filled, FillResult::Idle);
    assert_eq!(history().entries().len(), 2);
}
