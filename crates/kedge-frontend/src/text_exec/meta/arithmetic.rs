//! `ma`.

use crate::session::TextStep;
use kedge_bucket::{CounterUpdate, Meta, Mutated, Write};
use kedge_protocol::text::meta::{MetaArithmetic, MetaItem, MetaStatus, write_meta_value};
use kedge_protocol::text::{CountDirection, Exptime};
use kedge_types::{Cas, KeyBuffer, Status};

use super::super::context::{READ_AND_CHANGE, TextCommandContext, TextOutcome};
use super::{answer, chosen, with_key};

pub(in super::super) fn arithmetic(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaArithmetic<'_>,
) -> TextOutcome {
    let op = CounterUpdate {
        negative: command.direction == CountDirection::Decrement,
        delta: command.delta,
        initial: command.vivify.map(|_| command.initial),
        expiry: command.vivify.map_or(0, Exptime::to_wire),
    };
    let ctx = exec.turn.ctx();
    let result = with_key(&command.key, |key| {
        let mut buffer = KeyBuffer::EMPTY;
        let target = exec.target(READ_AND_CHANGE, key, &mut buffer)?;
        let write = Write {
            new_cas: chosen(command.new_cas),
            ..target.write(Cas(command.compare_cas.unwrap_or(0)))
        };
        target.bucket.documents().arithmetic(ctx, &write, op)
    });
    exec.then(TextStep::Main, result, |exec, result| {
        changed(exec, command, result)
    })
}

/// Continues after the change of a counter, with a new expiry if the client set one.
pub(in super::super) fn changed(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaArithmetic<'_>,
    result: Result<(Mutated, u64), Status>,
) -> TextOutcome {
    let (mutated, number) = match result {
        Ok(changed) => changed,
        Err(status) => return failed(exec, command, status),
    };
    let Some(exptime) = command.exptime else {
        return expired(exec, command, mutated, number);
    };
    let ctx = exec.turn.ctx();
    let touched = with_key(&command.key, |key| {
        let mut buffer = KeyBuffer::EMPTY;
        let target = exec.target(READ_AND_CHANGE, key, &mut buffer)?;
        let write = Write {
            new_cas: chosen(command.new_cas),
            ..target.write(mutated.cas)
        };
        target
            .bucket
            .documents()
            .touch(ctx, &write, exptime.to_wire())
    });
    // Another client may have changed it in between, and its expiry then holds.
    exec.then(
        TextStep::SetExpiry(mutated, number),
        touched,
        |exec, touched| expired(exec, command, touched.unwrap_or(mutated), number),
    )
}

/// Continues after the last change of a counter. Its time to live and flags are read only if the reply needs them.
pub(in super::super) fn expired(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaArithmetic<'_>,
    mutated: Mutated,
    number: u64,
) -> TextOutcome {
    if !command.returns.wants(b't') && !command.returns.wants(b'f') {
        return on_counter_meta(exec, command, mutated, number, Err(Status::KeyNotFound));
    }
    let found = with_key(&command.key, |key| exec.look(key));
    exec.then(
        TextStep::ReadCounterMeta(mutated, number),
        found,
        |exec, found| on_counter_meta(exec, command, mutated, number, found),
    )
}

pub(in super::super) fn on_counter_meta(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaArithmetic<'_>,
    mutated: Mutated,
    number: u64,
    found: Result<Meta, Status>,
) -> TextOutcome {
    let text = number.to_string();
    let mut item = MetaItem {
        cas: Some(mutated.cas.get()),
        size: Some(text.len() as u64),
        ..MetaItem::default()
    };
    if let Ok(meta) = found {
        item.client_flags = Some(meta.flags);
        item.ttl = Some(exec.ttl(meta.expiry));
    }
    let silent = command.is_silent(MetaStatus::Done);
    if command.value && !silent {
        let buffer = exec.out.buffer();
        write_meta_value(buffer, text.as_bytes(), &command.returns, &item);
        return TextOutcome::Answered;
    }
    answer(exec, MetaStatus::Done, silent, &command.returns, &item)
}

fn failed(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaArithmetic<'_>,
    status: Status,
) -> TextOutcome {
    let status = match status {
        Status::KeyNotFound => MetaStatus::NotFound,
        Status::KeyExists => MetaStatus::Exists,
        Status::NotStored => MetaStatus::NotStored,
        status => return exec.fail(status),
    };
    let silent = command.is_silent(status);
    answer(exec, status, silent, &command.returns, &MetaItem::default())
}
