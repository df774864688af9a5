//! `mg`.

use crate::session::TextStep;
use kedge_bucket::{Mutated, Outcome as BucketOutcome, Write};
use kedge_protocol::text::TextStoreMode;
use kedge_protocol::text::meta::{
    MetaGet, MetaItem, MetaStatus, MetaTtl, write_meta, write_meta_value,
};
use kedge_types::{Cas, KeyBuffer, Status};

use super::super::classic::{TextValue, store_as};
use super::super::context::{READ_AND_CHANGE, TextCommandContext, TextOutcome};
use super::super::recache::MetaFlags;
use super::{DocumentAccess, answer, chosen, with_key};
use crate::session::{Rights, inflated};

pub(in super::super) fn get(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaGet<'_>,
) -> TextOutcome {
    let result = match command.touch {
        None => exec.read_meta_key(Rights::READ, &command.key),
        Some(exptime) => touch(exec, command, exptime.to_wire()),
    };
    exec.then(TextStep::Main, result, |exec, result| {
        got(exec, command, result)
    })
}

fn touch(
    exec: &TextCommandContext<'_, '_>,
    command: &MetaGet<'_>,
    expiry: u32,
) -> Result<BucketOutcome<DocumentAccess>, Status> {
    with_key(&command.key, |key| {
        let mut buffer = KeyBuffer::EMPTY;
        let target = exec.target(READ_AND_CHANGE, key, &mut buffer)?;
        let write = target.write(Cas(0));
        target
            .bucket
            .documents()
            .get_and_touch(exec.turn.ctx(), &write, expiry, DocumentAccess::of)
    })
}

pub(in super::super) fn got(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaGet<'_>,
    result: Result<DocumentAccess, Status>,
) -> TextOutcome {
    match result {
        Ok(seen) => hit(exec, command, &seen),
        Err(Status::KeyNotFound) => vivify(exec, command),
        Err(status) => exec.fail(status),
    }
}

fn hit(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaGet<'_>,
    seen: &DocumentAccess,
) -> TextOutcome {
    if command.no_bump {
        seen.item.forget_access(seen.frequency);
    }
    let value = match inflated(&seen.item) {
        Ok(value) => value,
        Err(status) => return exec.fail(status),
    };
    let mut item = exec.meta_item(seen, value.len());
    let recache = match (command.recache, item.ttl) {
        (Some(limit), Some(MetaTtl::Secs(left))) => i64::from(left) < limit.get(),
        _ => false,
    };
    let states = &exec.turn.shared.recache_states;
    let told = with_key(&command.key, |key| {
        states.on_read(key, seen.cas.get(), recache)
    });
    tell(&mut item, told);
    if command.value && command.compare_cas != Some(seen.cas.get()) {
        write_meta_value(exec.out.buffer(), &value, &command.returns, &item);
        return TextOutcome::Answered;
    }
    let silent = command.is_silent(MetaStatus::Done);
    answer(exec, MetaStatus::Done, silent, &command.returns, &item)
}

fn tell(item: &mut MetaItem, told: MetaFlags) {
    item.won = told.won;
    item.stale = told.stale;
    item.token_sent = told.token_sent;
}

fn miss(exec: &mut TextCommandContext<'_, '_>, command: &MetaGet<'_>) -> TextOutcome {
    let silent = command.is_silent(MetaStatus::Miss);
    let nothing = MetaItem::default();
    answer(exec, MetaStatus::Miss, silent, &command.returns, &nothing)
}

/// The empty document of flag N (vivify).
fn empty(command: &MetaGet<'_>) -> Option<TextValue<'static>> {
    let exptime = command.vivify?;
    Some(TextValue {
        bytes: &[],
        flags: 0,
        expiry: exptime.to_wire(),
    })
}

/// Creates an empty document if the client set flag N.
fn vivify(exec: &mut TextCommandContext<'_, '_>, command: &MetaGet<'_>) -> TextOutcome {
    let Some(value) = empty(command) else {
        return miss(exec, command);
    };
    let ctx = exec.turn.ctx();
    let stored = with_key(&command.key, |key| {
        let mut buffer = KeyBuffer::EMPTY;
        let target = exec.target(Rights::INSERT, key, &mut buffer)?;
        let write = Write {
            new_cas: chosen(command.new_cas),
            ..target.write(Cas(0))
        };
        store_as(&target, ctx, &write, TextStoreMode::Add, &value)
    });
    exec.then(TextStep::Vivify, stored, |exec, result| {
        on_created(exec, command, result)
    })
}

/// Continues after the creation of the document, which another client may have created first.
pub(in super::super) fn on_created(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaGet<'_>,
    result: Result<Mutated, Status>,
) -> TextOutcome {
    let (mutated, value) = match (result, empty(command)) {
        (Ok(mutated), Some(value)) => (mutated, value),
        (Ok(_), None) | (Err(Status::KeyExists), _) => return miss(exec, command),
        (Err(status), _) => return exec.fail(status),
    };
    let states = &exec.turn.shared.recache_states;
    with_key(&command.key, |key| {
        states.on_vivified(key, mutated.cas.get());
    });
    let item = MetaItem {
        won: true,
        ..exec.written_item(mutated, &value)
    };
    if command.value {
        write_meta_value(exec.out.buffer(), &[], &command.returns, &item);
    } else {
        write_meta(exec.out.buffer(), MetaStatus::Done, &command.returns, &item);
    }
    TextOutcome::Answered
}
