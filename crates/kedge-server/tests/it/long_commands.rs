//! Tests of offloaded commands: order of replies, documents from disk, disconnects. The opcodes are in
//! `every_opcode.rs`.

use std::io::{BufRead, BufReader, Read as _};
use std::time::Duration;

use kedge_bucket::{Cookie, Ctx, Outcome, Read};
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::subdoc::{DocFlags, PathFlags, SubdocOp, SubdocSpec};
use kedge_types::{Clock, CollectionId, Datatype, DocKey, Status, SystemClock, VbId};

use crate::canary::{Canary, check_turns, is_full};
use crate::client::{Client, SDK_FEATURES, Text};
use crate::evicted::until;
use crate::server::{Kedge, PASSWORD, Setup, USER};
use crate::stats::stat;
use crate::subdoc::{call, spec};

/// Number of offloaded commands.
pub(crate) fn runs(kedge: &Kedge) -> u64 {
    kedge.server().metrics().snapshot().long_commands
}

/// An array of numbers of about this length.
pub(crate) fn array(bytes: usize) -> Vec<u8> {
    let mut text = b"[0".to_vec();
    let mut at = 0_u64;
    while text.len() < bytes {
        at += 1;
        text.extend_from_slice(format!(",{at}").as_bytes());
    }
    text.push(b']');
    text
}

fn lookup(client: &mut Client, key: &str, paths: &[&str]) -> (Status, Vec<u8>) {
    let specs: Vec<SubdocSpec<'_>> = paths
        .iter()
        .map(|path| spec(SubdocOp::Get, PathFlags::NONE, path, ""))
        .collect();
    let reply = call(client, key, DocFlags::NONE, &specs);
    (reply.status, reply.value)
}

#[test]
fn replies_stay_in_order_behind_an_offloaded_command() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let value = array(1 << 20);
    client.set("long", &value).ok();
    let mut sent = Vec::new();
    let mut bytes = Vec::new();
    for round in 0..20 {
        for frame in [
            client.request(Opcode::Set).store("k", &[b'0' + round % 10]),
            client.request(Opcode::Append).key("long").value(b" "),
            client.request(Opcode::Get).key("k"),
            client.request(Opcode::Set).store("long", &value),
            client.request(Opcode::Touch).key("long").extras(&[0; 4]),
        ] {
            sent.push(frame.opaque);
            bytes.extend(frame.bytes());
        }
    }
    std::thread::scope(|scope| {
        let mut stream = client.stream.try_clone().unwrap();
        scope.spawn(move || std::io::Write::write_all(&mut stream, &bytes).unwrap());
        for opaque in sent {
            assert_eq!(client.reply().ok().opaque, opaque);
        }
    });
    assert_eq!(client.get("k").ok().value, b"9");
    assert_eq!(client.get("long").ok().value, value);
}

#[test]
fn large_fetched_documents_are_processed_by_tasks() {
    let kedge = Kedge::with(Setup::default());
    let mut client = kedge.client();
    let value = array(1 << 20);
    client.set("long", &value).ok();
    let bucket = crate::replication::bucket(&kedge);
    bucket.persistence().apply().unwrap();
    crate::evicted::evict_all(&bucket);
    let before = runs(&kedge);
    let (status, _) = lookup(&mut client, "long", &["[0]", "[-1]"]);
    assert_eq!(status, Status::Success);
    assert!(runs(&kedge) > before);
}

#[test]
fn disconnect_while_the_session_is_offloaded() {
    let kedge = Kedge::start();
    let value = array(4 << 20);
    for _ in 0..10 {
        let mut client = kedge.client();
        let set = client.request(Opcode::Set).store("long", &value).bytes();
        client.send(&set);
    }
    let mut client = kedge.client();
    until("they are gone", || {
        stat(&mut client, "").unwrap()["curr_connections"] == "1"
    });
    kedge.stop();
}

#[test]
fn long_text_values_are_offloaded() {
    let kedge = Kedge::start();
    let value = String::from_utf8(array(1 << 20)).unwrap();
    let mut text = kedge.text();
    let before = runs(&kedge);
    text.expect(
        &format!("set long 0 0 {}\r\n{value}\r\nget none\r\n", value.len()),
        "STORED\r\nEND\r\n",
    );
    text.expect("append long 0 0 1\r\n!\r\n", "STORED\r\n");
    text.expect("touch long 0\r\nmn\r\n", "TOUCHED\r\nMN\r\n");
    text.expect(
        "mg long v\r\n",
        &format!("VA {}\r\n{value}!\r\n", value.len() + 1),
    );
    assert!(runs(&kedge) >= before + 4);
}

/// A front-end thread waits for a vBucket that a reader of the test has locked.
#[test]
fn long_turns_are_counted() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("k", b"v").ok();
    let turns = |kedge: &Kedge| kedge.server().metrics().snapshot();
    let bucket = crate::replication::bucket(&kedge);
    let key = DocKey::new(CollectionId::DEFAULT, b"k").unwrap();
    let wanted = Read {
        vb: VbId::of_key(b"k", 16),
        key: &key,
        cookie: Cookie(0),
    };
    let before = turns(&kedge).long_turns;
    until("a long turn was counted", || {
        let get = client.request(Opcode::Get).key("k");
        let ctx = Ctx {
            now: SystemClock::new().now(),
            thread: 0,
        };
        let read = bucket.documents().get(ctx, &wanted, |_| {
            client.send(&get.bytes());
            // sleep: longer than the limit of a turn, which begins when the thread receives the request.
            std::thread::sleep(Duration::from_millis(30));
        });
        assert!(matches!(read, Ok(Outcome::Done(()))));
        client.reply().ok();
        turns(&kedge).long_turns > before
    });
    assert!(turns(&kedge).longest_turn_us > 10_000);
    let of_stat = stat(&mut client, "").unwrap()["event_loop_long_turns"].clone();
    assert!(of_stat.parse::<u64>().unwrap() > before, "{of_stat}");
}

