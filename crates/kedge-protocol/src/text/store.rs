//! `<set|add|replace|append|prepend> <key> <flags> <exptime> <bytes> [noreply]` and `cas <key> <flags> <exptime> <bytes>
//! <cas unique> [noreply]` (memcached doc/protocol.txt, "Storage commands").

use super::line::{
    CommandError, ParseStop, Tokens, ValueReader, is_key, is_noreply, parse_length, parse_u32,
    parse_u64,
};
use super::{Exptime, reply};

/// A request to store a value. Answer [`reply::STORED`], [`reply::NOT_STORED`], or for a CAS [`reply::EXISTS`] or
/// [`reply::NOT_FOUND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStore<'a> {
    /// The mode of the store.
    pub mode: TextStoreMode,
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client flags, opaque to the server; ignored by append and prepend.
    pub client_flags: u32,
    /// The expiration time; ignored by append and prepend.
    pub exptime: Exptime,
    /// `cas`: store only if the document has this CAS (the mode is then [`TextStoreMode::Set`]). Here 0 is a CAS that no
    /// document has, while it means "no check" in the binary protocol.
    pub cas: Option<u64>,
    /// The value, without its line end.
    pub value: &'a [u8],
    /// True if the client wants no reply.
    pub noreply: bool,
}

/// The mode of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TextStoreMode {
    /// Stores in any case.
    #[default]
    Set,
    /// Stores if there is no document.
    Add,
    /// Stores if there is a document.
    Replace,
    /// Appends to the value of an existing document.
    Append,
    /// Prepends to the value of an existing document.
    Prepend,
}

pub(super) fn parse<'a>(
    tokens: Tokens<'a>,
    body: &mut ValueReader<'a>,
    mode: TextStoreMode,
) -> Result<TextStore<'a>, ParseStop> {
    let ([key, flags, exptime, bytes, last], count) = tokens.array();
    let noreply = match count {
        4 => false,
        5 => is_noreply(last),
        _ => return Err(miscounted(count, bytes).into()),
    };
    StoreTokens {
        key,
        flags,
        exptime,
        bytes,
        cas: None,
        noreply,
    }
    .finish(body, mode)
}

pub(super) fn parse_cas<'a>(
    tokens: Tokens<'a>,
    body: &mut ValueReader<'a>,
) -> Result<TextStore<'a>, ParseStop> {
    let ([key, flags, exptime, bytes, cas, last], count) = tokens.array();
    let noreply = match count {
        5 => false,
        6 => is_noreply(last),
        _ => return Err(miscounted(count, bytes).into()),
    };
    StoreTokens {
        key,
        flags,
        exptime,
        bytes,
        cas: Some(cas),
        noreply,
    }
    .finish(body, TextStoreMode::Set)
}

/// Refuses a line with too few or too many tokens. A value whose length is among them is skipped: it must not be parsed
/// as commands.
fn miscounted(count: usize, bytes: &[u8]) -> CommandError {
    let error = CommandError::new(reply::BAD_FORMAT);
    match parse_length(bytes) {
        Some(len) if count >= 4 => error.and_swallow(len),
        _ => error,
    }
}

/// The tokens of the line.
struct StoreTokens<'a> {
    key: &'a [u8],
    flags: &'a [u8],
    exptime: &'a [u8],
    bytes: &'a [u8],
    cas: Option<&'a [u8]>,
    noreply: bool,
}

impl<'a> StoreTokens<'a> {
    fn finish(
        self,
        body: &mut ValueReader<'a>,
        mode: TextStoreMode,
    ) -> Result<TextStore<'a>, ParseStop> {
        let malformed = CommandError::new(reply::BAD_FORMAT).unless(self.noreply);
        let Some(len) = parse_length(self.bytes) else {
            // The length of the following data is unknown.
            return Err(malformed.into());
        };
        let malformed = malformed.and_swallow(len);
        let cas = match self.cas {
            Some(token) => Some(parse_u64(token).ok_or(malformed)?),
            None => None,
        };
        if !is_key(self.key) {
            return Err(malformed.into());
        }
        Ok(TextStore {
            mode,
            key: self.key,
            client_flags: parse_u32(self.flags).ok_or(malformed)?,
            exptime: Exptime::parse(self.exptime).ok_or(malformed)?,
            cas,
            value: body.take_value(len, self.noreply)?,
            noreply: self.noreply,
        })
    }
}
