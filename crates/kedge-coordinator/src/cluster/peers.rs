//! The other nodes of the followed map.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kedge_cluster::{ClusterMap, Revision};
use kedge_node::coordination::ChangeError;
use kedge_sync::{RankedMutex, ranks::ClusterPeers};

use super::followed::Followed;
use super::peer::{self, ASK_TIMEOUT, Peer};

/// The other nodes of a map.
#[derive(Default)]
struct MetPeers {
    /// The revision of the map.
    of: Option<Revision>,
    /// The nodes, by number.
    nodes: BTreeMap<u16, Arc<Peer>>,
}

/// The other nodes.
pub(super) struct Peers {
    followed: Arc<Followed>,
    met: RankedMutex<ClusterPeers, MetPeers>,
    /// True once their threads run.
    started: AtomicBool,
}

impl Peers {
    pub(super) fn new(followed: Arc<Followed>) -> Self {
        Self {
            followed,
            met: RankedMutex::default(),
            started: AtomicBool::new(false),
        }
    }

    /// Starts asking the nodes of the followed map.
    pub(super) fn start(&self) {
        self.started.store(true, Ordering::SeqCst);
        self.meet();
    }

    /// Returns all of them.
    pub(super) fn all(&self) -> Vec<Arc<Peer>> {
        self.met.lock().nodes.values().cloned().collect()
    }

    /// Returns the one with that number.
    pub(super) fn get(&self, number: u16) -> Option<Arc<Peer>> {
        self.met.lock().nodes.get(&number).cloned()
    }

    /// Returns the names, and true for each that is reachable.
    pub(super) fn reached(&self) -> Vec<(String, bool)> {
        let peers = self.all().into_iter();
        peers
            .map(|peer| (peer.name.clone(), peer.is_reached()))
            .collect()
    }

    /// Forgets the positions that nodes have reported by the previous map, and meets the nodes of the followed one.
    pub(super) fn follow(&self) {
        for peer in self.all() {
            // They may differ by this map.
            peer.forget_positions();
        }
        self.meet();
    }

    /// Makes the threads send a map of the store.
    pub(super) fn offer(&self, map: &Arc<ClusterMap>) {
        for peer in self.all() {
            peer.offer(map);
        }
    }

    /// Makes the threads of failed-over nodes send a map of the store.
    pub(super) fn offer_to_failed(&self, map: &Arc<ClusterMap>) {
        for peer in self.all() {
            if !map.is_member(peer.number) {
                peer.offer(map);
            }
        }
    }

    /// Makes the threads ask at once.
    pub(super) fn poke(&self) {
        for peer in self.all() {
            peer.poke();
        }
    }

    /// Begins to ask the other nodes of the followed map, at their present addresses, and ceases to ask those that are
    /// gone.
    fn meet(&self) {
        if !self.started.load(Ordering::SeqCst) {
            return;
        }
        let Some(map) = self.followed.map() else {
            return;
        };
        let mut met = self.met.lock();
        if met.of > Some(map.revision) {
            // Another thread was faster, with a newer map.
            return;
        }
        met.of = Some(map.revision);
        let me = self.followed.number(&map);
        let is_other = |number: u16| Some(number) != me && map.nodes.contains_key(&number);
        let nodes = &mut met.nodes;
        let stays = |number: &u16, peer: &Peer| is_other(*number) && peer.is_at(&map.nodes[number]);
        let gone: Vec<Arc<Peer>> = nodes
            .extract_if(.., |number, peer| !stays(number, peer))
            .map(|(_, peer)| peer)
            .collect();
        for (&number, node) in map.nodes.iter().filter(|(number, _)| is_other(**number)) {
            if nodes.contains_key(&number) {
                continue;
            }
            let peer = Arc::new(Peer::new(number, node, &self.followed.access));
            let (followed, asked) = (Arc::downgrade(&self.followed), peer.clone());
            let thread = std::thread::Builder::new()
                .name(format!("kedge-peer-{}", node.name))
                .spawn(move || peer::run(&followed, &asked));
            match thread {
                Ok(_) => drop(nodes.insert(number, peer)),
                // The next map tries again.
                Err(error) => {
                    tracing::error!(node = node.name, %error, "cannot start the thread of another node");
                }
            }
        }
        drop(met);
        for peer in gone {
            peer.dismiss();
        }
    }

    /// Runs `work` for each other node that is not failed over, in parallel.
    pub(super) fn each<T: Send>(
        &self,
        map: &ClusterMap,
        work: impl Fn(&Peer) -> T + Sync,
    ) -> BTreeMap<u16, T> {
        let members: Vec<Arc<Peer>> = map.members().filter_map(|node| self.get(node)).collect();
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = members
                .iter()
                .map(|peer| (peer.number, scope.spawn(move || work(peer))))
                .collect();
            let joined = threads.into_iter();
            joined
                .filter_map(|(number, thread)| Some((number, thread.join().ok()?)))
                .collect()
        })
    }

    /// Returns an error unless all nodes that are not failed over respond.
    pub(super) fn require_all(&self, map: &ClusterMap) -> Result<(), ChangeError> {
        let me = self.followed.number(map);
        let is_unknown = |node: &u16| Some(*node) != me && self.get(*node).is_none();
        if let Some(node) = map.members().find(is_unknown) {
            return Err(ChangeError::Down(map.name(node).to_owned()));
        }
        let alive = self.each(map, |peer| peer.about(ASK_TIMEOUT).is_ok());
        let down = alive.into_iter().find(|(_, alive)| !alive);
        down.map_or(Ok(()), |(node, _)| {
            Err(ChangeError::Down(map.name(node).to_owned()))
        })
    }
}
