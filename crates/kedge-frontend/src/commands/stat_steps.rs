//! Long answers to STAT, composed in steps.
//!
//! A group of statistics produces its first lines at once and leaves the rest to a
//! [`StatGenerator`](crate::stat_generator::StatGenerator). Invariants:
//! * A step is bounded: a few dozen lines, or the figures of one vBucket.
//! * Steps run while the output of the connection is below its limit and its time slice is not over; then other
//!   connections have theirs, and the generator continues when the client has read.
//! * Until the answer ends, no other command of the connection is executed, so answers do not add up in memory.

use kedge_bucket::Timing;
use kedge_node::output::Output;
use kedge_protocol::binary::Response;
use kedge_protocol::binary::commands::Stat;
use kedge_protocol::text::reply;
use kedge_types::Status;

use super::stat::{StatRequest, group_stats};
use crate::session::{
    CommandFailure, Session, SessionTurn, StatAnswer, StatFormat, StatInProgress,
};
use crate::text_status::write_status;

impl StatFormat {
    fn line(self, name: &str, value: &str, out: &mut Vec<u8>) {
        match self {
            // An empty name would end the list.
            Self::Binary { .. } if name.is_empty() => {}
            Self::Binary { number, opaque } => {
                Stat::write_reply(number, opaque, name.as_bytes(), value.as_bytes(), out);
            }
            Self::Text | Self::TextReset => {
                reply::write_stat(out, name.as_bytes(), value.as_bytes());
            }
        }
    }

    fn end(self, out: &mut Vec<u8>) {
        match self {
            Self::Binary { number, opaque } => Stat::write_reply(number, opaque, b"", b"", out),
            Self::Text => out.extend_from_slice(reply::END),
            Self::TextReset => out.extend_from_slice(reply::RESET),
        }
    }

    /// Ends an answer of which some lines were composed.
    fn fail(self, status: Status, out: &mut Output) {
        match self {
            Self::Binary { number, opaque } => {
                Response::new(number, opaque, status).write(out.buffer());
            }
            Self::Text | Self::TextReset => write_status(out, status),
        }
    }
}

/// Begins the answer about one group. Returns true if it is complete; else the session continues with
/// [`Session::continue_stat`].
///
/// # Errors
/// As [`group_stats`]; nothing was composed then.
pub(crate) fn answer(
    session: &mut Session,
    turn: &mut SessionTurn<'_>,
    asked: StatRequest<'_>,
    form: StatFormat,
    out: &mut Output,
) -> Result<bool, CommandFailure> {
    let begin = out.position();
    let buffer = out.buffer();
    let began_ns = turn.shared.clock.mono_ns();
    let mut each = |name: &str, value: &str| form.line(name, value, buffer);
    let (group, told) = match group_stats(session, turn.shared, asked, &mut each) {
        Ok(told) => told,
        Err(failure) => {
            out.truncate(begin);
            return Err(failure);
        }
    };
    let worked_ns = turn.shared.clock.mono_ns() - began_ns;
    let Some(walk) = told else {
        turn.shared.stat_timings.record_us(group, worked_ns / 1_000);
        form.end(out.buffer());
        return Ok(true);
    };
    session.stat = StatInProgress(Some(Box::new(StatAnswer {
        form,
        walk,
        group,
        start_ns: turn.last_ns,
        worked_ns,
        failed: None,
    })));
    Ok(session.stat.advance(turn, out).is_some())
}

impl StatInProgress {
    /// Composes lines while the output has room and the turn lasts. Returns the answer when it has ended.
    fn advance(&mut self, turn: &SessionTurn<'_>, out: &mut Output) -> Option<Box<StatAnswer>> {
        let mut answer = self.0.take()?;
        let shared = turn.shared;
        let began_ns = shared.clock.mono_ns();
        let is_over = loop {
            if answer.failed.is_some() {
                break true;
            }
            if out.queued() > shared.limits.queued_bytes_max || turn.is_over() {
                break false;
            }
            let (form, buffer) = (answer.form, out.buffer());
            let mut each = |name: &str, value: &str| form.line(name, value, buffer);
            if !answer.walk.step(&mut each) {
                break true;
            }
        };
        answer.worked_ns += shared.clock.mono_ns() - began_ns;
        if !is_over {
            self.0 = Some(answer);
            return None;
        }
        match answer.failed {
            Some(status) => answer.form.fail(status, out),
            None => answer.form.end(out.buffer()),
        }
        let worked_us = answer.worked_ns / 1_000;
        shared.stat_timings.record_us(answer.group, worked_us);
        Some(answer)
    }
}

impl Session {
    /// Continues the answer to STAT in progress.
    pub(crate) fn continue_stat(&mut self, turn: &mut SessionTurn<'_>, out: &mut Output) {
        let Some(answer) = self.stat.advance(turn, out) else {
            return;
        };
        let shared = turn.shared;
        turn.last_ns = shared.clock.mono_ns();
        let metrics = shared.metrics.thread(turn.thread);
        if matches!(answer.form, StatFormat::Binary { .. }) {
            metrics.replied(answer.failed.unwrap_or(Status::Success));
        }
        metrics.command();
        let us = turn.last_ns.saturating_sub(answer.start_ns) / 1_000;
        if let Some(bucket) = &self.bucket {
            bucket.timings().record_us(turn.thread, Timing::Stat, us);
        }
    }
}
