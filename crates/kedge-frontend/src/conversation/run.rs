//! Execution of one command, from its frame to its reply, or until it is parked.

use kedge_node::output::Output;
use kedge_protocol::binary::{FrameInfos, Magic, Opcode, Request, ServerDuration};
use kedge_types::{KeyBuffer, Status};

use crate::commands::{CommandContext, CommandOutcome, row};
use crate::session::{CommandFailure, Composer, Flow, Session, SessionTurn};

/// Offset of the server duration in a reply that has one: behind the header and the head of its frame info.
const DURATION_AT: usize = 25;

/// The outcome of a command that was not refused.
enum DispatchOutcome {
    /// It has to wait for others and was not executed.
    Wait,
    Done(CommandOutcome),
}

impl Session {
    pub(crate) fn execute(
        &mut self,
        turn: &mut SessionTurn<'_>,
        request: &Request<'_>,
        out: &mut Output,
    ) -> Flow {
        let composer = self.protocol.composer(request.opcode, request.opaque);
        let opcode = composer.opcode;
        let begin = out.position();
        let (status, flow) = match self.run(turn, request, opcode, composer, out) {
            Ok(DispatchOutcome::Wait) => return Flow::Wait,
            Ok(DispatchOutcome::Done(CommandOutcome::Parked)) => return Flow::Next,
            Ok(DispatchOutcome::Done(CommandOutcome::Replied)) => (Status::Success, Flow::Next),
            Ok(DispatchOutcome::Done(CommandOutcome::Close)) => (Status::Success, Flow::Close),
            Err(failure) => (
                failure.status,
                self.fail(turn.shared, &composer, failure, out),
            ),
        };
        turn.shared.metrics.thread(turn.thread).replied(status);
        let start_ns = turn.last_ns;
        turn.last_ns = turn.shared.clock.mono_ns();
        let name = opcode.map_or("unknown", Opcode::name);
        turn.took(name, turn.last_ns.saturating_sub(start_ns));
        self.record_duration(turn, opcode, begin, start_ns, out);
        flow
    }

    /// Refuses a command without executing it.
    pub(crate) fn refuse(
        &mut self,
        turn: &mut SessionTurn<'_>,
        request: &Request<'_>,
        failure: CommandFailure,
        out: &mut Output,
    ) -> Flow {
        let composer = self.protocol.composer(request.opcode, request.opaque);
        let metrics = turn.shared.metrics.thread(turn.thread);
        metrics.replied(failure.status);
        metrics.command();
        let begin = out.position();
        let flow = self.fail(turn.shared, &composer, failure, out);
        let start_ns = turn.last_ns;
        turn.last_ns = turn.shared.clock.mono_ns();
        write_duration(turn.last_ns.saturating_sub(start_ns), begin, out);
        flow
    }

    fn run(
        &mut self,
        turn: &mut SessionTurn<'_>,
        request: &Request<'_>,
        opcode: Option<Opcode>,
        composer: Composer,
        out: &mut Output,
    ) -> Result<DispatchOutcome, CommandFailure> {
        let Some(opcode) = opcode else {
            return Err(Opcode::unsupported_status(request.opcode, self.kind()).into());
        };
        let infos = if request.framing.is_empty() {
            FrameInfos::default()
        } else {
            let infos = FrameInfos::parse(request.framing)?;
            infos.check_opcode(opcode)?;
            infos
        };
        if !self.in_flight.is_empty() {
            if matches!(opcode, Opcode::Hello | Opcode::SelectBucket) {
                return Err(CommandFailure::new(
                    Status::Invalid,
                    "not while other commands of the connection are being executed",
                ));
            }
            if infos.barrier || !opcode.is_reorderable() {
                return Ok(DispatchOutcome::Wait);
            }
        }
        let row = row(opcode);
        let mut command = CommandContext {
            session: self,
            turn,
            out,
            request,
            composer,
            opcode,
            row,
            infos,
            key: KeyBuffer::EMPTY,
        };
        command.check_first()?;
        command.check_item_size()?;
        (row.handler)(&mut command).map(DispatchOutcome::Done)
    }

    /// Records the duration of a command in its reply, if it has a server duration, and in the histograms.
    pub(crate) fn record_duration(
        &self,
        turn: &SessionTurn<'_>,
        opcode: Option<Opcode>,
        begin: usize,
        start_ns: u64,
        out: &mut Output,
    ) {
        let took_ns = turn.last_ns.saturating_sub(start_ns);
        let us = took_ns / 1_000;
        write_duration(took_ns, begin, out);
        turn.shared.metrics.thread(turn.thread).command();
        if let (Some(bucket), Some(timing)) =
            (&self.bucket, opcode.and_then(|opcode| row(opcode).timing))
        {
            bucket.timings().record_us(turn.thread, timing, us);
        }
    }
}

/// Writes the duration of a command into the reply that begins at this position of the output, if it has a server
/// duration.
pub(super) fn write_duration(took_ns: u64, begin: usize, out: &mut Output) {
    if let Some(reply) = out.buffer().get_mut(begin..)
        && reply.first() == Some(&Magic::AltClientResponse.wire())
    {
        // Never 0, which clients take for no duration.
        let rounded_up = took_ns.div_ceil(1_000).max(1);
        let encoded = ServerDuration::encode(rounded_up).to_be_bytes();
        reply[DURATION_AT..DURATION_AT + 2].copy_from_slice(&encoded);
    }
}
