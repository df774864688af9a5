//! A CA of a test, servers with its certificates, and HTTPS connections to them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_tls::rustls::ClientConfig;
use kedge_tls::{
    CertificateInfo, ClientStream, ClientTls, Request, Trust, Usage, issue, new_authority,
};

use crate::crl;
use crate::process::{PASSWORD, PATIENCE, Server, USER, serve};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A directory with a CA, and a data directory.
pub(crate) struct Pki {
    pub(crate) dir: tempfile::TempDir,
    ca: (String, String),
}

impl Pki {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let ca = new_authority("Test CA", 30, SystemTime::now()).expect("a CA");
        ca.write(dir.path(), "ca").expect("a file");
        let pki = Self {
            dir,
            ca: (ca.certificate, ca.key),
        };
        pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
        pki
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub(crate) fn make(&self, name: &str, usage: Usage, names: &[&str], now: SystemTime) {
        let request = Request {
            usage,
            common_name: name.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            days: 10,
        };
        let issued = issue((&self.ca.0, &self.ca.1), &request, now).expect("a certificate");
        issued.write(self.dir.path(), name).expect("a file");
    }

    /// Writes `crl.pem`, the revocation list of the CA with the certificates of these names.
    pub(crate) fn revoke(&self, names: &[&str]) {
        let files: Vec<PathBuf> = names
            .iter()
            .map(|it| self.path(&format!("{it}.pem")))
            .collect();
        crl::write(&self.path("crl.pem"), (&self.ca.0, &self.ca.1), &files);
    }

    /// The flags of a server with the certificate `node`.
    pub(crate) fn flags(&self, more: &[String]) -> Vec<String> {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.path(name).display());
        let mut flags = vec![
            file("tls-cert", "node.pem"),
            file("tls-key", "node-key.pem"),
            "--kv-tls-port=0".to_owned(),
            "--mgmt-tls-port=0".to_owned(),
        ];
        flags.extend_from_slice(more);
        flags
    }

    pub(crate) fn command(&self, more: &[String]) -> Command {
        let mut command = serve(&self.data(), &[]);
        command.args(self.flags(more));
        command
    }

    pub(crate) fn start(&self, more: &[String]) -> Server {
        Server::spawn(self.command(more)).unwrap_or_else(|error| panic!("no start: {error}"))
    }

    /// TLS of a client with this certificate that trusts the CA.
    pub(crate) fn client(&self, own: Option<&str>) -> Arc<ClientConfig> {
        let own = own.map(|name| {
            let key = self.path(&format!("{name}-key.pem"));
            (self.path(&format!("{name}.pem")), key)
        });
        let trust = Trust::Ca(vec![self.path("ca.pem")]);
        ClientTls { trust, own }
            .config()
            .expect("the files are valid")
    }
}

/// A connection to HTTPS management that stays open.
pub(crate) struct Https(ClientStream);

impl Https {
    pub(crate) fn open(
        server: &Server,
        config: &Arc<ClientConfig>,
        host: &str,
    ) -> std::io::Result<Self> {
        let socket = TcpStream::connect(server.mgmts.expect("it serves TLS"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        ClientStream::open(socket, Some(config), host).map(Self)
    }

    /// Sends a request, and returns the status code and the body.
    pub(crate) fn get(
        &mut self,
        path: &str,
        login: Option<(&str, &str)>,
    ) -> std::io::Result<(u16, String)> {
        self.send("GET", path, login)
    }

    pub(crate) fn post(
        &mut self,
        path: &str,
        login: Option<(&str, &str)>,
        body: &str,
    ) -> std::io::Result<(u16, String)> {
        self.request("POST", path, login, body)
    }

    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        login: Option<(&str, &str)>,
    ) -> std::io::Result<(u16, String)> {
        self.request(method, path, login, "")
    }

    fn request(
        &mut self,
        method: &str,
        path: &str,
        login: Option<(&str, &str)>,
        body: &str,
    ) -> std::io::Result<(u16, String)> {
        let length = body.len();
        let login = login.map_or_else(String::new, |(user, password)| {
            let both = STANDARD.encode(format!("{user}:{password}"));
            format!("Authorization: Basic {both}\r\n")
        });
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{login}Content-Length: {length}\r\n\r\n{body}"
        );
        self.0.write_all(request.as_bytes())?;
        self.0.flush()?;
        let mut reply = Vec::new();
        let mut byte = [0];
        while !reply.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte)?;
            reply.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&reply).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).expect("a length");
        let length = length.split("\r\n").next().unwrap_or_default();
        let mut body = vec![0; length.parse().expect("a number")];
        self.0.read_exact(&mut body)?;
        let code = head.split(' ').nth(1).expect("a status code");
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok((code.parse().expect("a number"), body))
    }
}

pub(crate) const LOGIN: Option<(&str, &str)> = Some((USER, PASSWORD));

/// Returns the certificate that a new connection gets.
pub(crate) fn fingerprint(server: &Server, config: &Arc<ClientConfig>) -> String {
    let mut https = Https::open(server, config, "127.0.0.1").expect("a handshake");
    let (code, body) = https.get("/kedge/tls", LOGIN).expect("a reply");
    assert_eq!(code, 200, "{body}");
    let status: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    status["fingerprint"].as_str().expect("a text").to_owned()
}

pub(crate) fn of_file(path: &Path) -> String {
    CertificateInfo::of_file(path).expect("a certificate")[0]
        .fingerprint
        .clone()
}

/// Returns the value of a metric with its labels; 0 if there is none.
pub(crate) fn metric(server: &Server, config: &Arc<ClientConfig>, name: &str) -> f64 {
    let mut https = Https::open(server, config, "127.0.0.1").expect("a handshake");
    let (_, body) = https.get("/metrics", LOGIN).expect("a reply");
    let line = body
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")));
    line.map_or(0.0, |line| {
        line[name.len() + 1..].parse().expect("a number")
    })
}
