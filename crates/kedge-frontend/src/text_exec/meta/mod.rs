//! The meta commands, one in each file.
//!
//! The server does not know the time of the last access, so flag l is left out of replies. Flag h is derived from the
//! pager's frequency counter, for documents in memory. A CAS of the client (flag E) must not be ahead of the clock that
//! all others come from.

pub(super) mod arithmetic;
pub(super) mod debug;
pub(super) mod delete;
pub(super) mod get;
pub(super) mod set;

use kedge_bucket::{DocumentRef, Item, Mutated, Outcome as BucketOutcome};
use kedge_protocol::text::meta::{MetaItem, MetaKey, MetaReturns, MetaStatus, MetaTtl, write_meta};
use kedge_types::limits::KEY_BYTES_MAX;
use kedge_types::{Cas, Expiry, KeyBuffer, Status};

use super::classic::TextValue;
use super::context::{TextCommandContext, TextOutcome};
use crate::session::Rights;

/// A document that was read.
pub(super) struct DocumentAccess {
    item: Item,
    cas: Cas,
    /// True if it was read before.
    hit_before: bool,
    /// The frequency counter of the pager, before the read.
    frequency: u8,
}

impl From<(Item, Cas)> for DocumentAccess {
    /// A document from disk, which was not read lately.
    fn from((item, cas): (Item, Cas)) -> Self {
        Self {
            cas,
            hit_before: false,
            frequency: item.frequency(),
            item,
        }
    }
}

impl DocumentAccess {
    fn of(document: DocumentRef<'_>) -> Self {
        Self {
            item: document.item.clone(),
            cas: document.cas,
            hit_before: document.item.is_asked_for(),
            frequency: document.item.frequency(),
        }
    }
}

impl TextCommandContext<'_, '_> {
    fn ttl(&self, expiry: Expiry) -> MetaTtl {
        if expiry == Expiry::NEVER {
            return MetaTtl::Unlimited;
        }
        let left = u64::from(expiry.0).saturating_sub(self.turn.now.unix_secs());
        MetaTtl::Secs(u32::try_from(left).unwrap_or(u32::MAX))
    }

    fn meta_item(&self, seen: &DocumentAccess, size: usize) -> MetaItem {
        MetaItem {
            cas: Some(seen.cas.get()),
            client_flags: Some(seen.item.flags()),
            size: Some(size as u64),
            ttl: Some(self.ttl(seen.item.expiry())),
            hit_before: Some(seen.hit_before),
            ..MetaItem::default()
        }
    }

    /// The reply item of a document that was just written.
    fn written_item(&self, mutated: Mutated, value: &TextValue<'_>) -> MetaItem {
        let expiry = Expiry::from_wire(value.expiry, self.turn.now.unix_secs());
        MetaItem {
            cas: Some(mutated.cas.get()),
            client_flags: Some(value.flags),
            size: Some(value.bytes.len() as u64),
            ttl: Some(self.ttl(expiry)),
            ..MetaItem::default()
        }
    }

    fn read_meta_key(
        &self,
        needed: Rights,
        key: &MetaKey<'_>,
    ) -> Result<BucketOutcome<DocumentAccess>, Status> {
        with_key(key, |key| {
            let mut buffer = KeyBuffer::EMPTY;
            let target = self.target(needed, key, &mut buffer)?;
            target
                .bucket
                .documents()
                .get(self.turn.ctx(), &target.read(), DocumentAccess::of)
        })
    }
}

/// Calls `with` with the key of the document, decoded if it is base64.
pub(crate) fn with_key<R>(key: &MetaKey<'_>, with: impl FnOnce(&[u8]) -> R) -> R {
    if key.is_base64() {
        with(key.bytes(&mut [0; KEY_BYTES_MAX]))
    } else {
        with(key.written())
    }
}

/// The CAS that the client chose for the document, or 0.
fn chosen(cas: Option<u64>) -> Cas {
    Cas(cas.unwrap_or_default())
}

fn answer(
    exec: &mut TextCommandContext<'_, '_>,
    status: MetaStatus,
    silent: bool,
    returns: &MetaReturns<'_>,
    item: &MetaItem,
) -> TextOutcome {
    if !silent {
        write_meta(exec.out.buffer(), status, returns, item);
    }
    TextOutcome::Answered
}
