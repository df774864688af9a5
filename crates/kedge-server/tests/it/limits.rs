//! Tests of the limits of connections.

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use kedge_auth::Mechanism;
use kedge_cluster::CLUSTER_USER;
use kedge_frontend::FrontendLimits;
use kedge_protocol::binary::Opcode;
use kedge_types::Status;

use crate::client::Client;
use crate::evicted::until;
use crate::server::{Kedge, PASSWORD, Setup, USER};
use crate::stats::stat;

fn kedge(limits: FrontendLimits) -> Kedge {
    Kedge::with(Setup {
        limits,
        ..Setup::default()
    })
}

/// A short time limit, longer than a test step.
const SHORT: Duration = Duration::from_millis(300);

fn took(what: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    what();
    begin.elapsed()
}

#[test]
fn connection_above_the_limit_is_closed() {
    let kedge = kedge(FrontendLimits {
        connections_max: 3,
        ..FrontendLimits::default()
    });
    let mut clients: Vec<Client> = (0..3).map(|_| kedge.client()).collect();
    for mut one_more in [kedge.connect(), kedge.memcached()] {
        one_more.assert_closed();
    }
    let metrics = kedge.server().metrics().snapshot();
    assert_eq!(
        (metrics.curr_connections, metrics.rejected_connections),
        (3, 2)
    );
    clients[0].simple(Opcode::Noop).ok();
    let quit = clients[0].request(Opcode::Quit);
    clients[0].call(&quit).ok();
    clients[0].assert_closed();
    // The count goes down before the socket is closed.
    kedge.client();
}

/// `stats settings` showed the limit of all connections on each port.
#[test]
fn maxconns_is_the_limit_of_the_port() {
    let kedge = kedge(FrontendLimits {
        connections_max: 9,
        memcached_connections_max: 4,
        ..FrontendLimits::default()
    });
    let settings = kedge.text().until("stats settings\r\n", "END");
    assert!(settings.contains("STAT maxconns 4\r\n"), "{settings}");
    let settings = stat(&mut kedge.client(), "settings").unwrap();
    assert_eq!(settings["maxconns"], "9");
}

/// Clients with a login could take all connections, and then nodes of the cluster could not replicate.
#[test]
fn connections_are_reserved_for_nodes() {
    let kedge = kedge(FrontendLimits {
        connections_max: 6,
        connections_for_nodes: 2,
        memcached_evict_after: Duration::from_secs(36_000),
        ..FrontendLimits::default()
    });
    let plain = kedge.memcached();
    let mut clients: Vec<Client> = (0..3).map(|_| kedge.client()).collect();
    let mut one_more = kedge.connect();
    let log_in = |client: &mut Client, user| client.sasl(Mechanism::ScramSha512, user, PASSWORD);
    assert_eq!(log_in(&mut one_more, USER), Status::TemporaryFailure);
    let client_connections = || kedge.server().metrics().snapshot().client_connections;
    assert_eq!(client_connections(), 3);
    kedge.memcached().assert_closed();
    // The connection that could not log in is evicted for the second node.
    let mut nodes = [kedge.connect(), kedge.connect()];
    for node in &mut nodes {
        assert_eq!(log_in(node, CLUSTER_USER), Status::Success);
    }
    one_more.assert_closed();
    // Another login on the same connection changes nothing; a login as a node frees the client slot.
    assert_eq!(log_in(&mut clients[0], USER), Status::Success);
    assert_eq!(log_in(&mut clients[0], CLUSTER_USER), Status::Success);
    drop(nodes);
    until("the nodes are gone", || {
        kedge.server().metrics().snapshot().curr_connections == 4
    });
    let mut next = kedge.client();
    next.simple(Opcode::Noop).ok();
    drop(plain);
    until("a place is free", || {
        let mut one_more = kedge.connect();
        log_in(&mut one_more, USER) == Status::Success
    });
}

