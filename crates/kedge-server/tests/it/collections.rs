//! Scopes and collections as clients of the key-value port see them.

use kedge_cluster::ManifestEdit;
use kedge_protocol::binary::commands::{CollectionIdReply, ScopeIdReply};
use kedge_protocol::binary::{Feature, Features, Opcode};
use kedge_types::Status;

use crate::client::{Client, Reply, SDK_FEATURES};
use crate::server::{Kedge, PASSWORD};

fn create_scope(name: &str) -> ManifestEdit {
    ManifestEdit::CreateScope {
        scope: name.to_owned(),
    }
}

fn create(scope: &str, collection: &str) -> ManifestEdit {
    ManifestEdit::CreateCollection {
        scope: scope.to_owned(),
        collection: collection.to_owned(),
        max_ttl: None,
    }
}

fn edit(kedge: &Kedge, edits: &[ManifestEdit]) {
    for edit in edits {
        let registry = kedge.server().registry();
        registry.edit_manifest("default", edit).unwrap();
    }
}

fn ask(client: &mut Client, opcode: Opcode, path: &str) -> Reply {
    let frame = client.request(opcode).value(path.as_bytes());
    client.call(&frame)
}

fn as_user(kedge: &Kedge, user: &str, roles: &str) -> Client {
    let roles = roles.parse().unwrap();
    let add = |store: &mut kedge_auth::UserStore| store.add(user, PASSWORD, roles, 1);
    kedge.users.change(add).unwrap();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in(user, PASSWORD);
    client.select("default");
    client
}

/// What is told of a path: its id and the manifest's uid, or the status and what it says.
fn found(client: &mut Client, path: &str) -> Result<(u64, u32), (Status, String)> {
    let reply = ask(client, Opcode::CollectionsGetId, path);
    if reply.status != Status::Success {
        return Err((reply.status, reply.text()));
    }
    let id = CollectionIdReply::decode(&reply.extras).unwrap();
    Ok((id.manifest_uid, id.collection.get()))
}

#[test]
fn there_is_the_default_one_first() {
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
fn ids_are_those_of_the_manifest() {
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

/// Where a user may do nothing, it does not learn what there is.
#[test]
fn what_is_none_of_a_users_business_is_not_there() {
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

/// The body is JSON for those who negotiated it, and errors that a client does not know are others.
#[test]
fn errors_are_what_the_client_understands() {
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
        // One that knows of no collections.
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
