//! One connection of the generator: requests in flight, bytes to send, received bytes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::ops::Range;

use super::generate::{Schedule, SplitMix64, ValueSource};
use super::stream::LoadStream;
use super::tally::{LoadTally, RequestKind};
use super::wire::{ParsedReply, RequestOutcome, WireProtocol};
use super::zipfian::ItemChoice;

/// The largest number of bytes of requests that wait for a socket, so that large values are not all built at once.
const OUT_BYTES_MAX: usize = 1 << 20;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct InFlightRequest {
    /// The start of the latency.
    start_ns: u64,
    kind: RequestKind,
    busy: bool,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadPhase {
    /// Each item is stored once, in order.
    Populate,
    /// Requests follow the flags.
    Run,
}

/// The state that the connections of a thread share.
pub(super) struct Core<W> {
    pub(super) wire: W,
    pub(super) phase: LoadPhase,
    pub(super) items: ItemChoice,
    pub(super) sequential: bool,
    pub(super) in_batches: bool,
    /// A request is a SET if a random `u32` is below this.
    pub(super) set_below: u64,
    pub(super) random: SplitMix64,
    pub(super) values: ValueSource,
    pub(super) tally: LoadTally,
    pub(super) buffer: Vec<u8>,
    /// The end of the phase: no request is due at or after this time.
    pub(super) end_ns: u64,
    pub(super) in_flight: usize,
}

/// The reason why a connection was lost.
#[derive(Debug)]
pub(super) enum ConnectionLoss {
    Closed,
    Io(io::Error),
    Broken(&'static str),
}

impl ConnectionLoss {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Closed => "connection lost: closed by the server".to_owned(),
            Self::Io(error) => format!("connection lost: {}", error.kind()),
            Self::Broken(what) => format!("connection lost: {what}"),
        }
    }
}

/// One connection.
pub(super) struct Conn {
    pub(super) stream: Option<LoadStream>,
    /// The index of the connection's node.
    pub(super) node: u16,
    pub(super) given_up: bool,
    /// The time at which a request began to wait for a reply, or of the last reply.
    pub(super) heard_ns: u64,
    /// The schedule of requests; `None` if replies trigger them.
    pub(super) schedule: Option<Schedule>,
    /// The number of requests that are still to be sent.
    pub(super) requests_left: u64,
    share: Range<u64>,
    next_item: u64,
    out: Vec<u8>,
    sent: usize,
    tail: Vec<u8>,
    need: usize,
    slots: Vec<InFlightRequest>,
    free: Vec<u32>,
    order: VecDeque<u32>,
}

impl Conn {
    pub(super) fn new(stream: LoadStream, node: u16) -> Self {
        Self {
            stream: Some(stream),
            node,
            given_up: false,
            heard_ns: 0,
            schedule: None,
            requests_left: 0,
            share: 0..0,
            next_item: 0,
            out: Vec::new(),
            sent: 0,
            tail: Vec::new(),
            need: 0,
            slots: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
        }
    }

    /// Prepares the connection for a phase. Nothing may be in flight.
    pub(super) fn begin(&mut self, window: usize, requests: u64, share: Range<u64>) {
        self.forget();
        let idle = InFlightRequest {
            start_ns: 0,
            kind: RequestKind::Get,
            busy: false,
        };
        self.slots = vec![idle; window];
        self.free = (0..window as u32).rev().collect();
        self.requests_left = requests;
        self.next_item = share.start;
        self.share = share;
    }

