//! SET_VBUCKET and DEL_VBUCKET.

use kedge_bucket::EvictionPolicy;
use kedge_protocol::binary::Opcode;
use kedge_types::{Datatype, DurabilityLevel, Status, VbId};

use crate::client::{Client, Frame};
use crate::compact::manager;
use crate::evicted::{evict_all, figure, start, until, waited};
use crate::server::Kedge;

fn at(client: &mut Client, opcode: Opcode, vb: VbId) -> Frame {
    let mut frame = client.request(opcode);
    frame.vb = vb.get();
    frame
}

fn set(client: &mut Client, vb: VbId, state: u8) -> Status {
    let frame = at(client, Opcode::SetVbucket, vb).extras(&[state]);
    client.call(&frame).status
}

fn delete(client: &mut Client, vb: VbId, value: &[u8]) -> Status {
    let frame = at(client, Opcode::DelVbucket, vb).value(value);
    client.call(&frame).status
}

fn state(client: &mut Client, vb: VbId) -> Result<u8, Status> {
    let frame = at(client, Opcode::GetVbucket, vb);
    let reply = client.call(&frame);
    match reply.status {
        Status::Success => Ok(reply.value[3]),
        status => Err(status),
    }
}

#[test]
fn set_vbucket_changes_the_state() {
    let kedge = Kedge::start();
    let (mut client, mut manager) = (kedge.client(), manager(&kedge));
    let vb = VbId::of_key(b"k", 16);
    client.set("k", b"1").ok();
    assert_eq!(set(&mut manager, vb, 3), Status::Success);
    assert_eq!(state(&mut manager, vb), Ok(3));
    for number in [2, 4] {
        assert_eq!(set(&mut manager, vb, number), Status::Success);
        assert_eq!(state(&mut manager, vb), Ok(number));
        assert_eq!(client.get("k").status, Status::NotMyVbucket);
    }
    assert_eq!(set(&mut manager, vb, 1), Status::Success);
    assert_eq!(client.get("k").ok().value, b"1");
    assert_eq!(set(&mut manager, VbId(16), 1), Status::NotMyVbucket);
    assert_eq!(set(&mut manager, vb, 5), Status::Invalid);
    assert_eq!(set(&mut client, vb, 2), Status::AccessDenied);
    let topology = at(&mut manager, Opcode::SetVbucket, vb)
        .extras(&[1])
        .value(br#"{"topology":[["n1"]]}"#)
        .datatype(Datatype::JSON);
    let refused = manager.call(&topology).status;
    assert!(
        matches!(refused, Status::NotSupported | Status::Invalid),
        "{refused:?}"
    );
}

#[test]
fn deleted_vbucket_can_be_created_again() {
    let kedge = Kedge::start();
    let (mut client, mut manager) = (kedge.client(), manager(&kedge));
    let vb = VbId::of_key(b"k", 16);
    let bucket = kedge.server().registry().get("default").unwrap();
    for value in [b"".as_slice(), b"async=0"] {
        client.set("k", b"1").ok();
        bucket.persistence().apply().unwrap();
        assert_eq!(delete(&mut client, vb, value), Status::AccessDenied);
        assert_eq!(delete(&mut manager, vb, value), Status::Success);
        assert_eq!(client.get("k").status, Status::NotMyVbucket);
        assert_eq!(state(&mut manager, vb), Err(Status::NotMyVbucket));
        assert_eq!(delete(&mut manager, vb, value), Status::NotMyVbucket);
        if !value.is_empty() {
            assert_eq!(bucket.file_figures(vb).unwrap(), None, "its file is gone");
        }
        assert_eq!(set(&mut manager, vb, 1), Status::Success);
        assert_eq!(client.get("k").status, Status::KeyNotFound);
    }
    assert_eq!(delete(&mut manager, VbId(16), b""), Status::NotMyVbucket);
    assert_eq!(delete(&mut manager, vb, b"async=1"), Status::Invalid);
}

#[test]
fn replica_reads_need_get_replica() {
    let (kedge, bucket) = start(EvictionPolicy::FullEviction, 256 << 20);
    let (mut client, mut manager) = (kedge.client(), manager(&kedge));
    let vb = VbId::of_key(b"k", 16);
    let mut get_replica = |key| {
        let frame = client.request(Opcode::GetReplica).key(key);
        client.call(&frame)
    };
    assert_eq!(get_replica("k").status, Status::NotMyVbucket);
    kedge.client().set("k", b"1").ok();
    assert_eq!(
        get_replica("k").status,
        Status::NotMyVbucket,
        "it is the active"
    );
    assert_eq!(set(&mut manager, vb, 2), Status::Success);
    let read = get_replica("k").ok();
    assert_eq!((read.value.as_slice(), read.flags()), (b"1".as_slice(), 0));
    assert!(read.key.is_empty());
    assert_eq!(get_replica("nothing").status, Status::NotMyVbucket);
    assert_eq!(set(&mut manager, vb, 1), Status::Success);
    evict_all(&bucket);
    assert_eq!(set(&mut manager, vb, 2), Status::Success);
    let before = waited(&bucket);
    assert_eq!(get_replica("k").ok().value, b"1");
    assert_eq!(waited(&bucket), before + 1, "it came from the disk");
    for state in [3, 4] {
        assert_eq!(set(&mut manager, vb, state), Status::Success);
        assert_eq!(get_replica("k").status, Status::NotMyVbucket);
    }
}

#[test]
fn commands_wait_for_a_pending_vbucket() {
    let kedge = Kedge::start();
    let mut manager = manager(&kedge);
    let vb = VbId::of_key(b"k", 16);
    let bucket = kedge.server().registry().get("default").unwrap();
    kedge.client().set("k", b"1").ok();
    let frames: [fn(&mut Client) -> Frame; 7] = [
        |client| client.request(Opcode::Get).key("k"),
        |client| client.request(Opcode::GetMeta).key("k"),
        |client| client.request(Opcode::Touch).key("k").extras(&[0; 4]),
        |client| client.request(Opcode::Append).key("k").value(b"2"),
        |client| client.request(Opcode::Set).store("k", b"3"),
        |client| {
            let frame = client.request(Opcode::Set).store("k", b"4");
            frame.durable(DurabilityLevel::Majority)
        },
        |client| client.request(Opcode::GetLocked).key("k"),
    ];
    for (then, expected) in [(2, Status::NotMyVbucket), (1, Status::Success)] {
        assert_eq!(set(&mut manager, vb, 3), Status::Success);
        let mut clients = Vec::new();
        for (count, frame) in (1..).zip(frames) {
            let mut client = kedge.client();
            let bytes = frame(&mut client).bytes();
            client.send(&bytes);
            until("it waits", || {
                figure(&bucket, "ep_waiting_for_active") == count
            });
            clients.push(client);
        }
        assert_eq!(set(&mut manager, vb, then), Status::Success);
        for client in &mut clients {
            let reply = client.reply();
            assert_eq!(reply.status, expected, "{:#x}", reply.opcode);
        }
        assert_eq!(figure(&bucket, "ep_waiting_for_active"), 0);
    }
    assert_eq!(kedge.client().get("k").ok().value, b"4");
}

#[test]
fn seqno_commands_work_on_replicas() {
    let kedge = Kedge::start();
    let (mut client, mut manager) = (kedge.client(), manager(&kedge));
    let vb = VbId::of_key(b"k", 16);
    let stored = client.set("k", b"1").ok();
    let token = stored.token();
    for number in [1, 2, 3] {
        assert_eq!(set(&mut manager, vb, number), Status::Success);
        let uuid = token.vb_uuid.get().to_be_bytes();
        let observe = at(&mut client, Opcode::ObserveSeqno, vb).value(&uuid);
        let observed = client.call(&observe).ok().value;
        assert_eq!(observed[19..27], token.seqno.get().to_be_bytes());
        let log = at(&mut client, Opcode::GetFailoverLog, vb);
        let log = client.call(&log).ok().value;
        assert_eq!(log.len() % 16, 0);
        let wait = at(&mut client, Opcode::SeqnoPersistence, vb);
        let wait = wait.extras(&token.seqno.get().to_be_bytes());
        client.call(&wait).ok();
        let mut key = vb.get().to_be_bytes().to_vec();
        key.extend_from_slice(&[0, 2, 0, b'k']);
        let frame = client.request(Opcode::Observe).value(&key);
        let seen = client.call(&frame).ok().value;
        assert_eq!(seen[6], 1, "it is on disk");
        assert_eq!(seen[7..15], stored.cas.to_be_bytes());
    }
    assert_eq!(set(&mut manager, vb, 4), Status::Success);
    let log = at(&mut client, Opcode::GetFailoverLog, vb);
    assert_eq!(client.call(&log).status, Status::NotMyVbucket);
}
