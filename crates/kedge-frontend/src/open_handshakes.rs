//! TLS handshakes that are not complete: their number, and the choice of the one to end when there are too many.
//!
//! A handshake costs its client nothing before the server has computed a signature. Of too many, the address with most
//! loses one: its oldest, or, if that is the newcomer's own address, the newcomer.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cookie::ConnectionId;
use crate::inbox::Port;
use crate::unauthenticated::{UnauthenticatedConnections, UnauthenticatedEntry};

/// The handshakes of the front end's ports that are not complete.
#[derive(Debug, Default)]
pub(crate) struct OpenHandshakes {
    /// The limit of their number; 0 for none.
    max: u64,
    open: AtomicU64,
    refused: AtomicU64,
    deferred: AtomicU64,
    connections: UnauthenticatedConnections,
}

/// A handshake in the count of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenHandshake {
    all: Arc<OpenHandshakes>,
    entry: Option<UnauthenticatedEntry>,
}

impl OpenHandshakes {
    /// Counts handshakes, of which `max` may be open; 0 for no limit.
    pub(crate) fn new(max: u32) -> Self {
        Self {
            max: u64::from(max),
            ..Self::default()
        }
    }

    /// Admits the handshake of a client, and returns the connection that is to end for it, if there are too many. `None`:
    /// it is refused.
    pub(crate) fn admit(
        self: &Arc<Self>,
        from: IpAddr,
    ) -> Option<(OpenHandshake, Option<ConnectionId>)> {
        let mut loser = None;
        if self.max > 0 && self.open() >= self.max {
            self.refused.fetch_add(1, Ordering::Relaxed);
            loser = Some(self.connections.take_oldest_of_most_but(from)?);
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let admitted = OpenHandshake {
            all: Arc::clone(self),
            entry: None,
        };
        Some((admitted, loser))
    }

    /// Counts handshakes that go on in a later turn, as the turn had no time for more.
    pub(crate) fn defer(&self, count: usize) {
        self.deferred.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The number of handshakes that are not complete.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Calls `each` with the name and value of every counter.
    pub(crate) fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        for (name, value) in [
            ("tls_handshakes_open", &self.open),
            ("tls_handshakes_refused", &self.refused),
            ("tls_handshakes_deferred", &self.deferred),
        ] {
            each(name, &value.load(Ordering::Relaxed).to_string());
        }
    }
}

impl OpenHandshake {
    /// Lists the connection as one that may end for another.
    pub(crate) fn enter(&mut self, from: IpAddr, port: Port, id: ConnectionId) {
        self.entry = Some(self.all.connections.enter(from, port, id));
    }
}

impl Drop for OpenHandshake {
    fn drop(&mut self) {
        self.all.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(entry) = self.entry.take() {
            self.all.connections.leave(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_with_most_handshakes_loses_one() {
        let address = |n: u8| IpAddr::from([127, 0, 0, n]);
        let id = |slot| ConnectionId::new(0, slot, 1);
        let handshakes = Arc::new(OpenHandshakes::new(3));
        let mut kept = Vec::new();
        for slot in 0..3 {
            let (mut admitted, loser) = handshakes.admit(address(1)).unwrap();
            assert_eq!(loser, None);
            admitted.enter(address(1), Port::Kv, id(slot));
            kept.push(admitted);
        }
        // The address with most is that of the newcomer.
        assert!(handshakes.admit(address(1)).is_none());
        let (mut other, loser) = handshakes.admit(address(2)).unwrap();
        assert_eq!(loser, Some(id(0)));
        other.enter(address(2), Port::Memcached, id(9));
        assert_eq!(handshakes.open(), 4, "the loser is not closed yet");
        kept.remove(0);
        assert_eq!(handshakes.open(), 3);
        kept.clear();
        assert_eq!(handshakes.open(), 1);
        assert!(handshakes.admit(address(1)).is_some());
        drop(other);
        assert_eq!(handshakes.open(), 0);
        let mut refused = String::new();
        handshakes.stats(&mut |name, value| {
            if name == "tls_handshakes_refused" {
                refused = value.to_owned();
            }
        });
        assert_eq!(refused, "2");
    }

    #[test]
    fn zero_is_no_limit() {
        let handshakes = Arc::new(OpenHandshakes::new(0));
        let from = IpAddr::from([127, 0, 0, 1]);
        let all: Vec<_> = (0..100).filter_map(|_| handshakes.admit(from)).collect();
        assert_eq!(all.len(), 100);
    }
}
