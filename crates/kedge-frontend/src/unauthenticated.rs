//! Connections without a login, and the choice of the one to close when there is no room for another.
//!
//! Bounded by the number of connections. Invariant: each listed source has a connection.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use kedge_node::client_source;
use kedge_sync::{RankedMutex, ranks::NewConnections};

use crate::cookie::ConnectionId;
use crate::inbox::Port;

/// A connection's entry in the list of those without a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnauthenticatedEntry {
    from: IpAddr,
    port: Port,
    number: u64,
}

#[derive(Debug, Default)]
struct ConnectionsBySource {
    last: u64,
    by_source: HashMap<(IpAddr, Port), BTreeMap<u64, ConnectionId>>,
}

/// Connections without a login, by source address and port.
#[derive(Debug, Default)]
pub(crate) struct UnauthenticatedConnections(RankedMutex<NewConnections, ConnectionsBySource>);

impl UnauthenticatedConnections {
    /// Lists a connection, until [`Self::leave`].
    pub(crate) fn enter(&self, from: IpAddr, port: Port, id: ConnectionId) -> UnauthenticatedEntry {
        let from = client_source(from);
        let mut listed = self.0.lock();
        listed.last += 1;
        let number = listed.last;
        let of_source = listed.by_source.entry((from, port)).or_default();
        of_source.insert(number, id);
        UnauthenticatedEntry { from, port, number }
    }

    /// Removes a connection, as its client has logged in or it has ended. Does nothing if it was taken.
    pub(crate) fn leave(&self, entry: UnauthenticatedEntry) {
        self.0.lock().remove(entry);
    }

    /// Takes the oldest connection of the source with most of them, on this port or any.
    pub(crate) fn take_oldest_of_most(&self, on: Option<Port>) -> Option<ConnectionId> {
        let mut listed = self.0.lock();
        let (entry, id) = listed.oldest_of_most(on)?;
        listed.remove(entry);
        Some(id)
    }

    /// Takes the oldest connection of the source with most of them, unless that is the newcomer's own.
    pub(crate) fn take_oldest_of_most_but(&self, newcomer: IpAddr) -> Option<ConnectionId> {
        let mut listed = self.0.lock();
        let (entry, id) = listed.oldest_of_most(None)?;
        if entry.from == client_source(newcomer) {
            return None;
        }
        listed.remove(entry);
        Some(id)
    }
}

impl ConnectionsBySource {
    /// The oldest connection of the source with most of them, on this port or any.
    fn oldest_of_most(&self, on: Option<Port>) -> Option<(UnauthenticatedEntry, ConnectionId)> {
        let sources = self.by_source.iter();
        let sources = sources.filter(|((_, port), _)| on.is_none_or(|on| on == *port));
        let ((from, port), of_source) = sources.max_by_key(|(_, of_source)| of_source.len())?;
        let (number, id) = of_source.first_key_value()?;
        let entry = UnauthenticatedEntry {
            from: *from,
            port: *port,
            number: *number,
        };
        Some((entry, *id))
    }

    fn remove(&mut self, entry: UnauthenticatedEntry) {
        let source = (entry.from, entry.port);
        if let Some(of_source) = self.by_source.get_mut(&source) {
            of_source.remove(&entry.number);
            if of_source.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_connection_of_the_source_with_most_is_evicted() {
        let address = |n: u8| IpAddr::from([127, 0, 0, n]);
        let id = |slot| ConnectionId::new(0, slot, 1);
        let unauthenticated = UnauthenticatedConnections::default();
        let take = |on| unauthenticated.take_oldest_of_most(on);
        let other = unauthenticated.enter(address(9), Port::Memcached, id(0));
        let first = unauthenticated.enter(address(1), Port::Kv, id(1));
        for slot in 2..5 {
            unauthenticated.enter(address(1), Port::Kv, id(slot));
        }
        unauthenticated.leave(first);
        assert_eq!(take(None), Some(id(2)));
        assert_eq!(take(Some(Port::Kv)), Some(id(3)));
        unauthenticated.leave(other);
        unauthenticated.leave(other);
        assert_eq!(take(Some(Port::Memcached)), None);
        assert_eq!(take(None), Some(id(4)));
        unauthenticated.enter(address(1), Port::Memcached, id(5));
        assert_eq!(take(Some(Port::Kv)), None);
        assert_eq!(take(Some(Port::Memcached)), Some(id(5)));
        assert!(unauthenticated.0.lock().by_source.is_empty());
    }
}
