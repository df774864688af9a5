//! `ms`.
//!
//! Modes and CAS go together as in memcached: `C` makes a set or a replacement a compare-and-swap; an addition ignores
//! it; an append needs a document, and then that CAS, unless it is 0.

use crate::session::TextStep;
use kedge_bucket::{Meta, Mutated, Write};
use kedge_protocol::text::TextStoreMode;
use kedge_protocol::text::meta::{MetaItem, MetaSet, MetaStatus};
use kedge_types::{Cas, KeyBuffer, Status};

use super::super::classic::{TextValue, store_as};
use super::super::context::{TextCommandContext, TextOutcome, rights_of};
use super::{DocumentAccess, answer, chosen, with_key};
use crate::session::{Rights, inflated};

pub(in super::super) fn set(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaSet<'_>,
) -> TextOutcome {
    match command.compare_cas {
        // With flag I an older CAS is accepted, and no document has the CAS 0, so the metadata has to be read first.
        Some(cas) if is_swap(command) && (command.invalidate || cas == 0) => {
            let found = with_key(&command.key, |key| exec.look(key));
            exec.then(TextStep::ReadMeta, found, |exec, found| {
                on_meta(exec, command, found)
            })
        }
        Some(cas) if command.mode != TextStoreMode::Add => write(exec, command, Cas(cas)),
        _ => write(exec, command, Cas(0)),
    }
}

/// Returns true if the command is a compare-and-swap.
fn is_swap(command: &MetaSet<'_>) -> bool {
    command.compare_cas.is_some()
        && matches!(command.mode, TextStoreMode::Set | TextStoreMode::Replace)
}

fn is_concat(command: &MetaSet<'_>) -> bool {
    matches!(command.mode, TextStoreMode::Append | TextStoreMode::Prepend)
}

pub(in super::super) fn on_meta(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaSet<'_>,
    found: Result<Meta, Status>,
) -> TextOutcome {
    let current = match found {
        Ok(meta) if meta.deleted => return is_set(exec, command, Err(Status::KeyNotFound)),
        Ok(meta) => meta.cas,
        Err(status) => return is_set(exec, command, Err(status)),
    };
    let cas = Cas(command.compare_cas.unwrap_or(0));
    if cas == current {
        return write(exec, command, current);
    }
    if cas > current || !command.invalidate {
        return is_set(exec, command, Err(Status::KeyExists));
    }
    // The client knew an older document, so its value is stale already, and expires no later than that one.
    let ctx = exec.turn.ctx();
    let result = with_key(&command.key, |key| {
        let mut buffer = KeyBuffer::EMPTY;
        let target = exec.target(Rights::UPSERT, key, &mut buffer)?;
        let write = Write {
            new_cas: chosen(command.new_cas),
            preserve_ttl: true,
            ..target.write(current)
        };
        store_as(&target, ctx, &write, TextStoreMode::Set, &value_of(command))
    });
    exec.then(TextStep::Stale(current), result, |exec, result| {
        stale_stored(exec, command, current, result)
    })
}

/// Continues after a stale value was stored over the document with the CAS `before`.
pub(in super::super) fn stale_stored(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaSet<'_>,
    before: Cas,
    result: Result<Mutated, Status>,
) -> TextOutcome {
    match result {
        Ok(mutated) => {
            let states = &exec.turn.shared.recache_states;
            with_key(&command.key, |key| {
                states.on_stale_stored(key, before.get(), mutated.cas.get());
            });
            done(exec, command, mutated, command.value.len())
        }
        Err(status) => is_set(exec, command, Err(status)),
    }
}

fn value_of<'v>(command: &MetaSet<'v>) -> TextValue<'v> {
    TextValue {
        bytes: command.value,
        flags: command.client_flags,
        expiry: command.exptime.to_wire(),
    }
}

