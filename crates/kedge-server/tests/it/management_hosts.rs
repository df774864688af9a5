//! Tests of the names under which management answers.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::server::{Kedge, Setup};

/// The status of a request without a login that names the server so: 401 unless the name is refused.
fn status(kedge: &Kedge, host: &str) -> String {
    let mut client = TcpStream::connect(kedge.server().mgmt_addr().unwrap()).unwrap();
    let request = format!("GET /whoami HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    reply.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn management_answers_under_its_own_and_the_allowed_names() {
    let kedge = Kedge::with(Setup {
        http_allowed_hosts: vec!["kv.example".to_owned(), "other.example".to_owned()],
        ..Setup::default()
    });
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_str().unwrap();
    for host in [
        "kv.example",
        "kv.example:8091",
        "KV.EXAMPLE",
        "other.example",
        "localhost",
        "127.0.0.1",
        machine,
    ] {
        assert_eq!(status(&kedge, host), "401", "{host}");
    }
    for host in ["rebound.evil", "kv.example.evil", "example"] {
        assert_eq!(status(&kedge, host), "403", "{host}");
    }
    let plain = Kedge::start();
    assert_eq!(status(&plain, "kv.example"), "403");
}
