//! Connections of the memcached port: `stats conns` lists them, and one is evicted for another when the port is full.
//!
//! Bounded by the number of connections. Invariants:
//! * Each listed source has a connection.
//! * A connection is in the order of its source from its login, where one is required, until it is taken or ends. Its time
//!   there is never later than that of its last request, so the first of a source whose time is up to date is the least
//!   recently used one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kedge_node::client_source;
use kedge_sync::{RankedMutex, ranks::MemcachedOpen};

use crate::cookie::ConnectionId;

/// The last request of a connection with a request in progress.
const BUSY: u64 = u64::MAX;

/// Limits of the choice of the connection to evict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictionLimits {
    /// Time without a request after which a connection is idle, in nanoseconds.
    pub(crate) idle_ns: u64,
    /// Connections of one source that are evicted for other sources only while they are idle.
    pub(crate) per_source: usize,
}

#[derive(Debug)]
struct ListedConnection {
    peer: SocketAddr,
    connection: ConnectionId,
    /// The time of the last request, nanoseconds of the monotonic clock, or [`BUSY`]. Its thread updates it.
    last_request_ns: Arc<AtomicU64>,
    /// The time in the order of its source.
    known_ns: u64,
}

/// Connections of a source: the known time of the last request, and the number.
type ConnectionOrder = BTreeSet<(u64, u64)>;

#[derive(Debug, Default)]
struct OpenConnections {
    last_id: u64,
    by_id: BTreeMap<u64, ListedConnection>,
    /// Connections that may be evicted. [`crate::unauthenticated`] has those without a required login.
    by_source: HashMap<IpAddr, ConnectionOrder>,
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
    last_request_ns: Arc<AtomicU64>,
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

    /// Lists a connection. It may be evicted after [`ConnectionListing::set_evictable`].
    pub(crate) fn add(
        self: &Arc<Self>,
        peer: SocketAddr,
        connection: ConnectionId,
        now_ns: u64,
    ) -> ConnectionListing {
        let last_request_ns = Arc::new(AtomicU64::new(now_ns));
        let mut open = self.open.lock();
        open.last_id += 1;
        let id = open.last_id;
        let listed = ListedConnection {
            peer,
            connection,
            last_request_ns: last_request_ns.clone(),
            known_ns: now_ns,
        };
        open.by_id.insert(id, listed);
        ConnectionListing {
            id,
            last_request_ns,
            list: self.clone(),
        }
    }

    /// The numbers and peers of all connections, oldest first.
    pub(crate) fn all(&self) -> Vec<(u64, SocketAddr)> {
        let open = self.open.lock();
        let all = open.by_id.iter();
        all.map(|(id, listed)| (*id, listed.peer)).collect()
    }

    /// Takes the connection to evict for a new one from `newcomer`: the longest idle one of the source with the most, of
    /// those with more than the newcomer's, or of the newcomer's own. If none of them is idle: the least recently used
    /// one of the source with the most, if that has more than its share and is not the newcomer's.
    pub(crate) fn take_for(
        &self,
        newcomer: IpAddr,
        limits: EvictionLimits,
        now_ns: u64,
    ) -> Option<ConnectionId> {
        let newcomer = client_source(newcomer);
        let open = &mut *self.open.lock();
        let idle_before_ns = now_ns.saturating_sub(limits.idle_ns);
        let id = open
            .longest_idle(newcomer, idle_before_ns, now_ns)
            .or_else(|| open.least_recently_used(newcomer, limits.per_source, now_ns))?;
        open.take(id);
        open.by_id.get(&id).map(|listed| listed.connection)
    }
}

impl OpenConnections {
    fn longest_idle(&mut self, newcomer: IpAddr, before_ns: u64, now_ns: u64) -> Option<u64> {
        let own = self.by_source.get(&newcomer).map_or(0, BTreeSet::len);
        let mut found: Option<(usize, u64)> = None;
        for (source, order) in &mut self.by_source {
            let count = order.len();
            let may_give = count > own || *source == newcomer;
            if may_give && found.is_none_or(|(most, _)| count > most) {
                let idle = first_before(order, &mut self.by_id, before_ns, now_ns);
                found = idle.map(|id| (count, id)).or(found);
            }
        }
        found.map(|(_, id)| id)
    }

