//! Tests of plain memcached clients with the binary protocol.

use kedge_auth::Mechanism;
use kedge_protocol::binary::Opcode;
use kedge_protocol::binary::commands::decode_counter;
use kedge_types::Status;

use crate::client::Frame;
use crate::server::{Kedge, PASSWORD, USER};

/// A request of such a client: no vBucket, no collection prefix.
fn frame(opcode: Opcode, key: &str) -> Frame {
    Frame {
        vb: 0,
        ..Frame::new(opcode, 9).key(key)
    }
}

#[test]
fn memcached_port_needs_no_login_bucket_or_vbucket() {
    let kedge = Kedge::start();
    let mut client = kedge.memcached();
    let mut sdk = kedge.client();
    for number in 0..40 {
        let key = format!("key{number}");
        client
            .call(&frame(Opcode::Set, &key).extras(&[0; 8]).value(b"v"))
            .ok();
        assert_eq!(client.call(&frame(Opcode::Get, &key)).ok().value, b"v");
        assert_eq!(sdk.get(&key).ok().value, b"v", "SDKs see the same document");
    }
    assert_eq!(client.simple(Opcode::Version).ok().text(), "8.0.0");
    let reply = client
        .call(&frame(Opcode::Set, "k").extras(&[0; 8]).value(b"v"))
        .ok();
    assert!(reply.extras.is_empty() && reply.cas != 0);
    let deleted = client.call(&frame(Opcode::Delete, "k")).ok();
    assert_eq!(deleted.cas, 0, "memcapable checks that");
}

#[test]
fn memcached_port_checks_passwords() {
    let kedge = Kedge::start();
    let mut client = kedge.memcached();
    assert_eq!(
        client.sasl(Mechanism::Plain, USER, "wrong"),
        Status::AuthError
    );
    assert_eq!(
        client.sasl(Mechanism::Plain, USER, PASSWORD),
        Status::Success
    );
    assert_eq!(
        client.call(&frame(Opcode::Get, "no")).status,
        Status::KeyNotFound
    );
}

#[test]
fn gatk_opcodes_are_memcacheds() {
    let kedge = Kedge::start();
    let mut client = kedge.memcached();
    let expiry = [0, 0, 0, 100];
    client
        .call(
            &frame(Opcode::Set, "k")
                .extras(&[0, 0, 0, 5, 0, 0, 0, 0])
                .value(b"v"),
        )
        .ok();
    let got = client.call(&frame(Opcode::Gatk, "k").extras(&expiry)).ok();
    assert_eq!(
        (got.key.as_slice(), got.flags(), got.text()),
        (&b"k"[..], 5, "v".to_owned())
    );
    let got = client.call(&frame(Opcode::Gatkq, "k").extras(&expiry)).ok();
    assert_eq!(got.key, b"k");
    client.send(&frame(Opcode::Gatkq, "no").extras(&expiry).bytes());
    client.simple(Opcode::Noop).ok();
    let got = client.call(&frame(Opcode::Gat, "k").extras(&expiry)).ok();
    assert!(got.key.is_empty());
}

#[test]
fn counters_flushes_and_statistics() {
    let kedge = Kedge::start();
    let mut client = kedge.memcached();
    let extras = [&1_u64.to_be_bytes()[..], &7_u64.to_be_bytes(), &[0; 4]].concat();
    let mut number = |opcode| {
        let reply = client.call(&frame(opcode, "n").extras(&extras)).ok();
        decode_counter(&reply.value).unwrap()
    };
    assert_eq!(
        [Opcode::Increment, Opcode::Increment, Opcode::Decrement].map(&mut number),
        [7, 8, 7]
    );
    client
        .call(&frame(Opcode::Verbosity, "").extras(&[0; 4]))
        .ok();
    client.send(&frame(Opcode::Stat, "").bytes());
    let mut names = Vec::new();
    loop {
        let reply = client.reply().ok();
        if reply.key.is_empty() {
            break;
        }
        names.push(String::from_utf8(reply.key).unwrap());
    }
    for wanted in [
        "pid",
        "version",
        "curr_items",
        "get_hits",
        "bytes",
        "limit_maxbytes",
    ] {
        assert!(names.iter().any(|name| name == wanted), "{wanted}");
    }
    client.call(&frame(Opcode::Flush, "").extras(&[0; 4])).ok();
    assert_eq!(
        client.call(&frame(Opcode::Get, "n")).status,
        Status::KeyNotFound
    );
    client.call(&frame(Opcode::Set, "n").extras(&[0; 8])).ok();
    client
        .call(&frame(Opcode::Flush, "").extras(&[0, 0, 0, 9]))
        .ok();
    client.call(&frame(Opcode::Get, "n")).ok();
}

#[test]
fn errors_have_memcached_texts() {
    // Errors had no body, so clients that show it showed nothing. The tests of libmemcached and memcached check it.
    let kedge = Kedge::start();
    let mut client = kedge.memcached();
    let set = |key: &str| frame(Opcode::Set, key).extras(&[0; 8]).value(b"v");
    let cas = client.call(&set("k")).ok().cas;
    let number = [&[0; 16][..], &[0xff; 4]].concat();
    let other = Frame {
        cas: cas + 1,
        ..set("k")
    };
    for (request, status, text) in [
        (frame(Opcode::Get, "no"), Status::KeyNotFound, "Not found"),
        (other, Status::KeyExists, "Data exists for key."),
        (
            frame(Opcode::Append, "no").value(b"v"),
            Status::NotStored,
            "Not stored.",
        ),
        (
            frame(Opcode::Increment, "k").extras(&number),
            Status::DeltaBadValue,
            "Non-numeric server-side value for incr or decr",
        ),
        (frame(Opcode::Get, ""), Status::Invalid, "Invalid arguments"),
        (
            frame(Opcode::SetVbucket, ""),
            Status::AccessDenied,
            "AccessDenied",
        ),
    ] {
        let reply = client.call(&request);
        assert_eq!((reply.status, reply.text().as_str()), (status, text));
    }
    // Quiet commands omit expected replies.
    client.send(&frame(Opcode::Getq, "no").bytes());
    client.simple(Opcode::Noop).ok();
}

#[test]
fn commands_that_are_not_served_are_unknown_to_memcached_clients() {
    let kedge = Kedge::start();
    let (mut memcached, mut sdk) = (kedge.memcached(), kedge.client());
    for opcode in [Opcode::SetParam, Opcode::StopPersistence, Opcode::Shutdown] {
        let status = memcached.simple(opcode).status;
        assert_eq!(status, Status::UnknownCommand, "{}", opcode.name());
        let status = sdk.simple(opcode).status;
        assert_eq!(status, Status::NotSupported, "{}", opcode.name());
    }
}

#[test]
fn key_limits_match_memcached() {
    let kedge = Kedge::start();
    let mut client = kedge.memcached();
    let set = |key: &str| frame(Opcode::Set, key).extras(&[0; 8]);
    client.call(&set(&"k".repeat(250))).ok();
    assert_eq!(client.call(&set(&"k".repeat(251))).status, Status::Invalid);
    assert_eq!(client.call(&frame(Opcode::Get, "")).status, Status::Invalid);
}