/// Two clients with 16 x `[-1]` in an array of 19 MiB made the median response time of others 4.5 s, and new logins
/// timed out. Tasks execute these lookups, and others are served meanwhile.
#[test]
fn lookups_in_large_arrays_do_not_block_others() {
    const ROUNDS: usize = 10;
    let kedge = Kedge::with(Setup::default());
    let mut writer = kedge.client();
    writer.set("small", b"v").ok();
    let bytes = if is_full() { 19 << 20 } else { 1 << 20 };
    writer.set("long", &array(bytes)).ok();
    let before = runs(&kedge);
    let canary = Canary::default();
    std::thread::scope(|scope| {
        let other = kedge.client();
        scope.spawn(|| canary.run(other, "small"));
        let _over = canary.ends();
        let greedy: Vec<_> = (0..2)
            .map(|_| {
                let mut client = kedge.client();
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let (status, _) = lookup(&mut client, "long", &["[-1]"; 16]);
                        assert_eq!(status, Status::Success);
                    }
                })
            })
            .collect();
        while greedy.iter().any(|thread| !thread.is_finished()) {
            assert_eq!(kedge.client().get("small").ok().value, b"v", "a new login");
        }
    });
    assert!(runs(&kedge) >= before + 2 * ROUNDS as u64);
    check_turns(&kedge, &canary, "16 x [-1] of two clients");
}

/// Reads the answer to a retrieval, and returns the number of its documents.
fn documents_of_retrieval(text: &mut Text, request: &str) -> usize {
    let mut stream = text.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap());
        let mut lines = BufReader::new(&text.stream);
        let mut documents = 0;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            match line.trim_end().split(' ').collect::<Vec<&str>>()[..] {
                ["END"] => {
                    assert!(lines.buffer().is_empty(), "nothing behind the end");
                    return documents;
                }
                ["VALUE", _, _, length, ..] => {
                    let mut value = vec![0; length.parse::<usize>().unwrap() + 2];
                    lines.read_exact(&mut value).unwrap();
                    assert!(value.ends_with(b"\r\n"));
                    documents += 1;
                }
                _ => panic!("{line:?}"),
            }
        }
    })
}

/// A line that names a document of 10 KiB half a million times had all of its answer in memory at once, and a shorter
/// one was answered in one turn.
#[test]
fn long_retrievals_are_answered_in_pieces() {
    const QUEUED_BYTES_MAX: usize = 64 << 10;
    let mut setup = Setup::default();
    setup.limits.queued_bytes_max = QUEUED_BYTES_MAX;
    let kedge = Kedge::with(setup);
    let mut writer = kedge.connect();
    writer.hello(SDK_FEATURES);
    writer.log_in(USER, PASSWORD);
    writer.select("default");
    writer.set("d", &[b'x'; 10 << 10]).ok();
    writer.set("e", b"1").ok();
    let packed = snap::raw::Encoder::new()
        .compress_vec(&array(1 << 20))
        .unwrap();
    let long = writer.request(Opcode::Set).store("long", &packed);
    writer.call(&long.datatype(Datatype::SNAPPY)).ok();
    let continued = || kedge.server().metrics().snapshot().continued_answers;
    let canary = Canary::default();
    std::thread::scope(|scope| {
        let other = kedge.client();
        scope.spawn(|| canary.run(other, "e"));
        let _over = canary.ends();
        let mut text = kedge.text();
        for (keys, documents, bytes) in [
            // 4,000 different keys that are not there, and one that is: a line of 850 KiB. It was received byte by byte, and
            // parsed after each byte, which took a turn of 5 s.
            (
                (0..4_000)
                    .map(|at| format!(" none-{at}-{}", "k".repeat(200)))
                    .chain([" e".to_owned()])
                    .collect::<String>(),
                1,
                0,
            ),
            (" d".repeat(5_000), 5_000, 5_000 * (10 << 10)),
            // Long enough for a task.
            (" e".repeat(200_000), 200_000, 200_000),
            // A task inflates the large document, between pauses.
            (
                " d d d d d d d d long e".repeat(20),
                200,
                20 * 2 * QUEUED_BYTES_MAX,
            ),
        ] {
            let before = continued();
            for command in ["get", "gets", "gat 0"] {
                let request = format!("{command}{keys}\r\n");
                let found = documents_of_retrieval(&mut text, &request);
                assert_eq!(found, documents, "{command}");
            }
            text.expect("mn\r\n", "MN\r\n");
            let pieces = 3 * bytes / (2 * QUEUED_BYTES_MAX);
            assert!(
                continued() - before >= pieces as u64,
                "{documents} documents"
            );
            check_turns(
                &kedge,
                &canary,
                &format!("get, gets, gat of {documents} documents"),
            );
        }
        let statistics = text.until("stats\r\n", "END");
        assert!(statistics.contains("STAT pid "), "{statistics}");
        for group in ["items", "slabs", "sizes", "conns", "settings"] {
            text.until(&format!("stats {group}\r\n"), "END");
            check_turns(&kedge, &canary, &format!("stats {group}"));
        }
        text.expect("ms m 1 T0\r\nx\r\n", "HD\r\n");
        let quiet = "mg none v q\r\n".repeat(4_000);
        text.expect(&format!("{quiet}mn\r\n"), "MN\r\n");
        check_turns(&kedge, &canary, "4,000 meta commands");
    });
}
