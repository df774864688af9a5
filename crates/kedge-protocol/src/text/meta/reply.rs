//! Replies to meta commands.

use super::MetaKey;
use crate::text::line::Tokens;
use crate::text::reply::push_number;

/// The flags of a request that its reply returns, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaReturns<'a> {
    pub(super) key: MetaKey<'a>,
    tokens: Tokens<'a>,
    /// One bit for each flag of the request, see [`bit_of`].
    seen: u64,
}

impl<'a> MetaReturns<'a> {
    pub(super) const fn new(key: MetaKey<'a>, tokens: Tokens<'a>) -> Self {
        Self {
            key,
            tokens,
            seen: 0,
        }
    }

    /// Records `flag`, a letter, and returns whether it is new.
    pub(super) fn see(&mut self, flag: u8) -> bool {
        let is_new = !self.wants(flag);
        self.seen |= bit_of(flag);
        is_new
    }

    /// Returns whether the request has `flag`; a field that is not requested need not be computed.
    #[must_use]
    pub fn wants(&self, flag: u8) -> bool {
        self.seen & bit_of(flag) != 0
    }

    /// Returns the opaque token of the request.
    #[must_use]
    pub fn opaque(&self) -> Option<&'a [u8]> {
        let mut tokens = self.tokens;
        tokens.find_map(|token| token.strip_prefix(b"O"))
    }
}

/// Returns the bit of a flag, 0 unless it is a letter. The codes of the letters differ in their lowest six bits.
const fn bit_of(flag: u8) -> u64 {
    if flag.is_ascii_alphabetic() {
        1 << (flag & 0x3f)
    } else {
        0
    }
}

/// The outcome of a meta command without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaStatus {
    /// `HD`: found, stored, deleted or counted.
    Done,
    /// `EN`: there is no such document (`mg`).
    Miss,
    /// `NF`: there is no such document (`ms`, `md`, `ma`).
    NotFound,
    /// `NS`: not stored, because the condition of the mode was not met.
    NotStored,
    /// `EX`: the document has another CAS.
    Exists,
}

impl MetaStatus {
    /// Returns the two characters of the reply.
    #[must_use]
    pub const fn code(self) -> &'static [u8; 2] {
        match self {
            Self::Done => b"HD",
            Self::Miss => b"EN",
            Self::NotFound => b"NF",
            Self::NotStored => b"NS",
            Self::Exists => b"EX",
        }
    }
}

/// The remaining time to live of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaTtl {
    /// No expiration; written as -1.
    Unlimited,
    /// Seconds until it expires.
    Secs(u32),
}

impl MetaTtl {
    pub(super) fn push(self, out: &mut Vec<u8>) {
        match self {
            Self::Unlimited => out.extend_from_slice(b"-1"),
            Self::Secs(secs) => push_number(out, secs),
        }
    }
}

/// The metadata for a reply. A field that is `None` is left out of the reply, even if the request has its flag; the
/// default has no fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaItem {
    /// c: the CAS.
    pub cas: Option<u64>,
    /// f: the client flags.
    pub client_flags: Option<u32>,
    /// s: the size of the value, in bytes.
    pub size: Option<u64>,
    /// t: the remaining time to live.
    pub ttl: Option<MetaTtl>,
    /// l: seconds since the last access.
    pub last_access_secs: Option<u32>,
    /// h: true if the document was accessed before.
    pub hit_before: Option<bool>,
    /// W: the client has won the right to recache the document.
    pub won: bool,
    /// X: the document is stale.
    pub stale: bool,
    /// Z: another client has won the right to recache the document.
    pub token_sent: bool,
}

/// Appends a reply without a value: `<code> <flags>*`.
pub fn write_meta(
    out: &mut Vec<u8>,
    status: MetaStatus,
    returns: &MetaReturns<'_>,
    item: &MetaItem,
) {
    out.extend_from_slice(status.code());
    push_flags(out, returns, item);
    out.extend_from_slice(b"\r\n");
}

/// Appends a reply with a value: `VA <size> <flags>*`, and the value.
pub fn write_meta_value(
    out: &mut Vec<u8>,
    value: &[u8],
    returns: &MetaReturns<'_>,
    item: &MetaItem,
) {
    out.extend_from_slice(b"VA ");
    push_number(out, value.len());
    push_flags(out, returns, item);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn push_flags(out: &mut Vec<u8>, returns: &MetaReturns<'_>, item: &MetaItem) {
    for token in returns.tokens {
        match token[0] {
            b'O' => {
                out.push(b' ');
                out.extend_from_slice(token);
            }
            b'k' => {
                out.extend_from_slice(b" k");
                out.extend_from_slice(returns.key.written());
                if returns.key.is_base64() {
                    out.extend_from_slice(b" b");
                }
            }
            b'c' => push_some(out, b" c", item.cas),
            b'f' => push_some(out, b" f", item.client_flags),
            b's' => push_some(out, b" s", item.size),
            b'l' => push_some(out, b" l", item.last_access_secs),
            b'h' => push_some(out, b" h", item.hit_before.map(u8::from)),
            b't' => {
                if let Some(ttl) = item.ttl {
                    out.extend_from_slice(b" t");
                    ttl.push(out);
                }
            }
            _ => {}
        }
    }
    for (flag, is_set) in [
        (b" Z", item.token_sent),
        (b" X", item.stale),
        (b" W", item.won),
    ] {
        if is_set {
            out.extend_from_slice(flag);
        }
    }
}

fn push_some(out: &mut Vec<u8>, flag: &[u8], number: Option<impl itoa::Integer>) {
    if let Some(number) = number {
        out.extend_from_slice(flag);
        push_number(out, number);
    }
}
