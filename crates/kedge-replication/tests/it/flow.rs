//! Flow control, NOOPs, and ends that are gone.

use crate::pair::{Pair, SECOND_NS, consumer_config};
use crate::script::{Script, document, memory, stream};
use kedge_replication::{ConsumerConfig, Disconnect, FillResult};
use kedge_types::VbId;

/// Bytes of the message of a document, key and value as the script makes them: header, extras, key, value.
const DOCUMENT_BYTES: u64 = 24 + 31 + 2 + 7;
/// Bytes of a marker of version 2.0.
const MARKER_BYTES: u64 = 24 + 1 + 36;

fn pair_with(documents: u64, buffer_bytes: u32) -> Pair {
    let mut script = Script::new();
    script.say(stream(0), [memory(1, documents, documents)]);
    script.say(stream(0), (1..=documents).map(|seqno| document(seqno, "k")));
    let config = ConsumerConfig {
        buffer_bytes,
        ..consumer_config()
    };
    let mut pair = Pair::with(script, &config);
    pair.add_stream(0, 0);
    pair
}

#[test]
fn flow_control_window_is_exceeded_by_at_most_one_frame() {
    for buffer_bytes in [1, 60, 61, 62, 125, 500] {
        let mut pair = pair_with(9, buffer_bytes);
        pair.consumes = false;
        pair.run().unwrap();
        let sent = pair.producer().figures().unacknowledged;
        assert_eq!(sent, pair.unconsumed as u64, "both count the same");
        assert_eq!(pair.filled, FillResult::WindowFull);
        let over = sent - u64::from(buffer_bytes);
        assert!(
            over < MARKER_BYTES.max(DOCUMENT_BYTES),
            "{buffer_bytes} {sent}"
        );
        assert!(!pair.producer().has_ready());
    }
}

#[test]
fn buffer_ack_reopens_the_flow_control_window() {
    let mut pair = pair_with(9, 200);
    pair.consumes = false;
    pair.run().unwrap();
    let first = pair.unconsumed;
    assert_eq!(first as u64, MARKER_BYTES + 3 * DOCUMENT_BYTES);
    // Less than a fifth of the buffer waits for more, or for 5 seconds.
    let acknowledge = |pair: &mut Pair, bytes: usize| {
        let out = &mut pair.to_producer;
        pair.consumer.consumed(pair.now_ns, bytes, out);
        pair.unconsumed -= bytes;
    };
    acknowledge(&mut pair, 39);
    pair.run().unwrap();
    assert_eq!(pair.unconsumed, first - 39);
    acknowledge(&mut pair, 30);
    pair.run().unwrap();
    let unacknowledged = pair.producer().figures().unacknowledged as usize;
    assert_eq!(unacknowledged, pair.unconsumed);
    assert_eq!(pair.unconsumed, first - 69 + DOCUMENT_BYTES as usize);
    acknowledge(&mut pair, 10);
    pair.run().unwrap();
    let deadline = pair.consumer.next_deadline_ns();
    assert_eq!(deadline, 5 * SECOND_NS);
    pair.now_ns = deadline;
    pair.consumer
        .on_time(pair.now_ns, &mut pair.to_producer)
        .unwrap();
    pair.run().unwrap();
    assert_eq!(
        pair.producer().figures().unacknowledged as usize,
        pair.unconsumed
    );
    // Everything arrives in the end.
    pair.consumes = true;
    let rest = pair.unconsumed;
    acknowledge(&mut pair, rest);
    for _ in 0..20 {
        pair.run().unwrap();
        pair.tick(5 * SECOND_NS);
    }
    pair.run().unwrap();
    assert_eq!(pair.events.len(), 2 + 9);
    assert_eq!(pair.producer().figures().unacknowledged, 0);
    assert_eq!(pair.filled, FillResult::Idle);
}

#[test]
fn stuck_consumer_is_disconnected() {
    let mut pair = pair_with(9, 100);
    pair.consumes = false;
    pair.now_ns = SECOND_NS;
    pair.run().unwrap();
    assert_eq!(pair.filled, FillResult::WindowFull);
    let mut deadline = 0;
    // NOOPs are answered, and change nothing.
    for _ in 0..1_000 {
        deadline = pair.producer().next_deadline_ns().unwrap();
        pair.now_ns = deadline;
        let (now, out) = (pair.now_ns, &mut pair.to_consumer);
        let producer = pair.producer.as_mut().unwrap();
        if let Err(why) = producer.on_time(now, out) {
            assert_eq!(why, Disconnect::Stuck);
            break;
        }
        pair.run().unwrap();
    }
    assert_eq!(deadline, 721 * SECOND_NS);
}

