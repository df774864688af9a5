//! The end of a connection that sends a node's changes.

use crate::trace::note;
use kedge_bucket::{Bucket, ConnectionStreams, StreamConnection, StreamNotify, StreamRefused};
use kedge_protocol::binary::commands::dcp::{
    DcpBody, DcpMessage, ParsePeer, PeerFrame, parse_peer,
};
use kedge_protocol::binary::{Feature, Features, Request, Response};
use kedge_replication::{Producer, ProducerAction, ProducerConfig, Source as _};
use kedge_types::{Status, VbId};
use kedge_vbucket::NodeName;
use parking_lot::Mutex;
use std::sync::Arc;

const FRAME_BYTES_MAX: usize = 1 << 20;
/// The largest number of bytes that are sent at once.
const ROOM_BYTES: usize = 4_096;

/// The error of a connection that must be closed.
#[derive(Debug)]
pub(crate) struct Closed;

/// Returns the features that nodes grant each other.
pub(crate) fn features() -> Features {
    Features::of(&[
        Feature::Collections,
        Feature::Json,
        Feature::Snappy,
        Feature::Xattr,
        Feature::Xerror,
    ])
}

#[derive(Default)]
struct ReadyVbuckets(Mutex<Vec<VbId>>);

impl StreamNotify for ReadyVbuckets {
    fn ready(&self, vb: VbId) {
        self.0.lock().push(vb);
    }
}

/// The sending end.
pub(crate) struct SendingEnd {
    bucket: Arc<Bucket>,
    node: NodeName,
    /// The epoch of the node's map.
    epoch: i64,
    ready: Arc<ReadyVbuckets>,
    opened: Option<(Producer, StreamConnection)>,
    streams: ConnectionStreams,
    input: Vec<u8>,
}

impl SendingEnd {
    pub(crate) fn new(bucket: &Arc<Bucket>, node: NodeName, epoch: i64) -> Self {
        Self {
            bucket: Arc::clone(bucket),
            node,
            epoch,
            ready: Arc::default(),
            opened: None,
            streams: ConnectionStreams::default(),
            input: Vec::new(),
        }
    }

    /// Returns the name of the connection, once there is one: it closes an older one.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        self.opened.as_ref().map(|(producer, _)| producer.name())
    }

    /// Processes received bytes.
    pub(crate) fn on_bytes(
        &mut self,
        now_ns: u64,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Closed> {
        self.input.extend(bytes);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        loop {
            match parse_peer(&input[at..], FRAME_BYTES_MAX) {
                ParsePeer::Incomplete { .. } => break,
                ParsePeer::Fatal(_) => return Err(Closed),
                ParsePeer::Frame { frame, consumed } => {
                    self.on_frame(now_ns, &frame, out)?;
                    at += consumed;
                }
            }
        }
        self.input = input[at..].to_vec();
        Ok(())
    }

    fn on_frame(
        &mut self,
        now_ns: u64,
        frame: &PeerFrame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Closed> {
        let Some((producer, _)) = &mut self.opened else {
            return match frame {
                PeerFrame::Request(request) => self.open(now_ns, request, out),
                PeerFrame::Reply(_) => Err(Closed),
            };
        };
        let todo = match frame {
            PeerFrame::Request(request) => producer.on_request(now_ns, request, out),
            PeerFrame::Reply(reply) => producer.on_reply(now_ns, reply),
        };
        self.carry_out(now_ns, todo.map_err(|_| Closed)?, out)
    }

    fn open(
        &mut self,
        now_ns: u64,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Closed> {
        let message = DcpMessage::decode(request).map_err(|_| Closed)?;
        let DcpBody::Open(open) = &message.body else {
            return Err(Closed);
        };
        let config = ProducerConfig {
            features: features(),
            idle_timeout_ns: 10_000_000_000,
            stuck_timeout_ns: 20_000_000_000,
            map_epoch: Some(self.epoch),
        };
        let producer = Producer::open(open, &config, now_ns).map_err(|_| Closed)?;
        let name = String::from_utf8_lossy(open.name).into_owned();
        let ready = Arc::clone(&self.ready) as Arc<dyn StreamNotify>;
        let connection = self.bucket.dcp().connect_streams(&name, ready);
        self.opened = Some((producer, connection.map_err(|_| Closed)?));
        Response::new(request.opcode, request.opaque, Status::Success).write(out);
        Ok(())
    }

    fn carry_out(
        &mut self,
        now_ns: u64,
        todo: ProducerAction,
        out: &mut Vec<u8>,
    ) -> Result<(), Closed> {
        let (producer, connection) = self.opened.as_mut().ok_or(Closed)?;
        match todo {
            ProducerAction::Nothing => {}
            ProducerAction::LimitCopies { bytes_per_sec } => connection.limit_copies(bytes_per_sec),
            ProducerAction::OpenStream(id, request) => match connection.open_stream(&request) {
                Ok(opened) => {
                    if let Some(node) = producer.consumer_name() {
                        let (vb, from) = (id.vb, request.start);
                        note!(
                            self.node,
                            "vBucket {vb}: serves a stream to {node} behind {from}"
                        );
                        self.bucket.dcp().forget_acks(vb, node);
                    }
                    if producer.stream_opened(now_ns, id, &opened.failover, out) {
                        self.streams.insert(id, opened.stream);
                    }
                }
                Err(StreamRefused::Rollback(to)) => {
                    producer.stream_rolls_back(now_ns, id, to, out);
                }
                Err(StreamRefused::Status(status)) => {
                    let refused = producer.stream_refused(now_ns, id, status, &[], out);
                    refused.map_err(|_| Closed)?;
                }
            },
            ProducerAction::CloseStream(id) => self.streams.close(id),
            // No node asks for one.
            ProducerAction::FailoverLog { .. } => return Err(Closed),
            ProducerAction::Acknowledge { vb, prepared } => {
                if let Some(node) = producer.consumer_name() {
                    self.bucket.dcp().acknowledge(node, &[(vb, prepared)]);
                }
            }
            ProducerAction::TakeoverAnswered { stream, state } => {
                note!(
                    self.node,
                    "vBucket {}: is told that the other is {state:?}",
                    stream.vb
                );
                self.streams.state_answered(stream);
            }
        }
        Ok(())
    }

    /// Sends available data.
    pub(crate) fn fill(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Closed> {
        let Some((producer, _)) = &mut self.opened else {
            return Ok(());
        };
        for vb in std::mem::take(&mut *self.ready.0.lock()) {
            producer.ready(vb);
        }
        producer.fill(now_ns, &mut self.streams, out, ROOM_BYTES);
        producer.on_time(now_ns, out).map_err(|_| Closed)
    }
}
