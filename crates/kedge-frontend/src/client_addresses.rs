//! The addresses that clients connect from, with the number of connections of each.
//!
//! Bounded: when there are too many addresses, the one whose last connection is oldest is forgotten, of those without a
//! connection.

use std::collections::HashMap;
use std::net::IpAddr;

use kedge_sync::{RankedMutex, ranks::ClientAddressMap};

/// Largest number of addresses.
const ADDRESSES_MAX: usize = 1_024;

/// Connections from one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientAddress {
    /// Open connections.
    pub(crate) current: u64,
    /// All connections, closed ones too.
    pub(crate) total: u64,
    /// The time of the last connection, seconds since 1970.
    pub(crate) last_unix_secs: u64,
}

/// Connections by address.
#[derive(Debug, Default)]
pub(crate) struct ClientAddresses(RankedMutex<ClientAddressMap, HashMap<IpAddr, ClientAddress>>);

impl ClientAddresses {
    pub(crate) fn connected(&self, from: IpAddr, unix_secs: u64) {
        let from = from.to_canonical();
        let mut known = self.0.lock();
        if known.len() >= ADDRESSES_MAX && !known.contains_key(&from) && !make_room(&mut known) {
            return;
        }
        let entry = known.entry(from).or_default();
        entry.current += 1;
        entry.total += 1;
        entry.last_unix_secs = unix_secs;
    }

    pub(crate) fn disconnected(&self, from: IpAddr) {
        if let Some(entry) = self.0.lock().get_mut(&from.to_canonical()) {
            // The connection may have been accepted while there was no room for its address.
            entry.current = entry.current.saturating_sub(1);
        }
    }

    /// All addresses, in order.
    pub(crate) fn all(&self) -> Vec<(IpAddr, ClientAddress)> {
        let known = self.0.lock();
        let mut all: Vec<_> = known.iter().map(|(from, entry)| (*from, *entry)).collect();
        all.sort_by_key(|(from, _)| *from);
        all
    }
}

/// Forgets an address without a connection. Returns false if all have some.
fn make_room(known: &mut HashMap<IpAddr, ClientAddress>) -> bool {
    let idle = known.iter().filter(|(_, entry)| entry.current == 0);
    let oldest = idle.min_by_key(|(_, entry)| entry.last_unix_secs);
    let Some(oldest) = oldest.map(|(from, _)| *from) else {
        return false;
    };
    known.remove(&oldest);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(n: usize) -> IpAddr {
        Ipv4Addr::from_bits(u32::try_from(n).unwrap()).into()
    }

    #[test]
    fn addresses_are_counted_and_bounded() {
        let addresses = ClientAddresses::default();
        let mapped = Ipv4Addr::from_bits(7).to_ipv6_mapped().into();
        for (from, secs) in [(address(7), 1), (mapped, 2), (address(8), 3)] {
            addresses.connected(from, secs);
        }
        addresses.disconnected(mapped);
        let of = |current, total, last_unix_secs| ClientAddress {
            current,
            total,
            last_unix_secs,
        };
        let expected = [(address(7), of(1, 2, 2)), (address(8), of(1, 1, 3))];
        assert_eq!(addresses.all(), expected);
        for n in 100..100 + ADDRESSES_MAX {
            addresses.connected(address(n), 4 + n as u64);
        }
        let known = |n| addresses.all().iter().any(|(from, _)| *from == address(n));
        assert_eq!(addresses.all().len(), ADDRESSES_MAX);
        assert!(known(7) && !known(99 + ADDRESSES_MAX), "all are connected");
        addresses.disconnected(address(99 + ADDRESSES_MAX));
        addresses.disconnected(address(101));
        addresses.disconnected(address(100));
        addresses.connected(address(1), 9_000);
        assert!(known(1) && !known(100) && known(101), "the oldest goes");
        assert_eq!(addresses.all().len(), ADDRESSES_MAX);
    }
}