#[test]
fn idle_connection_gets_a_noop_and_is_closed_without_a_reply() {
    let mut pair = pair_with(1, 1_000);
    pair.run().unwrap();
    assert!(pair.producer().figures().noop_enabled);
    for round in 1..=3 {
        let deadline = pair.producer().next_deadline_ns().unwrap();
        assert_eq!(deadline, round * 20 * SECOND_NS);
        pair.now_ns = deadline;
        let producer = pair.producer.as_mut().unwrap();
        producer
            .on_time(pair.now_ns, &mut pair.to_consumer)
            .unwrap();
        assert_eq!(pair.to_consumer.len(), 24, "a NOOP");
        pair.run().unwrap();
    }
    // Neither end hears the other any more.
    let mut lost = Vec::new();
    pair.now_ns = 80 * SECOND_NS;
    let producer = pair.producer.as_mut().unwrap();
    producer.on_time(pair.now_ns, &mut lost).unwrap();
    assert_eq!(lost.len(), 24);
    let deadline = producer.next_deadline_ns().unwrap();
    assert_eq!(deadline, (80 + 360) * SECOND_NS);
    assert_eq!(producer.on_time(deadline - 1, &mut lost), Ok(()));
    let gone = producer.on_time(deadline, &mut lost);
    assert_eq!(gone, Err(Disconnect::Silent));
    assert_eq!(lost.len(), 24, "it is not asked again");
    let consumer = &mut pair.consumer;
    let mut acks = Vec::new();
    let deadline = (60 + 2 * 20) * SECOND_NS;
    consumer.on_time(deadline - 1, &mut acks).unwrap();
    assert_eq!(consumer.next_deadline_ns(), deadline);
    let gone = consumer.on_time(deadline, &mut acks);
    assert_eq!(gone, Err(Disconnect::Silent));
}

#[test]
fn consumer_that_stops_reading_does_not_time_out() {
    let mut pair = pair_with(1, 1_000);
    pair.run().unwrap();
    let consumer = &mut pair.consumer;
    let mut out = Vec::new();
    for round in 1..=10 {
        let now = round * 30 * SECOND_NS;
        consumer.not_reading(now);
        assert_eq!(consumer.on_time(now + SECOND_NS, &mut out), Ok(()));
    }
    let gone = consumer.on_time(340 * SECOND_NS, &mut out);
    assert_eq!(gone, Err(Disconnect::Silent));
}

#[test]
fn sent_message_postpones_the_noop() {
    let mut pair = pair_with(1, 1_000);
    pair.run().unwrap();
    pair.now_ns = 15 * SECOND_NS;
    pair.script
        .say(stream(0), [memory(2, 2, 2), document(2, "k")]);
    pair.producer().ready(VbId(0));
    pair.run().unwrap();
    let deadline = pair.producer().next_deadline_ns();
    assert_eq!(deadline, Some(35 * SECOND_NS));
}

#[test]
fn output_room_is_exceeded_by_at_most_one_frame() {
    let mut pair = pair_with(9, 1 << 20);
    pair.run().unwrap();
    pair.script.say(stream(0), [memory(10, 19, 19)]);
    pair.script
        .say(stream(0), (10..20).map(|seqno| document(seqno, "k")));
    pair.producer().ready(VbId(0));
    let producer = pair.producer.as_mut().unwrap();
    let mut sizes = Vec::new();
    for _ in 0..20 {
        let mut out = Vec::new();
        let filled = producer.fill(0, &mut pair.script, &mut out, 100);
        sizes.push(out.len());
        if filled == FillResult::Idle {
            break;
        }
        assert_eq!(filled, FillResult::NoRoom);
    }
    let most = 100 + DOCUMENT_BYTES as usize + 1;
    assert!(sizes.iter().all(|size| *size < most), "{sizes:?}");
    let all: usize = sizes.iter().sum();
    assert_eq!(all as u64, MARKER_BYTES + 10 * (DOCUMENT_BYTES + 1));
}
