//! `<set|add|replace|append|prepend> <key> <flags> <exptime> <bytes> [noreply]` and `cas <key> <flags> <exptime> <bytes>
//! <cas unique> [noreply]` (memcached doc/protocol.txt, "Storage commands").

use super::Exptime;
use super::line::{
    Body, Fault, Stop, Tokens, is_key, is_noreply, parse_length, parse_u32, parse_u64,
};
use super::reply;

/// A value to store. Answer [`reply::STORED`], [`reply::NOT_STORED`], or for a CAS [`reply::EXISTS`] or
/// [`reply::NOT_FOUND`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// When it is stored.
    pub mode: StoreMode,
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// Opaque to the server; not for append and prepend.
    pub client_flags: u32,
    /// Not for append and prepend.
    pub exptime: Exptime,
    /// `cas`: store only if the document has this CAS (the mode is then [`StoreMode::Set`]). 0 is a CAS like any other
    /// here, that no document has, where the binary protocol means "no check".
    pub cas: Option<u64>,
    /// The value, without its line end.
    pub value: &'a [u8],
    /// Whether the client wants no reply.
    pub noreply: bool,
}

/// When and how a value is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoreMode {
    /// In any case.
    #[default]
    Set,
    /// If there is no document.
    Add,
    /// If there is a document.
    Replace,
    /// Behind the document's value, if there is one.
    Append,
    /// In front of the document's value, if there is one.
    Prepend,
}

pub(super) fn parse<'a>(
    tokens: Tokens<'a>,
    body: &mut Body<'a>,
    mode: StoreMode,
) -> Result<Store<'a>, Stop> {
    let ([key, flags, exptime, bytes, last], count) = tokens.array();
    let noreply = match count {
        4 => false,
        5 => is_noreply(last),
        _ => return Err(miscounted(count, bytes).into()),
    };
    Head {
        key,
        flags,
        exptime,
        bytes,
        cas: None,
        noreply,
    }
    .finish(body, mode)
}

pub(super) fn parse_cas<'a>(tokens: Tokens<'a>, body: &mut Body<'a>) -> Result<Store<'a>, Stop> {
    let ([key, flags, exptime, bytes, cas, last], count) = tokens.array();
    let noreply = match count {
        5 => false,
        6 => is_noreply(last),
        _ => return Err(miscounted(count, bytes).into()),
    };
    Head {
        key,
        flags,
        exptime,
        bytes,
        cas: Some(cas),
        noreply,
    }
    .finish(body, StoreMode::Set)
}

/// The refusal of a line with too few or too many tokens. A value whose length is among them is swallowed: it must not be
/// taken for commands.
fn miscounted(count: usize, bytes: &[u8]) -> Fault {
    let fault = Fault::new(reply::BAD_FORMAT);
    match parse_length(bytes) {
        Some(len) if count >= 4 => fault.and_swallow(len),
        _ => fault,
    }
}

/// The tokens of the line.
struct Head<'a> {
    key: &'a [u8],
    flags: &'a [u8],
    exptime: &'a [u8],
    bytes: &'a [u8],
    cas: Option<&'a [u8]>,
    noreply: bool,
}

impl<'a> Head<'a> {
    fn finish(self, body: &mut Body<'a>, mode: StoreMode) -> Result<Store<'a>, Stop> {
        let malformed = Fault::new(reply::BAD_FORMAT).unless(self.noreply);
        let Some(len) = parse_length(self.bytes) else {
            // How much follows is anyone's guess.
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
        Ok(Store {
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
