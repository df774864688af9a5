//! Tests of replies: which are sent, and their fields beside the document.

use kedge_protocol::binary::commands::range_scan::RangeScanCreate;
use kedge_protocol::binary::{Feature, Features, Opcode};
use kedge_types::{Datatype, DurabilityLevel, Status};

use crate::client::{Client, Frame, SDK_FEATURES};
use crate::commands::count;
use crate::range_scan::{Limits, go_on, range};
use crate::server::Kedge;

#[test]
fn quiet_commands_answer_only_failures() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let mut bytes = Vec::new();
    let mut expected = Vec::new();
    let none = count(1, 0, u32::MAX);
    let rows: [(Opcode, &str, Option<Status>); 12] = [
        (Opcode::Setq, "a", None),
        (Opcode::Addq, "a", Some(Status::KeyExists)),
        (Opcode::Addq, "b", None),
        (Opcode::Replaceq, "no", Some(Status::KeyNotFound)),
        (Opcode::Getq, "no", None),
        (Opcode::Getkq, "a", Some(Status::Success)),
        (Opcode::Appendq, "a", None),
        (Opcode::Incrementq, "no", Some(Status::KeyNotFound)),
        (Opcode::GetqMeta, "no", None),
        (Opcode::Deleteq, "a", None),
        (Opcode::Deleteq, "a", Some(Status::KeyNotFound)),
        (Opcode::Getq, "a", None),
    ];
    for (opcode, key, status) in rows {
        let frame = client.request(opcode).key(key);
        let frame = match opcode {
            Opcode::Setq | Opcode::Addq | Opcode::Replaceq => frame.extras(&[0; 8]).value(b"v"),
            Opcode::Appendq => frame.value(b"w"),
            Opcode::Incrementq => frame.extras(&none),
            _ => frame,
        };
        bytes.extend(frame.bytes());
        expected.extend(status.map(|status| (frame.opaque, status)));
    }
    let noop = client.request(Opcode::Noop);
    bytes.extend(noop.bytes());
    expected.push((noop.opaque, Status::Success));
    client.send(&bytes);
    for (opaque, status) in expected {
        let reply = client.reply();
        assert_eq!((reply.opaque, reply.status), (opaque, status));
        if reply.opcode == Opcode::Getkq.wire() {
            assert_eq!(
                (reply.key.as_slice(), reply.value.as_slice()),
                (&b"\0a"[..], &b"v"[..])
            );
        }
    }
    let quit = client.request(Opcode::Quitq);
    client.send(&quit.bytes());
    client.assert_closed();
}

#[test]
fn error_bodies_require_json() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let frame = client.request(Opcode::GetCmdTimer);
    let reply = client.call(&frame);
    assert_eq!(
        (reply.status, reply.datatype),
        (Status::Invalid, Datatype::JSON.bits())
    );
    let body: serde_json::Value = serde_json::from_slice(&reply.value).unwrap();
    assert_eq!(body["error"]["context"], "extras must be one opcode");
    client.hello(Features::of(&[Feature::Xerror]));
    let frame = client.request(Opcode::GetCmdTimer);
    let reply = client.call(&frame);
    assert_eq!(
        (reply.status, reply.datatype, reply.value),
        (Status::Invalid, 0, vec![])
    );
}

/// Fast commands had a server duration of 0 us, which clients take for no duration. Durations are rounded up.
#[test]
fn server_durations_are_never_zero() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.hello(SDK_FEATURES.with(Feature::Tracing));
    for at in 0..200 {
        let key = format!("k{at}");
        let missed = client.get(&key);
        let stored = client.set(&key, b"v").ok();
        let found = client.get(&key).ok();
        let noop = client.simple(Opcode::Noop);
        for reply in [missed, stored, found, noop] {
            assert!(reply.duration.unwrap() > 0, "{reply:?}");
        }
    }
    let durable = client
        .request(Opcode::Set)
        .store("k", b"v")
        .durable(DurabilityLevel::PersistToMajority);
    let refused = client.request(Opcode::GetCmdTimer);
    let large = vec![b'x'; 1 << 20];
    let replies = [
        client.call(&durable).ok(),
        client.call(&refused),
        client.set("large", &large).ok(),
        client.get("large").ok(),
        client.try_select("none"),
        client.simple(Opcode::Gat),
    ];
    for reply in replies {
        assert!(
            reply.duration.unwrap() > 0,
            "{:?}",
            (reply.opcode, reply.status)
        );
    }
}

