//! Tests of floods: many greedy clients, and others that are still served.
//!
//! `KEDGE_FLOOD` is the number of clients at a time; `make test-long` has many more.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use kedge_auth::Mechanism;
use kedge_frontend::{FrontendLimits, MemcachedRules};
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

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(36_000);

/// Connects from the address 127.0.0.n.
pub(crate) fn from(n: u8, to: SocketAddr) -> TcpStream {
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
    let kv = kedge.server().kv_addr().unwrap();
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
            memcached_evict_after: NEVER,
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

/// A server with four connections for the memcached port.
fn with_four_memcached(memcached_evict_after: Duration, memcached: MemcachedRules) -> Kedge {
    Kedge::with(Setup {
        limits: FrontendLimits {
            memcached_connections_max: 4,
            memcached_evict_after,
            unauthenticated: NEVER,
            ..FrontendLimits::default()
        },
        memcached,
        ..Setup::default()
    })
}

/// Connections from address `n` to the memcached port, each with a request.
fn memcached_from(kedge: &Kedge, n: u8, count: usize) -> Vec<Client> {
    let port = kedge.server().memcached_addr().unwrap();
    let mut clients: Vec<Client> = (0..count).map(|_| Client::over(from(n, port))).collect();
    all_served(&mut clients);
    clients
}

#[track_caller]
fn all_served(clients: &mut [Client]) {
    for client in clients {
        client.simple(Opcode::Noop).ok();
    }
}

/// Waits until the front-end thread has done all that follows the replies so far.
fn after_all(kedge: &Kedge) {
    kedge.connect().simple(Opcode::Noop).ok();
}

/// The evicted connections of the memcached port, and the refused ones.
fn evicted_and_refused(kedge: &Kedge) -> (u64, u64) {
    let metrics = kedge.server().metrics().snapshot();
    (
        metrics.memcached_connections_evicted,
        metrics.rejected_connections,
    )
}

/// One address could take all connections of the memcached port and leave them idle, and no other client got one.
#[test]
fn idle_memcached_connection_is_evicted_for_a_new_one() {
    let kedge = with_four_memcached(Duration::ZERO, MemcachedRules::default());
    let mut other = memcached_from(&kedge, 3, 1);
    let mut greedy = memcached_from(&kedge, 2, 3);
    greedy[0].simple(Opcode::Noop).ok();
    after_all(&kedge);
    let mut late = memcached_from(&kedge, 1, 1);
    greedy.remove(1).assert_closed();
    assert_eq!(evicted_and_refused(&kedge), (1, 0));
    // An address with many replaces its own.
    after_all(&kedge);
    greedy.extend(memcached_from(&kedge, 2, 1));
    greedy.remove(1).assert_closed();
    for clients in [&mut other, &mut greedy, &mut late] {
        all_served(clients);
    }
    assert_eq!(evicted_and_refused(&kedge), (2, 0));
    let metrics = kedge.server().metrics().snapshot();
    assert_eq!(metrics.memcached_connections, 4);
}

/// A client that waits for a response is not idle.
#[test]
fn memcached_connection_with_a_request_in_progress_is_not_evicted() {
    let kedge = with_four_memcached(Duration::ZERO, MemcachedRules::default());
    kedge.client().set("large", &vec![0; 20 << 20]).ok();
    let mut clients = memcached_from(&kedge, 2, 4);
    let get = clients[0].request(Opcode::Get).key("large").bytes();
    clients[0].send(&get.repeat(3));
    // The responses have begun, and do not fit into the buffers of the sockets.
    assert_eq!(clients[0].stream.peek(&mut [0]).unwrap(), 1);
    all_served(&mut clients[1..]);
    after_all(&kedge);
    let mut late = memcached_from(&kedge, 1, 1);
    clients.remove(1).assert_closed();
    for _ in 0..3 {
        assert_eq!(clients[0].reply().ok().value.len(), 20 << 20);
    }
    all_served(&mut clients);
    all_served(&mut late);
    assert_eq!(evicted_and_refused(&kedge), (1, 0));
}

/// An address that keeps its connections busy has no more than half of them when others need some.
#[test]
fn address_with_too_many_active_memcached_connections_gives_way() {
    let kedge = with_four_memcached(NEVER, MemcachedRules::default());
    let mut greedy = memcached_from(&kedge, 2, 4);
    let port = kedge.server().memcached_addr().unwrap();
    Client::over(from(2, port)).assert_closed();
    after_all(&kedge);
    let mut others = memcached_from(&kedge, 3, 1);
    after_all(&kedge);
    others.extend(memcached_from(&kedge, 1, 1));
    for mut evicted in greedy.drain(..2) {
        evicted.assert_closed();
    }
    for n in 1..5 {
        Client::over(from(n, port)).assert_closed();
    }
    all_served(&mut greedy);
    all_served(&mut others);
    assert_eq!(evicted_and_refused(&kedge), (2, 5));
}

#[test]
fn memcached_connection_without_a_required_login_is_evicted_first() {
    let rules = MemcachedRules {
        login: true,
        ..MemcachedRules::default()
    };
    let kedge = with_four_memcached(Duration::ZERO, rules);
    let mut clients = memcached_from(&kedge, 2, 3);
    for client in &mut clients {
        assert_eq!(
            client.sasl(Mechanism::ScramSha512, USER, PASSWORD),
            Status::Success
        );
    }
    // A connection of the KV port makes no room.
    let mut connecting = kedge.connect();
    connecting.simple(Opcode::Noop).ok();
    let mut strange = memcached_from(&kedge, 3, 1);
    let mut late = memcached_from(&kedge, 1, 1);
    strange[0].assert_closed();
    for client in clients.iter_mut().chain([&mut late[0], &mut connecting]) {
        client.simple(Opcode::Noop).ok();
    }
    let metrics = kedge.server().metrics().snapshot();
    assert_eq!(metrics.evicted_connections, 1);
    // Those that logged in are evicted when all have.
    let login = late[0].sasl(Mechanism::ScramSha512, USER, PASSWORD);
    assert_eq!(login, Status::Success);
    after_all(&kedge);
    let mut last = memcached_from(&kedge, 4, 1);
    clients.remove(0).assert_closed();
    all_served(&mut clients);
    all_served(&mut late);
    all_served(&mut last);
    assert_eq!(evicted_and_refused(&kedge), (1, 0));
}

/// Clients without a login took all connections of the KV port, and memcached clients got none.
#[test]
fn memcached_connection_evicts_one_without_login() {
    let kedge = Kedge::with(Setup {
        limits: FrontendLimits {
            connections_max: 4,
            memcached_connections_max: 2,
            unauthenticated: NEVER,
            memcached_evict_after: NEVER,
            ..FrontendLimits::default()
        },
        ..Setup::default()
    });
    let mut at_work = kedge.client();
    let kv = kedge.server().kv_addr().unwrap();
    let mut idle: Vec<Client> = (0..3).map(|_| Client::over(from(2, kv))).collect();
    all_served(&mut idle);
    let mut clients = memcached_from(&kedge, 1, 2);
    for mut evicted in idle.drain(..2) {
        evicted.assert_closed();
    }
    kedge.memcached().assert_closed();
    all_served(&mut clients);
    all_served(&mut idle);
    at_work.simple(Opcode::Noop).ok();
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
    let kv = kedge.server().kv_addr().unwrap();
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
    let mgmt = kedge.server().mgmt_addr().unwrap();
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
