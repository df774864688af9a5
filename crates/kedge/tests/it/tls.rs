//! TLS of management with the real binary: certificates that are wrong, replaced, revoked, and those of clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_tls::rustls::ClientConfig;
use kedge_tls::{
    CertificateInfo, ClientStream, ClientTls, Request, Trust, Usage, issue, new_authority,
};
use rustix::process::Signal;

use crate::cluster::Cluster;
use crate::process::{PASSWORD, PATIENCE, Server, USER, kedge, run, serve};

const DAY: Duration = Duration::from_secs(86_400);

/// A directory with a CA, and a data directory.
struct Pki {
    dir: tempfile::TempDir,
    ca: (String, String),
}

impl Pki {
    fn new() -> Self {
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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn make(&self, name: &str, usage: Usage, names: &[&str], now: SystemTime) {
        let request = Request {
            usage,
            common_name: name.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            days: 10,
        };
        let issued = issue((&self.ca.0, &self.ca.1), &request, now).expect("a certificate");
        issued.write(self.dir.path(), name).expect("a file");
    }

    /// The flags of a server with the certificate `node`.
    fn flags(&self, more: &[String]) -> Vec<String> {
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

    fn command(&self, more: &[String]) -> Command {
        let mut command = serve(&self.data(), &[]);
        command.args(self.flags(more));
        command
    }

    fn start(&self, more: &[String]) -> Server {
        Server::spawn(self.command(more)).unwrap_or_else(|error| panic!("no start: {error}"))
    }

    /// TLS of a client with this certificate that trusts the CA.
    fn client(&self, own: Option<&str>) -> Arc<ClientConfig> {
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
struct Https(ClientStream);

impl Https {
    fn open(server: &Server, config: &Arc<ClientConfig>, host: &str) -> std::io::Result<Self> {
        let socket = TcpStream::connect(server.mgmts.expect("it serves TLS"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        ClientStream::open(socket, Some(config), host).map(Self)
    }

    /// Sends a request, and returns the status code and the body.
    fn get(&mut self, path: &str, login: Option<(&str, &str)>) -> std::io::Result<(u16, String)> {
        self.send("GET", path, login)
    }

    fn send(
        &mut self,
        method: &str,
        path: &str,
        login: Option<(&str, &str)>,
    ) -> std::io::Result<(u16, String)> {
        let login = login.map_or_else(String::new, |(user, password)| {
            let both = STANDARD.encode(format!("{user}:{password}"));
            format!("Authorization: Basic {both}\r\n")
        });
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{login}Content-Length: 0\r\n\r\n"
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

const LOGIN: Option<(&str, &str)> = Some((USER, PASSWORD));

/// Returns the certificate that a new connection gets.
fn fingerprint(server: &Server, config: &Arc<ClientConfig>) -> String {
    let mut https = Https::open(server, config, "127.0.0.1").expect("a handshake");
    let (code, body) = https.get("/kedge/tls", LOGIN).expect("a reply");
    assert_eq!(code, 200, "{body}");
    let status: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    status["fingerprint"].as_str().expect("a text").to_owned()
}

fn of_file(path: &Path) -> String {
    CertificateInfo::of_file(path).expect("a certificate")[0]
        .fingerprint
        .clone()
}

/// Returns the value of a metric with its labels; 0 if there is none.
fn metric(server: &Server, config: &Arc<ClientConfig>, name: &str) -> f64 {
    let mut https = Https::open(server, config, "127.0.0.1").expect("a handshake");
    let (_, body) = https.get("/metrics", LOGIN).expect("a reply");
    let line = body
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")));
    line.map_or(0.0, |line| {
        line[name.len() + 1..].parse().expect("a number")
    })
}

#[test]
fn self_signed_certificate_serves_kedges_commands_and_stays_over_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let flags = ["--tls=auto", "--kv-tls-port=0", "--mgmt-tls-port=0"];
    let server = Server::start(&data, &flags);
    let file = data.join("tls-auto.pem");
    let fingerprint = of_file(&file);
    let url = format!("https://{}", server.mgmts.expect("it serves TLS"));
    let file = file.display().to_string();
    let list = |trust: &[&str]| {
        let mut command = kedge(&["bucket", "list", "-U", &url, "-u", USER, "-P", PASSWORD]);
        command.args(trust);
        let (code, output, errors) = run(&mut command);
        (code == Some(0), output + &errors)
    };
    for trust in [["--ca", &file], ["--tls-fingerprint", &fingerprint]] {
        let (succeeded, text) = list(&trust);
        assert!(succeeded && text.contains("default"), "{text}");
    }
    let (succeeded, text) = list(&["--tls-fingerprint", &"00".repeat(32)]);
    assert!(!succeeded && text.contains("cannot connect"), "{text}");
    let (succeeded, text) = list(&[]);
    assert!(!succeeded && text.contains("TLS needs --ca FILE"), "{text}");

    server.signal(Signal::TERM);
    let (status, log) = server.wait();
    assert!(status.success());
    assert!(log.contains(&fingerprint), "{log}");
    let server = Server::start(&data, &flags);
    assert_eq!(of_file(&data.join("tls-auto.pem")), fingerprint);
    drop(server);
}

#[test]
fn client_refuses_a_server_of_another_ca_and_another_name() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let reason = |config: &Arc<ClientConfig>, host: &str| {
        let refused = Https::open(&server, config, host).map(drop);
        refused.expect_err("it is not trusted").to_string()
    };
    let error = reason(&Pki::new().client(None), "127.0.0.1");
    assert!(error.contains("invalid peer certificate"), "{error}");
    let error = reason(&pki.client(None), "db1.example.com");
    assert!(error.contains("not valid for name"), "{error}");
    let refusals = "kedge_tls_handshake_failures_total{reason=\"refused_by_client\"}";
    let client = pki.client(None);
    let deadline = Instant::now() + PATIENCE;
    while metric(&server, &client, refusals) < 2.0 {
        assert!(Instant::now() < deadline, "the refusals are not counted");
    }
}

#[test]
fn unusable_files_prevent_the_start_with_the_reason() {
    let pki = Pki::new();
    let refusal = |command| {
        Server::spawn(command)
            .map(drop)
            .expect_err("it must not start")
    };
    pki.make(
        "node",
        Usage::Node,
        &["127.0.0.1"],
        SystemTime::now() - 20 * DAY,
    );
    let error = refusal(pki.command(&[]));
    assert!(
        error.contains("CN=node") && error.contains("expired at"),
        "{error}"
    );
    pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
    let key = format!("--tls-key={}", pki.path("ca-key.pem").display());
    let error = refusal(pki.command(&[key]));
    assert!(error.contains("does not fit the certificate"), "{error}");
    let error = refusal(pki.command(&["--client-certs=mandatory".to_owned()]));
    assert!(error.contains("client certificates need a file"), "{error}");
    let error = refusal(pki.command(&["--tls-cipher-suites=RC4".to_owned()]));
    assert!(error.contains("unknown cipher suite RC4"), "{error}");
    drop(pki.start(&[]));
}

#[test]
fn passphrase_comes_from_a_file_or_the_environment() {
    let pki = Pki::new();
    let mut convert = Command::new("openssl");
    convert.args([
        "pkcs8",
        "-topk8",
        "-in",
        "node-key.pem",
        "-out",
        "encrypted.pem",
    ]);
    convert
        .args(["-passout", "pass:of the key"])
        .current_dir(pki.dir.path());
    assert!(convert.status().expect("openssl runs").success());
    std::fs::write(pki.path("passphrase"), "of the key\n").expect("a file");
    let key = format!("--tls-key={}", pki.path("encrypted.pem").display());
    let file = format!(
        "--tls-key-passphrase-file={}",
        pki.path("passphrase").display()
    );
    drop(pki.start(&[key.clone(), file]));
    let with = |passphrase| {
        let mut command = pki.command(std::slice::from_ref(&key));
        command.env("KEDGE_TLS_KEY_PASSPHRASE", passphrase);
        Server::spawn(command).map(drop)
    };
    with("of the key").expect("it is right");
    let error = with("of another key").expect_err("it is wrong");
    assert!(error.contains("the passphrase does not decrypt"), "{error}");
    assert!(!error.contains("of another key"), "{error}");
}

#[test]
fn files_are_loaded_again_and_open_connections_stay() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let client = pki.client(None);
    let mut open = Https::open(&server, &client, "127.0.0.1").expect("a handshake");
    assert_eq!(open.get("/pools", LOGIN).expect("a reply").0, 200);
    let first = fingerprint(&server, &client);
    assert_eq!(first, of_file(&pki.path("node.pem")));

    // SIGHUP.
    pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
    let second = of_file(&pki.path("node.pem"));
    server.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while fingerprint(&server, &client) != second {
        assert!(Instant::now() < deadline, "the new certificate is not used");
    }
    // A request; one that is refused changes nothing.
    let reload = "/node/controller/reloadCertificate";
    pki.make(
        "node",
        Usage::Node,
        &["127.0.0.1"],
        SystemTime::now() - 20 * DAY,
    );
    let (code, body) = open.send("POST", reload, LOGIN).expect("a reply");
    assert!(code == 400 && body.contains("expired at"), "{code} {body}");
    assert_eq!(fingerprint(&server, &client), second);
    pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
    let (code, body) = open.send("POST", reload, LOGIN).expect("a reply");
    assert_eq!((code, body.as_str()), (200, r#"{"warnings":[]}"#));
    let third = of_file(&pki.path("node.pem"));
    assert_eq!(fingerprint(&server, &client), third);
    // By itself.
    pki.make("node", Usage::Node, &["127.0.0.1"], SystemTime::now());
    let fourth = of_file(&pki.path("node.pem"));
    let deadline = Instant::now() + PATIENCE;
    while fingerprint(&server, &client) != fourth {
        assert!(Instant::now() < deadline, "the change is not noticed");
        std::thread::yield_now();
    }
    assert_eq!(open.get("/pools", LOGIN).expect("it stays open").0, 200);
}

#[test]
fn client_certificates_name_users_until_they_are_revoked() {
    let pki = Pki::new();
    for name in [USER, "nobody"] {
        pki.make(name, Usage::Client, &[], SystemTime::now());
    }
    let other = Pki::new();
    other.make("stranger", Usage::Client, &[], SystemTime::now());
    for file in ["stranger.pem", "stranger-key.pem"] {
        std::fs::copy(other.path(file), pki.path(file)).expect("a copy");
    }
    let ca = format!("--client-ca={}", pki.path("ca.pem").display());
    let ask = |server: &Server, own: Option<&str>, login| {
        let mut https = Https::open(server, &pki.client(own), "127.0.0.1")?;
        https.get("/whoami", login)
    };
    let code = |reply: std::io::Result<(u16, String)>| reply.map(|(code, _)| code).ok();

    let server = pki.start(&["--client-certs=optional".to_owned(), ca.clone()]);
    let (status, body) = ask(&server, Some(USER), None).expect("a reply");
    assert!(status == 200 && body.contains(USER), "{body}");
    assert_eq!(code(ask(&server, Some("nobody"), None)), Some(401));
    assert_eq!(code(ask(&server, Some("nobody"), LOGIN)), Some(200));
    assert_eq!(
        code(ask(&server, Some(USER), Some((USER, "wrong")))),
        Some(401)
    );
    assert_eq!(code(ask(&server, None, None)), Some(401));
    assert_eq!(code(ask(&server, None, LOGIN)), Some(200));
    assert_eq!(code(ask(&server, Some("stranger"), LOGIN)), None);
    drop(server);

    let server = pki.start(&["--client-certs=mandatory".to_owned(), ca]);
    assert_eq!(code(ask(&server, Some(USER), None)), Some(200));
    assert_eq!(code(ask(&server, None, LOGIN)), None);
    let client = pki.client(Some(USER));
    let failed = "kedge_tls_handshake_failures_total{reason=\"no_client_certificate\"}";
    let deadline = Instant::now() + PATIENCE;
    while metric(&server, &client, failed) < 1.0 {
        assert!(Instant::now() < deadline, "the failure is not counted");
    }
}

#[test]
fn sessions_are_resumed() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let client = pki.client(None);
    let resumed = "kedge_tls_handshakes_total{kind=\"resumed\"}";
    // The tickets of TLS 1.3 come after the handshake, with the reply.
    let before = metric(&server, &client, resumed);
    let deadline = Instant::now() + PATIENCE;
    while metric(&server, &client, resumed) <= before {
        assert!(Instant::now() < deadline, "no session is resumed");
    }
    let expiry = metric(&server, &client, "kedge_tls_certificate_expiry_seconds");
    assert!(
        (9.0 * 86_400.0..=10.0 * 86_400.0).contains(&expiry),
        "{expiry}"
    );
}

#[test]
fn documents_name_the_ports_of_tls_only_if_they_are_served() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let port = server.mgmts.expect("it serves TLS").port();
    let client = pki.client(None);
    let mut https = Https::open(&server, &client, "127.0.0.1").expect("a handshake");
    let (_, body) = https
        .get("/pools/default/nodeServices", LOGIN)
        .expect("a reply");
    let services: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(services["nodesExt"][0]["services"]["mgmtSSL"], port);
    let (_, body) = https.get("/pools/default", LOGIN).expect("a reply");
    let pool: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(pool["nodes"][0]["ports"]["httpsMgmt"], port);
    drop(server);
    let server = Server::start(&pki.data(), &[]);
    assert!(server.mgmts.is_none());
    let http =
        kedge::client::ManagementClient::new("127.0.0.1", server.mgmt.port(), USER, PASSWORD);
    let services = http.json("/pools/default/nodeServices").expect("services");
    assert!(services["nodesExt"][0]["services"].get("mgmtSSL").is_none());
}

#[test]
fn map_of_a_cluster_has_the_ports_of_tls_of_all_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2", "--replicas=1", "--tls=auto"]);
    let client = cluster.http(0);
    let deadline = Instant::now() + PATIENCE;
    // Each node puts its ports into the map after its start.
    let ports = loop {
        let services = client
            .json("/pools/default/nodeServices")
            .expect("services");
        let nodes = services["nodesExt"].as_array().expect("nodes").clone();
        let of = |name: &str| -> Option<Vec<u64>> {
            let ports = nodes.iter().map(|node| node["services"][name].as_u64());
            ports.collect()
        };
        if let (Some(kv), Some(mgmt)) = (of("kvSSL"), of("mgmtSSL")) {
            break [kv, mgmt].concat();
        }
        assert!(Instant::now() < deadline, "{services}");
    };
    assert_eq!(ports.len(), 4);
    for port in ports {
        let port = u16::try_from(port).expect("a port");
        TcpStream::connect(("127.0.0.1", port)).expect("the port is open");
    }
}

#[test]
fn kedge_cert_makes_what_the_server_accepts() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().display().to_string();
    let cert = |arguments: &[&str]| {
        let mut command = kedge(&["cert"]);
        command.args(arguments);
        let (code, output, errors) = run(&mut command);
        (code == Some(0), output + &errors)
    };
    assert!(cert(&["ca", "--dir", &place]).0);
    let (succeeded, text) = cert(&["node", "db1", "--host", "127.0.0.1", "--dir", &place]);
    assert!(succeeded, "{text}");
    let (succeeded, text) = cert(&["node", "db1", "--dir", &place]);
    assert!(!succeeded && text.contains("give --force"), "{text}");
    assert!(cert(&["client", USER, "--san", "ada@example.com", "--dir", &place]).0);
    let (succeeded, text) = cert(&["show", &format!("{place}/{USER}.pem")]);
    assert!(succeeded && text.contains("ada@example.com"), "{text}");
    for file in ["ca-key.pem", "db1-key.pem"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &dir.path()
                .join(file)
                .metadata()
                .expect("a file")
                .permissions(),
        );
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let flags = [
        format!("--tls-cert={place}/db1.pem"),
        format!("--tls-key={place}/db1-key.pem"),
        format!("--client-ca={place}/ca.pem"),
        "--client-certs=mandatory".to_owned(),
        "--kv-tls-port=0".to_owned(),
        "--mgmt-tls-port=0".to_owned(),
    ];
    let mut command = serve(&dir.path().join("data"), &[]);
    command.args(flags);
    let server = Server::spawn(command).expect("it starts");
    let own = ["", "-key"].map(|part| dir.path().join(format!("{USER}{part}.pem")));
    let [chain, key] = own;
    let trust = Trust::Ca(vec![dir.path().join("ca.pem")]);
    let own = Some((chain, key));
    let client = ClientTls { trust, own }
        .config()
        .expect("the files are valid");
    let mut https = Https::open(&server, &client, "127.0.0.1").expect("a handshake");
    assert_eq!(https.get("/whoami", None).expect("a reply").0, 200);
}
