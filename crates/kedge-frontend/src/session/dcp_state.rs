//! A session after DCP_OPEN: it receives requests and responses, and streams fill its output.

use std::net::SocketAddr;

use kedge_bucket::Bucket;
use kedge_cluster::host_text;
use kedge_node::output::Output;
use kedge_protocol::binary::commands::dcp::{ParsePeer, PeerFrame, parse_peer};
use kedge_replication::Disconnect;
use kedge_types::Status;
use kedge_types::limits::VALUE_BYTES_MAX;

use super::{CommandFailure, Flow, Halt, Session, SessionTurn};
use crate::dcp::DcpSession;
use crate::server_context::ServerContext;

/// Unsent output above which no message is read, in bytes beyond [`crate::FrontendLimits::queued_bytes_max`]. An item
/// may be large, and acknowledgements are to be read while it waits.
const QUEUED_BEYOND: usize = VALUE_BYTES_MAX + (1 << 20);

/// The DCP state of a session.
#[derive(Default)]
pub(crate) enum DcpState {
    /// DCP_OPEN was not sent.
    #[default]
    None,
    /// A DCP connection.
    Open(Box<DcpSession>),
    /// A DCP connection that ends.
    Ended,
}

impl DcpState {
    /// Returns true if DCP_OPEN was sent.
    #[inline]
    pub(crate) fn is_dcp(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns true if streams are not allowed any more: the connection is to be closed.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Self::Ended)
    }

    pub(crate) fn open(&mut self, dcp: DcpSession) {
        *self = Self::Open(Box::new(dcp));
    }

    /// Ends a DCP connection.
    pub(crate) fn end(&mut self) {
        if self.is_dcp() {
            *self = Self::Ended;
        }
    }

    /// Streams of the connection have new items.
    pub(crate) fn on_streams_ready(&mut self) {
        if let Self::Open(dcp) = self {
            dcp.collect();
        }
    }

    /// Lets streams fill the output.
    pub(crate) fn fill(&mut self, turn: &SessionTurn<'_>, out: &mut Output) {
        if let Self::Open(dcp) = self {
            let queued = out.queued();
            dcp.fill(turn.now.mono_ns, queued, out.buffer());
        }
    }

    /// Returns true if [`Self::fill`] would append something to an output with room.
    pub(crate) fn has_ready(&self) -> bool {
        matches!(self, Self::Open(dcp) if dcp.has_ready())
    }

    /// The time of the next call of [`Self::on_time`], nanoseconds of the monotonic clock.
    pub(crate) fn timer_ns(&self) -> Option<u64> {
        match self {
            Self::Open(dcp) => dcp.next_deadline_ns(),
            _ => None,
        }
    }

    /// Does what is due: sends a NOOP, or finds that the consumer does not answer any more. Returns false in that case: the
    /// connection is to be closed.
    pub(crate) fn on_time(
        &mut self,
        peer: SocketAddr,
        turn: &SessionTurn<'_>,
        out: &mut Output,
    ) -> bool {
        let Self::Open(dcp) = self else {
            return true;
        };
        let now_ns = turn.now.mono_ns;
        if dcp.next_deadline_ns().is_none_or(|at| at > now_ns) {
            return true;
        }
        match dcp.on_time(now_ns, out.buffer()) {
            Ok(()) => true,
            Err(why) => {
                log_disconnect(peer, dcp, &why);
                false
            }
        }
    }
}

fn log_disconnect(peer: SocketAddr, dcp: &DcpSession, why: &Disconnect) {
    tracing::warn!(
        %peer,
        connection = dcp.name(),
        %why,
        "closing a DCP connection"
    );
}

impl Session {
    /// As [`Session::on_bytes`], on a DCP connection.
    pub(crate) fn on_dcp_bytes(
        &mut self,
        turn: &mut SessionTurn<'_>,
        bytes: &[u8],
        out: &mut Output,
    ) -> (usize, Halt) {
        let DcpState::Open(mut dcp) = std::mem::replace(&mut self.dcp, DcpState::Ended) else {
            return (0, Halt::Close);
        };
        let (consumed, halt) = self.read_messages(turn, &mut dcp, bytes, out);
        dcp.flush_acks();
        self.dcp = DcpState::Open(dcp);
        (consumed, halt)
    }

    fn read_messages(
        &mut self,
        turn: &mut SessionTurn<'_>,
        dcp: &mut DcpSession,
        bytes: &[u8],
        out: &mut Output,
    ) -> (usize, Halt) {
        let queued_max = turn.shared.limits.queued_bytes_max + QUEUED_BEYOND;
        let mut at = 0;
        loop {
            if let Some(halt) = self.halt(turn, out.queued(), queued_max) {
                return (at, halt);
            }
            let (frame, consumed) =
                match parse_peer(&bytes[at..], turn.shared.limits.body_bytes_max) {
                    ParsePeer::Incomplete { need } => return (at, Halt::NeedBytes(need)),
                    ParsePeer::Fatal(error) => {
                        tracing::debug!(peer = %self.peer, %error, "closing a connection");
                        return (at, Halt::Malformed);
                    }
                    ParsePeer::Frame { frame, consumed } => (frame, consumed),
                };
            let done = match frame {
                PeerFrame::Reply(reply) => dcp.on_reply(turn, &reply),
                // Streams must not wait for a task.
                PeerFrame::Request(request) if self.is_long(&request) => {
                    let context = "commands about large values have to use another connection";
                    let failure = CommandFailure::new(Status::NotSupported, context);
                    match self.refuse(turn, &request, failure, out) {
                        Flow::Close => return (at + consumed, Halt::Close),
                        _ => Ok(()),
                    }
                }
                PeerFrame::Request(request) if DcpSession::takes(request.opcode) => {
                    let map = || self.map_of_bucket(turn.shared);
                    dcp.on_request(turn, self.privileges.rights(), map, &request, out.buffer())
                }
                PeerFrame::Request(request) => match self.execute(turn, &request, out) {
                    Flow::Next => Ok(()),
                    Flow::Wait => return (at, Halt::Parked),
                    Flow::Close => return (at + consumed, Halt::Close),
                },
            };
            at += consumed;
            if let Err(why) = done {
                log_disconnect(self.peer, dcp, &why);
                return (at, Halt::Close);
            }
        }
    }

    /// The cluster map of the bucket, for `NotMyVbucket`.
    fn map_of_bucket(&self, shared: &ServerContext) -> Vec<u8> {
        let name = self.bucket.as_deref().map(Bucket::name);
        let host = host_text(self.local.ip());
        let config = name.and_then(|name| shared.cluster().bucket_config(name, &host));
        config.map_or_else(Vec::new, |config| config.json.to_vec())
    }
}
