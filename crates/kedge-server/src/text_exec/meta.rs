//! The meta commands.
//!
//! What the server does not know of a document is left out of replies: when it was last accessed, and whether it was
//! before. An explicit CAS for a document (flag E) is refused, as CAS values are the server's clock.

use kedge_bucket::{Arithmetic as BucketArithmetic, Item, Mutated, Outcome as BucketOutcome};
use kedge_protocol::text::meta::{
    MetaArithmetic, MetaDebug, MetaDebugItem, MetaDelete, MetaGet, MetaItem, MetaKey, MetaSet,
    MetaStatus, MetaTtl, write_meta, write_meta_debug, write_meta_value,
};
use kedge_protocol::text::{Direction, StoreMode};
use kedge_types::limits::KEY_BYTES_MAX;
use kedge_types::{Cas, Expiry, Status};

use super::classic::{Value, is_durable, refused, store_as};
use super::marks::Told;
use super::{Exec, Outcome, Target, Written, write_status};
use crate::session::inflated;

const EXPLICIT_CAS: &str = "an explicit CAS";

/// What is told of a document.
struct Seen {
    item: Item,
    cas: Cas,
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
}

/// Runs `with` on the document's key, decoded if need be.
fn with_key<R>(key: &MetaKey<'_>, with: impl FnOnce(&[u8]) -> R) -> R {
    let mut scratch = [0; KEY_BYTES_MAX];
    with(key.bytes(&mut scratch))
}

pub(super) fn get(exec: &mut Exec<'_, '_>, command: &MetaGet<'_>) -> Outcome {
    if command.new_cas.is_some() {
        return refused(exec, EXPLICIT_CAS);
    }
    match read(exec, command) {
        Ok(BucketOutcome::Parked) => return exec.park(),
        Ok(BucketOutcome::Done(seen)) => hit(exec, command, &seen),
        Err(Status::KeyNotFound) => match vivify(exec, command) {
            Ok(BucketOutcome::Parked) => return exec.park(),
            Ok(BucketOutcome::Done(Some(mutated))) => vivified(exec, command, mutated),
            Ok(BucketOutcome::Done(None)) => miss(exec, command),
            Err(status) => write_status(exec.out, status),
        },
        Err(status) => write_status(exec.out, status),
    }
    Outcome::Answered
}

fn read(exec: &Exec<'_, '_>, command: &MetaGet<'_>) -> Result<BucketOutcome<Seen>, Status> {
    let ctx = exec.turn.ctx();
    with_key(&command.key, |key| {
        let target = exec.target(key)?;
        let Target {
            bucket, vb, key, ..
        } = &target;
        match command.touch {
            None => bucket
                .get(ctx, *vb, key, |document| Seen {
                    item: document.item.clone(),
                    cas: document.cas,
                })
                .map(BucketOutcome::Done),
            Some(exptime) => {
                let write = target.write(Cas(0));
                bucket.get_and_touch(ctx, &write, exptime.to_wire(), |document, _| Seen {
                    item: document.item.clone(),
                    cas: document.cas,
                })
            }
        }
    })
}

fn hit(exec: &mut Exec<'_, '_>, command: &MetaGet<'_>, seen: &Seen) {
    let value = match inflated(&seen.item) {
        Ok(value) => value,
        Err(status) => return write_status(exec.out, status),
    };
    let mut item = exec.meta_item(seen, value.len());
    let recache = match (command.recache, item.ttl) {
        (Some(limit), Some(MetaTtl::Secs(left))) => i64::from(left) < limit.get(),
        _ => false,
    };
    let marks = &exec.turn.shared.marks;
    let told = with_key(&command.key, |key| {
        marks.on_read(key, seen.cas.get(), recache)
    });
    tell(&mut item, told);
    if command.value && command.compare_cas != Some(seen.cas.get()) {
        write_meta_value(exec.out.buffer(), &value, &command.returns, &item);
    } else {
        answer(
            exec,
            MetaStatus::Done,
            command.is_silent(MetaStatus::Done),
            &command.returns,
            &item,
        );
    }
}

fn tell(item: &mut MetaItem, told: Told) {
    item.won = told.won;
    item.stale = told.stale;
    item.token_sent = told.token_sent;
}

