//! A session after DCP_OPEN: its bytes are messages of both directions, and streams fill its output.

use kedge_bucket::Bucket;
use kedge_cluster::host_text;
use kedge_node::output::Output;
use kedge_protocol::binary::commands::dcp::{ParsePeer, PeerFrame, parse_peer};
use kedge_replication::Disconnect;
use kedge_types::Status;
use kedge_types::limits::VALUE_BYTES_MAX;

use super::{Failure, Flow, Halt, Session, SessionTurn};
use crate::dcp::DcpSession;
use crate::shared::Shared;

/// Output above which no message is read, in bytes beside [`crate::Limits::queued_bytes_max`]: a change may be large, and
/// acknowledgements are to be read while it waits.
const QUEUED_BEYOND: usize = VALUE_BYTES_MAX + (1 << 20);

/// The state of a session beside commands.
#[derive(Default)]
pub(super) enum DcpState {
    /// Nothing.
    #[default]
    Not,
    /// It follows vBuckets.
    Dcp(Box<DcpSession>),
    /// It did, and ends.
    Over,
}

impl Session {
    /// Whether DCP_OPEN was sent.
    pub(crate) fn is_dcp(&self) -> bool {
        !matches!(self.dcp, DcpState::Not)
    }

    /// Whether it followed vBuckets and must not any more: the connection ends.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.dcp, DcpState::Over)
    }

    pub(crate) fn follow(&mut self, dcp: DcpSession) {
        self.dcp = DcpState::Dcp(Box::new(dcp));
    }

    pub(crate) fn stop_following(&mut self) {
        if self.is_dcp() {
            self.dcp = DcpState::Over;
        }
    }

    /// As [`Session::on_bytes`], on a DCP connection.
    pub(crate) fn on_dcp_bytes(
        &mut self,
        turn: &mut SessionTurn<'_>,
        bytes: &[u8],
        out: &mut Output,
    ) -> (usize, Halt) {
        let DcpState::Dcp(mut dcp) = std::mem::replace(&mut self.dcp, DcpState::Over) else {
            return (0, Halt::Close);
        };
        let (consumed, halt) = self.read_messages(turn, &mut dcp, bytes, out);
        dcp.hand_over_acks();
        self.dcp = DcpState::Dcp(dcp);
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
            if self.is_held() {
                return (at, Halt::Parked);
            }
            if out.queued() > queued_max {
                return (at, Halt::Full);
            }
            if turn.was_over() {
                return (at, Halt::Slice);
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
                // Streams cannot wait for a task.
                PeerFrame::Request(request) if self.is_long(&request) => {
                    let context = "commands about large values have to use another connection";
                    let failure = Failure::new(Status::NotSupported, context);
                    match self.refuse(turn, &request, failure, out) {
                        Flow::Close => return (at + consumed, Halt::Close),
                        _ => Ok(()),
                    }
                }
                PeerFrame::Request(request) if DcpSession::takes(request.opcode) => {
                    let map = || self.map_of_bucket(turn.shared);
                    dcp.on_request(turn, self.rights, map, &request, out.buffer())
                }
                PeerFrame::Request(request) => match self.execute(turn, &request, out) {
                    Flow::Next => Ok(()),
                    Flow::Wait => return (at, Halt::Parked),
                    Flow::Close => return (at + consumed, Halt::Close),
                },
            };
            at += consumed;
            if let Err(why) = done {
                self.say_why(dcp, &why);
                return (at, Halt::Close);
            }
        }
    }

    /// The cluster map of the bucket, for a client that asked the wrong node.
    fn map_of_bucket(&self, shared: &Shared) -> Vec<u8> {
        let name = self.bucket.as_deref().map(Bucket::name);
        let host = host_text(self.local);
        let config = name.and_then(|name| shared.cluster().bucket_config(name, &host));
        config.map_or_else(Vec::new, |config| config.json.to_vec())
    }

    fn say_why(&self, dcp: &DcpSession, why: &Disconnect) {
        tracing::warn!(
            peer = %self.peer,
            connection = dcp.name(),
            %why,
            "closing a DCP connection"
        );
    }

    /// Streams of the connection have something new.
    pub(crate) fn on_streams_ready(&mut self) {
        if let DcpState::Dcp(dcp) = &mut self.dcp {
            dcp.collect();
        }
    }

    /// Lets streams fill the output.
    pub(crate) fn fill(&mut self, turn: &SessionTurn<'_>, out: &mut Output) {
        if let DcpState::Dcp(dcp) = &mut self.dcp {
            let queued = out.queued();
            dcp.fill(turn.now.mono_ns, queued, out.buffer());
        }
    }

    /// Returns whether [`Self::fill`] or [`Self::go_on_telling`] would append something when there is room.
    pub(crate) fn has_ready(&self) -> bool {
        self.is_telling() || matches!(&self.dcp, DcpState::Dcp(dcp) if dcp.has_ready())
    }

    /// When [`Self::on_time`] is to be called, nanoseconds of the monotonic clock.
    pub(crate) fn timer_ns(&self) -> Option<u64> {
        match &self.dcp {
            DcpState::Dcp(dcp) => dcp.next_deadline_ns(),
            _ => None,
        }
    }

    /// Does what its time has come for. False when the consumer is not there any more: the connection ends.
    pub(crate) fn on_time(&mut self, turn: &SessionTurn<'_>, out: &mut Output) -> bool {
        let DcpState::Dcp(dcp) = &mut self.dcp else {
            return true;
        };
        let now_ns = turn.now.mono_ns;
        if dcp.next_deadline_ns().is_none_or(|at| at > now_ns) {
            return true;
        }
        match dcp.on_time(now_ns, out.buffer()) {
            Ok(()) => true,
            Err(why) => {
                tracing::warn!(
                    peer = %self.peer,
                    connection = dcp.name(),
                    %why,
                    "closing a DCP connection"
                );
                false
            }
        }
    }
}
