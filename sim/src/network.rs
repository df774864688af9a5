//! Byte streams between nodes.

use crate::map::name;
use crate::messages::{Message, Messages};
use crate::trace::note;
use kedge_disk::Rng;
use std::collections::{BTreeMap, VecDeque};

/// The id of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkId(u64);

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkEnd {
    /// The end that connected: the node that receives changes.
    Consumer,
    /// The end that was connected to: the node that sends them.
    Producer,
}

impl LinkEnd {
    fn opposite(self) -> Self {
        match self {
            Self::Consumer => Self::Producer,
            Self::Producer => Self::Consumer,
        }
    }
}

/// An arrival at an end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The connection is closed.
    Closed,
}

#[derive(Debug, Default)]
struct LinkDirection {
    under_way: VecDeque<u8>,
    /// The sender has closed: the other end sees it after the bytes in flight, or at once if the sender was killed.
    closed: bool,
    /// True if the receiver is gone: it has closed, was killed, or knows that the sender has closed.
    left: bool,
}

/// A connection between two nodes.
#[derive(Debug)]
struct SimLink {
    consumer: usize,
    producer: usize,
    to_consumer: LinkDirection,
    to_producer: LinkDirection,
}

impl SimLink {
    fn towards(&mut self, end: LinkEnd) -> &mut LinkDirection {
        match end {
            LinkEnd::Consumer => &mut self.to_consumer,
            LinkEnd::Producer => &mut self.to_producer,
        }
    }

    /// Stops arrivals at `end`.
    fn leave(&mut self, end: LinkEnd) {
        let direction = self.towards(end);
        direction.left = true;
        direction.under_way.clear();
    }

    fn is_left(&self) -> bool {
        self.to_consumer.left && self.to_producer.left
    }
}

/// All connections, and broken links between nodes.
#[derive(Debug, Default)]
pub(crate) struct Network {
    links: BTreeMap<LinkId, SimLink>,
    next: u64,
    /// Pairs of nodes without communication.
    cut: Vec<(usize, usize)>,
    messages: Messages,
}

impl Network {
    pub(crate) fn connect(&mut self, consumer: usize, producer: usize) -> LinkId {
        self.next += 1;
        let link = SimLink {
            consumer,
            producer,
            to_consumer: LinkDirection::default(),
            to_producer: LinkDirection::default(),
        };
        self.links.insert(LinkId(self.next), link);
        LinkId(self.next)
    }

    /// Sends towards `end`. Bytes for a broken connection are lost: they would follow half a frame.
    pub(crate) fn send(&mut self, link: LinkId, end: LinkEnd, bytes: &[u8]) {
        if let Some(link) = self.links.get_mut(&link) {
            let direction = link.towards(end);
            if !direction.closed && !direction.left {
                direction.under_way.extend(bytes);
            }
        }
    }

    /// Closes an end: the other one sees it, and nothing arrives here any more.
    pub(crate) fn close(&mut self, id: LinkId, end: LinkEnd) {
        if let Some(link) = self.links.get_mut(&id) {
            link.towards(end.opposite()).closed = true;
            link.leave(end);
        }
        self.forget_left(id);
    }

    fn forget_left(&mut self, id: LinkId) {
        if self.links.get(&id).is_some_and(SimLink::is_left) {
            self.links.remove(&id);
        }
    }

    /// Returns a number for a round of requests that no other has.
    pub(crate) fn next_round(&mut self) -> u64 {
        self.messages.next_round()
    }

    /// Sends a message from one node to another.
    pub(crate) fn send_message(
        &mut self,
        now_ns: u64,
        ends: (usize, usize),
        message: Message,
        rng: &mut Rng,
    ) {
        self.messages.send(now_ns, ends, message, rng);
    }

    /// Returns the messages that have arrived at a node, with their senders.
    pub(crate) fn take_messages(
        &mut self,
        now_ns: u64,
        node: usize,
        rng: &mut Rng,
    ) -> Vec<(usize, Message)> {
        let cut = &self.cut;
        let is_cut = |from: usize| cut.contains(&(node.min(from), node.max(from)));
        self.messages.take(now_ns, node, is_cut, rng)
    }

    /// Breaks all connections of a node, and drops bytes in flight.
    pub(crate) fn kill(&mut self, node: usize) {
        self.messages.kill(node);
        for link in self.links.values_mut() {
            for (end, owner) in [
                (LinkEnd::Consumer, link.consumer),
                (LinkEnd::Producer, link.producer),
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

    /// Breaks any connection in both directions, at any point.
    pub(crate) fn reset_any(&mut self, rng: &mut Rng) {
        if self.links.is_empty() {
            return;
        }
        let at = rng.below(self.links.len() as u64) as usize;
        if let Some(link) = self.links.values_mut().nth(at) {
            let (consumer, producer) = (name(link.consumer), name(link.producer));
            note!("network", "connection of {consumer} to {producer} is reset");
            for end in [LinkEnd::Consumer, LinkEnd::Producer] {
                let direction = link.towards(end);
                let stays = rng.below(direction.under_way.len() as u64 + 1) as usize;
                direction.under_way.truncate(stays);
                direction.closed = true;
            }
        }
    }

    /// Stops the communication between two nodes.
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

    /// Returns the connections of a node, with the end that it is.
    pub(crate) fn of(&self, node: usize) -> Vec<(LinkId, LinkEnd, usize)> {
        let ends = self.links.iter().filter_map(|(id, link)| {
            if link.consumer == node {
                Some((*id, LinkEnd::Consumer, link.producer))
            } else if link.producer == node {
                Some((*id, LinkEnd::Producer, link.consumer))
            } else {
                None
            }
        });
        ends.collect()
    }

    /// Delivers some of the bytes in flight towards `end`.
    pub(crate) fn arrive(&mut self, id: LinkId, end: LinkEnd, rng: &mut Rng) -> Option<Delivery> {
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
            // Often all of them; otherwise the delivery ends anywhere, also within a frame.
            let count = match rng.below(3) {
                0 => 1 + rng.below(waiting as u64) as usize,
                _ => waiting,
            };
            return Some(Delivery::Bytes(
                direction.under_way.drain(..count).collect(),
            ));
        }
        if !direction.closed {
            return None;
        }
        direction.left = true;
        self.forget_left(id);
        Some(Delivery::Closed)
    }

    /// Returns the number of bytes in flight.
    pub(crate) fn under_way(&self) -> usize {
        let of =
            |link: &SimLink| link.to_consumer.under_way.len() + link.to_producer.under_way.len();
        self.links.values().map(of).sum()
    }
}
