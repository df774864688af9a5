//! The classic commands of the text protocol.

use crate::session::TextStep;
use kedge_bucket::{
    ConcatMode, CounterUpdate, DocumentRef, Item, Meta, Mutated, Outcome as BucketOutcome,
    StoreMode as BucketMode,
};
use kedge_node::output::Output;
use kedge_protocol::text::{
    CountDirection, FlushAll, Retrieve, Stats, TextArithmetic, TextDelete, TextStore,
    TextStoreMode, TextTouch, TextVerbosity, reply,
};
use kedge_types::{Cas, Datatype, KeyBuffer, Status};
use std::borrow::Cow;
use std::io::Write as _;

use super::context::{
    READ_AND_CHANGE, TextCommandContext, TextOutcome, TextTarget, rights_of, target,
};
use super::look_ahead::request_documents;
use super::retrieval;
use crate::commands::{StatRequest, answer, completion_callback, memcached_stats, plain_version};
use crate::limits::COPY_VALUE_BYTES_MAX;
use crate::next_documents::COMMANDS_AHEAD;
use crate::session::{Rights, StatFormat, inflated};
use crate::text_status::write_status;

/// Appends `VALUE ...` with the document.
pub(super) fn write_item(
    out: &mut Output,
    key: &[u8],
    item: &Item,
    cas: Cas,
    with_cas: bool,
) -> Result<(), Status> {
    let cas = with_cas.then_some(cas.get());
    match inflated(item)? {
        Cow::Borrowed(value) if value.len() > COPY_VALUE_BYTES_MAX => {
            let buffer = out.buffer();
            buffer.extend_from_slice(b"VALUE ");
            buffer.extend_from_slice(key);
            // Writes to a vector do not fail.
            let _ = match cas {
                Some(cas) => write!(buffer, " {} {} {cas}\r\n", item.flags(), value.len()),
                None => write!(buffer, " {} {}\r\n", item.flags(), value.len()),
            };
            out.push_value(item.clone());
            out.buffer().extend_from_slice(b"\r\n");
        }
        value => reply::write_value(out.buffer(), key, item.flags(), &value, cas),
    }
    Ok(())
}

/// `get` and its variants. A miss is no error; a document that cannot be read fails the whole retrieval.
pub(super) fn retrieve(
    exec: &mut TextCommandContext<'_, '_>,
    command: &Retrieve<'_>,
) -> TextOutcome {
    let begin = exec.out.position();
    let mut keys = command.keys;
    let mut answered = 0;
    while let Some(key) = keys.next() {
        if retrieval::pauses(exec.turn, exec.out, answered) {
            return retrieval::pause(exec, command, key, keys);
        }
        if answered % COMMANDS_AHEAD == 0 && { keys }.next().is_some() {
            request_documents(exec.session, std::iter::once(key).chain(keys));
        }
        answered += 1;
        match retrieve_one(exec, command, key) {
            Ok(BucketOutcome::Done(())) | Err(Status::KeyNotFound) => {}
            Ok(BucketOutcome::Parked) => return retrieval::begin(exec, command, key, keys),
            Err(status) => {
                exec.out.truncate(begin);
                write_status(exec.out, status);
                return TextOutcome::Answered;
            }
        }
    }
    exec.reply(reply::END);
    TextOutcome::Answered
}

fn retrieve_one(
    exec: &mut TextCommandContext<'_, '_>,
    command: &Retrieve<'_>,
    key: &[u8],
) -> Result<BucketOutcome<()>, Status> {
    let ctx = exec.turn.ctx();
    let TextCommandContext { session, out, .. } = exec;
    let mut buffer = KeyBuffer::EMPTY;
    let needed = match command.touch {
        None => Rights::READ,
        Some(_) => READ_AND_CHANGE,
    };
    let target = target(session, needed, key, &mut buffer)?;
    let with_cas = command.with_cas;
    // A long document is composed without the lock of its vBucket.
    let write = |document: DocumentRef<'_>| match document.item.is_long() {
        true => Ok(Some((document.item.clone(), document.cas))),
        false => write_item(out, key, document.item, document.cas, with_cas).map(|()| None),
    };
    let outcome = match command.touch {
        None => target.bucket.documents().get(ctx, &target.read(), write)?,
        Some(exptime) => {
            let touch = target.write(Cas(0));
            let expiry = exptime.to_wire();
            target
                .bucket
                .documents()
                .get_and_touch(ctx, &touch, expiry, write)?
        }
    };
    Ok(match outcome {
        BucketOutcome::Done(written) => {
            if let Some((item, cas)) = written? {
                write_item(out, key, &item, cas, with_cas)?;
            }
            BucketOutcome::Done(())
        }
        BucketOutcome::Parked => BucketOutcome::Parked,
    })
}

/// Returns true if the bucket parks every write until it is durable.
pub(super) fn is_durable(exec: &TextCommandContext<'_, '_>) -> bool {
    let bucket = exec.session.bucket.as_ref();
    bucket.is_some_and(|bucket| bucket.config().min_level().is_some())
}