    fn least_recently_used(
        &mut self,
        newcomer: IpAddr,
        per_source: usize,
        now_ns: u64,
    ) -> Option<u64> {
        let own = self.by_source.get(&newcomer).map_or(0, BTreeSet::len);
        let sources = self.by_source.values_mut();
        let most = sources.max_by_key(|order| order.len())?;
        // A newcomer from this source has as many itself.
        let gives_way = most.len() > per_source.max(own);
        gives_way
            .then(|| first_before(most, &mut self.by_id, u64::MAX, now_ns))
            .flatten()
    }

    /// Adds a connection to the order of its source.
    fn put(&mut self, id: u64) {
        if let Some(listed) = self.by_id.get(&id) {
            let source = client_source(listed.peer.ip());
            let order = self.by_source.entry(source).or_default();
            order.insert((listed.known_ns, id));
        }
    }

    /// Removes a connection from the order of its source.
    fn take(&mut self, id: u64) {
        let Some(listed) = self.by_id.get(&id) else {
            return;
        };
        let source = client_source(listed.peer.ip());
        if let Some(order) = self.by_source.get_mut(&source) {
            order.remove(&(listed.known_ns, id));
            if order.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }
}

/// Returns the least recently used connection of a source if its last request was before `before_ns`. Updates the order
/// as far as needed: each request of a connection costs one update at most.
fn first_before(
    order: &mut ConnectionOrder,
    by_id: &mut BTreeMap<u64, ListedConnection>,
    before_ns: u64,
    now_ns: u64,
) -> Option<u64> {
    while let Some(&(known_ns, id)) = order.first()
        && known_ns < before_ns
    {
        let listed = by_id.get_mut(&id)?;
        let last_ns = match listed.last_request_ns.load(Ordering::Relaxed) {
            BUSY => now_ns,
            last_ns => last_ns,
        };
        if last_ns <= known_ns {
            return Some(id);
        }
        order.remove(&(known_ns, id));
        listed.known_ns = last_ns;
        order.insert((last_ns, id));
    }
    None
}

impl ConnectionListing {
    /// The connection's number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Sets whether the connection may be evicted.
    pub(crate) fn set_evictable(&self, is_evictable: bool) {
        let mut open = self.list.open.lock();
        if is_evictable {
            open.put(self.id);
        } else {
            open.take(self.id);
        }
    }

