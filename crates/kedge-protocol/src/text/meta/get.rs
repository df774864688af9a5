//! `mg <key> <flags>*` (memcached doc/protocol.txt, "Meta Get").

use super::flags::Flags;
use super::{MetaKey, MetaReturns, MetaStatus};
use crate::text::line::{CommandError, ParseStop, Tokens};
use crate::text::{Exptime, reply};

/// A request to get or touch a document, or to return metadata of it.
///
/// Answer [`write_meta_value`](super::write_meta_value) if `value` is set and `compare_cas` is not the CAS of the
/// document, and [`write_meta`](super::write_meta) otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaGet<'a> {
    /// The key.
    pub key: MetaKey<'a>,
    /// The flags that the reply returns.
    pub returns: MetaReturns<'a>,
    /// v: reply with the value.
    pub value: bool,
    /// u: do not count the read as an access.
    pub no_bump: bool,
    /// T: the new expiration time of the document.
    pub touch: Option<Exptime>,
    /// N: create a missing document, empty and with this expiration time.
    pub vivify: Option<Exptime>,
    /// R: the client wins the right to recache if the time to live is shorter than this.
    pub recache: Option<Exptime>,
    /// C: leave the value out if the document has this CAS.
    pub compare_cas: Option<u64>,
    /// E: the CAS of a created document.
    pub new_cas: Option<u64>,
    /// q: see [`Self::is_silent`].
    pub quiet: bool,
}

impl MetaGet<'_> {
    /// Returns whether `status` is not answered.
    #[must_use]
    pub fn is_silent(&self, status: MetaStatus) -> bool {
        self.quiet && status == MetaStatus::Miss
    }
}

pub(in crate::text) fn parse(mut tokens: Tokens<'_>) -> Result<MetaGet<'_>, ParseStop> {
    let key = tokens.next().ok_or(CommandError::new(reply::BAD_FORMAT))?;
    let flags = Flags::parse(key, tokens)?;
    Ok(MetaGet {
        key: flags.returns.key,
        returns: flags.returns,
        value: flags.value,
        no_bump: flags.no_bump,
        touch: flags.exptime,
        vivify: flags.vivify,
        recache: flags.recache,
        compare_cas: flags.compare_cas,
        new_cas: flags.new_cas,
        quiet: flags.quiet,
    })
}
