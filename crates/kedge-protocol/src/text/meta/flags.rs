//! The flags of meta commands. Every meta command accepts all of them, as in memcached.

use super::{MetaKey, MetaReturns};
use crate::text::limits::OPAQUE_BYTES_MAX;
use crate::text::line::{CommandError, Tokens, parse_u32, parse_u64};
use crate::text::{Exptime, reply};

/// The flags of a request. Those that only ask for a field of the reply are in `returns`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags<'a> {
    pub(super) returns: MetaReturns<'a>,
    /// C: the CAS that the document must have.
    pub(super) compare_cas: Option<u64>,
    /// D: the amount to count by.
    pub(super) delta: Option<u64>,
    /// E: the new CAS of the document.
    pub(super) new_cas: Option<u64>,
    /// F: the document's client flags.
    pub(super) client_flags: Option<u32>,
    /// I: mark as stale instead of delete; accept an older CAS.
    pub(super) invalidate: bool,
    /// J: the initial number.
    pub(super) initial: Option<u64>,
    /// M: the mode of a store or count.
    pub(super) mode: Option<u8>,
    /// N: create a missing document with this expiration time.
    pub(super) vivify: Option<Exptime>,
    /// q: leave out expected replies.
    pub(super) quiet: bool,
    /// R: win the right to recache if the time to live is shorter than this.
    pub(super) recache: Option<Exptime>,
    /// T: the document's expiration time.
    pub(super) exptime: Option<Exptime>,
    /// u: do not count the read as an access.
    pub(super) no_bump: bool,
    /// v: reply with the value.
    pub(super) value: bool,
    /// x: keep the document without its value.
    pub(super) remove_value: bool,
}

impl<'a> Flags<'a> {
    fn new(key: MetaKey<'a>, tokens: Tokens<'a>) -> Self {
        Self {
            returns: MetaReturns::new(key, tokens),
            compare_cas: None,
            delta: None,
            new_cas: None,
            client_flags: None,
            invalidate: false,
            initial: None,
            mode: None,
            vivify: None,
            quiet: false,
            recache: None,
            exptime: None,
            no_bump: false,
            value: false,
            remove_value: false,
        }
    }

    /// Parses the key of a request and its flags. `tokens` begin behind the key, or in `ms` behind the length.
    pub(super) fn parse(key: &'a [u8], tokens: Tokens<'a>) -> Result<Self, CommandError> {
        let key = MetaKey::plain(key).ok_or(CommandError::new(reply::BAD_FORMAT))?;
        let mut flags = Self::new(key, tokens);
        for token in tokens {
            // A token has at least one byte.
            let (&flag, argument) = token
                .split_first()
                .ok_or(CommandError::new(reply::INVALID_FLAG))?;
            if !flag.is_ascii_alphabetic() {
                return Err(CommandError::new(reply::INVALID_FLAG));
            }
            if !flags.returns.see(flag) {
                return Err(CommandError::new(reply::DUPLICATE_FLAG));
            }
            flags.apply(flag, argument)?;
        }
        Ok(flags)
    }

    fn apply(&mut self, flag: u8, argument: &[u8]) -> Result<(), CommandError> {
        let exptime = || Exptime::parse(argument).ok_or(CommandError::new(reply::BAD_TOKEN));
        let cas = || parse_u64(argument).ok_or(CommandError::new(reply::BAD_TOKEN));
        match flag {
            // Asked for in the reply (l, h: unknown fields are left out), or hints to a proxy (L, P).
            b'c' | b'f' | b'h' | b'k' | b'l' | b's' | b't' | b'L' | b'P' => {}
            b'b' => {
                self.returns.key = self
                    .returns
                    .key
                    .into_base64()
                    .ok_or(CommandError::new(reply::BAD_BASE64_KEY))?;
            }
            b'C' => self.compare_cas = Some(cas()?),
            b'D' => {
                let delta =
                    parse_u64(argument).ok_or(CommandError::new(reply::INVALID_META_DELTA))?;
                self.delta = Some(delta);
            }
            b'E' => self.new_cas = Some(cas()?),
            b'F' => {
                let client_flags =
                    parse_u32(argument).ok_or(CommandError::new(reply::BAD_FORMAT))?;
                self.client_flags = Some(client_flags);
            }
            b'I' => self.invalidate = true,
            b'J' => {
                let initial =
                    parse_u64(argument).ok_or(CommandError::new(reply::INVALID_INITIAL))?;
                self.initial = Some(initial);
            }
            b'M' => {
                let &[mode] = argument else {
                    return Err(CommandError::new(reply::BAD_MODE_LENGTH));
                };
                self.mode = Some(mode);
            }
            b'N' => self.vivify = Some(exptime()?),
            b'O' if argument.len() > OPAQUE_BYTES_MAX => {
                return Err(CommandError::new(reply::OPAQUE_TOO_LONG));
            }
            b'O' => {}
            b'q' => self.quiet = true,
            b'R' => self.recache = Some(exptime()?),
            b'T' => self.exptime = Some(exptime()?),
            b'u' => self.no_bump = true,
            b'v' => self.value = true,
            b'x' => self.remove_value = true,
            _ => return Err(CommandError::new(reply::INVALID_FLAG)),
        }
        Ok(())
    }
}
