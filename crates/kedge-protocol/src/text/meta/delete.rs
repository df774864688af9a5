//! `md <key> <flags>*` (memcached doc/protocol.txt, "Meta Delete").

use super::flags::Flags;
use super::{MetaKey, MetaReturns, MetaStatus};
use crate::text::line::{CommandError, ParseStop, Tokens};
use crate::text::{Exptime, reply};

/// A request to delete a document, or to mark it as stale. Answer with [`write_meta`](super::write_meta).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDelete<'a> {
    /// The key.
    pub key: MetaKey<'a>,
    /// The flags that the reply returns.
    pub returns: MetaReturns<'a>,
    /// C: delete only if the document has this CAS. As in [`TextStore::cas`](crate::text::TextStore::cas), no document has 0.
    pub compare_cas: Option<u64>,
    /// E: the new CAS of the document if it stays.
    pub new_cas: Option<u64>,
    /// I: keep the document, but mark it as stale with a new CAS.
    pub invalidate: bool,
    /// x: keep the document, but remove its value.
    pub remove_value: bool,
    /// T: the new expiration time of the document if it stays.
    pub exptime: Option<Exptime>,
    /// F: the new client flags of the document if its value is removed; 0 if not given.
    pub client_flags: u32,
    /// q: see [`Self::is_silent`].
    pub quiet: bool,
}

impl MetaDelete<'_> {
    /// Returns whether `status` is not answered.
    #[must_use]
    pub fn is_silent(&self, status: MetaStatus) -> bool {
        self.quiet && status == MetaStatus::Done
    }
}

pub(in crate::text) fn parse(mut tokens: Tokens<'_>) -> Result<MetaDelete<'_>, ParseStop> {
    let key = tokens.next().ok_or(CommandError::new(reply::BAD_FORMAT))?;
    let flags = Flags::parse(key, tokens)?;
    Ok(MetaDelete {
        key: flags.returns.key,
        returns: flags.returns,
        compare_cas: flags.compare_cas,
        new_cas: flags.new_cas,
        invalidate: flags.invalidate,
        remove_value: flags.remove_value,
        exptime: flags.exptime,
        client_flags: flags.client_flags.unwrap_or_default(),
        quiet: flags.quiet,
    })
}