pub(super) fn store(exec: &mut TextCommandContext<'_, '_>, command: &TextStore<'_>) -> TextOutcome {
    if command.cas == Some(0) {
        // No document has the CAS 0, so the reply depends on the existence of the document.
        let found = exec.look(command.key);
        return exec.then(TextStep::ReadMeta, found, |exec, found| {
            on_meta(exec, command, found)
        });
    }
    let result = run_store(exec, command);
    exec.then(TextStep::Main, result, |exec, result| {
        stored(exec, command, result.map(drop))
    })
}

pub(super) fn on_meta(
    exec: &mut TextCommandContext<'_, '_>,
    command: &TextStore<'_>,
    found: Result<Meta, Status>,
) -> TextOutcome {
    let status = match found {
        Ok(meta) if meta.deleted => Status::KeyNotFound,
        Ok(_) => Status::KeyExists,
        Err(status) => status,
    };
    stored(exec, command, Err(status))
}

fn run_store(
    exec: &TextCommandContext<'_, '_>,
    command: &TextStore<'_>,
) -> Result<BucketOutcome<Mutated>, Status> {
    let ctx = exec.turn.ctx();
    let mut buffer = KeyBuffer::EMPTY;
    let target = exec.target(rights_of(command.mode), command.key, &mut buffer)?;
    let write = target.write(Cas(command.cas.unwrap_or(0)));
    store_as(
        &target,
        ctx,
        &write,
        command.mode,
        &TextValue {
            bytes: command.value,
            flags: command.client_flags,
            expiry: command.exptime.to_wire(),
        },
    )
}

/// A value to store.
pub(super) struct TextValue<'v> {
    pub(super) bytes: &'v [u8],
    pub(super) flags: u32,
    pub(super) expiry: u32,
}

pub(super) fn store_as(
    target: &TextTarget<'_>,
    ctx: kedge_bucket::Ctx,
    write: &kedge_bucket::Write<'_>,
    mode: TextStoreMode,
    value: &TextValue<'_>,
) -> Result<BucketOutcome<Mutated>, Status> {
    let raw = Datatype::RAW;
    let mode = match mode {
        TextStoreMode::Set => BucketMode::Set,
        TextStoreMode::Add => BucketMode::Add,
        TextStoreMode::Replace => BucketMode::Replace,
        TextStoreMode::Append => {
            return target.bucket.documents().concat(
                ctx,
                write,
                ConcatMode::Append,
                value.bytes,
                raw,
            );
        }
        TextStoreMode::Prepend => {
            return target.bucket.documents().concat(
                ctx,
                write,
                ConcatMode::Prepend,
                value.bytes,
                raw,
            );
        }
    };
    target.bucket.documents().store(
        ctx,
        write,
        &kedge_bucket::StoreArgs {
            mode,
            value: value.bytes,
            datatype: raw,
            flags: value.flags,
            expiry: value.expiry,
        },
    )
}

pub(super) fn stored(
    exec: &mut TextCommandContext<'_, '_>,
    command: &TextStore<'_>,
    result: Result<(), Status>,
) -> TextOutcome {
    if command.noreply {
        return TextOutcome::Answered;
    }
    match (result, command.cas) {
        (Ok(()), _) => exec.reply(reply::STORED),
        (Err(Status::KeyExists), Some(_)) => exec.reply(reply::EXISTS),
        (Err(Status::KeyNotFound), Some(_)) => exec.reply(reply::NOT_FOUND),
        (Err(Status::KeyExists | Status::KeyNotFound | Status::NotStored), None) => {
            exec.reply(reply::NOT_STORED);
        }
        (Err(status), _) => write_status(exec.out, status),
    }
    TextOutcome::Answered
}

pub(super) fn delete(
    exec: &mut TextCommandContext<'_, '_>,
    command: &TextDelete<'_>,
) -> TextOutcome {
    let ctx = exec.turn.ctx();
    let mut buffer = KeyBuffer::EMPTY;
    let result = exec
        .target(Rights::DELETE, command.key, &mut buffer)
        .and_then(|target| target.bucket.documents().delete(ctx, &target.write(Cas(0))));
    exec.then(TextStep::Main, result, |exec, result| {
        deleted(exec, command, result.map(drop))
    })
}

pub(super) fn deleted(
    exec: &mut TextCommandContext<'_, '_>,
    command: &TextDelete<'_>,
    result: Result<(), Status>,
) -> TextOutcome {
    if !command.noreply {
        found(exec, reply::DELETED, result);
    }
    TextOutcome::Answered
}

fn found(exec: &mut TextCommandContext<'_, '_>, done: &[u8], result: Result<(), Status>) {
    match result {
        Ok(()) => exec.reply(done),
        Err(Status::KeyNotFound) => exec.reply(reply::NOT_FOUND),
        Err(status) => write_status(exec.out, status),
    }
}

