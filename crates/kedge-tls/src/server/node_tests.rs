//! Handshakes between the nodes of a cluster.

use super::tests::{self, World, handshake, open};
use super::*;
use crate::issue::{Request, Usage, issue, new_authority};

fn nodes(world: &World, is_mutual: bool) -> TlsOptions {
    TlsOptions {
        nodes: Some(NodeAuth {
            ca: vec![world.path("ca.pem")],
            is_mutual,
        }),
        ..world.options()
    }
}

fn client_of(node: &ServerTls) -> Arc<ClientConfig> {
    node.node_config().expect("nodes use TLS")
}

#[test]
fn nodes_show_their_certificates_to_each_other_if_they_ask() {
    let world = World::new();
    let one = open(nodes(&world, true)).unwrap();
    let other = open(nodes(&world, true)).unwrap();
    let (server, client) = handshake(&one, client_of(&other), "localhost").unwrap();
    assert!(one.is_node(&server) && client.peer_certificates().is_some());
    assert_eq!(one.user_of(&server).unwrap(), None);
    // Without mutual TLS, and without certificates of clients, none is asked for.
    let asks_nobody = open(nodes(&world, false)).unwrap();
    let (server, _) = handshake(&asks_nobody, client_of(&other), "localhost").unwrap();
    assert!(!asks_nobody.is_node(&server) && server.peer_certificates().is_none());
    assert!(one.requires_node_certificates() && !asks_nobody.requires_node_certificates());
    let plain = open(world.options()).unwrap();
    assert!(plain.node_config().is_none() && !plain.requires_node_certificates());
}

#[test]
fn node_of_another_ca_is_refused_by_both_sides() {
    let (world, other) = (World::new(), World::new());
    let node = open(nodes(&world, true)).unwrap();
    let stranger = open(nodes(&other, true)).unwrap();
    handshake(&node, client_of(&stranger), "localhost").unwrap_err();
    handshake(&stranger, client_of(&node), "localhost").unwrap_err();
    // One that trusts this CA, and has a certificate of one with another name, shows none.
    let now = SystemTime::now();
    let ca = new_authority("Other CA", 30, now).unwrap();
    let request = Request {
        usage: Usage::Node,
        common_name: "db1".to_owned(),
        names: vec!["localhost".to_owned()],
        days: 10,
    };
    let issued = issue((&ca.certificate, &ca.key), &request, now).unwrap();
    issued.write(other.dir.path(), "node").unwrap();
    let mut mixed = nodes(&other, true);
    mixed.nodes = nodes(&world, true).nodes;
    let mixed = open(mixed).unwrap();
    let (server, _) = handshake(&node, client_of(&mixed), "localhost").unwrap();
    assert!(!node.is_node(&server));
    // One that shows it all the same is refused.
    let shown = Some((other.path("node.pem"), other.path("node-key.pem")));
    let error = handshake(&node, world.trusting(shown), "localhost").unwrap_err();
    let reason = crate::metrics::FailureReason::of(&error);
    assert_eq!(
        reason,
        crate::metrics::FailureReason::UnknownCa,
        "{error:?}"
    );
}

#[test]
fn certificate_of_a_client_is_none_of_a_node_and_the_reverse() {
    let world = World::new();
    let mut options = nodes(&world, true);
    options.client_auth.mode = ClientCerts::Mandatory;
    options.client_auth.ca = vec![world.path("ca.pem")];
    let server = open(options).unwrap();
    let alice = world.trusting(Some(world.client("alice")));
    let (session, _) = handshake(&server, alice, "localhost").unwrap();
    assert!(!server.is_node(&session));
    let user = server.user_of(&session).unwrap();
    assert_eq!(user.as_deref(), Some("alice"));
    // Its common name is that of a user, perhaps.
    let (session, _) = handshake(&server, client_of(&server), "localhost").unwrap();
    assert!(server.is_node(&session));
    assert_eq!(server.user_of(&session).unwrap(), None);
    handshake(&server, world.trusting(None), "localhost").unwrap_err();
    // Nodes only: a client's certificate is refused, and one without a certificate logs in.
    let nodes_only = open(nodes(&world, true)).unwrap();
    let alice = world.trusting(Some(world.client("alice")));
    handshake(&nodes_only, alice, "localhost").unwrap_err();
    handshake(&nodes_only, world.trusting(None), "localhost").unwrap();
}

