//! Limits of connections by class: strangers, users, administrators and nodes, with room reserved for each later class.
//!
//! Invariants:
//! * Strangers, connections without a right password so far, are at most [`ConnectionLimits::strangers`]; all others at
//!   most the rest. So there is always room for one more connection, in the worst case at the cost of a stranger.
//! * A connection never becomes a stranger again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use kedge_node::client_source;
use kedge_sync::{RankedMutex, ranks::ManagementPlaces};
use kedge_types::limits::{
    MGMT_CONNECTIONS_MAX, MGMT_KEPT_FOR_ADMINISTRATORS, MGMT_KEPT_FOR_NODES,
    MGMT_UNAUTHENTICATED_MAX, MGMT_UNAUTHENTICATED_PER_ADDRESS_MAX,
};
use tokio::sync::Notify;

/// The class of a connection, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionClass {
    /// No request has had a right password yet.
    Stranger,
    /// A logged-in user.
    User,
    /// A user who may change settings.
    Administrator,
    /// Another node of the cluster.
    Node,
}

impl ConnectionClass {
    const ALL: [Self; 4] = [Self::Stranger, Self::User, Self::Administrator, Self::Node];

    const fn name(self) -> &'static str {
        match self {
            Self::Stranger => "unauthenticated",
            Self::User => "user",
            Self::Administrator => "administrator",
            Self::Node => "node",
        }
    }
}

/// Limits of the number of connections.
#[derive(Clone, Copy, Debug)]
struct ConnectionLimits {
    all: usize,
    strangers: usize,
    strangers_of_address: usize,
    kept_for_administrators: usize,
    kept_for_nodes: usize,
}

const LIMITS: ConnectionLimits = ConnectionLimits {
    all: MGMT_CONNECTIONS_MAX,
    strangers: MGMT_UNAUTHENTICATED_MAX,
    strangers_of_address: MGMT_UNAUTHENTICATED_PER_ADDRESS_MAX,
    kept_for_administrators: MGMT_KEPT_FOR_ADMINISTRATORS,
    kept_for_nodes: MGMT_KEPT_FOR_NODES,
};

#[derive(Debug)]
struct MgmtConnection {
    from: IpAddr,
    standing: ConnectionClass,
    /// True while a request is in flight.
    is_busy: bool,
    evicted: Arc<Notify>,
}

/// The slots in use.
#[derive(Debug)]
struct SlotTable {
    limits: ConnectionLimits,
    /// The connections, in the order of their arrival.
    held: BTreeMap<u64, MgmtConnection>,
    last: u64,
    evicted: u64,
    refused: u64,
}

impl SlotTable {
    fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits,
            held: BTreeMap::new(),
            last: 0,
            evicted: 0,
            refused: 0,
        }
    }

    fn count(&self, standings: &[ConnectionClass]) -> usize {
        let held = self.held.values();
        held.filter(|it| standings.contains(&it.standing)).count()
    }

    /// Assigns a slot to a connection from an address; a stranger may be evicted for it.
    fn admit(&mut self, from: IpAddr) -> (u64, Arc<Notify>) {
        let from = client_source(from);
        let mut of_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
        let mut strangers = 0;
        for held in self.held.values() {
            if held.standing == ConnectionClass::Stranger {
                *of_address.entry(held.from).or_default() += 1;
                strangers += 1;
            }
        }
        let own = of_address.get(&from).copied().unwrap_or(0);
        if own >= self.limits.strangers_of_address {
            self.evict(from);
        } else if strangers >= self.limits.strangers
            && let Some((greediest, _)) = of_address.iter().max_by_key(|(_, count)| **count)
        {
            self.evict(*greediest);
        }
        self.last += 1;
        let evicted = Arc::new(Notify::new());
        let held = MgmtConnection {
            from,
            standing: ConnectionClass::Stranger,
            is_busy: false,
            evicted: evicted.clone(),
        };
        self.held.insert(self.last, held);
        (self.last, evicted)
    }

    /// Evicts the oldest stranger of an address, an idle one if there is one.
    fn evict(&mut self, from: IpAddr) {
        let strangers = self.held.iter();
        let mut strangers =
            strangers.filter(|(_, it)| it.from == from && it.standing == ConnectionClass::Stranger);
        let oldest = strangers.clone().next().map(|(id, _)| *id);
        let idle = strangers.find(|(_, it)| !it.is_busy).map(|(id, _)| *id);
        if let Some(held) = idle.or(oldest).and_then(|id| self.held.remove(&id)) {
            held.evicted.notify_one();
            self.evicted += 1;
        }
    }

    /// Sets the class of a connection. False if the class has no slots left.
    fn stand(&mut self, id: u64, standing: ConnectionClass) -> bool {
        use ConnectionClass::{Administrator, Node, User};
        let Some(now) = self.held.get(&id).map(|held| held.standing) else {
            // It was evicted at this moment.
            return false;
        };
        if now == standing {
            return true;
        }
        let ConnectionLimits {
            all,
            strangers,
            kept_for_administrators,
            kept_for_nodes,
            ..
        } = self.limits;
        let others = |standings: &[ConnectionClass]| {
            self.count(standings) - usize::from(standings.contains(&now))
        };
        let for_nodes = all - strangers;
        let for_administrators = for_nodes - kept_for_nodes;
        let for_users = for_administrators - kept_for_administrators;
        let has_room = match standing {
            ConnectionClass::Stranger => return true,
            User => {
                others(&[User]) < for_users && others(&[User, Administrator]) < for_administrators
            }
            Administrator => others(&[User, Administrator]) < for_administrators,
            Node => true,
        };
        if !has_room || others(&[User, Administrator, Node]) >= for_nodes {
            self.refused += 1;
            return false;
        }
        if let Some(held) = self.held.get_mut(&id) {
            held.standing = standing;
        }
        true
    }
}