pub(super) fn touch(exec: &mut TextCommandContext<'_, '_>, command: &TextTouch<'_>) -> TextOutcome {
    let ctx = exec.turn.ctx();
    let expiry = command.exptime.to_wire();
    let mut buffer = KeyBuffer::EMPTY;
    let target = exec.target(Rights::UPSERT, command.key, &mut buffer);
    let result = target.and_then(|target| {
        target
            .bucket
            .documents()
            .touch(ctx, &target.write(Cas(0)), expiry)
    });
    exec.then(TextStep::Main, result, |exec, result| {
        touched(exec, command, result.map(drop))
    })
}

pub(super) fn touched(
    exec: &mut TextCommandContext<'_, '_>,
    command: &TextTouch<'_>,
    result: Result<(), Status>,
) -> TextOutcome {
    if !command.noreply {
        found(exec, reply::TOUCHED, result);
    }
    TextOutcome::Answered
}

pub(super) fn arithmetic(
    exec: &mut TextCommandContext<'_, '_>,
    command: &TextArithmetic<'_>,
) -> TextOutcome {
    let ctx = exec.turn.ctx();
    let op = CounterUpdate {
        negative: command.direction == CountDirection::Decrement,
        delta: command.delta,
        initial: None,
        expiry: 0,
    };
    let mut buffer = KeyBuffer::EMPTY;
    let target = exec.target(READ_AND_CHANGE, command.key, &mut buffer);
    let result = target.and_then(|target| {
        target
            .bucket
            .documents()
            .arithmetic(ctx, &target.write(Cas(0)), op)
    });
    exec.then(TextStep::Main, result, |exec, result| {
        counted(exec, command, result.map(|(_, number)| number))
    })
}

pub(super) fn counted(
    exec: &mut TextCommandContext<'_, '_>,
    command: &TextArithmetic<'_>,
    result: Result<u64, Status>,
) -> TextOutcome {
    if command.noreply {
        return TextOutcome::Answered;
    }
    match result {
        Ok(number) => reply::write_number(exec.out.buffer(), number),
        Err(Status::KeyNotFound) => exec.reply(reply::NOT_FOUND),
        Err(status) => write_status(exec.out, status),
    }
    TextOutcome::Answered
}

pub(super) fn flush_all(exec: &mut TextCommandContext<'_, '_>, command: &FlushAll) -> TextOutcome {
    let shared = exec.turn.shared;
    if !shared.memcached.rules.flush_all {
        return flushed(exec, command, Err(Status::NotSupported));
    }
    let bucket = match exec.session.bucket(Rights::FLUSH) {
        Ok(bucket) => bucket.clone(),
        Err(failure) => return flushed(exec, command, Err(failure.status)),
    };
    let now_secs = exec.turn.now.unix_secs();
    let at_secs = u64::from(command.delay.expiry(now_secs).0);
    if at_secs > now_secs {
        let planned = shared.delayed_flush.plan(&bucket, at_secs);
        return flushed(exec, command, planned);
    }
    shared.delayed_flush.cancel();
    let done = completion_callback(exec.session, exec.turn);
    let begun = bucket.begin_flush_all(exec.turn.ctx(), done);
    let parked = begun.map(|()| BucketOutcome::Parked);
    exec.then(TextStep::Main, parked, |exec, result| {
        flushed(exec, command, result)
    })
}

pub(super) fn flushed(
    exec: &mut TextCommandContext<'_, '_>,
    command: &FlushAll,
    result: Result<(), Status>,
) -> TextOutcome {
    if command.noreply {
        return TextOutcome::Answered;
    }
    match result {
        Ok(()) => exec.reply(reply::OK),
        Err(Status::NotSupported) => {
            reply::write_client_error(exec.out.buffer(), "flush_all not allowed");
        }
        Err(status) => write_status(exec.out, status),
    }
    TextOutcome::Answered
}

pub(super) fn stats(exec: &mut TextCommandContext<'_, '_>, command: &Stats<'_>) -> TextOutcome {
    if let Some(refusal) = memcached_stats::refusal(command.args) {
        reply::write_client_error(exec.out.buffer(), refusal);
        return TextOutcome::Answered;
    }
    let group = std::str::from_utf8(command.args).map_err(|_| Status::Invalid);
    let is_reset = command.args == b"reset";
    let result = group.and_then(|group| {
        let form = if is_reset {
            StatFormat::TextReset
        } else {
            StatFormat::Text
        };
        let asked = StatRequest {
            group,
            arguments: b"",
        };
        let all = answer(exec.session, exec.turn, asked, form, exec.out);
        all.map_err(|failure| failure.status)
    });
    match result {
        Ok(true) => {}
        Ok(false) => return TextOutcome::Parked,
        Err(Status::KeyNotFound | Status::Invalid) => exec.reply(reply::ERROR),
        Err(other) => write_status(exec.out, other),
    }
    TextOutcome::Answered
}

pub(super) fn version(exec: &mut TextCommandContext<'_, '_>) -> TextOutcome {
    reply::write_version(exec.out.buffer(), plain_version());
    TextOutcome::Answered
}

/// `verbosity`: accepted without effect, like the binary command.
pub(super) fn verbosity(
    exec: &mut TextCommandContext<'_, '_>,
    command: TextVerbosity,
) -> TextOutcome {
    if !command.noreply {
        exec.reply(reply::OK);
    }
    TextOutcome::Answered
}
