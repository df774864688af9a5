//! A server that runs alone, asked about a cluster.

use super::Server;

#[test]
fn standalone_server_reports_that_it_has_no_cluster() {
    let server = Server::start();
    let alone = r#"{"errors":{"_":"this server is no node of a cluster"}}"#;
    for path in ["node", "map", "positions", "figures", "status"] {
        server.get(&format!("/kedge/cluster/{path}")).is(404, alone);
    }
    for (method, path) in [
        ("PUT", "map"),
        ("POST", "fence?node=n_0"),
        ("DELETE", "fence"),
        ("POST", "failover"),
        ("POST", "recover"),
        ("POST", "add"),
        ("POST", "remove"),
    ] {
        let reply = server
            .connect()
            .request(method, &format!("/kedge/cluster/{path}"), "node=n_0");
        reply.is(404, alone);
    }
    for path in ["", "/resetCount"] {
        let path = format!("/settings/autoFailover{path}");
        let form = "enabled=true&timeout=5";
        server.connect().request("POST", &path, form).is(404, alone);
    }
    let settings = server.get("/settings/autoFailover");
    assert_eq!(settings.status, 200);
    assert!(
        settings.body.contains(r#""enabled":false"#),
        "{}",
        settings.body
    );
    let moves = server.get("/settings/rebalance");
    assert_eq!(
        (moves.status, &*moves.body),
        (200, r#"{"rebalanceMovesPerNode":4}"#)
    );
    let moves = ("/settings/rebalance", "rebalanceMovesPerNode=8");
    server
        .connect()
        .request("POST", moves.0, moves.1)
        .is(404, alone);
    let metrics = server.get("/metrics");
    assert!(!metrics.body.contains("kedge_cluster_"));
}

#[test]
fn only_administrators_may_ask() {
    let server = Server::start();
    let form = "password=love%20lace&roles=ro_admin";
    let made = server
        .connect()
        .request("PUT", "/settings/rbac/users/local/ada", form);
    made.is(200, "\"\"");
    let mut ada = server.connect_as("ada", "love lace");
    for (method, path) in [("GET", "status"), ("GET", "map"), ("POST", "failover")] {
        let reply = ada.request(method, &format!("/kedge/cluster/{path}"), "");
        assert_eq!(reply.status, 403, "{path}");
    }
}
