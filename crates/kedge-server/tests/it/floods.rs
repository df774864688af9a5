//! Tests of floods: many greedy clients, and others that are still served.
//!
//! `KEDGE_FLOOD` is the number of clients at a time; `make test-long` has many more.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use kedge_auth::Mechanism;
use kedge_frontend::FrontendLimits;
use kedge_node::http_client::HttpClient;
use kedge_protocol::binary::commands::SaslStart;
use kedge_protocol::binary::{Opcode, RequestWriter};
use kedge_types::Status;
use socket2::{Domain, Socket, Type};

use crate::client::Client;
use crate::server::{Kedge, PASSWORD, Setup, USER};

/// The number of logins at a time, more than the queue of password checks takes.
fn flood() -> usize {
    let given = std::env::var("KEDGE_FLOOD").ok();
    given.map_or(600, |text| text.parse().expect("a number"))
}

fn from(n: u8, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let address = SocketAddr::new(Ipv4Addr::new(127, 0, 0, n).into(), 0);
    socket.bind(&address.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// Sends a login with SASL PLAIN without waiting for its reply.
fn begin_login(client: &mut Client, user: &str, password: &str) {
    let message = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
    let start = SaslStart {
        mechanism: Mechanism::Plain.name().as_bytes(),
        message: &message,
    };
    let mut bytes = Vec::new();
    start.encode(&RequestWriter::new(Opcode::SaslAuth), &mut bytes);
    client.send(&bytes);
}

/// 1,500 wrong logins at a time made 8 of 12 right ones fail: all waited in one queue, which was full, or too long for
/// the time limit of logins.
#[test]
fn failed_logins_do_not_delay_correct_ones() {
    let kedge = Kedge::start();
    let kv = kedge.server().kv_addr();
    let mut wrong: Vec<Client> = (0..flood())
        .map(|n| {
            let mut client = Client::over(from(2, kv));
            begin_login(&mut client, USER, &format!("wrong{n}"));
            client
        })
        .collect();
    // The first login of each user has its password verified; later ones use the cached result.
    for n in 0..12 {
        let user = [USER, "root", "reader", "writer"][n % 4];
        let mut client = kedge.connect();
        assert_eq!(
            client.sasl(Mechanism::Plain, user, PASSWORD),
            Status::Success,
            "login {n}"
        );
    }
    let mut refused = 0;
    for client in &mut wrong {
        match client.reply().status {
            Status::AuthError => {}
            Status::TemporaryFailure => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused > 0, "so many cannot all have waited");
}

/// Idle clients of the memcached port, which need no login, used up the connections of the KV port.
#[test]
fn idle_memcached_connections_are_limited() {
    let kedge = Kedge::with(Setup {
        limits: FrontendLimits {
            connections_max: 8,
            ..FrontendLimits::default()
        },
        ..Setup::default()
    });
    let mut idle: Vec<Client> = (0..4).map(|_| kedge.memcached()).collect();
    for client in &mut idle {
        client.simple(Opcode::Noop).ok();
    }
    kedge.memcached().assert_closed();
    let mut clients: Vec<Client> = (0..4).map(|_| kedge.client()).collect();
    for client in clients.iter_mut().chain(&mut idle) {
        client.simple(Opcode::Noop).ok();
    }
    // A closed connection makes room for another one of the port.
    idle.pop();
    let metrics = || kedge.server().metrics().snapshot();
    while metrics().curr_connections > 7 {
        std::thread::yield_now();
    }
    kedge.memcached().simple(Opcode::Noop).ok();
}

/// Clients without a login took all connections, and no other client got one before their time limit.
#[test]
fn connection_without_login_is_evicted_for_a_new_one() {
    let kedge = Kedge::with(Setup {
        limits: FrontendLimits {
            connections_max: 8,
            unauthenticated: Duration::from_secs(600),
            ..FrontendLimits::default()
        },
        ..Setup::default()
    });
    let kv = kedge.server().kv_addr();
    let mut at_work = kedge.client();
    let mut other = Client::over(from(3, kv));
    other.simple(Opcode::Noop).ok();
    let mut idle: Vec<Client> = (0..6).map(|_| Client::over(from(2, kv))).collect();
    for client in &mut idle {
        client.simple(Opcode::Noop).ok();
    }
    let mut late = kedge.client();
    late.simple(Opcode::Noop).ok();
    idle.remove(0).assert_closed();
    for client in idle.iter_mut().chain([&mut other, &mut at_work]) {
        client.simple(Opcode::Noop).ok();
    }
    let metrics = kedge.server().metrics().snapshot();
    assert_eq!(
        (metrics.evicted_connections, metrics.rejected_connections),
        (1, 0)
    );
    // Connections with a login stay. The others are evicted one after the other, then there is no room for more.
    let mut taken: Vec<Client> = (0..6).map(|_| kedge.client()).collect();
    kedge.connect().assert_closed();
    for client in taken.iter_mut().chain([&mut late, &mut at_work]) {
        client.simple(Opcode::Noop).ok();
    }
}

/// The same for management: idle connections and a flood of wrong passwords, while an administrator sends requests.
#[test]
fn administrator_is_served_during_a_flood() {
    let kedge = Kedge::start();
    let mgmt = kedge.server().mgmt_addr();
    let admin = HttpClient::new("127.0.0.1", mgmt.port(), "root", PASSWORD);
    let _idle: Vec<TcpStream> = (0..flood())
        .map(|n| from(2 + (n % 8) as u8, mgmt))
        .collect();
    let wrong = std::thread::spawn(move || {
        for n in 0..20 {
            let client = HttpClient::new("127.0.0.1", mgmt.port(), "root", &format!("wrong{n}"));
            let reply = client.send("GET", "/pools/default", "", b"").unwrap();
            assert_eq!(reply.code, 401);
        }
    });
    for _ in 0..20 {
        let reply = admin.send("GET", "/pools/default", "", b"").unwrap();
        assert_eq!(reply.code, 200);
    }
    wrong.join().unwrap();
}
