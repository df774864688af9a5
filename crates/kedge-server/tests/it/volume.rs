//! Tests with many frames, large values, and many connections.

use std::io::Write;
use std::thread;

use kedge_protocol::binary::Opcode;
use kedge_types::Status;
use kedge_types::limits::VALUE_BYTES_MAX;

use crate::client::Frame;
use crate::server::{Kedge, Setup};

#[test]
fn thousands_of_frames_in_one_write() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let count = 20_000;
    let mut bytes = Vec::new();
    for number in 0..count {
        let key = format!("key{number}");
        let frame = if number % 2 == 0 {
            client.request(Opcode::Set).store(&key, key.as_bytes())
        } else {
            client
                .request(Opcode::Get)
                .key(&format!("key{}", number - 1))
        };
        bytes.extend(frame.bytes());
    }
    let mut writer = client.stream.try_clone().unwrap();
    let sender = thread::spawn(move || writer.write_all(&bytes).unwrap());
    let first = client.reply().ok().opaque;
    for number in 1..count {
        let reply = client.reply().ok();
        assert_eq!(reply.opaque, first + number);
        if number % 2 == 1 {
            assert_eq!(reply.text(), format!("key{}", number - 1));
        }
    }
    sender.join().unwrap();
    let metrics = kedge.server().metrics().snapshot();
    assert!(
        metrics.turns < u64::from(count) / 4,
        "{} turns",
        metrics.turns
    );
}

#[test]
fn values_up_to_the_size_limit() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let sizes = [
        0,
        1,
        16 << 10,
        (16 << 10) + 1,
        (256 << 10) - 1,
        256 << 10,
        1 << 20,
        VALUE_BYTES_MAX,
    ];
    for size in sizes {
        let value: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        client.set("k", &value).ok();
        assert!(client.get("k").ok().value == value, "{size} bytes");
    }
    let value = vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(client.set("k", &value).status, Status::TooBig);
    assert_eq!(
        client.get("k").ok().value.len(),
        VALUE_BYTES_MAX,
        "the old one stays"
    );
}

#[test]
fn large_and_small_replies_keep_their_order() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let large: Vec<u8> = (0..300_000_u32).map(|at| (at % 241) as u8).collect();
    client.set("large", &large).ok();
    client.set("small", b"small").ok();
    let mut bytes = Vec::new();
    for number in 0..60 {
        let key = if number % 3 == 0 { "small" } else { "large" };
        bytes.extend(client.request(Opcode::Get).key(key).bytes());
    }
    client.send(&bytes);
    for number in 0..60 {
        let expected: &[u8] = if number % 3 == 0 { b"small" } else { &large };
        assert!(client.reply().ok().value == expected, "reply {number}");
    }
}

#[test]
fn value_received_in_pieces() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let value: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 253) as u8).collect();
    let set = client.request(Opcode::Set).store("k", &value).bytes();
    let get = client.request(Opcode::Get).key("k").bytes();
    let bytes = [get.clone(), set, get].concat();
    for piece in bytes.chunks(70_001) {
        client.send(piece);
    }
    assert_eq!(client.reply().status, Status::KeyNotFound);
    client.reply().ok();
    assert!(client.reply().ok().value == value);
}

#[test]
fn many_connections_on_several_threads() {
    let kedge = Kedge::with(Setup {
        threads: 3,
        ..Setup::default()
    });
    let mut clients: Vec<_> = (0..120).map(|_| kedge.memcached()).collect();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            let key = format!("key{number}");
            let value = format!("{round}");
            client.send(
                &Frame::new(Opcode::Set, 1)
                    .store(&key, value.as_bytes())
                    .bytes(),
            );
            client.send(&Frame::new(Opcode::Get, 2).key(&key).bytes());
        }
        for client in &mut clients {
            client.reply().ok();
            assert_eq!(client.reply().ok().text(), format!("{round}"));
        }
    }
    let by_thread = kedge.server().metrics().connections_by_thread();
    assert_eq!(by_thread, [40, 40, 40]);
}