#[test]
fn connection_without_login_times_out() {
    let kedge = kedge(FrontendLimits {
        unauthenticated: SHORT,
        ..FrontendLimits::default()
    });
    let mut logged_in = kedge.client();
    let mut plain = kedge.memcached();
    let mut idle = kedge.connect();
    let mut busy = kedge.connect();
    busy.simple(Opcode::Noop).ok();
    let time = took(|| idle.assert_closed());
    assert!(time < SHORT * 20, "{time:?}");
    busy.assert_closed();
    logged_in.simple(Opcode::Noop).ok();
    plain.simple(Opcode::Noop).ok();
    assert_eq!(kedge.server().metrics().snapshot().timed_out_connections, 2);
}

#[test]
fn slow_sender_is_closed() {
    let kedge = kedge(FrontendLimits {
        slow_sender: SHORT,
        ..FrontendLimits::default()
    });
    let mut other = kedge.client();
    let mut slow = kedge.client();
    let set = slow.request(Opcode::Set).store("k", &[0; 1_000]).bytes();
    slow.send(&set[..500]);
    slow.assert_closed();
    let mut text = kedge.text();
    text.stream.write_all(b"set a 0 0 10\r\nabc").unwrap();
    text.assert_closed();
    other.simple(Opcode::Noop).ok();
    assert_eq!(kedge.server().metrics().snapshot().timed_out_connections, 2);
}

#[test]
fn idle_timeout_closes_idle_connections() {
    let kedge = kedge(FrontendLimits {
        idle: SHORT,
        ..FrontendLimits::default()
    });
    let mut idle = kedge.client();
    let mut text = kedge.text();
    idle.assert_closed();
    text.assert_closed();
    kedge.client().simple(Opcode::Noop).ok();
}

/// Requests large values without reading any, until the server receives no more. Returns the number of bytes that it
/// received.
fn ask_without_reading(client: &mut Client) -> usize {
    client.set("large", &vec![0; 1 << 20]).ok();
    let get = client.request(Opcode::Get).key("large").bytes();
    let requests = get.repeat(1_000);
    client.stream.set_write_timeout(Some(SHORT)).unwrap();
    let mut taken = 0;
    loop {
        match client.stream.write(&requests) {
            Ok(count) => taken += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return taken;
            }
            Err(error) => panic!("{error} after {taken} bytes"),
        }
        assert!(taken < 256 << 20, "the server goes on reading");
    }
}

#[test]
fn requests_of_a_client_that_does_not_read_are_not_received() {
    let kedge = kedge(FrontendLimits::default());
    let mut greedy = kedge.client();
    let taken = ask_without_reading(&mut greedy);
    let written = kedge.server().metrics().snapshot().bytes_written;
    // The server sent what fits into the sockets' buffers; the rest was never composed.
    assert!(
        written < 64 << 20,
        "{written} bytes for {taken} bytes of requests"
    );
    kedge.client().simple(Opcode::Noop).ok();
    // It continues when the client reads: there is a reply for each whole request.
    let request = greedy.request(Opcode::Get).key("large").bytes().len();
    for _ in 0..(taken / request).min(100) {
        assert_eq!(greedy.reply().ok().value.len(), 1 << 20);
    }
}

#[test]
fn client_that_never_reads_is_closed() {
    let kedge = kedge(FrontendLimits {
        send_stall: SHORT,
        ..FrontendLimits::default()
    });
    let mut greedy = kedge.client();
    let deadline = Instant::now() + Duration::from_secs(20);
    greedy.set("large", &vec![0; 1 << 20]).ok();
    let get = greedy.request(Opcode::Get).key("large").bytes();
    greedy.send(&get.repeat(100));
    let mut other = kedge.client();
    while kedge.server().metrics().snapshot().timed_out_connections == 0 {
        assert!(Instant::now() < deadline);
        other.simple(Opcode::Noop).ok();
    }
}