fn write(exec: &mut TextCommandContext<'_, '_>, command: &MetaSet<'_>, cas: Cas) -> TextOutcome {
    let ctx = exec.turn.ctx();
    let result = with_key(&command.key, |key| {
        let mut buffer = KeyBuffer::EMPTY;
        let target = exec.target(rights_of(command.mode), key, &mut buffer)?;
        let value = value_of(command);
        let write = Write {
            new_cas: chosen(command.new_cas),
            ..target.write(cas)
        };
        store_as(&target, ctx, &write, command.mode, &value)
    });
    exec.then(TextStep::Main, result, |exec, result| {
        written(exec, command, result)
    })
}

/// Continues after the write. A missing document of an append is created if the client set flag N.
pub(in super::super) fn written(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaSet<'_>,
    result: Result<Mutated, Status>,
) -> TextOutcome {
    let exptime = match (result, command.vivify) {
        (Err(Status::NotStored | Status::KeyNotFound), Some(exptime)) if is_concat(command) => {
            exptime
        }
        (Ok(mutated), _) if is_concat(command) && command.returns.wants(b's') => {
            return measure(exec, command, mutated);
        }
        _ => return is_set(exec, command, result),
    };
    let ctx = exec.turn.ctx();
    let made = with_key(&command.key, |key| {
        let mut buffer = KeyBuffer::EMPTY;
        let target = exec.target(Rights::INSERT, key, &mut buffer)?;
        let value = TextValue {
            expiry: exptime.to_wire(),
            ..value_of(command)
        };
        let write = Write {
            new_cas: chosen(command.new_cas),
            ..target.write(Cas(0))
        };
        store_as(&target, ctx, &write, TextStoreMode::Add, &value)
    });
    exec.then(TextStep::Vivify, made, |exec, result| {
        is_set(exec, command, result)
    })
}

/// Reads the new length of the document, which another client may have changed since.
fn measure(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaSet<'_>,
    mutated: Mutated,
) -> TextOutcome {
    let seen = exec.read_meta_key(Rights::UPSERT, &command.key);
    exec.then(TextStep::ReadLength(mutated), seen, |exec, seen| {
        measured(exec, command, mutated, seen)
    })
}

pub(in super::super) fn measured(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaSet<'_>,
    mutated: Mutated,
    seen: Result<DocumentAccess, Status>,
) -> TextOutcome {
    let size = seen.and_then(|seen| {
        // This read does not count as an access.
        seen.item.forget_access(seen.frequency);
        inflated(&seen.item).map(|value| value.len())
    });
    done(exec, command, mutated, size.unwrap_or(command.value.len()))
}

pub(in super::super) fn is_set(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaSet<'_>,
    result: Result<Mutated, Status>,
) -> TextOutcome {
    let status = match result {
        Ok(mutated) => {
            if command.new_cas.is_some() {
                with_key(&command.key, |key| {
                    exec.turn.shared.recache_states.on_chosen(key);
                });
            }
            return done(exec, command, mutated, command.value.len());
        }
        Err(Status::KeyExists) if command.mode != TextStoreMode::Add => MetaStatus::Exists,
        Err(Status::KeyNotFound) if is_swap(command) => MetaStatus::NotFound,
        Err(Status::KeyExists | Status::KeyNotFound | Status::NotStored) => MetaStatus::NotStored,
        Err(status) => return exec.fail(status),
    };
    let silent = command.is_silent(status);
    let item = reply_item(0, command.value.len());
    answer(exec, status, silent, &command.returns, &item)
}

/// Answers that the document was stored and has `size` bytes.
fn done(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaSet<'_>,
    mutated: Mutated,
    size: usize,
) -> TextOutcome {
    let silent = command.is_silent(MetaStatus::Done);
    let item = reply_item(mutated.cas.get(), size);
    answer(exec, MetaStatus::Done, silent, &command.returns, &item)
}

/// The reply item of `ms`; the CAS is 0 if nothing was stored.
fn reply_item(cas: u64, size: usize) -> MetaItem {
    MetaItem {
        cas: Some(cas),
        size: Some(size as u64),
        ..MetaItem::default()
    }
}
