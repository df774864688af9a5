//! A link: the connection to a peer for a bucket, and its state without a connection.

use std::io::{self, Write as _};
use std::sync::Arc;

use kedge_bucket::{Bucket, NodeName, VbState};
use kedge_cluster::MoveStart;
use kedge_node::coordination::PeerAddress;
use kedge_node::output::Output;
use kedge_protocol::binary::commands::dcp::{ParsePeer, parse_peer};
use kedge_protocol::binary::{FrameError, HEADER_BYTES};
use kedge_replication::{Consumer, ConsumerConfig, Disconnect};
use kedge_tls::ClientStream;
use kedge_types::limits::FRAME_BODY_BYTES_MAX;
use kedge_types::{Seqno, Status, VbId};
use mio::event::Event;

use super::NodeIdentity;
use super::backoff::RetryBackoff;
use super::copy_limit::{CopyLimit, ThrottleState};
use super::input::InputBuffer;
use super::link_stream::LinkStream;
use super::status::LinkStatusCell;
use super::streams::{LinkStreams, PeerWriter};

/// Bytes that a peer may send before they are acknowledged.
const BUFFER_BYTES: u32 = 16 << 20;
/// Seconds of silence after which a peer sends a NOOP; after twice as many it counts as gone.
const NOOP_SECS: u32 = 5;
/// The number of bytes that one connection reads in a turn.
const TURN_BYTES: usize = 1 << 20;

/// The reason why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum LinkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Disconnect(#[from] Disconnect),
    #[error("the peer sent bytes that are not a frame: {0}")]
    Frame(#[from] FrameError),
    #[error("this node's name is not valid in a topology")]
    Name,
}

/// The next step of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkAction {
    /// Wait for an event.
    Wait,
    /// Another turn.
    Again,
}

/// The stage of a link.
pub(super) enum LinkStage {
    /// Without a connection until this time, in nanoseconds of the monotonic clock.
    Resting(u64),
    /// A thread tries to connect; carries the number of the attempt.
    Dialing(u64),
    /// Connected.
    Live(Box<LiveConnection>),
}

/// A connection.
pub(super) struct LiveConnection {
    pub(super) stream: LinkStream,
    pub(super) consumer: Consumer,
    pub(super) out: Output,
    input: InputBuffer,
    /// The length of the frame at the front of the input, as far as is known.
    need: usize,
    /// The number of bytes to acknowledge after the received changes were passed to the bucket.
    unconsumed: usize,
    readable: bool,
    writable: bool,
    /// True if the peer sends nothing more: after the received bytes comes the end.
    end_reported: bool,
    /// The limit of new copies that the peer knows.
    copy_limit: CopyLimit,
    /// The start of the connection, in nanoseconds of the monotonic clock.
    pub(super) since_ns: u64,
}

/// A peer, as far as one bucket goes.
pub(super) struct BucketLink {
    pub(super) peer: PeerAddress,
    /// The bucket's name.
    pub(super) name: String,
    /// The bucket; `None` while there is none with the name.
    pub(super) bucket: Option<Arc<Bucket>>,
    pub(super) streams: LinkStreams,
    /// The epoch that the next connection states.
    pub(super) map_epoch: Option<i64>,
    pub(super) stage: LinkStage,
    pub(super) backoff: RetryBackoff,
    pub(super) board: LinkStatusCell,
}

impl LiveConnection {
    /// Opens DCP on a new connection.
    pub(super) fn new(
        stream: ClientStream,
        link: &BucketLink,
        identity: &NodeIdentity,
        now_ns: u64,
    ) -> Result<Self, LinkError> {
        let node = NodeName::new(&identity.node).ok_or(LinkError::Name)?;
        let config = ConsumerConfig {
            name: format!(
                "replication:{}->{}:{}",
                link.peer.name, identity.node, link.name
            ),
            node,
            buffer_bytes: BUFFER_BYTES,
            noop_interval_secs: NOOP_SECS,
            collections: true,
            map_epoch: link.map_epoch,
        };
        let mut out = Output::default();
        let consumer = Consumer::open(&config, now_ns, out.buffer());
        Ok(Self {
            stream: LinkStream::new(stream),
            consumer,
            out,
            input: InputBuffer::new(),
            need: HEADER_BYTES,
            unconsumed: 0,
            readable: true,
            writable: true,
            end_reported: false,
            copy_limit: CopyLimit::default(),
            since_ns: now_ns,
        })
    }

