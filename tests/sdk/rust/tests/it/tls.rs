use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use couchbase::authenticator::{Authenticator, CertificateAuthenticator, PasswordAuthenticator};
use couchbase::cluster::Cluster;
use couchbase::error::Error;
use couchbase::options::cluster_options::{ClusterOptions, TlsOptions};
use couchbase::options::kv_options::UpsertOptions;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tempfile::TempDir;

use crate::durability::LEVELS;
use crate::server::{BUCKET, PASSWORD, Server, USER, binary};
use crate::{in_parallel, want_content, within};

/// A CA, and the certificates of a node and of the user.
struct Pki(TempDir);

impl Pki {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        for words in [
            ["ca"].as_slice(),
            &["node", "db1", "--host", "127.0.0.1"],
            &["client", USER],
        ] {
            let mut command = Command::new(binary());
            command.arg("cert").args(words).arg("--dir");
            let output = command.arg(directory.path()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn server(&self, more: &[String]) -> Server {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.path(name).display());
        let own = [file("tls-cert", "db1.pem"), file("tls-key", "db1-key.pem")];
        start(&[own.as_slice(), more].concat())
    }
}

fn start(flags: &[String]) -> Server {
    let ports = ["--kv-tls-port=0", "--mgmt-tls-port=0"].map(str::to_owned);
    Server::with([ports.as_slice(), flags].concat())
}

fn by_password() -> Authenticator {
    PasswordAuthenticator::new(USER, PASSWORD).into()
}

async fn connect(server: &Server, ca: PathBuf, login: Authenticator) -> Result<Cluster, Error> {
    let ca = CertificateDer::from_pem_file(ca).unwrap();
    let tls = TlsOptions::new().add_ca_certificate(ca);
    let options = ClusterOptions::new(login).tls_options(tls);
    Cluster::connect(&server.connection_string(), options).await
}

/// Stores and reads: one document, durable ones, and many at a time.
async fn use_over_tls(cluster: Cluster) {
    let bucket = cluster.bucket(BUCKET);
    within(bucket.wait_until_ready(None)).await.unwrap();
    let collection = bucket.default_collection();
    let stored = collection.upsert("key", json!("over TLS"), None);
    within(stored).await.unwrap();
    want_content(&collection, "key", json!("over TLS")).await;
    for (number, level) in LEVELS.into_iter().enumerate() {
        let key = format!("durable-{number}");
        let options = UpsertOptions::new().durability_level(level);
        within(collection.upsert(&key, number, options))
            .await
            .unwrap();
        want_content(&collection, &key, json!(number)).await;
    }
    let many = collection.clone();
    in_parallel(1_000, 50, move |n| {
        let collection = many.clone();
        async move {
            let key = format!("many-{n}");
            within(collection.upsert(&key, n, None)).await.unwrap();
        }
    })
    .await;
    want_content(&collection, "many-999", json!(999)).await;
}

/// The SDK goes on trying; what a caller sees is its own timeout.
async fn want_refusal(attempt: impl Future<Output = Result<Cluster, Error>>) {
    let result = tokio::time::timeout(Duration::from_secs(2), attempt).await;
    assert!(!matches!(result, Ok(Ok(_))), "the connection was accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn ca_of_tls_auto_is_trusted() {
    let server = start(&["--tls=auto".to_owned()]);
    let cluster = within(connect(&server, server.auto_ca(), by_password())).await;
    use_over_tls(cluster.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_log_in_over_tls() {
    let pki = Pki::new();
    let server = pki.server(&[]);
    let cluster = within(connect(&server, pki.path("ca.pem"), by_password())).await;
    use_over_tls(cluster.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_log_in() {
    let pki = Pki::new();
    let ca = format!("--client-ca={}", pki.path("ca.pem").display());
    let server = pki.server(&["--client-certs=mandatory".to_owned(), ca]);
    let chain = CertificateDer::from_pem_file(pki.path(&format!("{USER}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(pki.path(&format!("{USER}-key.pem"))).unwrap();
    let login = CertificateAuthenticator::new(vec![chain], key).into();
    let cluster = within(connect(&server, pki.path("ca.pem"), login)).await;
    use_over_tls(cluster.unwrap()).await;
    want_refusal(connect(&server, pki.path("ca.pem"), by_password())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_ca_is_not_trusted() {
    let server = Pki::new().server(&[]);
    want_refusal(connect(&server, Pki::new().path("ca.pem"), by_password())).await;
}
