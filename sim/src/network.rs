//! Byte streams between nodes.

use crate::map::name;
use crate::trace::note;
use kedge_disk::Rng;
use std::collections::{BTreeMap, VecDeque};

/// Names a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(u64);

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Who connected: the node that receives changes.
    Consumer,
    /// Who was connected to: the node that sends them.
    Producer,
}

impl End {
    fn opposite(self) -> Self {
        match self {
            Self::Consumer => Self::Producer,
            Self::Producer => Self::Consumer,
        }
    }
}

/// What an end finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The connection is gone.
    Closed,
}

#[derive(Debug, Default)]
struct Direction {
    under_way: VecDeque<u8>,
    /// The sender has closed: known at the other end behind what is under way, or at once when it was killed.
    closed: bool,
    /// Nobody receives here any more: who did has closed, was killed, or knows that the sender has closed.
    left: bool,
}

/// A connection between two nodes.
#[derive(Debug)]
struct Link {
    consumer: usize,
    producer: usize,
    to_consumer: Direction,
    to_producer: Direction,
}

impl Link {
    fn towards(&mut self, end: End) -> &mut Direction {
        match end {
            End::Consumer => &mut self.to_consumer,
            End::Producer => &mut self.to_producer,
        }
    }

    /// Nothing arrives at `end` any more.
    fn leave(&mut self, end: End) {
        let direction = self.towards(end);
        direction.left = true;
        direction.under_way.clear();
    }

    fn is_left(&self) -> bool {
        self.to_consumer.left && self.to_producer.left
    }
}

/// All connections, and who cannot reach whom.
#[derive(Debug, Default)]
pub(crate) struct Network {
    links: BTreeMap<LinkId, Link>,
    next: u64,
    /// Pairs of nodes between which nothing goes.
    cut: Vec<(usize, usize)>,
}

impl Network {
    pub(crate) fn connect(&mut self, consumer: usize, producer: usize) -> LinkId {
        self.next += 1;
        let link = Link {
            consumer,
            producer,
            to_consumer: Direction::default(),
            to_producer: Direction::default(),
        };
        self.links.insert(LinkId(self.next), link);
        LinkId(self.next)
    }

    /// Sends towards `end`. What is sent into a connection that broke off is lost: it would follow half a frame.
    pub(crate) fn send(&mut self, link: LinkId, end: End, bytes: &[u8]) {
        if let Some(link) = self.links.get_mut(&link) {
            let direction = link.towards(end);
            if !direction.closed && !direction.left {
                direction.under_way.extend(bytes);
            }
        }
    }

    /// An end closes: the other one hears of it, and nothing arrives here any more.
    pub(crate) fn close(&mut self, id: LinkId, end: End) {
        if let Some(link) = self.links.get_mut(&id) {
            link.towards(end.opposite()).closed = true;
            link.leave(end);
        }
        self.forget_left(id);
    }

    fn forget_left(&mut self, id: LinkId) {
        if self.links.get(&id).is_some_and(Link::is_left) {
            self.links.remove(&id);
        }
    }

    /// All connections of a node break off, without what is under way.
    pub(crate) fn kill(&mut self, node: usize) {
        for link in self.links.values_mut() {
            for (end, owner) in [
                (End::Consumer, link.consumer),
                (End::Producer, link.producer),
            ] {
                if owner == node {
                    link.leave(end);
                    let other = link.towards(end.opposite());
                    other.under_way.clear();
                    other.closed = true;
                }
            }
        }
        self.links.retain(|_, link| !link.is_left());
    }

    /// A connection breaks off in both directions, wherever it is.
    pub(crate) fn reset_any(&mut self, rng: &mut Rng) {
        if self.links.is_empty() {
            return;
        }
        let at = rng.below(self.links.len() as u64) as usize;
        if let Some(link) = self.links.values_mut().nth(at) {
            let (consumer, producer) = (name(link.consumer), name(link.producer));
            note!("network", "connection of {consumer} to {producer} is reset");
            for end in [End::Consumer, End::Producer] {
                let direction = link.towards(end);
                let stays = rng.below(direction.under_way.len() as u64 + 1) as usize;
                direction.under_way.truncate(stays);
                direction.closed = true;
            }
        }
    }

    /// Nothing goes between two nodes from now on.
    pub(crate) fn cut(&mut self, a: usize, b: usize) {
        if !self.is_cut(a, b) {
            note!(
                "network",
                "nothing goes between {} and {}",
                name(a),
                name(b)
            );
            self.cut.push((a.min(b), a.max(b)));
        }
    }

    pub(crate) fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    pub(crate) fn heal(&mut self) {
        if !self.cut.is_empty() {
            note!("network", "all nodes reach each other");
        }
        self.cut.clear();
    }

    /// The connections of a node, with the end that it is.
    pub(crate) fn of(&self, node: usize) -> Vec<(LinkId, End, usize)> {
        let ends = self.links.iter().filter_map(|(id, link)| {
            if link.consumer == node {
                Some((*id, End::Consumer, link.producer))
            } else if link.producer == node {
                Some((*id, End::Producer, link.consumer))
            } else {
                None
            }
        });
        ends.collect()
    }

    /// Some of what is under way towards `end` arrives.
    pub(crate) fn arrive(&mut self, id: LinkId, end: End, rng: &mut Rng) -> Option<Arrival> {
        let link = self.links.get_mut(&id)?;
        let (consumer, producer) = (link.consumer, link.producer);
        if self
            .cut
            .contains(&(consumer.min(producer), consumer.max(producer)))
        {
            return None;
        }
        let direction = link.towards(end);
        if direction.left {
            return None;
        }
        let waiting = direction.under_way.len();
        if waiting > 0 {
            // Often all of it; else it ends anywhere, also within a frame.
            let count = match rng.below(3) {
                0 => 1 + rng.below(waiting as u64) as usize,
                _ => waiting,
            };
            return Some(Arrival::Bytes(direction.under_way.drain(..count).collect()));
        }
        if !direction.closed {
            return None;
        }
        direction.left = true;
        self.forget_left(id);
        Some(Arrival::Closed)
    }

    /// Bytes under way.
    pub(crate) fn under_way(&self) -> usize {
        let of = |link: &Link| link.to_consumer.under_way.len() + link.to_producer.under_way.len();
        self.links.values().map(of).sum()
    }
}
