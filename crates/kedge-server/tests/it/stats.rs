//! STAT and GET_CMD_TIMER.

use std::collections::HashMap;

use kedge_protocol::binary::Opcode;
use kedge_types::Status;
use serde_json::Value;

use crate::client::{Client, Frame, SDK_FEATURES};
use crate::server::{Kedge, PASSWORD};

fn stat(client: &mut Client, group: &str) -> Result<HashMap<String, String>, Status> {
    client.send(
        &Frame {
            key: group.into(),
            ..Frame::new(Opcode::Stat, 77)
        }
        .bytes(),
    );
    let mut all = HashMap::new();
    loop {
        let reply = client.reply();
        assert_eq!(reply.opaque, 77);
        if reply.status != Status::Success {
            assert!(all.is_empty(), "an error comes alone");
            return Err(reply.status);
        }
        if reply.key.is_empty() {
            assert!(reply.value.is_empty());
            return Ok(all);
        }
        let value = reply.text();
        let before = all.insert(String::from_utf8(reply.key).unwrap(), value);
        assert_eq!(before, None, "a name comes once");
    }
}

#[test]
fn groups_and_what_they_hold() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let token = client.set("k", b"v").ok().token();
    client.get("k").ok();
    let vb = kedge_types::VbId::of_key(b"k", 16);
    for (group, wanted) in [
        (
            "",
            vec![
                "pid",
                "uptime",
                "time",
                "version",
                "curr_connections",
                "curr_items",
                "uuid",
            ],
        ),
        ("timings", vec!["get", "set"]),
        ("vbucket", vec!["vb_0", "vb_15"]),
        ("vbucket-seqno", vec!["vb_3:high_seqno", "vb_3:uuid"]),
        ("vbucket-details 2", vec!["vb_2", "vb_2:num_items"]),
        ("failovers 1", vec!["vb_1:num_entries", "vb_1:0:id"]),
        ("config", vec!["ep_vbuckets", "ep_quota_bytes"]),
        ("memory", vec!["mem_used", "ep_max_size"]),
        ("uuid", vec!["uuid"]),
        ("warmup", vec!["ep_warmup_state"]),
        (
            "connections",
            vec!["curr_connections", "thread_0:connections"],
        ),
        ("responses", vec!["0:Success"]),
        ("settings", vec!["maxconns"]),
        ("items", vec![]),
    ] {
        let got = stat(&mut client, group).unwrap();
        for name in wanted {
            assert!(got.contains_key(name), "{group}: {name} of {got:?}");
        }
    }
    let general = stat(&mut client, "").unwrap();
    assert_eq!(
        (
            &*general["cmd_get"],
            &*general["get_hits"],
            &*general["curr_items"]
        ),
        ("1", "1", "1")
    );
    let one = stat(&mut client, &format!("vbucket-seqno {vb}")).unwrap();
    assert_eq!(one[&format!("vb_{vb}:high_seqno")], token.seqno.to_string());
    assert_eq!(one[&format!("vb_{vb}:uuid")], token.vb_uuid.to_string());
    assert_eq!(stat(&mut client, "vbucket").unwrap().len(), 16);
    assert_eq!(stat(&mut client, "no such group"), Err(Status::KeyNotFound));
    assert_eq!(stat(&mut client, "vbucket-seqno x"), Err(Status::Invalid));
    assert_eq!(
        stat(&mut client, "vbucket-seqno 16"),
        Err(Status::NotMyVbucket)
    );
    stat(&mut client, "reset").unwrap();
    assert_eq!(stat(&mut client, "").unwrap()["cmd_get"], "0");
}

#[test]
fn rights_are_needed() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in("reader", PASSWORD);
    assert_eq!(stat(&mut client, ""), Err(Status::AccessDenied));
    assert_eq!(stat(&mut client, "timings"), Err(Status::NoBucket));
    client.select("default");
    for group in ["", "timings", "reset", "connections"] {
        assert_eq!(
            stat(&mut client, group),
            Err(Status::AccessDenied),
            "{group}"
        );
    }
}

#[test]
fn timers_of_commands() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    for _ in 0..10 {
        client.set("k", b"v").ok();
    }
    for bucket in ["", "default", "/all/"] {
        let frame = client
            .request(Opcode::GetCmdTimer)
            .extras(&[Opcode::Set.wire()]);
        let frame = Frame {
            key: bucket.into(),
            ..frame
        };
        let json: Value = serde_json::from_slice(&client.call(&frame).ok().value).unwrap();
        assert_eq!(json["total"], 10);
        let counts: u64 = json["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row[1].as_u64().unwrap())
            .sum();
        assert_eq!(counts, 10);
    }
    for (opcode, bucket, status) in [
        (Opcode::Noop, "", Status::KeyNotFound),
        (Opcode::Get, "no such bucket", Status::KeyNotFound),
    ] {
        let frame = client.request(Opcode::GetCmdTimer).extras(&[opcode.wire()]);
        let reply = client.call(&Frame {
            key: bucket.into(),
            ..frame
        });
        assert_eq!(reply.status, status);
    }
}
