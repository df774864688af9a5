//! Probes, which have no password.

use super::Server;
use super::client::Client;

#[test]
fn loaded_server_is_ready_without_a_password() {
    let server = Server::start();
    let mut probe = Client::connect(server.address, None);
    probe
        .request("GET", "/kedge/ready", "")
        .is(200, r#"{"ready":true}"#);
    probe.request("GET", "/", "").is(200, "Kedge\n");
    for (method, path) in [
        ("POST", "/kedge/ready"),
        ("GET", "/kedge/stats"),
        ("GET", "/kedge/ready/x"),
    ] {
        let mut stranger = Client::connect(server.address, None);
        let reply = stranger.request(method, path, "");
        assert_eq!(reply.status, 401, "{method} {path}");
    }
}
