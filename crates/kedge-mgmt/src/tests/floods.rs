//! Strangers who take all they can get, and who is served all the same.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use kedge_auth::{Roles, UserStore};
use kedge_cluster::CLUSTER_USER;
use kedge_node::password_checks::CheckTurn;
use kedge_types::limits::{
    MGMT_CONNECTIONS_MAX, MGMT_KEPT_FOR_ADMINISTRATORS, MGMT_KEPT_FOR_NODES,
    MGMT_UNAUTHENTICATED_MAX, MGMT_UNAUTHENTICATED_PER_ADDRESS_MAX, PASSWORD_CHECKS_PER_USER_MAX,
};
use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};

use super::client::Client;
use super::{HEADER_TIMEOUT, NODE_SECRET, Server};
use crate::serve::ConnectionTimeouts;

fn address(n: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, n).into()
}

/// A connection from an address of this machine.
fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// Connections that say nothing, so many from each of some addresses.
fn idle(server: &Server, addresses: std::ops::Range<u8>, each: usize) -> Vec<TcpStream> {
    let all = addresses.flat_map(|n| std::iter::repeat_n(address(n), each));
    all.map(|from| connect_from(from, server.address)).collect()
}

/// Users who have logged in before, as those do who work with a server.
fn users() -> UserStore {
    let mut users = UserStore::new().unwrap();
    for (id, password, roles) in [
        ("root", "secret", "admin"),
        ("ada", "lovelace", "data_reader[default]"),
        (CLUSTER_USER, NODE_SECRET, "admin"),
    ] {
        let roles: Roles = roles.parse().unwrap();
        users.add(id, password, roles, 1).unwrap();
    }
    users
}

/// The same after a restart: nobody has logged in yet.
fn not_seen_yet() -> UserStore {
    UserStore::from_json(&users().to_json()).unwrap()
}

fn figure(server: &Server, name: &str) -> u64 {
    let stats = server.get("/kedge/stats").json();
    let text = stats["server"][name].as_str().expect("a figure").to_owned();
    text.parse().unwrap()
}

/// 256 connections to the management port that said nothing kept everybody else out for as long as they stayed: other
/// nodes of the cluster, and the administrator, who was answered 503.
#[test]
fn idle_strangers_do_not_block_others() {
    let server = Server::start_for(users());
    let mut at_work = server.connect();
    assert_eq!(at_work.request("GET", "/whoami", "").status, 200);
    let _of_one = idle(&server, 1..2, 300);
    let _of_many = idle(&server, 2..42, 8);
    for (user, password) in [
        ("root", "secret"),
        ("ada", "lovelace"),
        (CLUSTER_USER, NODE_SECRET),
    ] {
        let mut client = server.connect_as(user, password);
        assert_eq!(client.request("GET", "/whoami", "").status, 200, "{user}");
    }
    assert_eq!(at_work.request("GET", "/whoami", "").status, 200);
    let strangers = figure(&server, "mgmt_connections_unauthenticated");
    assert!(strangers <= MGMT_UNAUTHENTICATED_MAX as u64, "{strangers}");
    assert!(figure(&server, "mgmt_connections_evicted") >= 300 + 320 - strangers);
}

#[test]
fn strangers_of_one_address_are_limited() {
    let server = Server::start_for(users());
    let mut first = Client::over(connect_from(address(1), server.address), None);
    let mut other = Client::over(connect_from(address(2), server.address), None);
    let _more = idle(&server, 1..2, MGMT_UNAUTHENTICATED_PER_ADDRESS_MAX);
    assert_eq!(first.rest(), "", "the oldest of the address has gone");
    assert_eq!(other.request("GET", "/", "").status, 200);
}

/// Users may take all that is not kept for others; then they are told so, and others get in.
#[test]
fn slots_are_reserved_for_administrators_and_nodes() {
    let server = Server::start_for(users());
    let all = MGMT_CONNECTIONS_MAX
        - MGMT_UNAUTHENTICATED_MAX
        - MGMT_KEPT_FOR_NODES
        - MGMT_KEPT_FOR_ADMINISTRATORS;
    let mut taken: Vec<Client> = Vec::new();
    for _ in 0..all {
        let mut client = server.connect_as("ada", "lovelace");
        assert_eq!(client.request("GET", "/whoami", "").status, 200);
        taken.push(client);
    }
    let mut refused = server.connect_as("ada", "lovelace");
    let reply = refused.request("GET", "/whoami", "");
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(refused.rest(), "");
    let mut root = server.connect();
    assert_eq!(root.request("GET", "/whoami", "").status, 200);
    let mut node = server.connect_as(CLUSTER_USER, NODE_SECRET);
    assert_eq!(node.request("GET", "/whoami", "").status, 200);
    taken.pop();
    let deadline = Instant::now() + Duration::from_secs(20);
    let let_in = || {
        server
            .connect_as("ada", "lovelace")
            .request("GET", "/whoami", "")
    };
    while let_in().status != 200 {
        assert!(Instant::now() < deadline, "the place is not free");
    }
}