    /// Publishes the time of the last request, `None` while one is in progress. At its end that is the current time.
    pub(crate) fn publish(&self, last_request_ns: Option<u64>, now_ns: u64) {
        let has_ended = self.last_request_ns.load(Ordering::Relaxed) == BUSY;
        let last_ns = match last_request_ns {
            None => BUSY,
            Some(_) if has_ended => now_ns,
            Some(last_ns) => last_ns,
        };
        self.last_request_ns.store(last_ns, Ordering::Relaxed);
    }
}

impl Drop for ConnectionListing {
    fn drop(&mut self) {
        let mut open = self.list.open.lock();
        open.take(self.id);
        open.by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, n], port))
    }

    /// Connections of a list; the slot of each is its place here.
    struct Listed {
        list: Arc<MemcachedConnections>,
        all: Vec<Option<ConnectionListing>>,
    }

    impl Listed {
        /// A connection from each of these addresses, at the times 1, 2 and so on.
        fn of(addresses: &[u8]) -> Self {
            let list = Arc::new(MemcachedConnections::new(None));
            let all = addresses.iter().enumerate().map(|(slot, &n)| {
                let id = ConnectionId::new(0, slot, 1);
                let listing = list.add(peer(n, 1), id, 1 + slot as u64);
                listing.set_evictable(true);
                Some(listing)
            });
            let all = all.collect();
            Self { list, all }
        }

        fn publish(&self, slot: usize, now_ns: u64, is_busy: bool) {
            let listing = self.all[slot].as_ref().unwrap();
            listing.publish((!is_busy).then_some(now_ns), now_ns);
        }

        /// The slot that is taken at `now_ns` for address `n`; connections are idle after 100 ns.
        fn take(&self, n: u8, per_source: usize, now_ns: u64) -> Option<u32> {
            let limits = EvictionLimits {
                idle_ns: 100,
                per_source,
            };
            let taken = self.list.take_for(peer(n, 9).ip(), limits, now_ns);
            taken.map(|id| id.slot)
        }

        fn sources(&self) -> usize {
            self.list.open.lock().by_source.len()
        }
    }

    #[test]
    fn connection_is_listed_until_dropped() {
        let list = Arc::new(MemcachedConnections::new(None));
        let id = |slot| ConnectionId::new(0, slot, 1);
        let first = list.add(peer(1, 1), id(0), 5);
        let second = list.add(peer(1, 2), id(1), 5);
        first.set_evictable(true);
        second.set_evictable(true);
        assert_eq!(list.all(), [(1, peer(1, 1)), (2, peer(1, 2))]);
        drop(first);
        assert_eq!((list.all(), second.id()), (vec![(2, peer(1, 2))], 2));
        drop(second);
        assert!(list.open.lock().by_source.is_empty());
    }

    #[test]
    fn longest_idle_connection_of_the_source_with_most_is_taken() {
        let mut listed = Listed::of(&[1, 2, 2, 2, 2]);
        listed.publish(1, 50, false);
        listed.publish(2, 60, true);
        assert_eq!(listed.take(3, 9, 101), None, "idle for 100 ns at most");
        assert_eq!(listed.take(3, 9, 200), Some(3));
        // One that was taken and is not closed yet is not taken again.
        assert_eq!(listed.take(3, 9, 200), Some(4));
        listed.all[3] = None;
        let waiting = listed.all[2].as_ref().unwrap();
        waiting.publish(Some(60), 210);
        assert_eq!(listed.take(3, 9, 310), Some(1));
        // The source with most has an active one only.
        assert_eq!(listed.take(3, 9, 310), Some(0));
        assert_eq!(listed.take(3, 9, 310), None);
        assert_eq!(listed.take(3, 9, 311), Some(2));
        assert_eq!((listed.take(3, 9, 999), listed.sources()), (None, 0));
        listed.all.clear();
        assert!(listed.list.all().is_empty());
    }

    #[test]
    fn connection_that_must_log_in_is_not_taken() {
        let listed = Listed::of(&[2, 2, 2]);
        let first = listed.all[1].as_ref().unwrap();
        first.set_evictable(false);
        assert_eq!(listed.take(3, 9, 1_000), Some(0));
        assert_eq!(listed.take(3, 9, 1_000), Some(2));
        assert_eq!(listed.take(3, 9, 1_000), None);
        first.set_evictable(true);
        assert_eq!(listed.take(3, 9, 1_000), Some(1));
    }

    #[test]
    fn sources_with_fewer_connections_give_none() {
        let listed = Listed::of(&[1, 2, 2, 3, 3, 3]);
        (3..6).for_each(|slot| listed.publish(slot, 990, false));
        assert_eq!(listed.take(3, 9, 1_000), None);
        assert_eq!(listed.take(2, 9, 1_000), Some(1), "its own");
        assert_eq!(listed.take(1, 9, 1_000), Some(0), "its own");
        assert_eq!(listed.take(4, 9, 1_000), Some(2));
    }

    #[test]
    fn source_above_its_share_gives_active_connections_to_others() {
        let listed = Listed::of(&[1, 2, 2, 2, 2]);
        (0..5).for_each(|slot| listed.publish(slot, 995 - slot as u64, false));
        listed.publish(4, 0, true);
        assert_eq!(listed.take(2, 2, 1_000), None, "its own newcomer");
        assert_eq!(listed.take(1, 2, 1_000), Some(3));
        (1..3).for_each(|slot| listed.publish(slot, 0, true));
        assert_eq!(listed.take(1, 2, 1_000), Some(1), "all are busy");
        assert_eq!(listed.take(1, 2, 1_000), None, "no more than its share");
        assert_eq!(listed.take(1, 1, 1_000), Some(2));
    }
}
