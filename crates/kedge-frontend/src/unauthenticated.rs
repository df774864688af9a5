//! Connections that have not logged in: whose turn it is to go when there is room for no more.
//!
//! Bounded by the number of connections. Invariant: no source is listed without a connection.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use kedge_node::client_source;
use kedge_sync::{RankedMutex, ranks::NewConnections};

use crate::cookie::ConnectionId;

/// A connection's place among those that have not logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnauthenticatedEntry {
    from: IpAddr,
    number: u64,
}

#[derive(Debug, Default)]
struct ConnectionsBySource {
    last: u64,
    by_source: HashMap<IpAddr, BTreeMap<u64, ConnectionId>>,
}

/// Connections that have not logged in, by where they come from.
#[derive(Debug, Default)]
pub(crate) struct UnauthenticatedConnections(RankedMutex<NewConnections, ConnectionsBySource>);

impl UnauthenticatedConnections {
    /// Lists a connection, until [`Self::leave`].
    pub(crate) fn enter(&self, from: IpAddr, id: ConnectionId) -> UnauthenticatedEntry {
        let from = client_source(from);
        let mut listed = self.0.lock();
        listed.last += 1;
        let number = listed.last;
        let of_source = listed.by_source.entry(from).or_default();
        of_source.insert(number, id);
        UnauthenticatedEntry { from, number }
    }

    /// The connection has logged in, or has ended. Nothing when it was taken before.
    pub(crate) fn leave(&self, newcomer: UnauthenticatedEntry) {
        self.0.lock().remove(newcomer);
    }

    /// Takes the oldest connection of the source that has most of them.
    pub(crate) fn take_oldest_of_most(&self) -> Option<ConnectionId> {
        let mut listed = self.0.lock();
        let sources = listed.by_source.iter();
        let (from, of_source) = sources.max_by_key(|(_, of_source)| of_source.len())?;
        let (number, id) = of_source.first_key_value()?;
        let (newcomer, id) = (
            UnauthenticatedEntry {
                from: *from,
                number: *number,
            },
            *id,
        );
        listed.remove(newcomer);
        Some(id)
    }
}

impl ConnectionsBySource {
    fn remove(&mut self, newcomer: UnauthenticatedEntry) {
        if let Some(of_source) = self.by_source.get_mut(&newcomer.from) {
            of_source.remove(&newcomer.number);
            if of_source.is_empty() {
                self.by_source.remove(&newcomer.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_greediest_goes_first() {
        let address = |n: u8| IpAddr::from([127, 0, 0, n]);
        let id = |slot| ConnectionId::new(0, slot, 1);
        let newcomers = UnauthenticatedConnections::default();
        let other = newcomers.enter(address(9), id(0));
        let first = newcomers.enter(address(1), id(1));
        for slot in 2..5 {
            newcomers.enter(address(1), id(slot));
        }
        newcomers.leave(first);
        assert_eq!(newcomers.take_oldest_of_most(), Some(id(2)));
        assert_eq!(newcomers.take_oldest_of_most(), Some(id(3)));
        newcomers.leave(other);
        newcomers.leave(other);
        assert_eq!(newcomers.take_oldest_of_most(), Some(id(4)));
        assert_eq!(newcomers.take_oldest_of_most(), None);
        assert!(newcomers.0.lock().by_source.is_empty());
    }
}