fn answer(
    exec: &mut Exec<'_, '_>,
    status: MetaStatus,
    silent: bool,
    returns: &kedge_protocol::text::meta::MetaReturns<'_>,
    item: &MetaItem,
) {
    if !silent {
        write_meta(exec.out.buffer(), status, returns, item);
    }
}

fn miss(exec: &mut Exec<'_, '_>, command: &MetaGet<'_>) {
    let silent = command.is_silent(MetaStatus::Miss);
    answer(
        exec,
        MetaStatus::Miss,
        silent,
        &command.returns,
        &MetaItem::default(),
    );
}

/// Makes an empty document if the client asked for that; `None` if not, or another client was faster.
fn vivify(
    exec: &Exec<'_, '_>,
    command: &MetaGet<'_>,
) -> Result<BucketOutcome<Option<Mutated>>, Status> {
    let Some(exptime) = command.vivify else {
        return Ok(BucketOutcome::Done(None));
    };
    let ctx = exec.turn.ctx();
    let value = Value {
        bytes: &[],
        flags: 0,
        expiry: exptime.to_wire(),
    };
    let stored = with_key(&command.key, |key| {
        let target = exec.target(key)?;
        store_as(&target, ctx, &target.write(Cas(0)), StoreMode::Add, &value)
    });
    match stored {
        Ok(outcome) => Ok(outcome.map(Some)),
        Err(Status::KeyExists) => Ok(BucketOutcome::Done(None)),
        Err(status) => Err(status),
    }
}

fn vivified(exec: &mut Exec<'_, '_>, command: &MetaGet<'_>, mutated: Mutated) {
    let marks = &exec.turn.shared.marks;
    with_key(&command.key, |key| {
        marks.on_vivified(key, mutated.cas.get());
    });
    let expiry = command
        .vivify
        .map_or(0, kedge_protocol::text::Exptime::to_wire);
    let value = Value {
        bytes: &[],
        flags: 0,
        expiry,
    };
    let item = MetaItem {
        won: true,
        ..exec.written_item(mutated, &value)
    };
    if command.value {
        write_meta_value(exec.out.buffer(), &[], &command.returns, &item);
    } else {
        write_meta(exec.out.buffer(), MetaStatus::Done, &command.returns, &item);
    }
}

/// A `mg` that touched, or made a document, was parked and ended.
pub(super) fn got(
    exec: &mut Exec<'_, '_>,
    command: &MetaGet<'_>,
    result: Result<Written<'_>, Status>,
) {
    match result {
        Ok(Written {
            mutated,
            item: Some(item),
        }) if item.value().is_empty() && command.vivify.is_some() => {
            vivified(exec, command, mutated);
        }
        Ok(Written {
            mutated,
            item: Some(item),
        }) => {
            hit(
                exec,
                command,
                &Seen {
                    item: item.clone(),
                    cas: mutated.cas,
                },
            );
        }
        Ok(Written { item: None, .. }) | Err(Status::KeyNotFound) => miss(exec, command),
        Err(status) => write_status(exec.out, status),
    }
}

pub(super) fn set(exec: &mut Exec<'_, '_>, command: &MetaSet<'_>) -> Outcome {
    if command.new_cas.is_some() {
        return refused(exec, EXPLICIT_CAS);
    }
    match run_set(exec, command) {
        Ok(BucketOutcome::Parked) => return exec.park(),
        Ok(BucketOutcome::Done(mutated)) => is_set(exec, command, Ok(mutated)),
        Err(status) => is_set(exec, command, Err(status)),
    }
    Outcome::Answered
}

fn set_value<'v>(command: &MetaSet<'v>) -> Value<'v> {
    Value {
        bytes: command.value,
        flags: command.client_flags,
        expiry: command.exptime.to_wire(),
    }
}

fn run_set(exec: &Exec<'_, '_>, command: &MetaSet<'_>) -> Result<BucketOutcome<Mutated>, Status> {
    let ctx = exec.turn.ctx();
    with_key(&command.key, |key| {
        let target = exec.target(key)?;
        let mut cas = Cas(command.compare_cas.unwrap_or(0));
        if command.compare_cas.is_some() && (command.invalidate || cas.is_none()) {
            let current = target
                .bucket
                .get(ctx, target.vb, &target.key, |document| document.cas)?;
            // With I an older CAS is accepted, and the document then stale.
            if cas > current || (cas != current && !command.invalidate) {
                return Err(Status::KeyExists);
            }
            cas = current;
        }
        let value = set_value(command);
        let result = store_as(&target, ctx, &target.write(cas), command.mode, &value);
        match (result, command.mode, command.vivify) {
            (Err(Status::NotStored), StoreMode::Append | StoreMode::Prepend, Some(exptime)) => {
                let value = Value {
                    expiry: exptime.to_wire(),
                    ..value
                };
                store_as(&target, ctx, &target.write(Cas(0)), StoreMode::Add, &value)
            }
            (result, _, _) => result,
        }
    })
}

