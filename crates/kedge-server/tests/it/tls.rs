//! Tests of connections over TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_auth::Mechanism;
use kedge_frontend::FrontendLimits;
use kedge_protocol::binary::Opcode;
use kedge_tls::rustls::pki_types::ServerName;
use kedge_tls::rustls::{ClientConnection, Stream};
use kedge_tls::{ClientCerts, FailureReason};
use kedge_types::Status;

use crate::client::{Came, Client, SDK_FEATURES, Text};
use crate::floods::from;
use crate::server::{Kedge, PASSWORD, Setup, USER};
use crate::tls_client;

const DEADLINE: Duration = Duration::from_secs(20);

fn kedge(client_certs: ClientCerts) -> Kedge {
    Kedge::with(Setup {
        tls: Some(client_certs),
        ..Setup::default()
    })
}

/// A client like an SDK, over TLS.
fn sdk(kedge: &Kedge) -> Client {
    let mut client = kedge.connect_tls(None);
    client.hello(SDK_FEATURES);
    assert_eq!(
        client.sasl(Mechanism::Plain, USER, PASSWORD),
        Status::Success
    );
    client.select("default");
    client
}

/// Waits until this is true.
#[track_caller]
fn wait_for(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "it did not happen in time");
        std::thread::yield_now();
    }
}

fn failures(kedge: &Kedge, reason: FailureReason) -> u64 {
    kedge.server().tls().unwrap().metrics().failures(reason)
}

/// The value of a line of `stats connections`.
fn connection_stat(client: &mut Client, name: &str) -> String {
    stat(client, b"connections", name)
}

/// The value of a line of a group of statistics.
fn stat(client: &mut Client, group: &[u8], name: &str) -> String {
    let frame = client.request(Opcode::Stat);
    let frame = crate::client::Frame {
        key: group.to_vec(),
        ..frame
    };
    client.send(&frame.bytes());
    let mut found = None;
    loop {
        let reply = client.reply().ok();
        if reply.key.is_empty() {
            return found.expect("a line");
        }
        if reply.key == name.as_bytes() {
            found = Some(reply.text());
        }
    }
}

#[test]
fn requests_are_served_over_tls() {
    let kedge = kedge(ClientCerts::Off);
    let mut client = sdk(&kedge);
    client.set("k", b"v").ok();
    assert_eq!(client.get("k").ok().value, b"v");
    assert_eq!(connection_stat(&mut client, "this:ssl"), "true");
    let mut plain = Client::connect(kedge.server().kv_addr().unwrap());
    plain.log_in(USER, PASSWORD);
    plain.select("default");
    assert_eq!(connection_stat(&mut plain, "this:ssl"), "false");
    assert_eq!(plain.get("k").ok().value, b"v");
    let open = || kedge.server().metrics().snapshot().tls_connections;
    assert_eq!(open(), 1);
    let mut other = sdk(&kedge);
    other.get("k").ok();
    assert_eq!(open(), 2);
    let handshakes = kedge.server().tls().unwrap().metrics();
    assert_eq!(handshakes.full() + handshakes.resumed(), 2);
    drop((client, other));
    wait_for(|| open() == 0);
    assert_eq!(kedge.server().metrics().snapshot().tls_truncated, 0);
}

#[test]
fn largest_values_are_stored_and_read_over_tls() {
    let kedge = kedge(ClientCerts::Off);
    let value: Vec<u8> = (0..20 << 20).map(|at| (at / 251) as u8).collect();
    let mut client = sdk(&kedge);
    client.set("large", &value).ok();
    assert!(client.get("large").ok().value == value);
    client.set("small", b"v").ok();
    assert_eq!(client.get("small").ok().value, b"v");
}

#[test]
fn pipelined_requests_are_answered_in_order_over_tls() {
    let kedge = kedge(ClientCerts::Off);
    let mut client = sdk(&kedge);
    let mut bytes = Vec::new();
    let mut opaques = Vec::new();
    for number in 0..3_000 {
        let frame = match number % 3 {
            0 => client
                .request(Opcode::Set)
                .store(&format!("key{number}"), &vec![b'x'; number % 700]),
            _ => client
                .request(Opcode::Get)
                .key(&format!("key{}", number / 3 * 3)),
        };
        bytes.extend(frame.bytes());
        opaques.push(frame.opaque);
    }
    let mut writer = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&bytes).unwrap());
        for opaque in opaques {
            assert_eq!(client.reply().ok().opaque, opaque);
        }
    });
}

