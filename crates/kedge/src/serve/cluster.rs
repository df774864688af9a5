//! The cluster of the settings.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use kedge_auth::Roles;
use kedge_cluster::{CLUSTER_USER, ClusterError, ClusterFile};
use kedge_coordinator::cluster::ClusterSetup;
use kedge_node::users::Users;

use super::ServeError;
use super::administrator::now_s;
use crate::settings::Effective;

/// Reads a cluster file.
pub(crate) fn read_file(path: &Path) -> Result<ClusterFile, ClusterError> {
    let wrong = |why: String| ClusterError::File(why);
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let file: ClusterFile = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    file.check()?;
    Ok(file)
}

/// Returns the cluster of this server; `None` for a standalone server.
pub(super) fn read(effective: &Effective) -> Result<Option<ClusterSetup>, ServeError> {
    let settings = &effective.settings;
    if settings.cluster.is_empty() {
        return Ok(None);
    }
    let path = Path::new(&settings.cluster);
    let failed = |source| ServeError::ClusterFile {
        path: path.to_owned(),
        source,
    };
    let file = read_file(path).map_err(failed)?;
    file.index_of(&settings.node_id).map_err(failed)?;
    let mode = std::fs::metadata(path).map_or(0, |it| it.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(
            file = settings.cluster,
            "others can read the cluster file, and with it the secret that all nodes trust"
        );
    }
    Ok(Some(ClusterSetup {
        file,
        node: settings.node_id.clone(),
    }))
}

/// Returns the ports of the key-value protocol and of management: the given ones, or those of the cluster file.
pub(super) fn ports(effective: &Effective, cluster: Option<&ClusterSetup>) -> (u16, u16) {
    let settings = &effective.settings;
    let entry = cluster.and_then(|it| it.file.nodes.iter().find(|node| node.name == it.node));
    let port = |name: &str, own: u16, of_file: Option<u16>| {
        of_file.filter(|_| !effective.is_given(name)).unwrap_or(own)
    };
    (
        port("kv_port", settings.kv_port, entry.map(|it| it.kv_port)),
        port(
            "mgmt_port",
            settings.mgmt_port,
            entry.map(|it| it.mgmt_port),
        ),
    )
}

/// Creates the user as which other nodes log in, with the cluster's secret as its password.
pub(super) fn ensure_user(users: &Users, cluster: &ClusterSetup) -> Result<(), ServeError> {
    let secret = &cluster.file.secret;
    let store = users.read();
    if store.exists(CLUSTER_USER) {
        // Done in any case: without all rights nodes would be cut off from each other.
        if store.roles_of(CLUSTER_USER) != Roles::admin() {
            users.change(|store| store.set_roles(CLUSTER_USER, Roles::admin()))?;
        }
        if !store.verify_password(CLUSTER_USER, secret.as_bytes()) {
            users.change_at_start(|store| store.set_password(CLUSTER_USER, secret, now_s()))?;
        }
    } else {
        users.change_at_start(|store| store.add(CLUSTER_USER, secret, Roles::admin(), now_s()))?;
    }
    Ok(())
}
