//! `incr <key> <value> [noreply]` and `decr <key> <value> [noreply]` (memcached doc/protocol.txt, "Increment/Decrement").

use super::line::{CommandError, ParseStop, Tokens, is_key, is_noreply, parse_u64};
use super::reply;

/// A request to count up or down. Answer [`reply::write_number`], [`reply::NOT_FOUND`] or [`reply::NON_NUMERIC`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextArithmetic<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The direction.
    pub direction: CountDirection,
    /// The amount.
    pub delta: u64,
    /// True if the client wants no reply.
    pub noreply: bool,
}

/// The direction of a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CountDirection {
    /// Up; wraps around at 2^64.
    #[default]
    Increment,
    /// Down; stops at 0.
    Decrement,
}

pub(super) fn parse(
    tokens: Tokens<'_>,
    direction: CountDirection,
) -> Result<TextArithmetic<'_>, ParseStop> {
    let ([key, delta, last], count) = tokens.array();
    let noreply = match count {
        2 => false,
        3 => is_noreply(last),
        _ => return Err(CommandError::new(reply::BAD_FORMAT).into()),
    };
    if !is_key(key) {
        return Err(CommandError::new(reply::BAD_FORMAT).unless(noreply).into());
    }
    let delta = parse_u64(delta).ok_or(CommandError::new(reply::INVALID_DELTA).unless(noreply))?;
    Ok(TextArithmetic {
        key,
        direction,
        delta,
        noreply,
    })
}
