//! Tests of scopes and collections on the key-value port.

use std::collections::BTreeMap;

use kedge_cluster::ManifestEdit;
use kedge_protocol::binary::commands::{CollectionIdReply, ScopeIdReply};
use kedge_protocol::binary::{Feature, Features, Opcode};
use kedge_types::Status;

use crate::client::{Client, Frame, Reply, SDK_FEATURES};
use crate::server::{Kedge, PASSWORD};

pub(crate) fn create_scope(name: &str) -> ManifestEdit {
    ManifestEdit::CreateScope {
        scope: name.to_owned(),
    }
}

pub(crate) fn create(scope: &str, collection: &str) -> ManifestEdit {
    ManifestEdit::CreateCollection {
        scope: scope.to_owned(),
        collection: collection.to_owned(),
        max_ttl: None,
    }
}

pub(crate) fn edit(kedge: &Kedge, edits: &[ManifestEdit]) {
    for edit in edits {
        let registry = kedge.server().registry();
        registry.edit_manifest("default", edit).unwrap();
    }
}

fn ask(client: &mut Client, opcode: Opcode, path: &str) -> Reply {
    let frame = client.request(opcode).value(path.as_bytes());
    client.call(&frame)
}

pub(crate) fn as_user(kedge: &Kedge, user: &str, roles: &str) -> Client {
    let roles: kedge_auth::Roles = roles.parse().unwrap();
    let add = |store: &mut kedge_auth::UserStore| store.add(user, PASSWORD, roles.clone(), 1);
    kedge.users.change(add).unwrap();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in(user, PASSWORD);
    client.select("default");
    client
}

/// The id of a path and the manifest uid, or the status and its context.
pub(crate) fn found(client: &mut Client, path: &str) -> Result<(u64, u32), (Status, String)> {
    let reply = ask(client, Opcode::CollectionsGetId, path);
    if reply.status != Status::Success {
        return Err((reply.status, reply.text()));
    }
    let id = CollectionIdReply::decode(&reply.extras).unwrap();
    Ok((id.manifest_uid, id.collection.get()))
}

#[test]
fn new_bucket_has_the_default_collection() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let manifest = client.simple(Opcode::CollectionsGetManifest).ok();
    let default = r#"{"uid":"0","scopes":[{"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]}]}"#;
    assert_eq!(manifest.text(), default);
    for (path, status) in [
        ("_default._default", Status::Success),
        (".", Status::Success),
        ("_default.fruit", Status::UnknownCollection),
        ("garden.fruit", Status::UnknownScope),
        ("no-dot", Status::Invalid),
    ] {
        let reply = ask(&mut client, Opcode::CollectionsGetId, path);
        assert_eq!(reply.status, status, "{path}");
        if status == Status::Success {
            assert_eq!(reply.extras, [0; 12]);
        }
    }
    let scope = ask(&mut client, Opcode::CollectionsGetScopeId, "_default");
    assert_eq!(scope.ok().extras, [0; 12]);
}

