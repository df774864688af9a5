//! `touch <key> <exptime> [noreply]` (memcached doc/protocol.txt, "TextTouch").

use super::line::{CommandError, ParseStop, Tokens, is_key, is_noreply};
use super::{Exptime, reply};

/// A request to set the expiration time of a document. Answer [`reply::TOUCHED`] or [`reply::NOT_FOUND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextTouch<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The new expiration time.
    pub exptime: Exptime,
    /// True if the client wants no reply.
    pub noreply: bool,
}

pub(super) fn parse(tokens: Tokens<'_>) -> Result<TextTouch<'_>, ParseStop> {
    let ([key, exptime, last], count) = tokens.array();
    let noreply = match count {
        2 => false,
        3 => is_noreply(last),
        _ => return Err(CommandError::new(reply::BAD_FORMAT).into()),
    };
    if !is_key(key) {
        return Err(CommandError::new(reply::BAD_FORMAT).unless(noreply).into());
    }
    let exptime =
        Exptime::parse(exptime).ok_or(CommandError::new(reply::INVALID_EXPTIME).unless(noreply))?;
    Ok(TextTouch {
        key,
        exptime,
        noreply,
    })
}
