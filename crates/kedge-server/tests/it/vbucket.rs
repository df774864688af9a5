//! SET_VBUCKET and DEL_VBUCKET.

use kedge_protocol::binary::Opcode;
use kedge_types::{Datatype, Status, VbId};

use crate::client::{Client, Frame};
use crate::compact::manager;
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
fn a_vbucket_answers_in_the_state_that_it_was_given() {
    let kedge = Kedge::start();
    let (mut client, mut manager) = (kedge.client(), manager(&kedge));
    let vb = VbId::of_key(b"k", 16);
    client.set("k", b"1").ok();
    for number in [2, 3, 4] {
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
fn a_deleted_vbucket_is_gone_until_it_is_made_anew() {
    let kedge = Kedge::start();
    let (mut client, mut manager) = (kedge.client(), manager(&kedge));
    let vb = VbId::of_key(b"k", 16);
    let bucket = kedge.server().registry().get("default").unwrap();
    for value in [b"".as_slice(), b"async=0"] {
        client.set("k", b"1").ok();
        bucket.settle().unwrap();
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
