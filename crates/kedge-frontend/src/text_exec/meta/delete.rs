//! `md`.

use crate::session::TextStep;
use kedge_bucket::{Mutated, Write};
use kedge_protocol::text::meta::{MetaDelete, MetaItem, MetaStatus};
use kedge_protocol::text::{Exptime, TextStoreMode};
use kedge_types::{Cas, KeyBuffer, Status};

use super::super::classic::{TextValue, store_as};
use super::super::context::{TextCommandContext, TextOutcome};
use super::{DocumentAccess, answer, chosen, with_key};
use crate::session::{Rights, inflated};

pub(in super::super) fn delete(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaDelete<'_>,
) -> TextOutcome {
    if command.invalidate || command.remove_value || command.compare_cas == Some(0) {
        // The document is changed, not removed, so it has to be read.
        let needed = match command.invalidate || command.remove_value {
            true => Rights::UPSERT,
            false => Rights::DELETE,
        };
        let seen = exec.read_meta_key(needed, &command.key);
        return exec.then(TextStep::ReadMeta, seen, |exec, seen| {
            on_access(exec, command, seen)
        });
    }
    let ctx = exec.turn.ctx();
    let result = with_key(&command.key, |key| {
        let mut buffer = KeyBuffer::EMPTY;
        let target = exec.target(Rights::DELETE, key, &mut buffer)?;
        let write = target.write(Cas(command.compare_cas.unwrap_or(0)));
        target.bucket.documents().delete(ctx, &write)
    });
    exec.then(TextStep::Main, result, |exec, result| {
        deleted(exec, command, result)
    })
}

pub(in super::super) fn on_access(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaDelete<'_>,
    seen: Result<DocumentAccess, Status>,
) -> TextOutcome {
    let seen = match seen {
        Ok(seen) if command.compare_cas.is_some_and(|cas| cas != seen.cas.get()) => {
            return deleted(exec, command, Err(Status::KeyExists));
        }
        Ok(seen) => seen,
        Err(status) => return deleted(exec, command, Err(status)),
    };
    let ctx = exec.turn.ctx();
    let result = with_key(&command.key, |key| {
        let mut buffer = KeyBuffer::EMPTY;
        let target = exec.target(Rights::UPSERT, key, &mut buffer)?;
        let bytes = inflated(&seen.item)?;
        let (bytes, flags) = if command.remove_value {
            (&[][..], command.client_flags)
        } else {
            (&bytes[..], seen.item.flags())
        };
        let value = TextValue {
            bytes,
            flags,
            expiry: command.exptime.map_or(0, Exptime::to_wire),
        };
        let write = Write {
            new_cas: chosen(command.new_cas),
            preserve_ttl: command.exptime.is_none(),
            ..target.write(seen.cas)
        };
        store_as(&target, ctx, &write, TextStoreMode::Set, &value)
    });
    exec.then(TextStep::Main, result, |exec, result| {
        deleted(exec, command, result)
    })
}

pub(in super::super) fn deleted(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaDelete<'_>,
    result: Result<Mutated, Status>,
) -> TextOutcome {
    let status = match result {
        Ok(mutated) => {
            if command.invalidate {
                let states = &exec.turn.shared.recache_states;
                with_key(&command.key, |key| {
                    states.on_invalidated(key, mutated.cas.get());
                });
            }
            MetaStatus::Done
        }
        Err(Status::KeyNotFound) => MetaStatus::NotFound,
        Err(Status::KeyExists) => MetaStatus::Exists,
        Err(status) => return exec.fail(status),
    };
    let silent = command.is_silent(status);
    answer(exec, status, silent, &command.returns, &MetaItem::default())
}