/// The connection slots of a server.
#[derive(Debug)]
pub(super) struct ConnectionSlots(RankedMutex<ManagementPlaces, SlotTable>);

impl Default for ConnectionSlots {
    fn default() -> Self {
        Self(RankedMutex::new(SlotTable::new(LIMITS)))
    }
}

impl ConnectionSlots {
    /// Assigns a slot to a new connection. There is always one.
    pub(super) fn admit(self: &Arc<Self>, from: IpAddr) -> ConnectionSlot {
        let (id, evicted) = self.0.lock().admit(from);
        ConnectionSlot {
            slots: self.clone(),
            id,
            from,
            evicted,
        }
    }

    /// Calls `each` with the names and values of counts.
    pub(super) fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        let table = self.0.lock();
        for standing in ConnectionClass::ALL {
            let name = format!("mgmt_connections_{}", standing.name());
            each(&name, &table.count(&[standing]).to_string());
        }
        each("mgmt_connections_evicted", &table.evicted.to_string());
        each("mgmt_connections_refused", &table.refused.to_string());
    }
}

/// The slot of a connection, which is freed when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: u64,
    from: IpAddr,
    evicted: Arc<Notify>,
}

impl ConnectionSlot {
    /// Returns the remote address.
    pub(super) const fn from(&self) -> IpAddr {
        self.from
    }

    /// Sets the class of the connection. False if the class has no slots left.
    pub(super) fn stand(&self, standing: ConnectionClass) -> bool {
        self.slots.0.lock().stand(self.id, standing)
    }

    /// Notes whether a request is in flight.
    pub(super) fn set_busy(&self, is_busy: bool) {
        if let Some(held) = self.slots.0.lock().held.get_mut(&self.id) {
            held.is_busy = is_busy;
        }
    }

    /// Returns whether the connection is an idle stranger.
    pub(super) fn is_idle_stranger(&self) -> bool {
        let table = self.slots.0.lock();
        let held = table.held.get(&self.id);
        held.is_none_or(|held| held.standing == ConnectionClass::Stranger && !held.is_busy)
    }

    /// Returns whether no request has had a right password yet.
    pub(super) fn is_strangers(&self) -> bool {
        let table = self.slots.0.lock();
        let held = table.held.get(&self.id);
        held.is_none_or(|held| held.standing == ConnectionClass::Stranger)
    }

    /// Waits until the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.0.lock().held.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: ConnectionLimits = ConnectionLimits {
        all: 12,
        strangers: 4,
        strangers_of_address: 3,
        kept_for_administrators: 2,
        kept_for_nodes: 3,
    };

    fn address(n: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, n])
    }

    fn table() -> SlotTable {
        SlotTable::new(SMALL)
    }

    #[test]
    fn strangers_evict_each_other() {
        let mut table = table();
        let of_one: Vec<u64> = (0..3).map(|_| table.admit(address(1)).0).collect();
        let (other, _) = table.admit(address(2));
        table.held.get_mut(&of_one[0]).unwrap().is_busy = true;
        // The address has reached its limit: its oldest idle connection is evicted.
        let (fourth, _) = table.admit(address(1));
        assert!(!table.held.contains_key(&of_one[1]) && table.held.contains_key(&of_one[0]));
        // The limit is reached: the oldest connection of the address with most is evicted.
        let (third, _) = table.admit(address(3));
        assert!(!table.held.contains_key(&of_one[2]));
        for id in [of_one[0], other, fourth, third] {
            assert!(table.held.contains_key(&id), "{id}");
        }
        assert_eq!((table.held.len(), table.evicted), (4, 2));
        // Busy ones are evicted if there are no idle ones.
        for held in table.held.values_mut() {
            held.is_busy = true;
        }
        table.admit(address(4));
        assert!(!table.held.contains_key(&of_one[0]));
    }

    #[test]
    fn slots_are_reserved_for_administrators_and_nodes() {
        let mut table = table();
        let mut take = |standing| {
            let (id, _) = table.admit(address(1));
            table.stand(id, standing)
        };
        for (standing, count) in [
            (ConnectionClass::User, 3),
            (ConnectionClass::Administrator, 2),
            (ConnectionClass::Node, 3),
        ] {
            for _ in 0..count {
                assert!(take(standing), "{standing:?}");
            }
            assert!(!take(standing), "one more {standing:?}");
        }
        let (stranger, _) = table.admit(address(9));
        assert!(
            table.held.contains_key(&stranger),
            "there is room for one more"
        );
        assert!(table.held.len() <= SMALL.all && table.refused == 3);
    }

    #[test]
    fn connection_class_changes_and_the_slot_is_freed() {
        let slots = Arc::new(ConnectionSlots::default());
        let slot = slots.admit(address(1));
        assert!(slot.is_idle_stranger() && slot.is_strangers());
        slot.set_busy(true);
        assert!(!slot.is_idle_stranger() && slot.is_strangers());
        for standing in [
            ConnectionClass::User,
            ConnectionClass::Node,
            ConnectionClass::Node,
            ConnectionClass::User,
        ] {
            assert!(slot.stand(standing));
            assert_eq!(slots.0.lock().count(&[standing]), 1);
        }
        assert!(!slot.is_strangers());
        drop(slot);
        assert!(slots.0.lock().held.is_empty());
    }
}
