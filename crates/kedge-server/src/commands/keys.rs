//! GET_RANDOM_KEY and GET_KEYS.

use kedge_bucket::Outcome;
use kedge_protocol::binary::commands::{GetKeys, GetRandomKey, push_key};
use kedge_types::{CollectionId, Datatype, decode_leb128};

use super::{Command, Done};
use crate::session::{Failure, Rights};

/// Most keys in one reply, which bounds how long a vBucket is held.
const KEYS_MAX: u32 = 10_000;

pub(super) fn random(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = GetRandomKey::decode(command.request)?;
    let collection = wire.collection.unwrap_or(CollectionId::DEFAULT);
    let bucket = command.session.collection(collection, Rights::READ)?;
    let cookie = command.session.next_cookie();
    let outcome = bucket.random_document(command.turn.ctx(), collection, cookie, |document| {
        // Behind the collection's prefix, whether or not the client negotiated collections.
        let stored = document.item.key();
        let key = &stored[decode_leb128(stored).map_or(0, |(_, prefix)| prefix)..];
        command
            .composer
            .document(document.item, document.cas, key, command.out)
    })?;
    command.composed(outcome)
}

pub(super) fn list(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let wire = GetKeys::decode(command.request)?;
    let target = command
        .session
        .target(command.request, wire.start, Rights::READ)?;
    let count = wire.count.min(KEYS_MAX);
    let mut keys = Vec::new();
    let start = target.read(command.session);
    let ctx = command.turn.ctx();
    let outcome = target
        .bucket
        .keys_from(ctx, &start, count, |key| push_key(key, &mut keys))?;
    if outcome == Outcome::Parked {
        return Ok(command.park());
    }
    command.composer.value(Datatype::RAW, &keys, command.out);
    Ok(Done::Replied)
}