#[test]
fn memcached_clients_are_served_over_tls() {
    let kedge = kedge(ClientCerts::Off);
    let address = kedge.server().memcached_tls_addr().unwrap();
    let mut text = Text::over(tls_client::connect(address, None));
    text.expect("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    text.expect("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n");
    let mut binary = Client::over(tls_client::connect(address, None));
    binary.simple(Opcode::Version).ok();
    text.expect("quit\r\n", "");
    text.assert_closed();
}

#[test]
fn clients_without_tls_are_refused_with_an_alert() {
    let kedge = kedge(ClientCerts::Off);
    let mut other = sdk(&kedge);
    for (address, bytes) in [
        (kedge.server().kv_tls_addr(), &[0x80; 24][..]),
        (kedge.server().memcached_tls_addr(), b"get a\r\n"),
    ] {
        let mut client = TcpStream::connect(address.unwrap()).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        client.write_all(bytes).unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, [21, 3, 3, 0, 2, 2, 50], "decode_error");
    }
    assert_eq!(failures(&kedge, FailureReason::NotTls), 2);
    other.set("k", b"v").ok();
}

/// Also on the memcached port, whose clients need not log in.
#[test]
fn incomplete_handshakes_end_in_time() {
    let kedge = Kedge::with(Setup {
        tls: Some(ClientCerts::Off),
        limits: FrontendLimits {
            unauthenticated: Duration::from_millis(100),
            ..FrontendLimits::default()
        },
        ..Setup::default()
    });
    let config = tls_client::client_config(None);
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut hello = Vec::new();
    let mut connection = ClientConnection::new(config, name).unwrap();
    connection.write_tls(&mut hello).unwrap();
    let server = kedge.server();
    for address in [server.kv_tls_addr(), server.memcached_tls_addr()] {
        for bytes in [&[][..], &hello[..3], &hello[..hello.len() - 1], &hello] {
            let mut client = TcpStream::connect(address.unwrap()).unwrap();
            client.set_read_timeout(Some(DEADLINE)).unwrap();
            client.write_all(bytes).unwrap();
            // The server closes it, whatever it has sent before.
            let mut got = Vec::new();
            client.read_to_end(&mut got).unwrap();
            assert_eq!(got.is_empty(), bytes.len() < hello.len());
        }
    }
    assert_eq!(failures(&kedge, FailureReason::Closed), 8);
    assert_eq!(server.metrics().snapshot().timed_out_connections, 8);
}

#[test]
fn incomplete_handshakes_are_evicted_for_new_connections() {
    let kedge = Kedge::with(Setup {
        tls: Some(ClientCerts::Off),
        limits: FrontendLimits {
            connections_max: 20,
            unauthenticated: Duration::from_secs(36_000),
            ..FrontendLimits::default()
        },
        ..Setup::default()
    });
    let address = kedge.server().kv_tls_addr().unwrap();
    // Each has sent the beginning of a long record.
    let incomplete: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(&[22, 3, 1, 0x40, 0, 1, 0]).unwrap();
            client
        })
        .collect();
    // Until a front-end thread has listed the strangers, there is none to evict.
    let noop = crate::client::Frame::new(Opcode::Noop, 7).bytes();
    wait_for(|| {
        let mut client = kedge.connect_tls(None);
        client.send(&noop);
        client.next() != Came::End
    });
    let metrics = kedge.server().metrics().snapshot();
    assert!(metrics.curr_connections <= 20 && metrics.evicted_connections > 0);
    drop(incomplete);
}

/// The address with the most handshakes loses one: the newcomer if it is from there, else its oldest.
#[test]
fn handshakes_that_are_not_complete_are_limited() {
    let kedge = Kedge::with(Setup {
        tls: Some(ClientCerts::Off),
        limits: FrontendLimits {
            tls_handshakes_max: 2,
            unauthenticated: Duration::from_secs(36_000),
            ..FrontendLimits::default()
        },
        ..Setup::default()
    });
    let address = kedge.server().kv_tls_addr().unwrap();
    let mut open = [from(1, address), from(1, address)];
    let is_closed = |client: &mut TcpStream| {
        client.set_nonblocking(true).unwrap();
        let read = client.read(&mut [0]);
        !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    wait_for(|| kedge.server().metrics().snapshot().tls_connections == 2);
    let mut third = from(1, address);
    wait_for(|| is_closed(&mut third));
    assert!(!open.iter_mut().any(is_closed), "they came before");
    // Until the front-end threads have listed the first ones, there is none to close.
    wait_for(|| {
        let other = from(2, address);
        other.set_nonblocking(true).unwrap();
        let closed = open.iter_mut().any(is_closed);
        drop(other);
        closed
    });
    // A handshake that is complete does not count.
    let mut clients = Vec::new();
    drop(open);
    wait_for(|| kedge.server().metrics().snapshot().tls_connections == 0);
    for _ in 0..4 {
        let mut client = sdk(&kedge);
        client.set("k", b"v").ok();
        clients.push(client);
    }
    let refused = stat(&mut clients[0], b"", "tls_handshakes_refused");
    assert!(refused.parse::<u64>().unwrap() >= 2, "{refused}");
}

#[test]
fn end_without_close_notify_is_counted() {
    let kedge = kedge(ClientCerts::Off);
    let address = kedge.server().kv_tls_addr().unwrap();
    let truncated = || kedge.server().metrics().snapshot().tls_truncated;
    for (notifies, count) in [(true, 0), (false, 1)] {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let config = tls_client::client_config(None);
        let mut connection = ClientConnection::new(config, name).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let noop = crate::client::Frame::new(Opcode::Noop, 7).bytes();
        let mut stream = Stream::new(&mut connection, &mut socket);
        stream.write_all(&noop).unwrap();
        let mut reply = [0; 24];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..2], [0x81, Opcode::Noop.wire()]);
        if notifies {
            connection.send_close_notify();
            connection.complete_io(&mut socket).unwrap();
        }
        socket.shutdown(Shutdown::Write).unwrap();
        // The server says goodbye in both cases.
        let mut rest = Vec::new();
        Stream::new(&mut connection, &mut socket)
            .read_to_end(&mut rest)
            .unwrap();
        assert!(rest.is_empty());
        wait_for(|| kedge.server().metrics().snapshot().tls_connections == 0);
        assert_eq!(truncated(), count);
    }
}