#[test]
fn collection_ids_match_the_manifest() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    assert_eq!(
        found(&mut client, "garden.fruit"),
        Err((Status::UnknownScope, r#"{"manifest_uid":"0"}"#.to_owned()))
    );
    edit(&kedge, &[create_scope("garden"), create("garden", "fruit")]);
    assert_eq!(found(&mut client, "garden.fruit"), Ok((2, 8)));
    let unknown = Err((
        Status::UnknownCollection,
        r#"{"manifest_uid":"2"}"#.to_owned(),
    ));
    assert_eq!(found(&mut client, "garden.flowers"), unknown);
    assert_eq!(found(&mut client, "_default.fruit"), unknown);
    assert_eq!(found(&mut client, "garden."), unknown, "that is _default");
    let scope = ask(&mut client, Opcode::CollectionsGetScopeId, "garden").ok();
    let scope = ScopeIdReply::decode(&scope.extras).unwrap();
    assert_eq!((scope.manifest_uid, scope.scope), (2, 8));
    let unknown = ask(&mut client, Opcode::CollectionsGetScopeId, "fruit");
    assert_eq!(unknown.status, Status::UnknownScope);
    assert_eq!(unknown.text(), r#"{"manifest_uid":"2"}"#);
    let drop = ManifestEdit::DropScope {
        scope: "garden".to_owned(),
    };
    edit(&kedge, &[drop]);
    assert_eq!(
        found(&mut client, "garden.fruit"),
        Err((Status::UnknownScope, r#"{"manifest_uid":"3"}"#.to_owned()))
    );
    edit(&kedge, &[create_scope("garden"), create("garden", "fruit")]);
    assert_eq!(found(&mut client, "garden.fruit"), Ok((5, 9)), "another");
    let manifest = client.simple(Opcode::CollectionsGetManifest).ok().text();
    let expected = r#"{"name":"garden","uid":"9","collections":[{"name":"fruit","uid":"9"}]}"#;
    assert!(manifest.contains(expected), "{manifest}");
}

/// A user without privileges does not learn the names of scopes and collections.
#[test]
fn collections_without_privileges_are_hidden() {
    let kedge = Kedge::start();
    let made = [
        create_scope("s"),
        create_scope("t"),
        create("s", "a"),
        create("s", "b"),
        create("t", "a"),
    ];
    edit(&kedge, &made);
    let uid = r#"{"manifest_uid":"5"}"#;
    let no_collection = || Err((Status::UnknownCollection, uid.to_owned()));
    let no_scope = || Err((Status::UnknownScope, uid.to_owned()));
    for (user, roles, answers) in [
        (
            "narrow",
            "data_reader[default:s:a]",
            [Ok((5, 8)), no_collection(), no_scope(), no_scope()],
        ),
        (
            "scope",
            "data_writer[default:s]",
            [Ok((5, 8)), Ok((5, 9)), no_scope(), no_scope()],
        ),
        (
            "admin",
            "scope_admin[default:t]",
            [no_scope(), no_scope(), Ok((5, 10)), no_scope()],
        ),
        (
            "whole",
            "data_monitoring[default]",
            [Ok((5, 8)), Ok((5, 9)), Ok((5, 10)), Ok((5, 0))],
        ),
    ] {
        let mut client = as_user(&kedge, user, roles);
        let found = ["s.a", "s.b", "t.a", "_default._default"].map(|path| found(&mut client, path));
        assert_eq!(found, answers, "{user}");
    }
    let mut client = as_user(&kedge, "reads", "data_reader[default:s:a]");
    let manifest = client.simple(Opcode::CollectionsGetManifest).ok();
    assert_eq!(
        manifest.text(),
        r#"{"uid":"5","scopes":[{"name":"s","uid":"8","collections":[{"name":"a","uid":"8"}]}]}"#
    );
}

/// The statistics of a group, or the status of its refusal.
pub(crate) fn stats(client: &mut Client, group: &str) -> Result<BTreeMap<String, String>, Status> {
    let frame = client.request(Opcode::Stat);
    let frame = Frame {
        key: group.as_bytes().to_vec(),
        ..frame
    };
    let mut found = BTreeMap::new();
    let mut reply = client.call(&frame);
    loop {
        if reply.status != Status::Success {
            return Err(reply.status);
        }
        if reply.key.is_empty() {
            return Ok(found);
        }
        let name = String::from_utf8(reply.key.clone()).unwrap();
        found.insert(name, reply.text());
        reply = client.reply();
    }
}

#[test]
fn statistics_by_collection_and_scope() {
    let kedge = Kedge::start();
    let made = [
        create_scope("s"),
        create_scope("empty"),
        create("s", "a"),
        create("s", "b"),
    ];
    edit(&kedge, &made);
    let mut client = kedge.client();
    for (collection, key) in [(8, "one"), (8, "two"), (9, "one"), (0, "one")] {
        let mut frame = client.request(Opcode::Set).store(key, b"v");
        frame.key[0] = collection;
        client.call(&frame).ok();
    }
    let mut frame = client.request(Opcode::Get).key("one");
    frame.key[0] = 8;
    client.call(&frame).ok();
    let all = stats(&mut client, "collections").unwrap();
    for (name, value) in [
        ("manifest_uid", "0x4"),
        ("0x0:0x0:name", "_default"),
        ("0x0:0x0:items", "1"),
        ("0x8:0x8:name", "a"),
        ("0x8:0x8:scope_name", "s"),
        ("0x8:0x8:items", "2"),
        ("0x8:0x8:ops_store", "2"),
        ("0x8:0x8:ops_get", "1"),
        ("0x8:0x8:ops_delete", "0"),
        ("0x8:0x9:items", "1"),
    ] {
        assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
    }
    for group in ["collections s.a", "collections-byid 0x8"] {
        let one = stats(&mut client, group).unwrap();
        assert_eq!(one["0x8:0x8:items"], "2", "{group}");
        assert!(!one.keys().any(|name| name.starts_with("0x8:0x9")));
    }
    let scopes = stats(&mut client, "scopes").unwrap();
    for (name, value) in [
        ("0x0:collections", "1"),
        ("0x8:name", "s"),
        ("0x8:collections", "2"),
        ("0x8:items", "3"),
        ("0x9:name", "empty"),
        ("0x9:collections", "0"),
    ] {
        assert_eq!(scopes.get(name).map(String::as_str), Some(value), "{name}");
    }
    for group in ["scopes s", "scopes-byid 8"] {
        let one = stats(&mut client, group).unwrap();
        assert_eq!(one["0x8:items"], "3", "{group}");
        assert!(!one.contains_key("0x0:items"), "{group}");
    }
    for (group, status) in [
        ("collections s.none", Status::UnknownCollection),
        ("collections none.a", Status::UnknownScope),
        ("collections s", Status::Invalid),
        ("collections-byid 0x77", Status::UnknownCollection),
        ("collections-byid x", Status::Invalid),
        ("scopes none", Status::UnknownScope),
        ("scopes-byid 0x77", Status::UnknownScope),
    ] {
        assert_eq!(stats(&mut client, group), Err(status), "{group}");
    }
    // Only collections whose statistics the user may read.
    let mut watches = as_user(&kedge, "watches", "data_monitoring[default:s:b]");
    let seen = stats(&mut watches, "collections").unwrap();
    assert_eq!(seen["0x8:0x9:items"], "1");
    assert!(!seen.keys().any(|name| name.starts_with("0x8:0x8")));
    assert!(!seen.keys().any(|name| name.starts_with("0x0")));
    let hidden = stats(&mut watches, "collections s.a");
    assert_eq!(hidden, Err(Status::UnknownCollection));
    let mut reads = as_user(&kedge, "only_reads", "data_reader[default:s:b]");
    let refused = stats(&mut reads, "collections");
    assert_eq!(refused, Err(Status::AccessDenied));
}

/// The body is JSON if negotiated, and errors that a client does not know are replaced.
#[test]
fn collection_errors_depend_on_negotiated_features() {
    let kedge = Kedge::start();
    for (features, status, body) in [
        (
            &[Feature::Collections, Feature::Xerror][..],
            Status::UnknownCollection,
            "",
        ),
        (
            &[Feature::Collections, Feature::Json],
            Status::UnknownCollection,
            r#"{"manifest_uid":"0"}"#,
        ),
        // A client without collections.
        (
            &[Feature::Json],
            Status::Invalid,
            r#"{"error":{"context":"there is no such collection"}}"#,
        ),
    ] {
        let mut client = kedge.connect();
        client.hello(Features::of(features));
        client.log_in(crate::server::USER, PASSWORD);
        client.select("default");
        let reply = ask(&mut client, Opcode::CollectionsGetId, "_default.c");
        assert_eq!((reply.status, reply.text()), (status, body.to_owned()));
    }
}
