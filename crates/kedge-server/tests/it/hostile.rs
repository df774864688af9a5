//! Tests of hostile clients, which must not affect others.

use std::io::Write;

use kedge_protocol::binary::Opcode;
use kedge_types::Status;

use crate::client::{Client, Frame, SDK_FEATURES};
use crate::server::Kedge;

/// A frame's header with these lengths.
fn header(magic: u8, key: u16, extras: u8, body: u32) -> Vec<u8> {
    let mut bytes = vec![magic, 0];
    bytes.extend(key.to_be_bytes());
    bytes.extend([extras, 0, 0, 0]);
    bytes.extend(body.to_be_bytes());
    bytes.resize(24, 0);
    bytes
}

#[test]
fn garbage_closes_only_its_connection() {
    let kedge = Kedge::start();
    let mut other = kedge.client();
    other.set("k", b"v").ok();
    let garbage = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 100],
        vec![0xff],
        header(0x81, 0, 0, 0),
        header(0x80, 10, 0, 5),
        header(0x80, 0, 8, 5),
        header(0x08, 0xffff, 0, 5),
        header(0x80, 0, 0, u32::MAX),
        header(0x80, 1, 0, (30 << 20) + 1),
    ];
    let count = garbage.len() as u64;
    for bytes in garbage {
        for logged_in in [false, true] {
            let mut client = if logged_in {
                kedge.client()
            } else {
                kedge.connect()
            };
            client.send(&bytes);
            client.assert_closed();
            assert_eq!(other.get("k").ok().value, b"v");
        }
    }
    assert_eq!(
        kedge.server().metrics().snapshot().malformed_connections,
        2 * count
    );
}

#[test]
fn replies_before_garbage_are_sent() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let noop = client.request(Opcode::Noop);
    client.send(&[noop.bytes(), vec![0xff; 10]].concat());
    client.reply().ok();
    client.assert_closed();
}

#[test]
fn large_frame_requires_a_login() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.send(&header(0x80, 0, 0, (64 << 10) + 1));
    client.assert_closed();
    let mut client = kedge.connect();
    client.send(&header(0x80, 0, 0, 64 << 10));
    client.send(&vec![0; 64 << 10]);
    // GET before the login, from a client without Xerror.
    client.assert_closed();
}

#[test]
fn frame_memory_is_allocated_as_bytes_arrive() {
    let kedge = Kedge::start();
    // Each announces 30 MiB and sends none of it: gigabytes together.
    let clients: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = kedge.client();
            client.send(&header(0x80, 1, 8, 30 << 20));
            client
        })
        .collect();
    let mut other = kedge.client();
    other.set("k", b"v").ok();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line
        .split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert!(kib < 1 << 20, "peak memory: {kib} KiB");
    drop(clients);
}

#[test]
fn malformed_requests_do_not_close_the_connection() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let mut frames = Vec::new();
    for &opcode in &[
        Opcode::Get,
        Opcode::Set,
        Opcode::Increment,
        Opcode::Touch,
        Opcode::UnlockKey,
    ] {
        let base = || Frame::new(opcode, 1).key("k");
        frames.push(base().extras(&[1, 2, 3]));
        frames.push(Frame {
            key: vec![],
            ..base()
        });
        frames.push(Frame {
            key: vec![b'k'; 300],
            ..base()
        });
        frames.push(Frame {
            infos: kedge_protocol::binary::FrameInfos {
                impersonate: Some(b"root"),
                ..Default::default()
            },
            ..base()
        });
    }
    for frame in frames {
        client.send(&frame.bytes());
        let status = client.reply().status;
        assert!(
            matches!(status, Status::Invalid | Status::AccessDenied),
            "{:?} {status:?}",
            frame.opcode
        );
    }
    client.set("k", b"v").ok();
}

/// A reproducible generator of bytes (Knuth's MMIX constants).
fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

#[test]
fn random_bytes_on_every_port_do_not_affect_others() {
    let kedge = Kedge::start();
    let mut other = kedge.client();
    other.set("k", b"v").ok();
    for seed in 0..60 {
        for mut client in [kedge.connect(), kedge.client(), kedge.memcached()] {
            let mut bytes: Vec<u8> = noise(seed).take(2_000).collect();
            // Half of them begin like a frame.
            if seed % 2 == 0 {
                bytes[0] = 0x80;
                bytes[8..12].copy_from_slice(&[0, 0, 1, 0]);
            }
            // The connection may be closed during the send.
            let _ = client.stream.write_all(&bytes);
        }
        assert_eq!(other.get("k").ok().value, b"v");
    }
}

#[test]
fn disconnect_in_the_middle_of_a_frame() {
    let kedge = Kedge::start();
    for _ in 0..20 {
        let mut client = kedge.client();
        let set = client
            .request(Opcode::Set)
            .store("k", &vec![0; 1 << 20])
            .bytes();
        client.send(&set[..set.len() / 2]);
        let mut client = kedge.client();
        let durable = client
            .request(Opcode::Set)
            .store("d", b"v")
            .durable(kedge_types::DurabilityLevel::PersistToMajority);
        client.send(&durable.bytes());
    }
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    // All but this one end; each takes a turn of the loop at most, and a login takes several.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while kedge.server().metrics().snapshot().curr_connections > 1 {
        assert!(std::time::Instant::now() < deadline);
        client.simple(Opcode::Noop).ok();
    }
}