    pub(super) fn on_event(&mut self, event: &Event) {
        // There is one event of the end, and it may be that of the last bytes.
        self.end_reported |= event.is_read_closed() || event.is_error();
        self.readable |= event.is_readable() || self.end_reported;
        self.writable |= event.is_writable();
    }

    fn back(&mut self) -> PeerWriter<'_> {
        PeerWriter {
            consumer: &mut self.consumer,
            out: self.out.buffer(),
        }
    }

    /// Sends as much as the socket accepts.
    pub(super) fn send(&mut self) -> Result<(), LinkError> {
        while self.writable && !self.out.is_empty() {
            match self.out.write_to(&mut self.stream) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.out.is_empty() {
            self.out.recycle();
        }
        self.flush()
    }

    /// Sends records of TLS that wait for the socket.
    fn flush(&mut self) -> Result<(), LinkError> {
        if !self.writable || !self.stream.has_unsent() {
            return Ok(());
        }
        match self.stream.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
            flushed => flushed?,
        }
        Ok(())
    }

    /// Reads once. Returns the number of received bytes, 0 if there are none now.
    fn read(&mut self) -> Result<usize, LinkError> {
        match self.input.read(&mut self.stream, self.need) {
            Ok((count, more)) => {
                self.readable = more || self.end_reported || self.stream.has_end();
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Parses the frames of the input.
    fn parse(&mut self, streams: &mut LinkStreams, now_ns: u64) -> Result<(), LinkError> {
        loop {
            let (frame, consumed) = match parse_peer(self.input.unread(), FRAME_BODY_BYTES_MAX) {
                ParsePeer::Incomplete { need } => {
                    self.need = need;
                    return Ok(());
                }
                ParsePeer::Fatal(error) => return Err(error.into()),
                ParsePeer::Frame { frame, consumed } => (frame, consumed),
            };
            let step = self.consumer.on_frame(now_ns, &frame, self.out.buffer())?;
            self.unconsumed += step.bytes;
            self.input.consume(consumed);
            streams.on_event(step.event, step.bytes);
        }
    }
}

impl BucketLink {
    /// Makes all possible progress on the connection, if there is one.
    pub(super) fn serve(&mut self, now_ns: u64) -> Result<LinkAction, LinkError> {
        let (LinkStage::Live(live), Some(bucket)) = (&mut self.stage, &self.bucket) else {
            return Ok(LinkAction::Wait);
        };
        let mut received = 0;
        let next = loop {
            let streams = &mut self.streams;
            let (consumer, out) = (&mut live.consumer, live.out.buffer());
            if !streams.flush(bucket, now_ns, consumer, out) {
                // The peer is not silent: its data is not read.
                consumer.not_reading(now_ns);
                break LinkAction::Wait;
            }
            consumer.consumed(now_ns, std::mem::take(&mut live.unconsumed), out);
            streams.ask(bucket, now_ns, consumer, out);
            if !live.readable {
                break LinkAction::Wait;
            }
            if received >= TURN_BYTES {
                break LinkAction::Again;
            }
            let count = live.read()?;
            received += count;
            live.parse(streams, now_ns)?;
        };
        // All received data was read, which proves that the peer is alive.
        if next == LinkAction::Wait && live.consumer.next_deadline_ns() <= now_ns {
            live.consumer.on_time(now_ns, live.out.buffer())?;
        }
        live.send()?;
        if received > 0 {
            self.board.lock().bytes += received as u64;
            self.streams.count_bytes(received as u64);
        }
        Ok(next)
    }

    /// Returns whether the peer limits new copies.
    pub(super) fn limits_copies(&self) -> bool {
        matches!(&self.stage, LinkStage::Live(live) if live.copy_limit.told() > 0)
    }

    /// Passes received bytes of new copies through the bucket's throttle, and limits the rate at which the peer sends more.
    /// `peers` is the number of peers that send new copies of the bucket.
    pub(super) fn limit_copies(&mut self, peers: u64, now_ns: u64) -> Result<(), LinkError> {
        let copied = self.streams.take_copied();
        let (LinkStage::Live(live), Some(bucket)) = (&mut self.stage, &self.bucket) else {
            return Ok(());
        };
        let compactions = bucket.persistence().compactions();
        let pause_ns = compactions.copy_pause(copied, now_ns);
        let throttle = compactions
            .throttle_rate()
            .filter(|_| self.streams.has_copies())
            .map(|bytes_per_sec| ThrottleState {
                bytes_per_sec,
                pause_ns,
            });
        if let Some(limit) = live.copy_limit.change(throttle, peers, now_ns) {
            live.consumer.limit_copies(limit, live.out.buffer());
            self.board.lock().copy_bytes_per_sec = live.copy_limit.told();
            live.send()?;
        }
        Ok(())
    }

    /// Acknowledges prepares up to a seqno, which are on disk.
    pub(super) fn acknowledge(&mut self, vb: VbId, prepared: Seqno) {
        if let LinkStage::Live(live) = &mut self.stage {
            let (consumer, out) = (&mut live.consumer, live.out.buffer());
            self.streams.acknowledge(vb, prepared, consumer, out);
        }
    }

    /// Reports the result of a state change in a takeover. Returns the start of the move if everything was taken over.
    pub(super) fn state_set(
        &mut self,
        vb: VbId,
        asked: u64,
        state: VbState,
        result: Result<(), Status>,
    ) -> Option<MoveStart> {
        let back = match &mut self.stage {
            LinkStage::Live(live) => Some(live.back()),
            _ => None,
        };
        self.streams.on_state_set(vb, asked, state, result, back)
    }

    /// Stops following a vBucket.
    pub(super) fn remove(&mut self, vb: VbId) {
        let back = match &mut self.stage {
            LinkStage::Live(live) => Some(live.back()),
            _ => None,
        };
        self.streams.remove(vb, self.bucket.as_deref(), back);
    }

    /// Returns the time of the next action, if nothing happens until then; in nanoseconds of the monotonic clock.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        match &self.stage {
            LinkStage::Resting(at) => Some(*at),
            LinkStage::Dialing(_) => None,
            LinkStage::Live(live) => {
                let time = live.consumer.next_deadline_ns();
                // Changes for which the bucket has no memory come first.
                let ask = self.streams.next_ns().filter(|_| self.streams.is_idle());
                Some(ask.map_or(time, |at| at.min(time)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use mio::{Events, Interest, Poll, Token};

    use super::*;

    /// A connection over a plain socket.
    fn live(socket: TcpStream) -> LiveConnection {
        socket.set_nonblocking(true).expect("a socket");
        let config = ConsumerConfig {
            name: "replication:n_1->n_0:b".to_owned(),
            node: NodeName::new("n_0").expect("a name"),
            buffer_bytes: BUFFER_BYTES,
            noop_interval_secs: NOOP_SECS,
            collections: true,
            map_epoch: None,
        };
        let mut out = Output::default();
        LiveConnection {
            stream: LinkStream::new(ClientStream::Plain(socket)),
            consumer: Consumer::open(&config, 0, out.buffer()),
            out,
            input: InputBuffer::new(),
            need: HEADER_BYTES,
            unconsumed: 0,
            readable: false,
            writable: false,
            end_reported: false,
            copy_limit: CopyLimit::default(),
            since_ns: 0,
        }
    }

    /// The end of a peer's stream came with its last bytes, in one event. Only the bytes were read, and the link waited for the
    /// next event until the peer counted as silent.
    #[test]
    fn end_of_the_stream_is_noticed_together_with_the_last_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let socket = TcpStream::connect(address).expect("a connection");
        let (mut peer, _) = listener.accept().expect("a connection");
        peer.write_all(&[0; 100]).expect("sent");
        drop(peer);
        let mut live = live(socket);
        let mut poll = Poll::new().expect("a poll");
        let registry = poll.registry();
        let registered = registry.register(live.stream.socket_mut(), Token(1), Interest::READABLE);
        registered.expect("a socket");
        let mut events = Events::with_capacity(4);
        let mut received = 0;
        while !live.end_reported {
            let polled = poll.poll(&mut events, Some(Duration::from_secs(60)));
            polled.expect("it polls");
            assert!(!events.is_empty(), "no event");
            events.iter().for_each(|event| live.on_event(event));
            while live.readable {
                match live.read() {
                    Ok(count) => received += count,
                    Err(error) => {
                        let LinkError::Io(error) = error else {
                            panic!("{error}");
                        };
                        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                        assert_eq!(received, 100);
                        return;
                    }
                }
            }
        }
        panic!("the end is not noticed");
    }
}