pub(super) fn is_set(
    exec: &mut Exec<'_, '_>,
    command: &MetaSet<'_>,
    result: Result<Mutated, Status>,
) {
    let (status, item) = match result {
        Ok(mutated) => {
            if command.invalidate && command.compare_cas.is_some() {
                let marks = &exec.turn.shared.marks;
                with_key(&command.key, |key| {
                    marks.on_invalidated(key, mutated.cas.get());
                });
            }
            (
                MetaStatus::Done,
                exec.written_item(mutated, &set_value(command)),
            )
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
        Err(status) => return write_status(exec.out, status),
    };
    answer(
        exec,
        status,
        command.is_silent(status),
        &command.returns,
        &item,
    );
}

pub(super) fn delete(exec: &mut Exec<'_, '_>, command: &MetaDelete<'_>) -> Outcome {
    if command.new_cas.is_some() {
        return refused(exec, EXPLICIT_CAS);
    }
    match run_delete(exec, command) {
        Ok(BucketOutcome::Parked) => return exec.park(),
        Ok(BucketOutcome::Done(mutated)) => deleted(exec, command, Ok(mutated)),
        Err(status) => deleted(exec, command, Err(status)),
    }
    Outcome::Answered
}

fn run_delete(
    exec: &Exec<'_, '_>,
    command: &MetaDelete<'_>,
) -> Result<BucketOutcome<Mutated>, Status> {
    let ctx = exec.turn.ctx();
    with_key(&command.key, |key| {
        let target = exec.target(key)?;
        if !command.invalidate && !command.remove_value && command.compare_cas != Some(0) {
            return target
                .bucket
                .delete(ctx, &target.write(Cas(command.compare_cas.unwrap_or(0))));
        }
        let seen = target
            .bucket
            .get(ctx, target.vb, &target.key, |document| Seen {
                item: document.item.clone(),
                cas: document.cas,
            })?;
        if command.compare_cas.is_some_and(|cas| cas != seen.cas.get()) {
            return Err(Status::KeyExists);
        }
        let bytes = inflated(&seen.item)?;
        let value = Value {
            bytes: if command.remove_value { &[] } else { &bytes },
            flags: if command.remove_value {
                command.client_flags
            } else {
                seen.item.flags()
            },
            expiry: command
                .exptime
                .map_or(0, kedge_protocol::text::Exptime::to_wire),
        };
        let write = kedge_bucket::Write {
            preserve_ttl: command.exptime.is_none(),
            ..target.write(seen.cas)
        };
        store_as(&target, ctx, &write, StoreMode::Set, &value)
    })
}

pub(super) fn deleted(
    exec: &mut Exec<'_, '_>,
    command: &MetaDelete<'_>,
    result: Result<Mutated, Status>,
) {
    let status = match result {
        Ok(mutated) => {
            if command.invalidate {
                let marks = &exec.turn.shared.marks;
                with_key(&command.key, |key| {
                    marks.on_invalidated(key, mutated.cas.get());
                });
            }
            MetaStatus::Done
        }
        Err(Status::KeyNotFound) => MetaStatus::NotFound,
        Err(Status::KeyExists) => MetaStatus::Exists,
        Err(status) => return write_status(exec.out, status),
    };
    answer(
        exec,
        status,
        command.is_silent(status),
        &command.returns,
        &MetaItem::default(),
    );
}

pub(super) fn arithmetic(exec: &mut Exec<'_, '_>, command: &MetaArithmetic<'_>) -> Outcome {
    if command.new_cas.is_some() {
        return refused(exec, EXPLICIT_CAS);
    }
    if command.exptime.is_some() && is_durable(exec) {
        return refused(
            exec,
            "ma with T on a bucket with a minimum durability level",
        );
    }
    match run_arithmetic(exec, command) {
        Ok(BucketOutcome::Parked) => return exec.park(),
        Ok(BucketOutcome::Done(done)) => counted(exec, command, Ok(done)),
        Err(status) => counted(exec, command, Err(status)),
    }
    Outcome::Answered
}

fn run_arithmetic(
    exec: &Exec<'_, '_>,
    command: &MetaArithmetic<'_>,
) -> Result<BucketOutcome<(Mutated, u64)>, Status> {
    let ctx = exec.turn.ctx();
    let op = BucketArithmetic {
        negative: command.direction == Direction::Decrement,
        delta: command.delta,
        initial: command.vivify.map(|_| command.initial),
        expiry: command
            .vivify
            .map_or(0, kedge_protocol::text::Exptime::to_wire),
    };
    with_key(&command.key, |key| {
        let target = exec.target(key)?;
        let write = target.write(Cas(command.compare_cas.unwrap_or(0)));
        let outcome = target.bucket.arithmetic(ctx, &write, op)?;
        let (BucketOutcome::Done((mutated, number)), Some(exptime)) = (&outcome, command.exptime)
        else {
            return Ok(outcome);
        };
        // Somebody may have changed it in between; then it is theirs to say when it expires.
        let touched = target
            .bucket
            .touch(ctx, &target.write(mutated.cas), exptime.to_wire());
        Ok(match touched {
            Ok(BucketOutcome::Done(touched)) => BucketOutcome::Done((touched, *number)),
            _ => outcome,
        })
    })
}

pub(super) fn counted(
    exec: &mut Exec<'_, '_>,
    command: &MetaArithmetic<'_>,
    result: Result<(Mutated, u64), Status>,
) {
    let (status, item) = match result {
        Ok((mutated, number)) => {
            let text = number.to_string();
            let item = counter_item(exec, command, mutated, text.len());
            if command.value && !command.is_silent(MetaStatus::Done) {
                let buffer = exec.out.buffer();
                return write_meta_value(buffer, text.as_bytes(), &command.returns, &item);
            }
            (MetaStatus::Done, item)
        }
        Err(Status::KeyNotFound) => (MetaStatus::NotFound, MetaItem::default()),
        Err(Status::KeyExists) => (MetaStatus::Exists, MetaItem::default()),
        Err(Status::NotStored) => (MetaStatus::NotStored, MetaItem::default()),
        Err(status) => return write_status(exec.out, status),
    };
    answer(
        exec,
        status,
        command.is_silent(status),
        &command.returns,
        &item,
    );
}

/// What is told of a counter; its time to live and flags are looked up only if they are wanted.
fn counter_item(
    exec: &Exec<'_, '_>,
    command: &MetaArithmetic<'_>,
    mutated: Mutated,
    size: usize,
) -> MetaItem {
    let known = MetaItem {
        cas: Some(mutated.cas.get()),
        size: Some(size as u64),
        ..MetaItem::default()
    };
    if !command.returns.wants(b't') && !command.returns.wants(b'f') {
        return known;
    }
    let ctx = exec.turn.ctx();
    let found = with_key(&command.key, |key| {
        let target = exec.target(key)?;
        target.bucket.get_meta(ctx, target.vb, &target.key)
    });
    match found {
        Ok(meta) => MetaItem {
            client_flags: Some(meta.flags),
            ttl: Some(exec.ttl(meta.expiry)),
            ..known
        },
        Err(_) => known,
    }
}

pub(super) fn debug(exec: &mut Exec<'_, '_>, command: &MetaDebug<'_>) -> Outcome {
    let ctx = exec.turn.ctx();
    let found = with_key(&command.key, |key| {
        let target = exec.target(key)?;
        target
            .bucket
            .get(ctx, target.vb, &target.key, |document| MetaDebugItem {
                ttl: exec.ttl(document.item.expiry()),
                last_access_secs: None,
                cas: document.cas.get(),
                fetched: None,
                size: document.item.heap_bytes() as u64,
            })
    });
    match found {
        Ok(item) => write_meta_debug(exec.out.buffer(), &command.key, Some(&item)),
        Err(Status::KeyNotFound) => write_meta_debug(exec.out.buffer(), &command.key, None),
        Err(status) => write_status(exec.out, status),
    }
    Outcome::Answered
}
