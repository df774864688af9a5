//! The certificates of `--tls auto`: one CA for all nodes, so that they can verify each other.

use std::path::PathBuf;
use std::time::SystemTime;

use kedge_cluster::MapNode;
use kedge_tls::{DevelopmentCa, TlsError};

use crate::serve::tls_names;
use crate::settings::{Effective, TlsMode};

/// The directory of the CA in the data directory.
const DIR: &str = "tls";

/// The CA of the nodes, and the names that are in all certificates.
pub(super) struct DevelopmentTls {
    ca: DevelopmentCa,
    data_dir: PathBuf,
    names: Vec<String>,
    /// True if the encryption between the nodes is left to `cluster-run`.
    encrypts: bool,
    now: SystemTime,
}

impl DevelopmentTls {
    /// Reads the CA or makes it; `None` without `--tls auto`.
    pub(super) fn ensure(effective: &Effective) -> Result<Option<Self>, TlsError> {
        let settings = &effective.settings;
        if settings.tls != TlsMode::Auto {
            return Ok(None);
        }
        let now = SystemTime::now();
        Ok(Some(Self {
            ca: DevelopmentCa::ensure(&settings.data_dir.join(DIR), now)?,
            data_dir: settings.data_dir.clone(),
            names: tls_names(settings),
            encrypts: !effective.is_given("cluster_encryption"),
            now,
        }))
    }

    /// Makes the certificate of a node, and returns the flags of the node. They override those that it has.
    pub(super) fn flags(&self, node: &MapNode) -> Result<Vec<String>, TlsError> {
        let mut names = self.names.clone();
        if !names.contains(&node.host) {
            names.push(node.host.clone());
        }
        let dir = self.data_dir.join(&node.name);
        let (certificate, key) = self.ca.issue_node(&dir, &node.name, &names, self.now)?;
        let mut flags = vec![
            "--tls=off".to_owned(),
            format!("--tls-cert={}", certificate.display()),
            format!("--tls-key={}", key.display()),
            format!("--cluster-ca={}", self.ca.certificate().display()),
        ];
        if self.encrypts {
            flags.push("--cluster-encryption=mutual_tls".to_owned());
        }
        Ok(flags)
    }
}