#[test]
fn connection_without_a_login_is_closed() {
    let server = Server::start_timed(ConnectionTimeouts {
        header: HEADER_TIMEOUT,
        unauthenticated: Duration::from_millis(100),
    });
    let mut user = server.connect();
    assert_eq!(user.request("GET", "/whoami", "").status, 200);
    let mut silent = Client::connect(server.address, None);
    let mut open = Client::connect(server.address, None);
    open.head("GET", "/", "");
    let mut wrong = server.connect_as("root", "wrong");
    wrong.head("GET", "/whoami", "");
    assert_eq!(wrong.reply().status, 401, "it is answered first");
    assert_eq!(open.reply().status, 200);
    for client in [&mut silent, &mut open, &mut wrong] {
        assert_eq!(client.rest(), "");
    }
    assert_eq!(user.request("GET", "/whoami", "").status, 200);
}

/// Keeps the task that verifies passwords busy until the sender is dropped.
fn hold_checks(server: &Server) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    let check = move |turn| {
        assert_eq!(turn, CheckTurn::Come);
        begin.send(()).unwrap();
        // An error is the sender's end, which is waited for.
        let _ = held.recv();
    };
    server.checks.submit(address(99), "x", Box::new(check));
    begun.recv().unwrap();
    release
}

/// Every request waited for its turn to have its password hashed, also when that had been verified a moment ago. A flood of
/// wrong passwords made the status of a cluster take 4.5 s, and report nodes as down that were up: they could not get
/// through to each other.
#[test]
fn verified_passwords_are_not_queued() {
    let server = Server::start_for(users());
    let release = hold_checks(&server);
    let mut wrong = server.connect_as("root", "wrong");
    wrong.head("GET", "/whoami", "");
    for (user, password) in [
        ("root", "secret"),
        (CLUSTER_USER, NODE_SECRET),
        ("ada", "lovelace"),
    ] {
        let mut client = server.connect_as(user, password);
        assert_eq!(client.request("GET", "/whoami", "").status, 200, "{user}");
    }
    drop(release);
    assert_eq!(wrong.reply().status, 401);
}

/// Passwords were verified in the order in which they came, so that whoever had sent many was served first, for a long time.
#[test]
fn password_flood_of_one_client_queues_behind_itself() {
    let server = Server::start_for(not_seen_yet());
    let release = hold_checks(&server);
    let (served, is_served) = mpsc::channel::<()>();
    let is_served = Arc::new(Mutex::new(is_served));
    for n in 0..20 {
        let is_served = is_served.clone();
        // Her turn comes after one of these, so that of the third waits for her in vain only if it comes before hers.
        let check = move |_| {
            if n >= 2 {
                let served = is_served.lock().recv_timeout(Duration::from_secs(20));
                assert_eq!(
                    served,
                    Err(mpsc::RecvTimeoutError::Disconnected),
                    "she waits"
                );
            }
        };
        server.checks.submit(address(2), "root", Box::new(check));
    }
    let mut ada = server.connect_as("ada", "lovelace");
    ada.head("GET", "/whoami", "");
    server.wait_for_checks(21);
    drop(release);
    assert_eq!(ada.reply().status, 200);
    drop(served);
}

#[test]
fn too_many_passwords_of_one_client_are_refused() {
    let server = Server::start_for(not_seen_yet());
    let release = hold_checks(&server);
    let (tell, told) = mpsc::channel();
    for _ in 0..PASSWORD_CHECKS_PER_USER_MAX {
        let tell = tell.clone();
        let check = move |turn| tell.send(turn).unwrap();
        server.checks.submit(address(1), "root", Box::new(check));
    }
    let reply = server.get("/whoami");
    assert_eq!(
        (reply.status, reply.header("retry-after")),
        (503, Some("1"))
    );
    let mut elsewhere = Client::over(
        connect_from(address(2), server.address),
        Some(("root", "secret")),
    );
    elsewhere.head("GET", "/whoami", "");
    drop(release);
    assert_eq!(elsewhere.reply().status, 200);
    for _ in 0..PASSWORD_CHECKS_PER_USER_MAX {
        assert_eq!(told.recv().unwrap(), CheckTurn::Come);
    }
    assert_eq!(server.get("/whoami").status, 200);
}
