//! Statuses of connections, logins, frames and unsupported commands.

use kedge_auth::Mechanism;
use kedge_bucket::EvictionPolicy;
use kedge_disk::{Disk, SimDisk};
use kedge_protocol::binary::commands::SaslStart;
use kedge_protocol::binary::{Opcode, RequestWriter};
use kedge_types::Status;
use std::path::Path;
use std::sync::Arc;

use super::{Row, provoked};
use crate::client::{Client, Frame, SDK_FEATURES};
use crate::evicted::evict_all;
use crate::replication::bucket;
use crate::server::{Kedge, PASSWORD, Setup, USER};

pub(super) const ROWS: &[Row] = &[
    provoked(Status::Success, "NOOP", success),
    provoked(Status::Invalid, "GET with extras", invalid),
    provoked(
        Status::NotMyVbucket,
        "GET in a vBucket beyond the last",
        not_my_vbucket,
    ),
    provoked(Status::NoBucket, "GET before SELECT_BUCKET", no_bucket),
    provoked(
        Status::AuthError,
        "a login with a wrong password",
        auth_error,
    ),
    provoked(
        Status::AuthContinue,
        "the first message of SCRAM",
        auth_continue,
    ),
    provoked(
        Status::AccessDenied,
        "SET by a user who may only read",
        access_denied,
    ),
    provoked(
        Status::UnknownFrameInfo,
        "GET with a frame info of no meaning",
        unknown_frame_info,
    ),
    provoked(
        Status::UnknownCommand,
        "an opcode of no meaning",
        unknown_command,
    ),
    provoked(
        Status::NoMemory,
        "SET of more than the quota of the bucket",
        no_memory,
    ),
    provoked(
        Status::NotSupported,
        "SET_PARAM, as every command that is not served",
        not_supported,
    ),
    provoked(
        Status::Internal,
        "GET of an evicted document whose file cannot be read",
        internal,
    ),
    provoked(
        Status::UnknownCollection,
        "GET in a collection that is not there",
        unknown_collection,
    ),
    provoked(
        Status::UnknownScope,
        "COLLECTIONS_GET_SCOPE_ID of a scope that is not there",
        unknown_scope,
    ),
    provoked(
        Status::DurabilityInvalidLevel,
        "SET with durability level 4",
        invalid_level,
    ),
];

fn ask(opcode: Opcode, fill: impl FnOnce(Frame) -> Frame) -> Status {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let frame = client.request(opcode);
    client.call(&fill(frame)).status
}

fn success() -> Status {
    ask(Opcode::Noop, |frame| frame)
}

fn invalid() -> Status {
    ask(Opcode::Get, |frame| frame.key("k").extras(&[0]))
}

fn not_my_vbucket() -> Status {
    ask(Opcode::Get, |frame| Frame {
        vb: 16,
        ..frame.key("k")
    })
}

fn no_bucket() -> Status {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in(USER, PASSWORD);
    client.get("k").status
}

fn auth_error() -> Status {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.sasl(Mechanism::Plain, USER, "wrong")
}

fn auth_continue() -> Status {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    let mut bytes = Vec::new();
    let first = SaslStart {
        mechanism: b"SCRAM-SHA512",
        message: b"n,,n=app,r=abcdefgh",
    };
    first.encode(&RequestWriter::new(Opcode::SaslAuth), &mut bytes);
    client.send(&bytes);
    client.reply().status
}

fn access_denied() -> Status {
    let kedge = Kedge::start();
    let mut reader = kedge.connect();
    reader.hello(SDK_FEATURES);
    reader.log_in("reader", PASSWORD);
    reader.select("default");
    reader.set("k", b"v").status
}

/// Sends a request with these framing extras.
fn framed(client: &mut Client, frame: &Frame, framing: &[u8]) -> Status {
    let plain = frame.bytes();
    let (header, body) = plain.split_at(24);
    let body_len = u32::try_from(framing.len() + body.len()).unwrap();
    let bytes = [
        &[0x08, header[1], framing.len() as u8, header[3]],
        &header[4..8],
        &body_len.to_be_bytes(),
        &header[12..],
        framing,
        body,
    ]
    .concat();
    client.send(&bytes);
    client.reply().status
}

fn unknown_frame_info() -> Status {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let frame = client.request(Opcode::Get).key("k");
    framed(&mut client, &frame, &[0x30])
}

fn invalid_level() -> Status {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let frame = client.request(Opcode::Set).store("k", b"v");
    framed(&mut client, &frame, &[0x11, 4])
}

fn unknown_command() -> Status {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let mut bytes = Frame::new(Opcode::Noop, 1).bytes();
    bytes[1] = 0xff;
    client.send(&bytes);
    client.reply().status
}

fn no_memory() -> Status {
    let mut setup = Setup::default();
    setup.bucket.quota_bytes = 8 << 20;
    let kedge = Kedge::with(setup);
    kedge.client().set("k", &[b'x'; 10 << 20]).status
}

fn not_supported() -> Status {
    let set = |frame: Frame| frame.extras(&[0, 0, 0, 1]).value(b"1");
    ask(Opcode::SetParam, |frame| set(frame.key("max_size")))
}

fn internal() -> Status {
    let disk = SimDisk::new(1);
    let mut setup = Setup {
        disk: Arc::new(disk.clone()),
        ..Setup::default()
    };
    setup.bucket.eviction_policy = EvictionPolicy::ValueOnly;
    setup.bucket.apply_max_lag_ms = 50;
    let kedge = Kedge::with(setup);
    let mut client = kedge.client();
    let frame = client.request(Opcode::Set).store("k", b"v");
    client.call(&frame).ok();
    evict_all(&bucket(&kedge));
    let dir = Path::new("/data/buckets/default");
    let mut names = disk.list(dir).unwrap().into_iter();
    let file = names.find(|name| name.starts_with(&format!("{}.couch.", frame.vb)));
    let file = dir.join(file.expect("the document was applied"));
    for offset in (0..disk.len(&file).unwrap()).step_by(512) {
        disk.make_unreadable(&file, offset);
    }
    client.get("k").status
}

fn unknown_collection() -> Status {
    ask(Opcode::Get, |frame| {
        let mut frame = frame.key("k");
        frame.key[0] = 9;
        frame
    })
}

fn unknown_scope() -> Status {
    ask(Opcode::CollectionsGetScopeId, |frame| frame.value(b"none"))
}
