//! Commands that take long, beside a client whose commands do not.
//!
//! A lookup of 16 times `[-1]` in an array of 19 MiB held up its front-end thread for seconds, and with it every client of the
//! thread: two such clients made the median latency of others 4.5 s, and logins timed out. Tasks execute what is long
//! now, so the test counts their runs; the times are printed, and decide nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kedge_protocol::binary::commands::subdoc::{DocFlags, PathFlags, Spec, SubdocOp};
use kedge_protocol::binary::{Feature, Features, Opcode};
use kedge_types::{Datatype, Status};

use crate::client::{Client, Frame};
use crate::evicted::until;
use crate::server::{Kedge, Setup};
use crate::stats::stat;
use crate::subdoc::{call, spec};

/// Without Snappy, and as SDKs with it.
const PLAIN: Features = Features::of(&[Feature::Xerror, Feature::Json, Feature::Xattr]);

/// How often a task executed a command.
fn runs(kedge: &Kedge) -> u64 {
    let kinds = kedge.server().pools().executor().kinds();
    let long = kinds.iter().find(|kind| kind.kind.name() == "long_command");
    long.map_or(0, |kind| kind.run_time.count)
}

fn plain(kedge: &Kedge) -> Client {
    let mut client = kedge.connect();
    client.hello(PLAIN);
    client.log_in(crate::server::USER, crate::server::PASSWORD);
    client.select("default");
    client
}

/// Megabytes of the documents; 19 with `KEDGE_LONG_COMMANDS=full`, as `make test-long` has it.
fn megabytes() -> usize {
    match std::env::var("KEDGE_LONG_COMMANDS").as_deref() {
        Ok("full") => 19,
        _ => 2,
    }
}

/// An array of numbers, about as long as asked.
fn array(bytes: usize) -> Vec<u8> {
    let mut text = b"[0".to_vec();
    let mut at = 0_u64;
    while text.len() < bytes {
        at += 1;
        text.extend_from_slice(format!(",{at}").as_bytes());
    }
    text.push(b']');
    text
}

/// A client that asks for little, again and again, until it is told to stop. Returns its latencies, sorted.
fn canary(mut client: Client, over: &AtomicBool) -> Vec<Duration> {
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        client.get("small").ok();
        took.push(began.elapsed());
    }
    took.sort_unstable();
    took
}

fn lookup(client: &mut Client, key: &str, paths: &[&str]) -> (Status, Vec<u8>) {
    let specs: Vec<Spec<'_>> = paths
        .iter()
        .map(|path| spec(SubdocOp::Get, PathFlags::NONE, path, ""))
        .collect();
    let reply = call(client, key, DocFlags::NONE, &specs);
    (reply.status, reply.value)
}

/// Every family of commands with documents or requests at its limits; each names itself.
fn everything_long(kedge: &Kedge, client: &mut Client, bytes: usize) -> Vec<&'static str> {
    let mut named = Vec::new();
    let mut before = runs(kedge);
    let mut done = |name: &'static str| {
        // The task's count goes up a moment after its reply was sent.
        until("a task executes it", || runs(kedge) > before);
        before = runs(kedge);
        named.push(name);
    };
    let value = array(bytes);
    client.set("long", &value).ok();
    done("SET");
    let frame = client.request(Opcode::Replace).store("long", &value);
    client.call(&frame).ok();
    done("REPLACE");
    let packed = snap::raw::Encoder::new().compress_vec(&value).unwrap();
    let frame = client.request(Opcode::Set).store("packed", &packed);
    client.call(&frame.datatype(Datatype::SNAPPY)).ok();
    done("SET of a compressed value");
    let mut reader = plain(kedge);
    assert_eq!(reader.get("packed").ok().value, value);
    done("GET by a client without Snappy");
    for opcode in [Opcode::Gat, Opcode::Touch] {
        let frame = client.request(opcode).key("long").extras(&[0; 4]);
        client.call(&frame).ok();
        done(opcode.name());
    }
    let locked = client
        .request(Opcode::GetLocked)
        .key("long")
        .extras(&[0, 0, 0, 9]);
    let cas = client.call(&locked).ok().cas;
    done("GET_LOCKED");
    let unlock = client.request(Opcode::UnlockKey).key("long").cas(cas);
    client.call(&unlock).ok();
    done("UNLOCK_KEY");
    let last = value.rsplit(|byte| *byte == b',').next().unwrap();
    let (status, found) = lookup(client, "long", &["[-1]"; 16]);
    assert_eq!(status, Status::Success);
    assert!(found.ends_with(&last[..last.len() - 1]));
    done("SUBDOC_MULTI_LOOKUP");
    let specs = [spec(SubdocOp::ArrayPushLast, PathFlags::NONE, "", "7")];
    call(client, "long", DocFlags::NONE, &specs).ok();
    done("SUBDOC_MULTI_MUTATION");
    let frame = client.request(Opcode::Append).key("long").value(b" ");
    client.call(&frame).ok();
    done("APPEND");
    let counter = [[0; 8], [0; 8]].concat();
    let frame = client.request(Opcode::Increment).key("packed");
    let frame = frame.extras(&[&counter[..], &[0; 4]].concat());
    assert_eq!(client.call(&frame).status, Status::DeltaBadValue);
    done("INCREMENT");
    let key = Frame::new(Opcode::Get, 1).key("small");
    let one = [
        &key.vb.to_be_bytes(),
        &6_u16.to_be_bytes(),
        b"\0small".as_slice(),
    ]
    .concat();
    let observe = client.request(Opcode::Observe).value(&one.repeat(5_000));
    assert_eq!(
        client.call(&observe).ok().value.len(),
        5_000 * (one.len() + 9)
    );
    done("OBSERVE");
    named
}

#[test]
fn long_commands_are_executed_by_tasks_beside_a_canary() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("small", b"v").ok();
    let before = runs(&kedge);
    client.get("small").ok();
    assert_eq!(runs(&kedge), before, "a small command needs no task");
    let over = AtomicBool::new(false);
    let other = kedge.client();
    let (took, named) = std::thread::scope(|scope| {
        let canary = scope.spawn(|| canary(other, &over));
        let named = everything_long(&kedge, &mut client, megabytes() << 20);
        over.store(true, Ordering::Relaxed);
        (canary.join().unwrap(), named)
    });
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!(
        "{} long commands, {} of the canary: median {:?}, 99 % {:?}, longest {:?}",
        named.len(),
        took.len(),
        at(50),
        at(99),
        at(100),
    );
    let stats = stat(&mut client, "").unwrap();
    println!(
        "{} turns longer than 10 ms, the longest {} us",
        stats["event_loop_long_turns"], stats["event_loop_longest_turn_us"]
    );
}

#[test]
fn replies_behind_a_long_command_come_in_order() {
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
fn documents_from_the_disk_are_looked_into_by_tasks() {
    let kedge = Kedge::with(Setup::default());
    let mut client = kedge.client();
    let value = array(1 << 20);
    client.set("long", &value).ok();
    let bucket = crate::replication::bucket(&kedge);
    bucket.settle().unwrap();
    crate::evicted::evict_all(&bucket);
    let before = runs(&kedge);
    let (status, _) = lookup(&mut client, "long", &["[0]", "[-1]"]);
    assert_eq!(status, Status::Success);
    until("a task looks into it", || runs(&kedge) > before);
}

#[test]
fn a_client_that_goes_while_a_task_has_its_session_is_forgotten() {
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
fn long_values_of_the_text_protocol() {
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
    until("tasks execute them", || runs(&kedge) >= before + 4);
}
