//! `delete <key> [noreply]` (memcached doc/protocol.txt, "Deletion").

use super::line::{CommandError, ParseStop, Tokens, is_key, is_noreply};
use super::reply;

/// A request to delete a document. Answer [`reply::DELETED`] or [`reply::NOT_FOUND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextDelete<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// True if the client wants no reply.
    pub noreply: bool,
}

pub(super) fn parse(tokens: Tokens<'_>) -> Result<TextDelete<'_>, ParseStop> {
    let ([key, second, third], count) = tokens.array();
    // Old clients send a time during which the deletion blocks the key; only 0 is valid nowadays.
    let noreply = match count {
        1 => false,
        2 if second == b"0" => false,
        2 if is_noreply(second) => true,
        3 if second == b"0" && is_noreply(third) => true,
        2 | 3 => {
            return Err(CommandError::new(reply::DELETE_USAGE)
                .unless(is_noreply(third))
                .into());
        }
        _ => return Err(CommandError::new(reply::BAD_FORMAT).into()),
    };
    if !is_key(key) {
        return Err(CommandError::new(reply::BAD_FORMAT).unless(noreply).into());
    }
    Ok(TextDelete { key, noreply })
}
