//! Requests to the system: listening sockets, limit of open files, number of processors.

use std::net::SocketAddr;

use kedge_coordinator::cluster::ClusterSetup;
use kedge_frontend::limits::THREADS_MAX;
use kedge_node::machine::files_for_buckets;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use crate::ServerError;

/// Backlog of a listening socket: connections that wait to be accepted.
const BACKLOG: i32 = 1_024;
/// File descriptors that are not connections of the KV and memcached ports: logs, listeners, polls, HTTP.
const RESERVED_FILES: u64 = 768;

pub(super) fn thread_count(asked: u16) -> Result<u16, ServerError> {
    if asked > THREADS_MAX {
        return Err(ServerError::Config(format!(
            "{asked} front-end threads are more than the {THREADS_MAX} there may be"
        )));
    }
    if asked > 0 {
        return Ok(asked);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(u16::try_from(cores).unwrap_or(THREADS_MAX).min(THREADS_MAX))
}

/// The number of connections that the limit of open files allows, at most `wanted`. Raises the soft limit to the hard
/// one.
pub(super) fn allowed_connections(wanted: u32) -> u32 {
    let limit = getrlimit(Resource::Nofile);
    // A process may always raise its soft limit to the hard one; if it fails, the old limit holds.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let others = RESERVED_FILES.saturating_add(files_for_buckets());
    let allowed = files.saturating_sub(others).max(files / 2);
    let allowed = u32::try_from(allowed).unwrap_or(u32::MAX);
    if allowed < wanted {
        tracing::warn!(
            wanted,
            allowed,
            "the limit of open files allows fewer connections"
        );
    }
    wanted.min(allowed)
}

/// The names of this machine, and of this node of a cluster.
pub(super) fn names(cluster: Option<&ClusterSetup>) -> impl Iterator<Item = String> + use<> {
    let machine = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let own = cluster.into_iter().flat_map(ClusterSetup::hosts);
    let names: Vec<String> = [machine].into_iter().chain(own).collect();
    names.into_iter().filter(|name| !name.is_empty())
}

pub(super) fn bind(
    address: SocketAddr,
) -> Result<(std::net::TcpListener, SocketAddr), ServerError> {
    let listen = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        // A restart must not wait for connections of the previous process in TIME_WAIT.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = std::net::TcpListener::from(socket);
        let real = listener.local_addr()?;
        Ok((listener, real))
    };
    listen().map_err(|source| ServerError::Listen { address, source })
}
