//! Tests of the privileges for system xattrs, whose names begin with `_`, and for user xattrs, as in transactions of
//! SDKs.

use kedge_protocol::binary::commands::subdoc::{DocFlags, PathFlags, SubdocOp, SubdocSpec};
use kedge_types::Status;

use crate::client::{Client, SDK_FEATURES};
use crate::collections::as_user;
use crate::server::{Kedge, PASSWORD, USER};
use crate::subdoc::{NO, PX, X, call, looked, spec};

/// Requests about a document with both kinds of xattrs, and their reads and writes.
fn requests() -> [(Vec<SubdocSpec<'static>>, &'static str); 8] {
    let get = |path| vec![spec(SubdocOp::Get, X, path, "")];
    let set = |path| vec![spec(SubdocOp::DictUpsert, PX, path, "{}")];
    let take = |path| vec![spec(SubdocOp::ReplaceBodyWithXattr, X, path, "")];
    [
        (get("txn"), "r"),
        (get("_sync.rev"), "r"),
        (get("$XTOC"), "r"),
        (get("$document.CAS"), "r"),
        (set("txn.op"), "w"),
        (set("_sync.more"), "w"),
        (take("mine"), "w"),
        (take("_sync"), "rw"),
    ]
}

fn as_known(kedge: &Kedge, user: &str) -> Client {
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in(user, PASSWORD);
    client.select("default");
    client
}

#[test]
fn document_roles_access_system_xattrs() {
    let kedge = Kedge::start();
    let mut owner = kedge.client();
    let part = "[default:_default:_default]";
    let of_part = |user, roles: &[&str]| {
        let roles: Vec<String> = roles.iter().map(|role| format!("{role}{part}")).collect();
        as_user(&kedge, user, &roles.join(","))
    };
    for (who, mut client, may) in [
        ("admin", as_known(&kedge, "root"), "rw"),
        ("bucket_full_access", as_known(&kedge, USER), "rw"),
        ("data_reader", as_known(&kedge, "reader"), "r"),
        ("data_writer", as_known(&kedge, "writer"), "w"),
        (
            "both",
            of_part("both", &["data_reader", "data_writer"]),
            "rw",
        ),
        ("reader of a part", of_part("r", &["data_reader"]), "r"),
        ("writer of a part", of_part("w", &["data_writer"]), "w"),
        (
            "monitor",
            as_user(&kedge, "m", "data_monitoring[default]"),
            "",
        ),
    ] {
        for (specs, needs) in requests() {
            owner.set("k", b"{}").ok();
            let attributes = ["_sync.rev", "txn.id", "mine"];
            let attributes = attributes.map(|it| spec(SubdocOp::DictUpsert, PX, it, "1"));
            call(&mut owner, "k", DocFlags::NONE, &attributes).ok();
            let status = match needs.chars().all(|it| may.contains(it)) {
                true => Status::Success,
                false => Status::AccessDenied,
            };
            let reply = call(&mut client, "k", DocFlags::NONE, &specs);
            assert_eq!(reply.status, status, "{who}: {specs:?}");
        }
    }
}

/// Tests the commands that SDKs send to stage a new document and to commit it.
#[test]
fn transactions_need_read_and_write_only() {
    let kedge = Kedge::start();
    let roles = "data_reader[default:_default:_default],data_writer[default:_default:_default]";
    let mut client = as_user(&kedge, "stager", roles);
    let staged = [
        spec(SubdocOp::DictUpsert, PX, "txn.op.type", r#""insert""#),
        spec(SubdocOp::DictUpsert, PX, "txn.op.stgd", r#"{"a":1}"#),
        spec(
            SubdocOp::DictUpsert,
            PX.union(PathFlags::EXPAND_MACROS),
            "txn.op.crc32",
            r#""${Mutation.value_crc32c}""#,
        ),
    ];
    let hidden = DocFlags::CREATE_AS_DELETED
        .union(DocFlags::ACCESS_DELETED)
        .union(DocFlags::ADD);
    let reply = call(&mut client, "k", hidden, &staged);
    assert_eq!(reply.status, Status::SubdocSuccessDeleted);
    let seen = [
        spec(SubdocOp::Get, X, "txn", ""),
        spec(SubdocOp::Get, X, "$document", ""),
    ];
    let reply = call(&mut client, "k", DocFlags::ACCESS_DELETED, &seen);
    assert_eq!(reply.status, Status::SubdocSuccessDeleted);
    let commit = [
        spec(SubdocOp::ReplaceBodyWithXattr, X, "txn.op.stgd", ""),
        spec(SubdocOp::Delete, X, "txn", ""),
    ];
    let revive = DocFlags::ACCESS_DELETED.union(DocFlags::REVIVE);
    call(&mut client, "k", revive, &commit).ok();
    let body = [spec(SubdocOp::Get, NO, "a", "")];
    let reply = call(&mut client, "k", DocFlags::NONE, &body).ok();
    assert_eq!(looked(&reply), [(0, "1".to_owned())]);
}