/// All replies to RANGE_SCAN_CONTINUE but the last one had a server duration of 0.
#[test]
fn server_durations_of_partial_replies_are_never_zero() {
    let kedge = crate::range_scan::kedge();
    let mut client = kedge.client();
    client.hello(SDK_FEATURES.with(Feature::Tracing));
    let value = vec![b'v'; 10_000];
    for at in 0..100 {
        crate::range_scan::set(&mut client, &format!("k{at:03}"), &value);
    }
    let documents = RangeScanCreate {
        key_only: false,
        ..range("a", "z")
    };
    let id = crate::range_scan::create(&mut client, &documents).unwrap();
    let replies = go_on(&mut client, id, Limits::default());
    assert!(replies.len() > 2, "{} replies", replies.len());
    for reply in replies {
        assert!(reply.duration.unwrap() > 0, "{:?}", reply.status);
    }
    let unknown = go_on(&mut client, id, Limits::default());
    assert!(unknown[0].duration.unwrap() > 0, "{unknown:?}");
}

/// Commands that a DCP connection refuses without executing them had a server duration of 0.
#[test]
fn server_durations_of_refused_commands_are_never_zero() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.hello(SDK_FEATURES.with(Feature::Tracing));
    client.set("large", &vec![b'x'; 1 << 20]).ok();
    let producer = [0_u32.to_be_bytes(), 1_u32.to_be_bytes()].concat();
    let mut open = client.request(Opcode::DcpOpen).extras(&producer);
    open.key = b"reader".to_vec();
    client.call(&open).ok();
    let append = client.request(Opcode::Append).key("large").value(b"!");
    let refused = client.call(&append);
    assert_eq!(refused.status, Status::NotSupported);
    assert!(refused.duration.unwrap() > 0, "{refused:?}");
}

#[test]
fn server_durations_require_tracing() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    assert_eq!(client.set("k", b"v").ok().duration, None);
    client.hello(SDK_FEATURES.with(Feature::Tracing));
    assert!(client.set("k", b"v").ok().duration.is_some());
    assert!(client.get("k").ok().duration.is_some());
    assert!(client.get("no").duration.is_some(), "errors have one too");
    let set = client
        .request(Opcode::Set)
        .store("k", b"v")
        .durable(DurabilityLevel::PersistToMajority);
    assert!(client.call(&set).ok().duration.is_some());
    let large = vec![b'x'; 1 << 20];
    client.set("large", &large).ok();
    let got = client.get("large").ok();
    assert!(got.duration.is_some());
    assert_eq!(got.value, large);
}

#[test]
fn unserved_opcodes_are_refused() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    for &opcode in Opcode::ALL {
        let served = !matches!(
            client.simple_status(opcode),
            Status::NotSupported | Status::UnknownCommand
        );
        // FLUSH needs the bucket to allow it, which this one does.
        let expected = SERVED.contains(&opcode);
        assert_eq!(served, expected, "{opcode:?}");
    }
    let unknown = Frame::new(Opcode::Get, 1).bytes();
    let unknown = [&unknown[..1], &[0xff], &unknown[2..]].concat();
    client.send(&unknown);
    assert_eq!(client.reply().status, Status::UnknownCommand);
}

