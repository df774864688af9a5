//! Tests of the bootstrap of clients: HELLO, login, bucket selection.

use kedge_auth::Mechanism;
use kedge_protocol::binary::commands::{GetErrorMap, SelectBucket};
use kedge_protocol::binary::{Feature, Features, Opcode, RequestWriter};
use kedge_types::Status;

use crate::client::{Client, SDK_FEATURES};
use crate::server::{Kedge, PASSWORD, USER};

#[test]
fn every_mechanism_accepts_the_password_and_rejects_a_wrong_one() {
    let kedge = Kedge::start();
    for mechanism in Mechanism::ALL {
        for (user, password, expected) in [
            (USER, PASSWORD, Status::Success),
            (USER, "wrong", Status::AuthError),
            ("nobody", PASSWORD, Status::AuthError),
        ] {
            let mut client = kedge.connect();
            client.hello(SDK_FEATURES);
            assert_eq!(
                client.sasl(mechanism, user, password),
                expected,
                "{mechanism:?} {user}"
            );
            let may = expected == Status::Success;
            let selected = client.try_select("default").status;
            assert_eq!(selected == Status::Success, may, "{mechanism:?} {user}");
        }
    }
    let metrics = kedge.server().metrics().snapshot();
    assert_eq!(metrics.auth_commands, 12);
    assert_eq!(metrics.auth_errors, 8);
}

#[test]
fn mechanisms_are_listed_strongest_first() {
    let kedge = Kedge::start();
    let listed = kedge.connect().simple(Opcode::SaslListMechs).ok().text();
    assert_eq!(listed, "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN");
}

#[test]
fn commands_before_the_login_are_denied() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    for opcode in [
        Opcode::Get,
        Opcode::Stat,
        Opcode::GetClusterConfig,
        Opcode::SelectBucket,
        Opcode::ListBuckets,
        Opcode::CollectionsGetManifest,
    ] {
        assert_eq!(
            client.simple(opcode).status,
            Status::AccessDenied,
            "{opcode:?}"
        );
    }
    for opcode in [Opcode::Noop, Opcode::Version, Opcode::SaslListMechs] {
        client.simple(opcode).ok();
    }
    assert_eq!(
        client.simple(Opcode::Version).text(),
        "8.0.0-0000-enterprise"
    );
}

#[test]
fn extended_status_closes_the_connection_without_xerror() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    let frame = client.request(Opcode::Get).key("k");
    client.send(&frame.bytes());
    client.assert_closed();
}

#[test]
fn missing_bucket_is_answered_like_a_forbidden_one() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in("reader", PASSWORD);
    for name in ["missing", "", "\u{e4}"] {
        assert_eq!(
            client.try_select(name).status,
            Status::AccessDenied,
            "{name:?}"
        );
    }
    assert_eq!(client.get("k").status, Status::NoBucket);
    client.select("default");
    assert_eq!(client.get("k").status, Status::KeyNotFound);
    assert_eq!(
        client.set("k", b"v").status,
        Status::AccessDenied,
        "the role only reads"
    );
    client.select(std::str::from_utf8(SelectBucket::NO_BUCKET).unwrap());
    assert_eq!(client.get("k").status, Status::NoBucket);
}

#[test]
fn error_map_has_the_requested_version() {
    let kedge = Kedge::start();
    for (asked, got) in [(1, Some("1")), (2, Some("2")), (7, Some("2")), (0, None)] {
        let mut client = kedge.connect();
        let mut bytes = Vec::new();
        GetErrorMap { version: asked }.encode(&RequestWriter::new(Opcode::GetErrorMap), &mut bytes);
        client.send(&bytes);
        let reply = client.reply();
        match got {
            None => assert_eq!(reply.status, Status::KeyNotFound),
            Some(version) => {
                let map: serde_json::Value = serde_json::from_slice(&reply.ok().value).unwrap();
                assert_eq!(map["version"].to_string(), version);
            }
        }
    }
}

#[test]
fn bootstrap_in_one_write() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    // Like libcouchbase: all with opaque 0.
    let mut bytes = Vec::new();
    let hello = kedge_protocol::binary::commands::Hello {
        agent: b"{\"a\":\"x\"}",
        features: SDK_FEATURES,
    };
    hello.encode(&RequestWriter::new(Opcode::Hello), &mut bytes);
    GetErrorMap { version: 1 }.encode(&RequestWriter::new(Opcode::GetErrorMap), &mut bytes);
    RequestWriter::new(Opcode::SaslListMechs).write(&[], &[], &[], &mut bytes);
    client.send(&bytes);
    for opcode in [Opcode::Hello, Opcode::GetErrorMap, Opcode::SaslListMechs] {
        let reply = client.reply().ok();
        assert_eq!((reply.opcode, reply.opaque), (opcode.wire(), 0));
    }
}

#[test]
fn hello_replaces_negotiated_features() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    assert!(client.features.contains(Feature::Collections));
    assert!(client.features.contains(Feature::Xattr));
    client.set("k", b"v").ok();
    client.hello(Features::of(&[Feature::Xerror]));
    assert_eq!(
        client.get("k").ok().value,
        b"v",
        "the key has no prefix any more"
    );
    let not_before_it_works = Feature::ReportUnitUsage;
    client.hello(Features::of(&[not_before_it_works, Feature::Xerror]));
    assert!(!client.features.contains(not_before_it_works));
    assert!(client.features.contains(Feature::Xerror));
    client.hello(Features::NONE);
    assert_eq!(client.features, Features::NONE);
}

/// Compares the granted features with the list in `docs/compat.md`.
#[test]
fn hello_grants_all_features_but_tls_and_metering() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    let asked = Features::ALL.without(Feature::TcpDelay);
    client.hello(asked);
    let never = [
        Feature::Tls,
        Feature::ReportUnitUsage,
        Feature::NonBlockingThrottling,
    ];
    let never = Features::of(&never);
    assert_eq!(client.features, asked.difference(never));
}

#[test]
fn hello_with_conflicting_features_changes_nothing() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    let frame = client
        .request(Opcode::Hello)
        .value(&Feature::ClustermapChangeNotification.wire().to_be_bytes());
    assert_eq!(client.call(&frame).status, Status::Invalid);
    client.set("k", b"v").ok();
}

#[test]
fn removed_user_loses_all_privileges() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.set("k", b"v").ok();
    kedge.users.change(|users| users.remove(USER)).unwrap();
    assert_eq!(client.get("k").status, Status::AccessDenied);
}

#[test]
fn unfinished_login_gives_no_access() {
    let kedge = Kedge::start();
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    let step = client.request(Opcode::SaslStep);
    let step = crate::client::Frame {
        key: b"SCRAM-SHA512".to_vec(),
        ..step
    }
    .value(b"c=biws,r=x,p=eA==");
    assert_eq!(client.call(&step).status, Status::AuthError);
    let first = client.request(Opcode::SaslAuth);
    let first = crate::client::Frame {
        key: b"SCRAM-SHA512".to_vec(),
        ..first
    }
    .value(b"n,,n=app,r=abc");
    assert_eq!(client.call(&first).status, Status::AuthContinue);
    assert_eq!(client.try_select("default").status, Status::AccessDenied);
    let unknown = client.request(Opcode::SaslAuth);
    let unknown = crate::client::Frame {
        key: b"CRAM-MD5".to_vec(),
        ..unknown
    };
    assert_eq!(client.call(&unknown).status, Status::AuthError);
    assert_eq!(
        Client::sasl(&mut client, Mechanism::Plain, USER, PASSWORD),
        Status::Success
    );
    client.select("default");
}
