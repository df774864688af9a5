//! `ms`.

use kedge_bucket::{Meta, Mutated};
use kedge_protocol::text::StoreMode;
use kedge_protocol::text::meta::{MetaItem, MetaSet, MetaStatus};
use kedge_types::{Cas, Status};

use super::super::classic::{Value, store_as};
use super::super::suspend::Step;
use super::super::{Exec, Outcome};
use super::{answer, refuse_explicit_cas, with_key};

pub(in super::super) fn set(exec: &mut Exec<'_, '_>, command: &MetaSet<'_>) -> Outcome {
    if command.new_cas.is_some() {
        return refuse_explicit_cas(exec);
    }
    match command.compare_cas {
        // With I an older CAS is accepted, and no document has the CAS 0: what is there has to be looked at.
        Some(cas) if command.invalidate || cas == 0 => {
            let found = with_key(&command.key, |key| exec.look(key));
            exec.then(Step::Look, found, |exec, found| {
                looked(exec, command, found)
            })
        }
        cas => write(exec, command, Cas(cas.unwrap_or(0))),
    }
}

pub(in super::super) fn looked(
    exec: &mut Exec<'_, '_>,
    command: &MetaSet<'_>,
    found: Result<Meta, Status>,
) -> Outcome {
    let current = match found {
        Ok(meta) if meta.deleted => return is_set(exec, command, Err(Status::KeyNotFound)),
        Ok(meta) => meta.cas,
        Err(status) => return is_set(exec, command, Err(status)),
    };
    let cas = Cas(command.compare_cas.unwrap_or(0));
    // With I the document is stale when its CAS was not the one that the client knows.
    if cas > current || (cas != current && !command.invalidate) {
        return is_set(exec, command, Err(Status::KeyExists));
    }
    write(exec, command, current)
}

fn value_of<'v>(command: &MetaSet<'v>) -> Value<'v> {
    Value {
        bytes: command.value,
        flags: command.client_flags,
        expiry: command.exptime.to_wire(),
    }
}

fn write(exec: &mut Exec<'_, '_>, command: &MetaSet<'_>, cas: Cas) -> Outcome {
    let ctx = exec.turn.ctx();
    let result = with_key(&command.key, |key| {
        let target = exec.target(key)?;
        let value = value_of(command);
        store_as(&target, ctx, &target.write(cas), command.mode, &value)
    });
    exec.then(Step::Main, result, |exec, result| {
        written(exec, command, result)
    })
}

/// The end of the write; a document that was to be appended to is made if it is not there and the client wants that.
pub(in super::super) fn written(
    exec: &mut Exec<'_, '_>,
    command: &MetaSet<'_>,
    result: Result<Mutated, Status>,
) -> Outcome {
    let concat = matches!(command.mode, StoreMode::Append | StoreMode::Prepend);
    let exptime = match (result, command.vivify) {
        (Err(Status::NotStored), Some(exptime)) if concat => exptime,
        _ => return is_set(exec, command, result),
    };
    let ctx = exec.turn.ctx();
    let made = with_key(&command.key, |key| {
        let target = exec.target(key)?;
        let value = Value {
            expiry: exptime.to_wire(),
            ..value_of(command)
        };
        store_as(&target, ctx, &target.write(Cas(0)), StoreMode::Add, &value)
    });
    exec.then(Step::Vivify, made, |exec, result| {
        is_set(exec, command, result)
    })
}

pub(in super::super) fn is_set(
    exec: &mut Exec<'_, '_>,
    command: &MetaSet<'_>,
    result: Result<Mutated, Status>,
) -> Outcome {
    let (status, item) = match result {
        Ok(mutated) => {
            if command.invalidate && command.compare_cas.is_some() {
                let marks = &exec.turn.shared.marks;
                with_key(&command.key, |key| {
                    marks.on_invalidated(key, mutated.cas.get());
                });
            }
            let item = exec.written_item(mutated, &value_of(command));
            (MetaStatus::Done, item)
        }
        Err(Status::KeyExists) if command.mode != StoreMode::Add => {
            (MetaStatus::Exists, MetaItem::default())
        }
        Err(Status::KeyNotFound) if command.mode != StoreMode::Replace => {
            (MetaStatus::NotFound, MetaItem::default())
        }
        Err(Status::KeyExists | Status::KeyNotFound | Status::NotStored) => {
            (MetaStatus::NotStored, MetaItem::default())
        }
        Err(status) => return exec.fail(status),
    };
    let silent = command.is_silent(status);
    answer(exec, status, silent, &command.returns, &item)
}
