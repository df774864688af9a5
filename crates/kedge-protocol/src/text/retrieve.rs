//! `get <key>*`, `gets <key>*`, `gat <exptime> <key>*`, `gats <exptime> <key>*` (memcached doc/protocol.txt, "Retrieval
//! command" and "Get And TextTouch").

use super::line::{CommandError, ParseStop, Tokens, is_key};
use super::{Exptime, reply};

/// A retrieval of one or more keys. Answer [`reply::write_value`] for each document, and [`reply::END`] last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieve<'a> {
    /// The keys, at least one, in the order of the request; each 1 to 250 bytes.
    pub keys: RetrieveKeys<'a>,
    /// True if values are returned with their CAS (`gets`, `gats`).
    pub with_cas: bool,
    /// The new expiration time of the documents (`gat`, `gats`).
    pub touch: Option<Exptime>,
}

/// The keys of a retrieval. They are parsed from the line during iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrieveKeys<'a>(Tokens<'a>);

impl<'a> Iterator for RetrieveKeys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.0.next()
    }
}

pub(super) fn parse(
    mut tokens: Tokens<'_>,
    with_cas: bool,
    touch: bool,
) -> Result<Retrieve<'_>, ParseStop> {
    let exptime = if touch { tokens.next() } else { None };
    if tokens.rest().is_empty() {
        return Err(CommandError::new(reply::BAD_FORMAT).into());
    }
    let touch = match exptime {
        Some(token) => {
            Some(Exptime::parse(token).ok_or(CommandError::new(reply::INVALID_EXPTIME))?)
        }
        None => None,
    };
    // All or none: an invalid key after valid ones must not cut a reply short.
    let mut unseen = tokens;
    if !unseen.all(is_key) {
        return Err(CommandError::new(reply::BAD_FORMAT).into());
    }
    Ok(Retrieve {
        keys: RetrieveKeys(tokens),
        with_cas,
        touch,
    })
}
