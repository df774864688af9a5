//! A node of a cluster as clients and tools see it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use kedge::client::{ClientConnection, ManagementClient};
use kedge_tls::rustls::ClientConfig;
use kedge_tls::{ClientTls, Trust};
use serde_json::Value;

use crate::process::{self, PASSWORD, PATIENCE, USER, administrator, kedge, run};

/// The exit code of a tool, its standard output and standard error.
pub(crate) type ToolOutput = (Option<i32>, String, String);

/// The ports of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint<'c> {
    pub(crate) kv: SocketAddr,
    pub(crate) mgmt: SocketAddr,
    /// The file of the CA whose certificates the ports have; `None` without TLS.
    pub(crate) ca: Option<&'c Path>,
}

impl Endpoint<'_> {
    /// Returns TLS of a client that trusts the CA, with a certificate if there is one; `None` without TLS.
    pub(crate) fn tls(&self, own: Option<(PathBuf, PathBuf)>) -> Option<Arc<ClientConfig>> {
        let trust = Trust::Ca(vec![self.ca?.to_owned()]);
        let config = ClientTls { trust, own }.config();
        Some(config.expect("the CA is valid"))
    }

    /// Returns a connection of the key-value protocol without a login.
    pub(crate) fn open(&self, own: Option<(PathBuf, PathBuf)>) -> ClientConnection {
        let (host, tls) = (self.kv.ip().to_string(), self.tls(own));
        let open = ClientConnection::open_with(&host, self.kv.port(), PATIENCE, tls.as_ref());
        open.expect("a connection")
    }

    /// Returns a logged-in connection with the bucket `default`.
    pub(crate) fn connect(&self) -> ClientConnection {
        let prepared = self.open(None).prepared(&administrator(), "default");
        prepared.expect("a login")
    }

    pub(crate) fn http(&self) -> ManagementClient {
        self.http_as((USER, PASSWORD), None)
    }

    /// Returns a client of management with this login, and perhaps a certificate.
    pub(crate) fn http_as(
        &self,
        (user, password): (&str, &str),
        own: Option<(PathBuf, PathBuf)>,
    ) -> ManagementClient {
        let host = self.mgmt.ip().to_string();
        let client = ManagementClient::new(&host, self.mgmt.port(), user, password);
        match self.tls(own) {
            Some(tls) => client.over_tls(tls),
            None => client,
        }
    }

    /// Returns the status that the node gives.
    pub(crate) fn status(&self) -> Value {
        let status = self.http().json("/kedge/cluster/status");
        status.expect("a status")
    }

    /// Waits until the status that the node gives is as it should be.
    pub(crate) fn wait_status(&self, what: &str, is: impl Fn(&Value) -> bool) {
        process::wait_status(what, || self.status(), is);
    }

    /// Returns the text of `/metrics`.
    pub(crate) fn metrics(&self) -> String {
        let metrics = self.http().send("GET", "/metrics", &[]);
        String::from_utf8(metrics.expect("a reply").body).expect("text")
    }

    /// Returns `kedge cluster ...`, asked of this node.
    fn tool_command(&self, words: &[&str]) -> Command {
        let scheme = self.ca.map_or("http", |_| "https");
        let mut command = kedge(&["cluster"]);
        command.args(words).args(["-u", USER, "-P", PASSWORD, "-U"]);
        command.arg(format!("{scheme}://{}", self.mgmt));
        if let Some(ca) = self.ca {
            command.arg("--ca").arg(ca);
        }
        command
    }

    pub(crate) fn tool(&self, words: &[&str]) -> ToolOutput {
        run(&mut self.tool_command(words))
    }
}
