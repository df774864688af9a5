//! The meta commands, one per file.
//!
//! What the server does not know of a document is left out of replies: when it was last accessed, and whether it was
//! before. An explicit CAS for a document (flag E) is refused, as CAS values are the server's clock.

pub(super) mod arithmetic;
pub(super) mod debug;
pub(super) mod delete;
pub(super) mod get;
pub(super) mod set;

use kedge_bucket::{Document, Item, Mutated, Outcome as BucketOutcome};
use kedge_protocol::text::meta::{MetaItem, MetaKey, MetaReturns, MetaStatus, MetaTtl, write_meta};
use kedge_types::limits::KEY_BYTES_MAX;
use kedge_types::{Cas, Expiry, Status};

use super::classic::{Value, refused};
use super::{Exec, Outcome};

/// A document as a reader saw it.
pub(super) struct Seen {
    item: Item,
    cas: Cas,
}

impl From<(Item, Cas)> for Seen {
    fn from((item, cas): (Item, Cas)) -> Self {
        Self { item, cas }
    }
}

impl Seen {
    fn of(document: Document<'_>) -> Self {
        Self {
            item: document.item.clone(),
            cas: document.cas,
        }
    }
}

impl Exec<'_, '_> {
    fn ttl(&self, expiry: Expiry) -> MetaTtl {
        if expiry == Expiry::NEVER {
            return MetaTtl::Unlimited;
        }
        let left = u64::from(expiry.0).saturating_sub(self.turn.now.unix_secs());
        MetaTtl::Secs(u32::try_from(left).unwrap_or(u32::MAX))
    }

    fn meta_item(&self, seen: &Seen, size: usize) -> MetaItem {
        MetaItem {
            cas: Some(seen.cas.get()),
            client_flags: Some(seen.item.flags()),
            size: Some(size as u64),
            ttl: Some(self.ttl(seen.item.expiry())),
            ..MetaItem::default()
        }
    }

    /// What is told of a document that was written just now.
    fn written_item(&self, mutated: Mutated, value: &Value<'_>) -> MetaItem {
        let expiry = Expiry::from_wire(value.expiry, self.turn.now.unix_secs());
        MetaItem {
            cas: Some(mutated.cas.get()),
            client_flags: Some(value.flags),
            size: Some(value.bytes.len() as u64),
            ttl: Some(self.ttl(expiry)),
            ..MetaItem::default()
        }
    }

    fn read_meta_key(&self, key: &MetaKey<'_>) -> Result<BucketOutcome<Seen>, Status> {
        with_key(key, |key| {
            let target = self.target(key)?;
            target.bucket.get(self.turn.ctx(), &target.read(), Seen::of)
        })
    }
}

/// Runs `with` on the document's key, decoded if need be.
fn with_key<R>(key: &MetaKey<'_>, with: impl FnOnce(&[u8]) -> R) -> R {
    let mut scratch = [0; KEY_BYTES_MAX];
    with(key.bytes(&mut scratch))
}

fn refuse_explicit_cas(exec: &mut Exec<'_, '_>) -> Outcome {
    refused(exec, "an explicit CAS")
}

fn answer(
    exec: &mut Exec<'_, '_>,
    status: MetaStatus,
    silent: bool,
    returns: &MetaReturns<'_>,
    item: &MetaItem,
) -> Outcome {
    if !silent {
        write_meta(exec.out.buffer(), status, returns, item);
    }
    Outcome::Answered
}
