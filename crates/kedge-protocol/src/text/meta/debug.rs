//! `me <key> [b]` (memcached doc/protocol.txt, "Meta Debug").

use super::flags::Flags;
use super::{MetaKey, MetaTtl};
use crate::text::line::{CommandError, ParseStop, Tokens};
use crate::text::reply::{self, push_number};

/// A request for the metadata of a document, for humans. Answer [`write_meta_debug`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDebug<'a> {
    /// The key.
    pub key: MetaKey<'a>,
}

/// The metadata of a document that [`write_meta_debug`] shows. Unknown fields are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaDebugItem {
    /// The remaining time to live.
    pub ttl: MetaTtl,
    /// Seconds since it was last accessed.
    pub last_access_secs: Option<u32>,
    /// Its CAS.
    pub cas: u64,
    /// True if the document was fetched before.
    pub fetched: Option<bool>,
    /// The size of the document in bytes, with key and metadata.
    pub size: u64,
}

pub(in crate::text) fn parse(mut tokens: Tokens<'_>) -> Result<MetaDebug<'_>, ParseStop> {
    let key = tokens.next().ok_or(CommandError::new(reply::BAD_FORMAT))?;
    let flags = Flags::parse(key, tokens)?;
    Ok(MetaDebug {
        key: flags.returns.key,
    })
}

/// Appends the reply to `me`: `ME <key> <name>=<value>*`, or `EN` if there is no document.
pub fn write_meta_debug(out: &mut Vec<u8>, key: &MetaKey<'_>, item: Option<&MetaDebugItem>) {
    let Some(item) = item else {
        out.extend_from_slice(b"EN\r\n");
        return;
    };
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(key.written());
    out.extend_from_slice(b" exp=");
    item.ttl.push(out);
    if let Some(secs) = item.last_access_secs {
        out.extend_from_slice(b" la=");
        push_number(out, secs);
    }
    out.extend_from_slice(b" cas=");
    push_number(out, item.cas);
    if let Some(fetched) = item.fetched {
        out.extend_from_slice(if fetched { b" fetch=yes" } else { b" fetch=no" });
    }
    out.extend_from_slice(b" size=");
    push_number(out, item.size);
    out.extend_from_slice(b"\r\n");
}
