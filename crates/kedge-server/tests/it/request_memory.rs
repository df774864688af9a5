//! Tests of the memory of incomplete requests. 80 half-sent SETs of 19 MiB, by clients without a login, took 2 GB.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use kedge_frontend::FrontendLimits;
use kedge_frontend::limits::REQUEST_MEMORY_MIN;
use kedge_protocol::binary::Opcode;

use crate::client::{Client, Text};
use crate::evicted::until;
use crate::server::{Kedge, Setup};
use crate::stats::stat;

const MIB: usize = 1 << 20;

fn kedge() -> Kedge {
    Kedge::with(Setup {
        limits: FrontendLimits {
            request_memory_max: REQUEST_MEMORY_MIN,
            ..FrontendLimits::default()
        },
        ..Setup::default()
    })
}

fn count(client: &mut Client, name: &str) -> usize {
    stat(client, "").unwrap()[name].parse().unwrap()
}

fn set(text: &mut Text, key: &str, bytes: usize) {
    let head = format!("set {key} 0 0 {bytes}\r\n");
    let value = vec![b'v'; bytes];
    for part in [head.as_bytes(), &value, b"\r\n"] {
        text.stream.write_all(part).unwrap();
    }
    text.expect("", "STORED\r\n");
}

/// Sends half of a SET of 19 MiB, or as much as the server takes.
fn half_sent(kedge: &Kedge, at: usize) -> Text {
    let mut text = kedge.text();
    text.stream
        .set_write_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let head = format!("set k{at} 0 0 {}\r\n", 19 * MIB);
    text.stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![b'x'; MIB];
    let mut left = 19 * MIB / 2;
    while left > 0 {
        match text.stream.write(&piece[..left.min(MIB)]) {
            Ok(count) => left -= count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    text
}

#[test]
fn incomplete_requests_stay_within_the_memory_limit() {
    let kedge = kedge();
    let mut client = kedge.client();
    let half: Vec<Text> = (0..80).map(|at| half_sent(&kedge, at)).collect();
    until("all but one wait", || {
        count(&mut client, "request_memory_waiting") == 79
    });
    let used = count(&mut client, "request_memory_used");
    assert!(
        (19 * MIB..=REQUEST_MEMORY_MIN / 4).contains(&used),
        "{used}"
    );
    // A client with a login is not delayed by them.
    let value = vec![b'v'; 20 * MIB];
    client.set("mine", &value).ok();
    assert_eq!(client.get("mine").ok().value, value);
    let frame = client
        .request(Opcode::Set)
        .store("mine", &vec![b'w'; 3 * MIB]);
    client.call(&frame).ok();
    drop(half);
    until("all is given back", || {
        count(&mut client, "request_memory_used") == 0
    });
    assert_eq!(count(&mut client, "request_memory_waiting"), 0);
    // As much as one of them requested, beside the memory of the log's queue.
    set(&mut kedge.text(), "k", 19 * MIB);
}

#[test]
fn waiting_request_continues_when_memory_is_granted() {
    let kedge = kedge();
    let mut client = kedge.client();
    let holder = half_sent(&kedge, 0);
    until("it has room", || {
        count(&mut client, "request_memory_used") > 0
    });
    // Neither fits beside it, and together they are less than the limit of the log's queue.
    let waiters: Vec<_> = (1..4)
        .map(|at| {
            let mut text = kedge.text();
            std::thread::spawn(move || set(&mut text, &format!("k{at}"), 14 * MIB))
        })
        .collect();
    until("they wait", || {
        count(&mut client, "request_memory_waiting") == 3
    });
    drop(holder);
    for waiter in waiters {
        waiter.join().unwrap();
    }
    until("all is given back", || {
        count(&mut client, "request_memory_used") == 0
    });
}

#[test]
fn small_requests_need_no_grant() {
    let kedge = kedge();
    let mut client = kedge.client();
    for at in 0..100 {
        let frame = client
            .request(Opcode::Set)
            .store(&format!("k{at}"), &[b'v'; 3_000]);
        let bytes = frame.bytes();
        client.send(&bytes[..1_000]);
        client.send(&bytes[1_000..]);
        client.reply().ok();
    }
    assert_eq!(count(&mut client, "request_memory_waits"), 0);
    assert_eq!(count(&mut client, "request_memory_used"), 0);
}
