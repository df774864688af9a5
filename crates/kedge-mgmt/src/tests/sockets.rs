//! Connections: what clients may send, and what is too much.

use std::time::Duration;

use super::Server;
use super::client::Client;
use crate::serve::ConnectionTimeouts;
use crate::{BODY_BYTES_MAX, HEADER_BYTES_MAX, UNAUTHENTICATED_TIMEOUT};

#[test]
fn chunked_form_is_accepted() {
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
fn trailing_slashes_are_accepted_on_all_paths() {
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
fn connection_serves_many_and_pipelined_requests() {
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
fn too_large_requests_are_refused() {
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

/// Any page in a browser of a machine that reaches the server could send it requests, and one under a name that its owner
/// had pointed at the server's address could read the answers.
#[test]
fn foreign_origins_and_hosts_are_refused() {
    let server = Server::start();
    for (headers, status) in [
        ("Host: 127.0.0.1\r\n", 200),
        ("Host: kedge.example:8091\r\n", 200),
        ("", 200),
        ("Host: localhost\r\nOrigin: http://localhost\r\n", 200),
        ("Host: rebound.evil\r\n", 403),
        ("Host: localhost\r\nOrigin: http://page.evil\r\n", 403),
        ("Host: localhost\r\nOrigin: null\r\n", 403),
    ] {
        for (version, path) in [("1.0", "/whoami"), ("1.1", "/"), ("1.1", "/pools/")] {
            // Each HTTP/1.1 request has a host.
            if version == "1.1" && headers.is_empty() {
                continue;
            }
            let mut client = server.connect();
            client.raw_head(&format!("GET {path} HTTP/{version}\r\n{headers}"));
            let reply = client.reply();
            assert_eq!(reply.status, status, "{headers:?} {path}: {reply:?}");
        }
    }
    let mut client = server.connect();
    client.raw_head("GET / HTTP/1.1\r\nHost: rebound.evil:1\r\n");
    let said = client.reply().body;
    assert!(
        said.contains("rebound.evil") && said.contains("http_allowed_hosts"),
        "{said}"
    );
}

#[test]
fn garbage_closes_only_its_connection() {
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
fn port_is_free_after_a_stop() {
    let mut server = Server::start();
    let mut idle = server.connect();
    assert_eq!(idle.request("GET", "/whoami", "").status, 200);
    server.handle.take().unwrap().stop();
    assert_eq!(idle.rest(), "");
    drop(std::net::TcpListener::bind(server.address).unwrap());
    assert!(server.dir.path().exists());
}

#[test]
fn slow_request_is_closed() {
    let server = Server::start_timed(ConnectionTimeouts {
        header: Duration::from_millis(50),
        unauthenticated: UNAUTHENTICATED_TIMEOUT,
    });
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