/// The served opcodes of a Couchbase connection; other tests cover HELLO, QUIT and logins.
pub(crate) const SERVED: &[Opcode] = &[
    Opcode::DcpOpen,
    Opcode::DcpControl,
    Opcode::DcpStreamReq,
    Opcode::DcpCloseStream,
    Opcode::DcpGetFailoverLog,
    Opcode::DcpNoop,
    Opcode::DcpBufferAcknowledgement,
    Opcode::DcpSeqnoAcknowledged,
    Opcode::PrepareSnapshot,
    Opcode::GetFileFragment,
    Opcode::ReleaseSnapshot,
    Opcode::GetReplica,
    Opcode::GetEx,
    Opcode::GetExReplica,
    Opcode::SetWithMeta,
    Opcode::SetqWithMeta,
    Opcode::AddWithMeta,
    Opcode::AddqWithMeta,
    Opcode::DelWithMeta,
    Opcode::DelqWithMeta,
    Opcode::MutateWithMeta,
    Opcode::ReturnMeta,
    Opcode::RangeScanCreate,
    Opcode::RangeScanContinue,
    Opcode::RangeScanCancel,
    Opcode::SubdocGet,
    Opcode::SubdocExists,
    Opcode::SubdocGetCount,
    Opcode::SubdocMultiLookup,
    Opcode::SubdocDictAdd,
    Opcode::SubdocDictUpsert,
    Opcode::SubdocDelete,
    Opcode::SubdocReplace,
    Opcode::SubdocArrayPushLast,
    Opcode::SubdocArrayPushFirst,
    Opcode::SubdocArrayInsert,
    Opcode::SubdocArrayAddUnique,
    Opcode::SubdocCounter,
    Opcode::SubdocMultiMutation,
    Opcode::Get,
    Opcode::Set,
    Opcode::Add,
    Opcode::Replace,
    Opcode::Delete,
    Opcode::Increment,
    Opcode::Decrement,
    Opcode::Flush,
    Opcode::Getq,
    Opcode::Noop,
    Opcode::Version,
    Opcode::Getk,
    Opcode::Getkq,
    Opcode::Append,
    Opcode::Prepend,
    Opcode::Stat,
    Opcode::Setq,
    Opcode::Addq,
    Opcode::Replaceq,
    Opcode::Deleteq,
    Opcode::Incrementq,
    Opcode::Decrementq,
    Opcode::Flushq,
    Opcode::Appendq,
    Opcode::Prependq,
    Opcode::Verbosity,
    Opcode::Touch,
    Opcode::Gat,
    Opcode::Gatq,
    Opcode::Hello,
    Opcode::SaslListMechs,
    Opcode::SaslAuth,
    Opcode::SaslStep,
    Opcode::SetVbucket,
    Opcode::GetVbucket,
    Opcode::DelVbucket,
    Opcode::GetAllVbSeqnos,
    Opcode::ListBuckets,
    Opcode::SelectBucket,
    Opcode::ObserveSeqno,
    Opcode::Observe,
    Opcode::GetLocked,
    Opcode::UnlockKey,
    Opcode::GetFailoverLog,
    Opcode::GetMeta,
    Opcode::GetqMeta,
    Opcode::GetClusterConfig,
    Opcode::GetRandomKey,
    Opcode::SeqnoPersistence,
    Opcode::GetKeys,
    Opcode::CollectionsGetManifest,
    Opcode::CollectionsGetId,
    Opcode::CollectionsGetScopeId,
    Opcode::GetCmdTimer,
    Opcode::GetErrorMap,
    Opcode::Quit,
    Opcode::Quitq,
    Opcode::CompactDb,
];

impl Client {
    /// The status of the reply to an empty request. Requests that close the connection are not sent.
    fn simple_status(&mut self, opcode: Opcode) -> Status {
        match opcode {
            // Would change or end this connection, or answers several frames or none.
            Opcode::Hello
            | Opcode::SaslListMechs
            | Opcode::SaslAuth
            | Opcode::SaslStep
            | Opcode::SelectBucket
            | Opcode::Quit
            | Opcode::Quitq
            | Opcode::Stat
            | Opcode::Flush
            | Opcode::Flushq => Status::Success,
            // On this connection these numbers are the ioctl commands.
            Opcode::Gatk | Opcode::Gatkq => Status::NotSupported,
            _ => self.simple(opcode).status,
        }
    }
}
