//! The cluster of the settings.

use std::net::IpAddr;
use std::sync::Arc;

use kedge_auth::Roles;
use kedge_cluster::{CLUSTER_USER, External, Release, SERVER_GROUP, TlsPorts};
use kedge_coordination::StoreAddress;
use kedge_coordination::lease::{LeaseTiming, TimingError};
use kedge_coordinator::cluster::{ClusterSetup, LeaseOptions, NodeOptions};
use kedge_disk::Disk;
use kedge_node::users::Users;
use kedge_tls::ServerTls;

use super::ServeError;
use super::administrator::now_s;
use crate::settings::{Effective, Settings, SettingsError};

/// Returns this server as a node of a cluster, after it has read the cluster's secret; `None` for a standalone server.
pub(super) fn prepare(
    effective: &Effective,
    disk: &Arc<dyn Disk>,
    (release, tls): (Release, Option<ServerTls>),
) -> Result<Option<ClusterSetup>, ServeError> {
    let settings = &effective.settings;
    let Some(options) = options(settings, release, tls)? else {
        return Ok(None);
    };
    Ok(Some(ClusterSetup::prepare(
        options,
        disk,
        &settings.data_dir,
    )?))
}

fn refused(name: &'static str, why: &impl ToString) -> SettingsError {
    let why = why.to_string();
    SettingsError::Refused { name, why }
}

/// Returns the coordination store of the settings; `None` if there is none.
pub(crate) fn coordinator(settings: &Settings) -> Result<Option<StoreAddress>, SettingsError> {
    if settings.coordinator.is_empty() {
        return Ok(None);
    }
    let address = settings.coordinator.parse();
    let address = address.map_err(|why| refused("coordinator", &why))?;
    Ok(Some(address))
}

fn options(
    settings: &Settings,
    release: Release,
    tls: Option<ServerTls>,
) -> Result<Option<NodeOptions>, SettingsError> {
    let coordinator = coordinator(settings)?;
    let (coordinator, name) = match (coordinator, &settings.node_name) {
        (None, name) if name.is_empty() => return Ok(None),
        (Some(coordinator), name) if !name.is_empty() => (coordinator, name.clone()),
        _ => return Err(refused("node_name", &"it and coordinator go together")),
    };
    let port = |port: u16| (port != 0).then_some(port);
    let external = (!settings.external_host.is_empty()).then(|| External {
        host: settings.external_host.clone(),
        kv_port: port(settings.external_kv_port),
        mgmt_port: port(settings.external_mgmt_port),
    });
    Ok(Some(NodeOptions {
        coordinator,
        name,
        host: host(settings)?,
        external,
        external_tls: TlsPorts {
            external_kv: settings.external_kv_tls_port,
            external_mgmt: settings.external_mgmt_tls_port,
            ..TlsPorts::default()
        },
        server_group: server_group(settings),
        lease: lease(settings)?,
        release,
        // Without an encryption of the cluster it is for clients only.
        tls: tls.filter(|tls| tls.node_config().is_some()),
    }))
}

/// Returns the server group. An empty one is the default: Kubernetes leaves the variable of a machine without a zone empty.
fn server_group(settings: &Settings) -> String {
    match settings.server_group.as_str() {
        "" => SERVER_GROUP.to_owned(),
        given => given.to_owned(),
    }
}

fn lease(settings: &Settings) -> Result<LeaseOptions, SettingsError> {
    let pause = settings.lease_tolerated_pause;
    let pause = (!pause.is_zero()).then_some(pause);
    let timing = LeaseTiming::new(settings.auto_failover_timeout, pause);
    let timing = timing.map_err(|why| match why {
        // Every time that is in range has a pause that fits.
        TimingError::TooTight { .. } => refused("lease_tolerated_pause", &why),
        _ => refused("auto_failover_timeout", &why),
    })?;
    Ok(LeaseOptions {
        timing,
        pause,
        watchdog: settings.lease_watchdog,
    })
}

/// Returns the host at which others reach the node.
fn host(settings: &Settings) -> Result<String, SettingsError> {
    if !settings.advertise.is_empty() {
        return Ok(settings.advertise.clone());
    }
    match settings.listen {
        IpAddr::V4(address) if address.is_unspecified() => {}
        IpAddr::V6(address) if address.is_unspecified() => {}
        address => return Ok(address.to_string()),
    }
    let why =
        "a node of a cluster that listens on all addresses needs the one at which others reach it";
    Err(refused("advertise", &why))
}

/// Creates the user as which other nodes log in, with the cluster's secret as its password. It is this node's own.
pub(super) fn ensure_user(users: &Users, cluster: &ClusterSetup) -> Result<(), ServeError> {
    let secret = cluster.secret();
    let store = users.read();
    if store.exists(CLUSTER_USER) {
        // Done in any case: without all rights nodes would be cut off from each other.
        if store.roles_of(CLUSTER_USER) != Roles::admin() {
            users.change_at_start(|store| store.set_roles(CLUSTER_USER, Roles::admin()))?;
        }
        let is_right = store.verify_password(CLUSTER_USER, secret.as_bytes());
        // This user is in no document of the cluster, so its hash is renewed here.
        let hash = store.hash_upgrade(CLUSTER_USER, secret.as_bytes());
        if !is_right || hash.is_some() {
            users.change_at_start(|store| store.set_password(CLUSTER_USER, secret, now_s()))?;
        }
    } else {
        users.change_at_start(|store| store.add(CLUSTER_USER, secret, Roles::admin(), now_s()))?;
    }
    Ok(())
}