    /// Drops requests in flight and partial data. Returns the number of dropped requests.
    pub(super) fn forget(&mut self) -> usize {
        let in_flight = self.in_flight();
        for slot in &mut self.slots {
            slot.busy = false;
        }
        self.free.clear();
        self.free.extend((0..self.slots.len() as u32).rev());
        self.order.clear();
        self.out.clear();
        self.sent = 0;
        self.tail.clear();
        self.need = 0;
        in_flight
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether bytes wait for the socket.
    pub(super) fn has_unsent(&self) -> bool {
        let in_stream = self.stream.as_ref().is_some_and(LoadStream::has_unsent);
        self.sent < self.out.len() || in_stream
    }

    /// Returns whether a due request could be sent now.
    pub(super) fn can_send(&self) -> bool {
        self.stream.is_some() && self.requests_left > 0 && !self.free.is_empty()
    }

    /// Returns whether this connection will send no more requests before `end_ns`.
    pub(super) fn is_done(&self, end_ns: u64, now_ns: u64) -> bool {
        self.given_up
            || self.requests_left == 0
            || match &self.schedule {
                Some(schedule) => schedule.due_ns() >= end_ns,
                None => now_ns >= end_ns,
            }
    }

    /// Sends due requests as far as they fit.
    pub(super) fn pump<W: WireProtocol>(
        &mut self,
        core: &mut Core<W>,
        now_ns: u64,
    ) -> Result<(), ConnectionLoss> {
        if self.stream.is_none() {
            return Ok(());
        }
        loop {
            let added = self.fill(core, now_ns);
            if !self.flush(&mut core.tally)? || !added {
                return Ok(());
            }
        }
    }

    /// Builds requests until the window is full. Returns whether it stopped earlier, at the limit of waiting bytes.
    fn fill<W: WireProtocol>(&mut self, core: &mut Core<W>, now_ns: u64) -> bool {
        if core.in_batches && core.phase == LoadPhase::Run && self.in_flight() > 0 {
            return false;
        }
        if self.in_flight() == 0 {
            self.heard_ns = now_ns;
        }
        while self.requests_left > 0 && !self.free.is_empty() {
            if self.out.len() - self.sent >= OUT_BYTES_MAX {
                return true;
            }
            let start_ns = match &mut self.schedule {
                None if now_ns >= core.end_ns => return false,
                None => now_ns,
                Some(schedule) => {
                    let due_ns = schedule.due_ns();
                    if due_ns > now_ns || due_ns >= core.end_ns {
                        return false;
                    }
                    schedule.advance();
                    due_ns
                }
            };
            self.request(core, start_ns);
        }
        false
    }

    #[inline]
    fn request<W: WireProtocol>(&mut self, core: &mut Core<W>, start_ns: u64) {
        let Some(slot) = self.free.pop() else { return };
        // Items of other nodes are skipped; an earlier check made sure that this node has items.
        let item = loop {
            let item = if core.phase == LoadPhase::Populate || core.sequential {
                let item = self.next_item;
                self.next_item += 1;
                if self.next_item >= self.share.end {
                    self.next_item = self.share.start;
                }
                item
            } else {
                core.items.next(&mut core.random)
            };
            if core.wire.is_at(item, self.node) {
                break item;
            }
        };
        let is_set =
            core.phase == LoadPhase::Populate || (core.random.next() >> 32) < core.set_below;
        let kind = if is_set {
            RequestKind::Set
        } else {
            RequestKind::Get
        };
        if !is_set {
            core.wire.get(&mut self.out, item, slot);
        } else {
            let value = core.values.next(&mut core.random);
            if core.phase == LoadPhase::Populate {
                core.wire.populate(&mut self.out, item, slot, value);
            } else {
                core.wire.set(&mut self.out, item, slot, value);
            }
        }
        self.slots[slot as usize] = InFlightRequest {
            start_ns,
            kind,
            busy: true,
        };
        if !W::HAS_OPAQUE {
            self.order.push_back(slot);
        }
        self.requests_left -= 1;
        core.in_flight += 1;
    }

    /// Writes waiting bytes. Returns whether all of them were written.
    fn flush(&mut self, tally: &mut LoadTally) -> Result<bool, ConnectionLoss> {
        let Some(stream) = &mut self.stream else {
            return Ok(true);
        };
        stream.flush().map_err(ConnectionLoss::Io)?;
        while self.sent < self.out.len() {
            match stream.send(&self.out[self.sent..]) {
                Ok(0) => return Err(ConnectionLoss::Closed),
                Ok(written) => {
                    self.sent += written;
                    tally.bytes_sent += written as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ConnectionLoss::Io(error)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Reads and counts all received replies; `now` is called after each read. Then sends requests into the free room.
    /// `counted` gets the numbers of replies and errors of each read.
    pub(super) fn receive<W: WireProtocol>(
        &mut self,
        core: &mut Core<W>,
        now: impl Fn() -> u64,
        mut counted: impl FnMut(u64, u64),
    ) -> Result<(), ConnectionLoss> {
        loop {
            let have = self.tail.len();
            let room = self.need.max(have + 1);
            if core.buffer.len() < room {
                core.buffer.resize(room, 0);
            }
            core.buffer[..have].copy_from_slice(&self.tail);
            let Some(stream) = &mut self.stream else {
                return Ok(());
            };
            let read = match stream.receive(&mut core.buffer[have..]) {
                Ok(0) => return Err(ConnectionLoss::Closed),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(ConnectionLoss::Io(error)),
            };
            let is_short = have + read < core.buffer.len();
            let drained = is_short && stream.is_drained_by_short_receive();
            let now_ns = now();
            self.heard_ns = now_ns;
            core.tally.bytes_received += read as u64;
            // The buffer is taken out while the counts change.
            let buffer = std::mem::take(&mut core.buffer);
            let answered = self.answers(core, &buffer[..have + read], now_ns);
            core.buffer = buffer;
            let (answers, errors) = answered?;
            counted(answers, errors);
            self.pump(core, now_ns)?;
            // Readiness is edge-triggered: after a short read the next bytes are a new edge.
            if drained {
                return Ok(());
            }
        }
    }

    /// Counts the replies in `bytes` and keeps the incomplete one at their end.
    fn answers<W: WireProtocol>(
        &mut self,
        core: &mut Core<W>,
        bytes: &[u8],
        now_ns: u64,
    ) -> Result<(u64, u64), ConnectionLoss> {
        let (mut at, mut answers, mut errors) = (0, 0, 0);
        self.need = 0;
        while at < bytes.len() {
            match core.wire.reply(&bytes[at..]) {
                ParsedReply::Incomplete { need } => {
                    self.need = need;
                    break;
                }
                ParsedReply::Broken(what) => return Err(ConnectionLoss::Broken(what)),
                ParsedReply::Done {
                    consumed,
                    opaque,
                    outcome,
                } => {
                    at += consumed;
                    answers += 1;
                    errors += u64::from(self.apply(core, opaque, outcome, now_ns)?);
                }
            }
        }
        self.tail.clear();
        self.tail.extend_from_slice(&bytes[at..]);
        Ok((answers, errors))
    }

    /// Counts one reply and frees its slot. Returns whether it is an error.
    #[inline]
    fn apply<W: WireProtocol>(
        &mut self,
        core: &mut Core<W>,
        opaque: u32,
        outcome: RequestOutcome<'_>,
        now_ns: u64,
    ) -> Result<bool, ConnectionLoss> {
        let index = if W::HAS_OPAQUE {
            Some(opaque)
        } else {
            self.order.pop_front()
        };
        let slot = index.and_then(|index| self.slots.get_mut(index as usize));
        let (Some(index), Some(slot)) = (index, slot.filter(|slot| slot.busy)) else {
            return Err(ConnectionLoss::Broken("a reply without a request"));
        };
        slot.busy = false;
        self.free.push(index);
        core.in_flight -= 1;
        Ok(core
            .tally
            .answered(slot.kind, outcome, now_ns.saturating_sub(slot.start_ns)))
    }
}
