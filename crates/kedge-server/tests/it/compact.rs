//! COMPACT_DB.

use kedge_protocol::binary::Opcode;
use kedge_types::{Status, VbId};

use crate::client::{Client, Frame};
use crate::server::{Kedge, PASSWORD};

fn compact(client: &mut Client, vb: VbId, drop_deletes: u8) -> Frame {
    let mut extras = [0; 24];
    extras[16] = drop_deletes;
    let mut frame = client.request(Opcode::CompactDb).extras(&extras);
    frame.vb = vb.get();
    frame
}

/// A user who may manage the bucket, but not read or write documents.
pub(crate) fn manager(kedge: &Kedge) -> Client {
    kedge
        .users
        .change(|store| {
            let roles = "bucket_admin[default]".parse().unwrap();
            store.add("manager", PASSWORD, roles, 1)
        })
        .unwrap();
    let mut client = kedge.connect();
    client.hello(kedge_protocol::binary::Features::of(&[
        kedge_protocol::binary::Feature::Xerror,
    ]));
    client.log_in("manager", PASSWORD);
    client.select("default");
    client
}

#[test]
fn compact_db_is_answered_when_the_file_is_compacted() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let bucket = kedge.server().registry().get("default").unwrap();
    for _ in 0..3 {
        client.set("k", &[7; 1_000]).ok();
        bucket.persistence().sync().unwrap();
        bucket.persistence().apply().unwrap();
    }
    let vb = VbId::of_key(b"k", 16);
    let mut manager = manager(&kedge);
    let frame = compact(&mut manager, vb, 0);
    manager.call(&frame).ok();
    let compacted = || {
        let figures = bucket.figures();
        let found = figures.iter().find(|(name, _)| *name == "ep_compactions");
        found.map_or(0, |(_, value)| *value)
    };
    assert_eq!(compacted(), 1);
    assert_eq!(client.get("k").ok().value, [7; 1_000]);
    // Without a file there is no work.
    let frame = compact(&mut manager, VbId((vb.get() + 1) % 16), 1);
    manager.call(&frame).ok();
    assert_eq!(compacted(), 1);
}

#[test]
fn compact_db_is_refused_for_bad_vbuckets_and_applications() {
    let kedge = Kedge::start();
    let mut manager = manager(&kedge);
    for (vb, flag, expected) in [(16, 0, Status::NotMyVbucket), (0, 2, Status::Invalid)] {
        let frame = compact(&mut manager, VbId(vb), flag);
        assert_eq!(manager.call(&frame).status, expected);
    }
    let mut client = kedge.client();
    let frame = compact(&mut client, VbId(0), 0);
    assert_eq!(client.call(&frame).status, Status::AccessDenied);
}
