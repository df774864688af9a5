//! Tests of logins and permissions on the memcached port.

use std::sync::Arc;

use kedge_auth::{AuthFile, Mechanism};
use kedge_frontend::{FrontendLimits, MemcachedRules};
use kedge_protocol::binary::Opcode;
use kedge_types::Status;

use crate::client::Frame;
use crate::server::{Kedge, PASSWORD, Setup, USER};

const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated\r\n";
const FAILURE: &str = "CLIENT_ERROR authentication failure\r\n";

fn with_rules(memcached: MemcachedRules) -> Kedge {
    Kedge::with(Setup {
        memcached,
        // The time limit of logins must not end the test.
        limits: FrontendLimits {
            unauthenticated: std::time::Duration::from_secs(60),
            ..FrontendLimits::default()
        },
        ..Setup::default()
    })
}

fn with_login(auth_file: Option<&str>) -> Kedge {
    let file = auth_file.map(|text| Arc::new(AuthFile::parse(text.as_bytes()).unwrap()));
    with_rules(MemcachedRules {
        login: true,
        auth_file: file,
        ..MemcachedRules::default()
    })
}

fn frame(opcode: Opcode, key: &str) -> Frame {
    Frame {
        vb: 0,
        ..Frame::new(opcode, 9).key(key)
    }
}

#[test]
fn text_clients_log_in_with_their_first_command() {
    // The memcached port could be opened to a network, and any client read and wrote without a login, which could not
    // be required.
    let kedge = with_login(Some("foo:bar\nbaaaz:quux\n"));
    let mut text = kedge.text();
    for (sent, expected) in [
        ("get foo\r\n", UNAUTHENTICATED),
        ("mg foo v\r\n", UNAUTHENTICATED),
        ("stats\r\n", UNAUTHENTICATED),
        ("add foo 0 0 7\r\nfoo bar\r\n", UNAUTHENTICATED),
        ("ms foo 7\r\nfoo bar\r\n", UNAUTHENTICATED),
        ("set foo 0 0 2147483646\r\n", UNAUTHENTICATED),
        (
            "set foo 0 0 2\r\nhi\r\n",
            "CLIENT_ERROR bad authentication token format\r\n",
        ),
        ("set foo 0 0 7\r\nfoo bab\r\n", FAILURE),
        ("set foo 0 0 7\r\nfoo bar\r\n", "STORED\r\n"),
        // The login stored no document.
        ("get foo\r\n", "END\r\n"),
        ("set toast 0 0 2\r\nhi\r\n", "STORED\r\n"),
        ("get toast\r\n", "VALUE toast 0 2\r\nhi\r\nEND\r\n"),
        ("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n"),
    ] {
        text.expect(sent, expected);
    }
    let mut other = kedge.text();
    other.expect(
        "set x 0 0 10\r\nbaaaz quux\r\nget toast\r\n",
        "STORED\r\nVALUE toast 0 2\r\nhi\r\nEND\r\n",
    );
}

#[test]
fn server_users_have_their_roles_on_the_memcached_port() {
    let kedge = with_login(None);
    let mut reader = kedge.text();
    let login = |user: &str| {
        let value = format!("{user} {PASSWORD}");
        format!("set login 0 0 {}\r\n{value}\r\n", value.len())
    };
    reader.expect(&login("nobody"), FAILURE);
    reader.expect(&login("reader"), "STORED\r\n");
    let refused = reader.until("set k 0 0 1\r\nv\r\nmn\r\n", "MN");
    assert!(
        refused.starts_with("SERVER_ERROR AccessDenied"),
        "{refused}"
    );
    let mut app = kedge.text();
    app.expect(
        &format!("{}set k 0 0 1\r\nv\r\nget k\r\n", login(USER)),
        "STORED\r\nSTORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n",
    );
}

#[test]
fn large_value_before_the_login_is_refused() {
    let kedge = with_login(None);
    let mut text = kedge.text();
    text.expect(
        "set foo 0 0 1000000\r\n",
        "CLIENT_ERROR auth token too long\r\n",
    );
    text.assert_closed();
}

#[test]
fn binary_clients_log_in_with_sasl() {
    let kedge = with_login(Some("foo:bar\n"));
    let mut client = kedge.memcached();
    let set = frame(Opcode::Set, "k").extras(&[0; 8]).value(b"v");
    for refused in [
        set.clone(),
        frame(Opcode::Get, "k"),
        frame(Opcode::Stat, ""),
    ] {
        let reply = client.call(&refused);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (Status::AuthError, "Auth failure.")
        );
    }
    client.simple(Opcode::Version).ok();
    assert!(
        client
            .simple(Opcode::SaslListMechs)
            .ok()
            .text()
            .contains("PLAIN")
    );
    let plain = |client: &mut crate::client::Client, user, password| {
        client.sasl(Mechanism::Plain, user, password)
    };
    assert_eq!(plain(&mut client, "foo", "baz"), Status::AuthError);
    assert_eq!(client.call(&set).status, Status::AuthError);
    assert_eq!(plain(&mut client, "foo", "bar"), Status::Success);
    client.call(&set).ok();
    // A user of the file is never the server's user of the same name.
    assert_eq!(
        client.call(&frame(Opcode::SetVbucket, "")).status,
        Status::AccessDenied
    );
    let mut sdk = kedge.memcached();
    assert_eq!(
        sdk.sasl(Mechanism::ScramSha512, USER, PASSWORD),
        Status::Success
    );
    assert_eq!(sdk.call(&frame(Opcode::Get, "k")).ok().value, b"v");
}

