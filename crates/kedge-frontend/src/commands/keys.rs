//! GET_RANDOM_KEY and GET_KEYS.

use kedge_bucket::Outcome;
use kedge_protocol::binary::commands::{GetKeys, GetRandomKey, push_key};
use kedge_types::{CollectionId, Datatype};

use super::complete::logical;
use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, ReplyKind, Rights};

/// Largest number of keys in one reply, which bounds the time for which a vBucket is locked.
const KEYS_MAX: u32 = 10_000;

pub(super) fn random(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = GetRandomKey::decode(command.request)?;
    let collection = wire.collection.unwrap_or(CollectionId::DEFAULT);
    let needed = match wire.include_xattrs {
        true => command.whole_documents()?,
        false => Rights::READ,
    };
    let bucket = command.session.collection(collection, needed)?;
    let cookie = command.session.next_cookie();
    let (composer, out) = (&command.composer, &mut *command.out);
    let outcome =
        bucket
            .documents()
            .random_document(command.turn.ctx(), collection, cookie, |document| {
                // Without the collection, even if the client negotiated collections.
                let key = logical(document.item.key());
                if wire.include_xattrs {
                    composer.whole_document(document.item, document.cas, key, out);
                    return Ok(None);
                }
                composer.shown(document, key, out)
            })?;
    match outcome {
        Outcome::Parked if wire.include_xattrs => Ok(command.park_as(ReplyKind::WholeDocument)),
        Outcome::Done(Ok(Some((item, cas)))) => {
            let key = logical(item.key());
            command.composer.document(&item, cas, key, command.out)?;
            Ok(CommandOutcome::Replied)
        }
        outcome => command.composed(outcome, &[]),
    }
}

pub(super) fn list(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = GetKeys::decode(command.request)?;
    let target =
        command
            .session
            .target(command.request, wire.start, Rights::READ, &mut command.key)?;
    let count = wire.count.min(KEYS_MAX);
    let mut keys = Vec::new();
    let start = target.read(command.session);
    let ctx = command.turn.ctx();
    let outcome = target
        .bucket
        .documents()
        .keys_from(ctx, &start, count, |key| push_key(key, &mut keys))?;
    if outcome == Outcome::Parked {
        return Ok(command.park());
    }
    command.composer.value(Datatype::RAW, &keys, command.out);
    Ok(CommandOutcome::Replied)
}
