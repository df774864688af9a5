//! `flush_all [delay] [noreply]`, `stats [args]`, `verbosity <level> [noreply]` (memcached doc/protocol.txt, "Other
//! commands" and "Statistics").

use super::line::{CommandError, ParseStop, Tokens, is_noreply, parse_u32};
use super::{Exptime, reply};

/// A request to delete all documents. Answer [`reply::OK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushAll {
    /// The time of the flush; [`Exptime::NEVER`] and the past mean at once.
    pub delay: Exptime,
    /// True if the client wants no reply.
    pub noreply: bool,
}

/// A request for statistics. Answer [`reply::write_stat`] for each and [`reply::END`] last; [`reply::ERROR`] for an
/// unknown group, [`reply::RESET`] for `reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats<'a> {
    /// The arguments of the command, without spaces at the ends; empty for the general statistics.
    pub args: &'a [u8],
}

/// A request to set the log level. Answer [`reply::OK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextVerbosity {
    /// The level.
    pub level: u32,
    /// True if the client wants no reply.
    pub noreply: bool,
}

pub(super) fn parse_flush_all(tokens: Tokens<'_>) -> Result<FlushAll, ParseStop> {
    let ([first, second], count) = tokens.array();
    let (delay, noreply) = match count {
        0 => return Ok(FlushAll::at_once(false)),
        1 if is_noreply(first) => return Ok(FlushAll::at_once(true)),
        1 => (first, false),
        2 => (first, is_noreply(second)),
        _ => return Err(CommandError::new(reply::ERROR).into()),
    };
    let delay =
        Exptime::parse(delay).ok_or(CommandError::new(reply::INVALID_EXPTIME).unless(noreply))?;
    Ok(FlushAll { delay, noreply })
}

impl FlushAll {
    const fn at_once(noreply: bool) -> Self {
        Self {
            delay: Exptime::NEVER,
            noreply,
        }
    }
}

pub(super) fn parse_stats(tokens: Tokens<'_>) -> Stats<'_> {
    Stats {
        args: tokens.rest(),
    }
}

pub(super) fn parse_verbosity(tokens: Tokens<'_>) -> Result<TextVerbosity, ParseStop> {
    let ([level, second], count) = tokens.array();
    let noreply = match count {
        // `verbosity noreply` has no level, and yet gets no reply: libmemcached's memcapable expects silence.
        1 => is_noreply(level),
        2 => is_noreply(second),
        _ => return Err(CommandError::new(reply::ERROR).into()),
    };
    let level = parse_u32(level).ok_or(CommandError::new(reply::BAD_FORMAT).unless(noreply))?;
    Ok(TextVerbosity { level, noreply })
}
