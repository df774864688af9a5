//! Connections of the memcached port, which `stats conns` lists.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use kedge_sync::{RankedMutex, ranks::MemcachedOpen};

#[derive(Debug, Default)]
struct OpenConnections {
    last_id: u64,
    peers: BTreeMap<u64, SocketAddr>,
}

/// Connections of the memcached port.
#[derive(Debug, Default)]
pub(crate) struct MemcachedConnections {
    listen: Option<SocketAddr>,
    open: RankedMutex<MemcachedOpen, OpenConnections>,
}

/// A connection's entry in the list, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionListing {
    id: u64,
    list: Arc<MemcachedConnections>,
}

impl MemcachedConnections {
    /// An empty list of the connections to the port at `listen`.
    pub(crate) fn new(listen: Option<SocketAddr>) -> Self {
        Self {
            listen,
            ..Self::default()
        }
    }

    /// The address of the port.
    pub(crate) fn listen(&self) -> Option<SocketAddr> {
        self.listen
    }

    /// Lists a connection.
    pub(crate) fn add(self: &Arc<Self>, peer: SocketAddr) -> ConnectionListing {
        let mut open = self.open.lock();
        open.last_id += 1;
        let id = open.last_id;
        open.peers.insert(id, peer);
        ConnectionListing {
            id,
            list: self.clone(),
        }
    }

    /// The numbers and peers of all connections, oldest first.
    pub(crate) fn all(&self) -> Vec<(u64, SocketAddr)> {
        let open = self.open.lock();
        open.peers.iter().map(|(id, peer)| (*id, *peer)).collect()
    }
}

impl ConnectionListing {
    /// The connection's number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for ConnectionListing {
    fn drop(&mut self) {
        self.list.open.lock().peers.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_is_listed_until_dropped() {
        let list = Arc::new(MemcachedConnections::new(None));
        let peer = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let first = list.add(peer(1));
        let second = list.add(peer(2));
        assert_eq!(list.all(), [(1, peer(1)), (2, peer(2))]);
        drop(first);
        assert_eq!((list.all(), second.id()), (vec![(2, peer(2))], 2));
    }
}