#[test]
fn mutual_tls_needs_a_certificate_for_clients_and_a_ca() {
    let world = World::new();
    let own = world.issue(Usage::Client, "db1", &["localhost"], SystemTime::now());
    own.write(world.dir.path(), "node").unwrap();
    // For clients only: no server would have it, but nodes may show it.
    open(nodes(&world, true)).unwrap();
    let dir = world.dir.path();
    tests::run_openssl(
        dir,
        "req -x509 -days 2 -subj /CN=db1 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout node-key.pem \
         -out node.pem -addext extendedKeyUsage=serverAuth -addext subjectAltName=DNS:localhost",
    );
    let error = open(nodes(&world, true)).unwrap_err().to_string();
    assert!(
        error.contains("node.pem") && error.contains("lacks clientAuth"),
        "{error}"
    );
    open(nodes(&world, false)).unwrap();
    let mut without = nodes(&world, false);
    without.nodes = Some(NodeAuth {
        ca: vec![world.path("none.pem")],
        is_mutual: false,
    });
    let error = open(without).unwrap_err().to_string();
    assert!(error.contains("none.pem"), "{error}");
}

#[test]
fn renewed_certificate_is_used_for_new_connections_to_nodes() {
    let world = World::new();
    let node = open(nodes(&world, true)).unwrap();
    let old = node.fingerprint();
    let shown = |node: &ServerTls| {
        let server = open(nodes(&world, true)).unwrap();
        let (session, _) = handshake(&server, client_of(node), "localhost").unwrap();
        crate::certificate::fingerprint_of(&session.peer_certificates().unwrap()[0])
    };
    assert_eq!(shown(&node), old);
    world.node("node", SystemTime::now());
    node.reload().unwrap();
    let new = shown(&node);
    assert!(new == node.fingerprint() && new != old);
}

/// Options of a node without CAs, whose certificate file has these files one after the other.
fn chained(world: &World, files: &[&str]) -> TlsOptions {
    let text = |name: &&str| std::fs::read_to_string(world.path(name)).unwrap();
    let chain: String = files.iter().map(text).collect();
    std::fs::write(world.path("chain.pem"), chain).unwrap();
    TlsOptions {
        certificate: world.path("chain.pem"),
        nodes: Some(NodeAuth {
            ca: Vec::new(),
            is_mutual: true,
        }),
        ..world.options()
    }
}

#[test]
fn nodes_trust_the_ca_that_ends_their_own_chain() {
    let (world, other) = (World::new(), World::new());
    let one = open(chained(&world, &["node.pem", "ca.pem"])).unwrap();
    let two = open(chained(&world, &["node.pem", "ca.pem"])).unwrap();
    let (session, _) = handshake(&one, client_of(&two), "localhost").unwrap();
    assert!(one.is_node(&session));
    // It is the same as naming the CA.
    let named = open(nodes(&world, true)).unwrap();
    let (session, _) = handshake(&named, client_of(&one), "localhost").unwrap();
    assert!(named.is_node(&session));
    let stranger = open(chained(&other, &["node.pem", "ca.pem"])).unwrap();
    handshake(&one, client_of(&stranger), "localhost").unwrap_err();
    handshake(&stranger, client_of(&one), "localhost").unwrap_err();
}

#[test]
fn chain_without_a_ca_that_signed_itself_makes_nobody_a_node() {
    let world = World::new();
    let refused = |files: &[&str]| {
        let error = open(chained(&world, files)).unwrap_err().to_string();
        assert!(
            error.contains("chain.pem does not end") && error.contains("cluster_ca"),
            "{files:?}: {error}"
        );
    };
    refused(&["node.pem"]);
    world.node("other", SystemTime::now());
    refused(&["node.pem", "other.pem"]);
    let ca = new_authority("Other CA", 30, SystemTime::now()).unwrap();
    ca.write(world.dir.path(), "strange-ca").unwrap();
    refused(&["node.pem", "strange-ca.pem"]);
    // An intermediate CA, as the chains of public CAs end with one.
    let dir = world.dir.path();
    tests::run_openssl(
        dir,
        "req -new -subj /CN=between -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout between-key.pem -out \
         between.csr",
    );
    std::fs::write(world.path("ca.ext"), "basicConstraints=critical,CA:TRUE\n").unwrap();
    tests::run_openssl(
        dir,
        "x509 -req -in between.csr -CA ca.pem -CAkey ca-key.pem -days 2 -extfile ca.ext -out between.pem",
    );
    let key = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
    let between = (key("between.pem"), key("between-key.pem"));
    let request = Request {
        usage: Usage::Node,
        common_name: "db1".to_owned(),
        names: vec!["localhost".to_owned()],
        days: 1,
    };
    let issued = issue((&between.0, &between.1), &request, SystemTime::now()).unwrap();
    issued.write(dir, "node").unwrap();
    refused(&["node.pem", "between.pem"]);
    // With the root it is a chain of a CA of the operator's own.
    open(chained(&world, &["node.pem", "between.pem", "ca.pem"])).unwrap();
}
