//! `ma <key> <flags>*` (memcached doc/protocol.txt, "Meta TextArithmetic").

use super::flags::Flags;
use super::{MetaKey, MetaReturns, MetaStatus};
use crate::text::line::{CommandError, ParseStop, Tokens};
use crate::text::{CountDirection, Exptime, reply};

/// A request to count up or down. Answer [`write_meta_value`](super::write_meta_value) with the new number in decimal
/// if `value` is set, [`NON_NUMERIC`](reply::NON_NUMERIC), and [`write_meta`](super::write_meta) otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaArithmetic<'a> {
    /// The key.
    pub key: MetaKey<'a>,
    /// The flags that the reply returns.
    pub returns: MetaReturns<'a>,
    /// M: the direction.
    pub direction: CountDirection,
    /// D: the amount; 1 if not given.
    pub delta: u64,
    /// J: the initial number of a new document; 0 if not given.
    pub initial: u64,
    /// N: create a missing document with this expiration time.
    pub vivify: Option<Exptime>,
    /// T: the new expiration time of the document.
    pub exptime: Option<Exptime>,
    /// C: count only if the document has this CAS; unlike elsewhere in the text protocol, 0 counts as not given.
    pub compare_cas: Option<u64>,
    /// E: the new CAS of the document.
    pub new_cas: Option<u64>,
    /// v: reply with the new number.
    pub value: bool,
    /// q: see [`Self::is_silent`].
    pub quiet: bool,
}

impl MetaArithmetic<'_> {
    /// Returns whether `status` is not answered; with `value`, [`MetaStatus::Done`] stands for the reply with the
    /// number.
    #[must_use]
    pub fn is_silent(&self, status: MetaStatus) -> bool {
        self.quiet && status == MetaStatus::Done
    }
}

pub(in crate::text) fn parse(mut tokens: Tokens<'_>) -> Result<MetaArithmetic<'_>, ParseStop> {
    let key = tokens.next().ok_or(CommandError::new(reply::BAD_FORMAT))?;
    let flags = Flags::parse(key, tokens)?;
    let direction = match flags.mode {
        None | Some(b'I' | b'+') => CountDirection::Increment,
        Some(b'D' | b'-') => CountDirection::Decrement,
        Some(_) => return Err(CommandError::new(reply::BAD_ARITHMETIC_MODE).into()),
    };
    Ok(MetaArithmetic {
        key: flags.returns.key,
        returns: flags.returns,
        direction,
        delta: flags.delta.unwrap_or(1),
        initial: flags.initial.unwrap_or_default(),
        vivify: flags.vivify,
        exptime: flags.exptime,
        compare_cas: flags.compare_cas.filter(|&cas| cas != 0),
        new_cas: flags.new_cas,
        value: flags.value,
        quiet: flags.quiet,
    })
}
