//! TLS of the settings.

use std::path::PathBuf;
use std::time::SystemTime;

use kedge_server::TlsConfig;
use kedge_tls::{
    ClientAuth, ClientCerts, MinVersion, NodeAuth, Passphrase, ServerTls, TlsError, TlsOptions,
    ensure_auto,
};
use zeroize::Zeroizing;

use crate::settings::{ClientCertMode, ClusterEncryption, Settings, TlsMode, TlsVersion};

/// The environment variable with the passphrase of the private key.
const PASSPHRASE: &str = "KEDGE_TLS_KEY_PASSPHRASE";

/// Loads the certificates, or makes one; `None` if TLS is not served.
pub(super) fn config(settings: &Settings) -> Result<Option<TlsConfig>, TlsError> {
    if !settings.serves_tls() {
        return Ok(None);
    }
    let now = SystemTime::now();
    let mut options = options(settings);
    if settings.tls == TlsMode::Auto {
        let (dir, names) = (settings.data_dir.clone(), names(settings));
        let made = ensure_auto(&dir, &names, now)?;
        tracing::info!(ca = %made.ca.display(), "clients may trust the CA of --tls auto");
        (options.certificate, options.key) = (made.certificate, made.key);
        options.auto = Some((dir, names));
    }
    let tls = ServerTls::open(options, now)?;
    let status = tls.status();
    tracing::info!(
        subject = status.subject,
        names = status.names.join(","),
        fingerprint = status.fingerprint,
        expires_in_days = tls.expires_in(now) / 86_400,
        "TLS is served"
    );
    Ok(Some(TlsConfig {
        tls,
        kv_port: settings.kv_tls_port.port(),
        mgmt_port: settings.mgmt_tls_port.port(),
        memcached_port: settings.memcached_tls_port.port(),
    }))
}

fn options(settings: &Settings) -> TlsOptions {
    let paths = |words: &[String]| words.iter().map(PathBuf::from).collect();
    TlsOptions {
        certificate: PathBuf::from(&settings.tls_cert),
        key: PathBuf::from(&settings.tls_key),
        passphrase: passphrase(settings),
        min_version: match settings.tls_min_version {
            TlsVersion::Tls12 => MinVersion::Tls12,
            TlsVersion::Tls13 => MinVersion::Tls13,
        },
        cipher_suites: settings.tls_cipher_suites.0.clone(),
        honor_cipher_order: settings.tls_honor_cipher_order,
        client_auth: ClientAuth {
            mode: match settings.client_certs {
                ClientCertMode::Off => ClientCerts::Off,
                ClientCertMode::Optional => ClientCerts::Optional,
                ClientCertMode::Mandatory => ClientCerts::Mandatory,
            },
            ca: paths(&settings.client_ca.0),
            crl: paths(&settings.client_crl.0),
            names: settings.client_cert_names.0.clone(),
        },
        nodes: nodes(settings),
        demand_file: Some(settings.data_dir.join("client-cert-auth.json")),
        auto: None,
    }
}

/// Returns TLS between the nodes of the cluster; `None` if they do not use it, or the server is none of a cluster.
fn nodes(settings: &Settings) -> Option<NodeAuth> {
    let is_mutual = match settings.cluster_encryption {
        ClusterEncryption::Off => return None,
        ClusterEncryption::Tls => false,
        ClusterEncryption::MutualTls => true,
    };
    let ca = match settings.cluster_ca.0.is_empty() {
        true => &settings.client_ca.0,
        false => &settings.cluster_ca.0,
    };
    let in_cluster = !settings.coordinator.is_empty();
    in_cluster.then(|| NodeAuth {
        ca: ca.iter().map(PathBuf::from).collect(),
        is_mutual,
    })
}

fn passphrase(settings: &Settings) -> Passphrase {
    if !settings.tls_key_passphrase_file.is_empty() {
        return Passphrase::File(PathBuf::from(&settings.tls_key_passphrase_file));
    }
    match std::env::var(PASSPHRASE) {
        Ok(text) => Passphrase::Text(Zeroizing::new(text)),
        Err(_) => Passphrase::None,
    }
}

/// Returns the names by which clients may reach this node.
pub(crate) fn names(settings: &Settings) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"]
        .map(str::to_owned)
        .to_vec();
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy().into_owned();
    let listen = settings.listen;
    let listen = (!listen.is_unspecified()).then(|| listen.to_string());
    let given = [settings.advertise.clone(), settings.external_host.clone()];
    for name in [machine].into_iter().chain(listen).chain(given) {
        if !name.is_empty() && name.is_ascii() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
