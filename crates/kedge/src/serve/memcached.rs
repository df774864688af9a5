//! The port of plain memcached clients: whether it is open, for whom, and with which rights.

use std::path::Path;
use std::sync::Arc;

use kedge_auth::AuthFile;
use kedge_frontend::MemcachedRules;
use kedge_node::users::Users;
use kedge_server::MemcachedConfig;

use super::{ServeError, administrator};
use crate::settings::{Effective, MaybePort, Settings};

/// Returns the configuration of the port; `None` if it is not open. Plain memcached clients know only one node. In a
/// cluster that has only a part of the documents, so the port is opened only on request.
///
/// # Errors
/// `OpenMemcached`, `DefaultPassword`, `AuthFile`.
pub(super) fn config(
    effective: &Effective,
    in_cluster: bool,
    users: &Users,
) -> Result<Option<MemcachedConfig>, ServeError> {
    let settings = &effective.settings;
    let is_given = |name| effective.is_given(name);
    let asked_for = !in_cluster || is_given("memcached_enabled") || is_given("memcached_port");
    let port = match settings.memcached_port {
        MaybePort::At(port) if settings.memcached_enabled && asked_for => port,
        _ => return Ok(None),
    };
    let auth_file = match settings.memcached_auth_file.as_str() {
        "" => None,
        path => Some(read_auth_file(Path::new(path))?),
    };
    let login = settings.memcached_login || auth_file.is_some();
    check_exposure(settings, login, users)?;
    let bucket = match settings.memcached_bucket.as_str() {
        "" => settings.bucket.as_str(),
        name => name,
    };
    Ok(Some(MemcachedConfig {
        listen: settings.memcached_listen,
        port,
        bucket: bucket.to_owned(),
        rules: MemcachedRules {
            login,
            auth_file: auth_file.map(Arc::new),
            flush_all: settings.memcached_flush_all,
            item_bytes_max: usize::try_from(settings.memcached_item_max.0).unwrap_or(usize::MAX),
        },
    }))
}

/// Refuses a reachable address without a login, unless that is explicitly allowed, or with the default password.
fn check_exposure(settings: &Settings, login: bool, users: &Users) -> Result<(), ServeError> {
    let listen = settings.memcached_listen;
    if login {
        return administrator::check_exposure_at(listen, users);
    }
    if listen.to_canonical().is_loopback() {
        return Ok(());
    }
    if !settings.memcached_open {
        return Err(ServeError::OpenMemcached { listen });
    }
    tracing::warn!(
        %listen,
        flush_all = settings.memcached_flush_all,
        "the memcached port is open: everyone who can connect can read and write all documents of its bucket without a login"
    );
    Ok(())
}

fn read_auth_file(path: &Path) -> Result<AuthFile, ServeError> {
    let unusable = |why: String| ServeError::AuthFile {
        path: path.to_owned(),
        why,
    };
    let text = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    AuthFile::parse(&text).map_err(|error| unusable(error.to_string()))
}
