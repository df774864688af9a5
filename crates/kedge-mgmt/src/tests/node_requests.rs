//! Requests of other nodes with proofs of the cluster's secret.

use std::sync::Arc;

use kedge_auth::{PROOF_SCHEME, ProvenRequest, Roles, UserStore};
use kedge_cluster::{CLUSTER_USER, ClusterMap, MapNode, TlsPorts, uuid_text};
use kedge_node::node_access::NodeAccess;

use super::client::{Client, Reply};
use super::{NODE_SECRET, Server};

/// A server of a cluster.
fn node() -> Server {
    let mut users = UserStore::new().unwrap();
    for (id, password) in [("root", "secret"), (CLUSTER_USER, NODE_SECRET)] {
        users.add(id, password, Roles::admin(), 1).unwrap();
    }
    Server::start_for(users)
}

const GET: ProvenRequest<'_> = ProvenRequest {
    method: "GET",
    path: "/whoami",
    content_type: "",
};

/// Sends a request with this header.
fn send(server: &Server, request: &ProvenRequest<'_>, authorization: &str, body: &str) -> Reply {
    let mut client = Client::connect(server.address, None);
    let length = body.len();
    let content_type = match request.content_type {
        "" => String::new(),
        given => format!("Content-Type: {given}\r\n"),
    };
    let headers =
        format!("Authorization: {authorization}\r\n{content_type}Content-Length: {length}\r\n");
    client.head(request.method, request.path, &headers);
    client.send(body.as_bytes());
    client.reply()
}

fn nonce(reply: &Reply) -> String {
    reply.header("kedge-nonce").expect("a nonce").to_owned()
}

/// A map of one node, for its level.
fn map() -> ClusterMap {
    let node = MapNode {
        name: "n_0".to_owned(),
        uuid: uuid_text([1; 16]),
        host: "127.0.0.1".to_owned(),
        kv_port: 1,
        mgmt_port: 2,
        tls: TlsPorts::default(),
        external: None,
        server_group: "Group 1".to_owned(),
        failed: false,
    };
    ClusterMap::new(uuid_text([2; 16]), 0, [node]).unwrap()
}

#[test]
fn proof_of_the_secret_logs_a_node_in_once() {
    let server = node();
    let asked = send(&server, &GET, PROOF_SCHEME, "");
    assert_eq!(asked.status, 401);
    let header = GET.authorization(NODE_SECRET, "n_0", &nonce(&asked), b"");
    let reply = send(&server, &GET, &header, "");
    assert_eq!(
        (reply.status, reply.json()["id"].as_str()),
        (200, Some(CLUSTER_USER))
    );
    let replayed = send(&server, &GET, &header, "");
    assert_eq!(replayed.status, 401);
    // The response to the first one has the nonce of the next.
    let header = GET.authorization(NODE_SECRET, "n_0", &nonce(&reply), b"");
    assert_eq!(send(&server, &GET, &header, "").status, 200);
    let metrics = server.get("/metrics").body;
    for (result, count) in [("accepted", 2), ("stale", 2), ("refused", 0)] {
        let line = format!("kedge_mgmt_node_proofs_total{{result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

#[test]
fn proof_of_another_secret_node_or_body_is_refused() {
    let server = node();
    let post = ProvenRequest {
        method: "POST",
        path: "/pools/default",
        content_type: "application/x-www-form-urlencoded",
    };
    let fresh = || nonce(&send(&server, &GET, PROOF_SCHEME, ""));
    let right = |nonce: &str| post.authorization(NODE_SECRET, "n_0", nonce, b"clusterName=a");
    for (header, body) in [
        (
            post.authorization("other", "n_0", &fresh(), b"clusterName=a"),
            "clusterName=a",
        ),
        (
            post.authorization(NODE_SECRET, "n_1", &fresh(), b"clusterName=a"),
            "clusterName=a",
        ),
        (right(&fresh()), "clusterName=b"),
        (format!("{PROOF_SCHEME} x:y:z"), "clusterName=a"),
    ] {
        let reply = send(&server, &post, &header, body);
        assert_eq!(
            (reply.status, reply.header("kedge-nonce")),
            (401, None),
            "{header}"
        );
    }
    assert_eq!(
        send(&server, &post, &right(&fresh()), "clusterName=a").status,
        200
    );
    assert_eq!(server.get("/pools/default").json()["clusterName"], "a");
}

#[test]
fn server_outside_of_a_cluster_takes_no_proofs() {
    let server = Server::start();
    let reply = send(&server, &GET, PROOF_SCHEME, "");
    assert_eq!((reply.status, reply.header("kedge-nonce")), (401, None));
}

#[test]
fn client_of_a_node_proves_and_survives_a_restart_of_the_other_node() {
    let server = node();
    let access = Arc::new(NodeAccess::new(NODE_SECRET, None));
    access.follow_level(&map());
    assert!(access.proves());
    let client = access.client("n_0", "127.0.0.1", server.address.port());
    let whoami = |client: &kedge_node::http_client::HttpClient| {
        let reply = client.send("GET", "/whoami", "application/json", &[]);
        reply.expect("a reply").code
    };
    for _ in 0..3 {
        assert_eq!(whoami(&client), 200);
    }
    // It knows a nonce that is used up: another one of the same node has taken it.
    let twin = client.clone();
    assert_eq!((whoami(&twin), whoami(&client)), (200, 200));
    let stranger = Arc::new(NodeAccess::new("another secret", None));
    stranger.follow_level(&map());
    let stranger = stranger.client("n_0", "127.0.0.1", server.address.port());
    assert_eq!((whoami(&stranger), whoami(&stranger)), (401, 401));
    let nowhere = access.client("n_0", "127.0.0.1", 0);
    let error = nowhere
        .send("GET", "/whoami", "", &[])
        .expect_err("no port");
    assert!(error.to_string().contains("cluster_encryption"), "{error}");
}
