//! Statuses of commands on whole documents.

use kedge_protocol::binary::Opcode;
use kedge_types::Status;

use super::{Row, provoked};
use crate::client::Client;
use crate::commands::count;
use crate::server::Kedge;
use crate::with_meta::{Meta, frame};

pub(super) const ROWS: &[Row] = &[
    provoked(
        Status::KeyNotFound,
        "GET of a document that is not there",
        not_found,
    ),
    provoked(Status::KeyExists, "ADD of a document that is there", exists),
    provoked(Status::TooBig, "SET of more than 20 MiB", too_big),
    provoked(
        Status::NotStored,
        "APPEND to a document that is not there",
        not_stored,
    ),
    provoked(
        Status::DeltaBadValue,
        "INCREMENT of a text",
        delta_bad_value,
    ),
    provoked(Status::Locked, "SET of a locked document", locked),
    provoked(
        Status::NotLocked,
        "UNLOCK_KEY of a document that is not locked",
        not_locked,
    ),
    provoked(
        Status::CasValueInvalid,
        "SET_WITH_META with a CAS of all ones",
        cas_invalid,
    ),
];

/// The status of the last step of a client, with a document "k".
fn with_document(step: impl FnOnce(&mut Client, u64) -> Status) -> Status {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let cas = client.set("k", b"text").ok().cas;
    step(&mut client, cas)
}

fn not_found() -> Status {
    with_document(|client, _| client.get("none").status)
}

fn exists() -> Status {
    with_document(|client, _| {
        let add = client.request(Opcode::Add).store("k", b"v");
        client.call(&add).status
    })
}

fn too_big() -> Status {
    with_document(|client, _| client.set("k", &vec![b'x'; (20 << 20) + 1]).status)
}

fn not_stored() -> Status {
    with_document(|client, _| {
        let append = client.request(Opcode::Append).key("none").value(b"v");
        client.call(&append).status
    })
}

fn delta_bad_value() -> Status {
    with_document(|client, _| {
        let extras = count(1, 0, 0);
        let increment = client.request(Opcode::Increment).key("k").extras(&extras);
        client.call(&increment).status
    })
}

fn locked() -> Status {
    with_document(|client, _| {
        let lock = client.request(Opcode::GetLocked).key("k");
        client.call(&lock).ok();
        client.set("k", b"v").status
    })
}

fn not_locked() -> Status {
    with_document(|client, cas| {
        let unlock = client.request(Opcode::UnlockKey).key("k").cas(cas);
        client.call(&unlock).status
    })
}

fn cas_invalid() -> Status {
    with_document(|client, _| {
        let write = frame(client, Opcode::SetWithMeta, "k", Meta::of(9, u64::MAX));
        client.call(&write).status
    })
}