#[test]
fn sessions_are_resumed() {
    let kedge = kedge(ClientCerts::Off);
    let address = kedge.server().kv_tls_addr().unwrap();
    let config = tls_client::client_config(None);
    for _ in 0..3 {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut connection = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        let mut stream = Stream::new(&mut connection, &mut socket);
        let noop = crate::client::Frame::new(Opcode::Noop, 7).bytes();
        stream.write_all(&noop).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
    }
    let handshakes = kedge.server().tls().unwrap().metrics();
    assert_eq!((handshakes.full(), handshakes.resumed()), (1, 2));
}

#[test]
fn client_certificate_logs_its_user_in() {
    for mode in [ClientCerts::Optional, ClientCerts::Mandatory] {
        let kedge = kedge(mode);
        let mut client = kedge.connect_tls(Some(USER));
        client.hello(SDK_FEATURES);
        client.select("default");
        client.set("k", b"v").ok();
        assert_eq!(connection_stat(&mut client, "this:user"), USER);
        // A user with fewer rights has no more by its certificate.
        let mut reader = kedge.connect_tls(Some("reader"));
        reader.hello(SDK_FEATURES);
        reader.select("default");
        assert_eq!(reader.get("k").ok().value, b"v");
        assert_eq!(reader.set("k", b"w").status, Status::AccessDenied);
        assert_eq!(kedge.server().metrics().snapshot().client_connections, 2);
    }
}

#[test]
fn certificate_without_a_user_logs_nobody_in() {
    // Other nodes have a password: a certificate gives nobody their rights.
    for user in ["nobody", kedge_cluster::CLUSTER_USER] {
        let optional = kedge(ClientCerts::Optional);
        let mut client = optional.connect_tls(Some(user));
        client.hello(SDK_FEATURES);
        assert_eq!(client.try_select("default").status, Status::AccessDenied);
        client.log_in(USER, PASSWORD);
        client.select("default");
        client.set("k", b"v").ok();
        assert_eq!(optional.server().metrics().snapshot().auth_errors, 1);

        let mandatory = kedge(ClientCerts::Mandatory);
        mandatory.connect_tls(Some(user)).assert_closed();
        assert_eq!(failures(&mandatory, FailureReason::NoUserName), 1);
        assert_eq!(mandatory.server().metrics().snapshot().auth_errors, 1);
    }
}

#[test]
fn mandatory_certificates_are_required() {
    let kedge = kedge(ClientCerts::Mandatory);
    kedge.connect_tls(None).assert_closed();
    wait_for(|| failures(&kedge, FailureReason::NoClientCertificate) == 1);
    kedge.connect_tls(Some(USER)).simple(Opcode::Noop).ok();
}

#[test]
fn requests_beside_the_end_of_the_handshake_have_the_user() {
    let kedge = kedge(ClientCerts::Mandatory);
    let address = kedge.server().kv_tls_addr().unwrap();
    let config = tls_client::client_config(Some(USER));
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut connection = ClientConnection::new(config, name).unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    // The request waits in the client, and goes out together with the client's last message of the handshake.
    let select = crate::client::Frame {
        key: b"default".to_vec(),
        ..crate::client::Frame::new(Opcode::SelectBucket, 7)
    };
    connection.writer().write_all(&select.bytes()).unwrap();
    let mut stream = Stream::new(&mut connection, &mut socket);
    let mut reply = [0; 24];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[6..8], [0, 0], "success");
}
