//! Connections: what clients may send, and what is too much.

use std::time::Duration;

use super::Server;
use super::client::Client;
use crate::http::{BODY_BYTES_MAX, CONNECTIONS_MAX, HEADER_BYTES_MAX};

#[test]
fn a_chunked_form_is_a_form() {
    let server = Server::start();
    let mut client = server.connect();
    client.head(
        "POST",
        "/pools/default/buckets",
        "Transfer-Encoding: chunked\r\n",
    );
    for chunk in ["name=chu", "nked&ramQuotaMB=10", "0&numVBuckets=2"] {
        client.send(format!("{:x}\r\n{chunk}\r\n", chunk.len()).as_bytes());
    }
    client.send(b"0\r\n\r\n");
    client.reply().is(202, "");
    assert_eq!(server.registry.get("chunked").unwrap().vbuckets(), 2);
}

#[test]
fn slashes_at_the_end_are_allowed_everywhere() {
    let server = Server::start();
    let mut client = server.connect();
    client
        .request(
            "POST",
            "/pools/default/buckets/",
            "name=b&ramQuotaMB=100&numVBuckets=1",
        )
        .is(202, "");
    for path in [
        "/pools/",
        "/whoami/",
        "/pools/default/",
        "/pools/default/buckets/",
        "/pools/default/buckets/b/",
        "/pools/default/buckets/b//",
        "/pools/default/buckets/b/scopes/",
        "/settings/rbac/users/local/root/",
    ] {
        assert_eq!(client.request("GET", path, "").status, 200, "{path}");
    }
}

#[test]
fn one_connection_takes_many_requests_also_at_once() {
    let server = Server::start();
    let mut client = server.connect();
    for path in ["/pools", "/no/such/path", "/whoami"] {
        client.request("GET", path, "");
    }
    for _ in 0..10 {
        client.head("GET", "/whoami", "");
    }
    for _ in 0..10 {
        assert_eq!(client.reply().json()["id"], "root");
    }
}

#[test]
fn unknown_paths_and_methods() {
    let server = Server::start();
    let mut client = server.connect();
    for path in [
        "/nothing",
        "/pools/default/nothing",
        "/pools/default/buckets/default/nothing",
    ] {
        client.request("GET", path, "").is(404, "Not found.");
    }
    client
        .request("PUT", "/pools/default", "")
        .is(405, "Method Not Allowed");
}

#[test]
fn too_large_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    // Announced: the length alone is enough to refuse.
    client.head(
        "POST",
        "/pools/default",
        &format!("Content-Length: {}\r\n", BODY_BYTES_MAX + 1),
    );
    assert_eq!(client.reply_head().0, 413);
    // Not announced: the server must count.
    let mut client = server.connect();
    client.head("POST", "/pools/default", "Transfer-Encoding: chunked\r\n");
    let chunk = vec![b'x'; BODY_BYTES_MAX / 2 + 1];
    for _ in 0..2 {
        client.send(format!("{:x}\r\n", chunk.len()).as_bytes());
        client.send(&chunk);
        client.send(b"\r\n");
    }
    assert_eq!(client.reply_head().0, 413);
    let mut client = server.connect();
    client.head(
        "GET",
        "/whoami",
        &format!("X: {}\r\n", "x".repeat(HEADER_BYTES_MAX)),
    );
    assert_eq!(client.reply_head().0, 431);
    assert_eq!(server.get("/whoami").status, 200);
}

#[test]
fn garbage_ends_that_connection_alone() {
    let server = Server::start();
    let mut good = server.connect();
    for garbage in [
        &b"\x80\x1f\0\0\0\0\0\0\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\r\nX Y Z\r\n\r\n",
    ] {
        let mut bad = Client::connect(server.address, None);
        bad.send(garbage);
        let rest = bad.rest();
        assert!(
            rest.is_empty() || rest.starts_with("HTTP/1.1 400"),
            "{rest:?}"
        );
        assert_eq!(good.request("GET", "/whoami", "").status, 200);
    }
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = Server::start();
    let mut connections: Vec<Client> = (0..CONNECTIONS_MAX).map(|_| server.connect()).collect();
    // Connections are accepted in the order in which they came: with the last, all are in.
    assert_eq!(
        connections[CONNECTIONS_MAX - 1]
            .request("GET", "/whoami", "")
            .status,
        200
    );
    let mut refused = Client::connect(server.address, None);
    assert_eq!(refused.reply().status, 503);
    assert_eq!(refused.rest(), "");
    assert_eq!(connections[0].request("GET", "/whoami", "").status, 200);
}

#[test]
fn the_port_is_free_after_a_stop() {
    let mut server = Server::start();
    let mut idle = server.connect();
    assert_eq!(idle.request("GET", "/whoami", "").status, 200);
    server.handle.take().unwrap().stop();
    assert_eq!(idle.rest(), "");
    drop(std::net::TcpListener::bind(server.address).unwrap());
    assert!(server.dir.path().exists());
}

#[test]
fn who_is_slow_to_ask_is_let_go() {
    let server = Server::start_with(Duration::from_millis(50));
    let mut silent = Client::connect(server.address, None);
    let mut slow = Client::connect(server.address, None);
    slow.send(b"GET / HTTP/1.1\r\nHo");
    let mut idle = server.connect();
    assert_eq!(idle.request("GET", "/whoami", "").status, 200);
    for client in [&mut silent, &mut slow, &mut idle] {
        let rest = client.rest();
        assert!(
            rest.is_empty() || rest.starts_with("HTTP/1.1 408"),
            "{rest}"
        );
    }
}
