//! `touch <key> <exptime> [noreply]` (memcached doc/protocol.txt, "Touch").

use super::Exptime;
use super::line::{Fault, Stop, Tokens, is_key, is_noreply};
use super::reply;

/// A request to set the expiration time of a document. Answer [`reply::TOUCHED`] or [`reply::NOT_FOUND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The new expiration time.
    pub exptime: Exptime,
    /// True if the client wants no reply.
    pub noreply: bool,
}

pub(super) fn parse(tokens: Tokens<'_>) -> Result<Touch<'_>, Stop> {
    let ([key, exptime, last], count) = tokens.array();
    let noreply = match count {
        2 => false,
        3 => is_noreply(last),
        _ => return Err(Fault::new(reply::BAD_FORMAT).into()),
    };
    if !is_key(key) {
        return Err(Fault::new(reply::BAD_FORMAT).unless(noreply).into());
    }
    let exptime =
        Exptime::parse(exptime).ok_or(Fault::new(reply::INVALID_EXPTIME).unless(noreply))?;
    Ok(Touch {
        key,
        exptime,
        noreply,
    })
}
