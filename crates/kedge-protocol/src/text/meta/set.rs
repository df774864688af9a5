//! `ms <key> <datalen> <flags>*` (memcached doc/protocol.txt, "Meta Set").

use super::flags::Flags;
use super::{MetaKey, MetaReturns, MetaStatus};
use crate::text::line::{CommandError, ParseStop, Tokens, ValueReader, parse_length};
use crate::text::{Exptime, TextStoreMode, reply};

/// A request to store a value. Answer with [`write_meta`](super::write_meta).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaSet<'a> {
    /// The key.
    pub key: MetaKey<'a>,
    /// The flags that the reply returns.
    pub returns: MetaReturns<'a>,
    /// M: the mode of the store.
    pub mode: TextStoreMode,
    /// The value, without its line end.
    pub value: &'a [u8],
    /// F: the client flags, opaque to the server; 0 if not given.
    pub client_flags: u32,
    /// T: the expiration time; never if not given.
    pub exptime: Exptime,
    /// N: append and prepend create a missing document with this expiration time.
    pub vivify: Option<Exptime>,
    /// C: store only if the document has this CAS. As in [`TextStore::cas`](crate::text::TextStore::cas), no document has 0.
    pub compare_cas: Option<u64>,
    /// E: the new CAS of the document.
    pub new_cas: Option<u64>,
    /// I: if `compare_cas` is older than the document's, store and mark the document as stale.
    pub invalidate: bool,
    /// q: see [`Self::is_silent`].
    pub quiet: bool,
}

impl MetaSet<'_> {
    /// Returns whether `status` is not answered.
    #[must_use]
    pub fn is_silent(&self, status: MetaStatus) -> bool {
        self.quiet && status == MetaStatus::Done
    }
}

pub(in crate::text) fn parse<'a>(
    mut tokens: Tokens<'a>,
    body: &mut ValueReader<'a>,
) -> Result<MetaSet<'a>, ParseStop> {
    let key = tokens.next().ok_or(CommandError::new(reply::BAD_FORMAT))?;
    let len = tokens
        .next()
        .and_then(parse_length)
        .ok_or(CommandError::new(reply::BAD_FORMAT))?;
    let flags = Flags::parse(key, tokens).map_err(|fault| fault.and_swallow(len))?;
    let mode = match flags.mode {
        None | Some(b'S') => TextStoreMode::Set,
        Some(b'E') => TextStoreMode::Add,
        Some(b'R') => TextStoreMode::Replace,
        Some(b'A') => TextStoreMode::Append,
        Some(b'P') => TextStoreMode::Prepend,
        Some(_) => {
            return Err(CommandError::new(reply::BAD_SET_MODE)
                .and_swallow(len)
                .into());
        }
    };
    Ok(MetaSet {
        key: flags.returns.key,
        returns: flags.returns,
        mode,
        // Errors are answered in quiet mode too.
        value: body.take_value(len, false)?,
        client_flags: flags.client_flags.unwrap_or_default(),
        exptime: flags.exptime.unwrap_or(Exptime::NEVER),
        vivify: flags.vivify,
        compare_cas: flags.compare_cas,
        new_cas: flags.new_cas,
        invalidate: flags.invalidate,
        quiet: flags.quiet,
    })
}