#[test]
fn memcached_clients_cannot_manage_the_bucket() {
    // Any client of the port could delete vBuckets, as it had every privilege in the bucket.
    let kedge = Kedge::start();
    let mut client = kedge.memcached();
    for opcode in [Opcode::SetVbucket, Opcode::DelVbucket, Opcode::CompactDb] {
        let reply = client.call(&frame(opcode, ""));
        assert_eq!(reply.status, Status::AccessDenied, "{opcode:?}");
    }
    client
        .call(&frame(Opcode::Set, "k").extras(&[0; 8]).value(b"v"))
        .ok();
    // A client that logs in as an administrator is one.
    let mut root = kedge.memcached();
    let done = root.sasl(Mechanism::Plain, "root", PASSWORD);
    assert_eq!(done, Status::Success);
    let reply = root.call(&frame(Opcode::CompactDb, ""));
    assert_ne!(reply.status, Status::AccessDenied);
}

#[test]
fn flush_all_is_disabled_by_default() {
    let kedge = with_rules(MemcachedRules::default());
    let mut text = kedge.text();
    for (sent, expected) in [
        ("set k 0 0 1\r\nv\r\n", "STORED\r\n"),
        ("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n"),
        ("flush_all 10\r\n", "CLIENT_ERROR flush_all not allowed\r\n"),
        (
            "flush_all noreply\r\nget k\r\n",
            "VALUE k 0 1\r\nv\r\nEND\r\n",
        ),
    ] {
        text.expect(sent, expected);
    }
    let settings = text.until("stats settings\r\n", "END");
    assert!(settings.contains("STAT flush_enabled no\r\n"), "{settings}");
    text.expect("stats reset\r\n", "RESET\r\n");
    let mut client = kedge.memcached();
    let reply = client.call(&frame(Opcode::Flush, ""));
    assert_eq!(reply.status, Status::AuthError);
    // The rule is the port's, not the bucket's.
    let mut sdk = kedge.client();
    sdk.simple(Opcode::Flush).ok();
    text.expect("get k\r\n", "END\r\n");
}

#[test]
fn item_size_limit_of_the_memcached_port() {
    let kedge = with_rules(MemcachedRules {
        item_bytes_max: 1 << 20,
        ..MemcachedRules::default()
    });
    let mut text = kedge.text();
    let value = |len: usize| format!("{len}\r\n{}\r\n", "x".repeat(len));
    text.expect(&format!("set a 0 0 {}", value(1 << 20)), "STORED\r\n");
    const TOO_LARGE: &str = "SERVER_ERROR object too large for cache\r\n";
    text.expect(&format!("set b 0 0 {}", value((1 << 20) + 1)), TOO_LARGE);
    text.expect(&format!("ms b {}", value((1 << 20) + 1)), TOO_LARGE);
    // The limit is one of what is sent: memcached refuses this.
    text.expect(&format!("append a 0 0 {}", value(1)), "STORED\r\n");
    let settings = text.until("stats settings\r\n", "END");
    assert!(settings.contains("STAT item_size_max 1048576\r\n"));
    let mut client = kedge.memcached();
    let long = vec![b'x'; (1 << 20) + 1];
    let mut set = frame(Opcode::Set, "b").extras(&[0; 8]).value(&long);
    let reply = client.call(&set);
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (Status::TooBig, "Too large.")
    );
    set = set.value(&long[1..]);
    client.call(&set).ok();
    let mut sdk = kedge.client();
    let large = sdk
        .request(Opcode::Set)
        .key("b")
        .extras(&[0; 8])
        .value(&long);
    sdk.call(&large).ok();
}

#[test]
fn sasl_is_unknown_without_users() {
    // memcached without SASL does not know its commands; a client then continues without a login.
    let kedge = Kedge::with(Setup {
        has_users: false,
        ..Setup::default()
    });
    let mut client = kedge.memcached();
    assert_eq!(
        client.simple(Opcode::SaslListMechs).status,
        Status::UnknownCommand
    );
    assert_eq!(
        client.sasl(Mechanism::Plain, USER, PASSWORD),
        Status::UnknownCommand
    );
    client
        .call(&frame(Opcode::Set, "k").extras(&[0; 8]).value(b"v"))
        .ok();
}
