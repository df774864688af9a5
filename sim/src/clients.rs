//! Clients, and their observations.

use crate::check::{Operation, OperationKind, RegisterValue, is_linearizable};
use crate::map::{SimMap, name};
use crate::node::SimNode;
use crate::plan::HistoryPlan;
use crate::trace::note;
use kedge_bucket::{
    Bucket, Completion, Cookie, Ctx, Mutated, Outcome, Patches, Read, StoreMode, Write,
    WriteWithMeta,
};
use kedge_disk::Rng;
use kedge_types::limits::CAS_AHEAD_MS_MAX;
use kedge_types::{Cas, CollectionId, Datatype, DocKey, Durability, RevSeqno, Status, VbId};
use std::collections::BTreeMap;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SimKey {
    /// A key that SyncWrites change.
    Durable(u64),
    /// A key that other writes change.
    Plain(u64),
}

impl SimKey {
    pub(crate) fn document(self) -> DocKey {
        let name = match self {
            Self::Durable(n) => format!("durable-{n}"),
            Self::Plain(n) => format!("plain-{n}"),
        };
        DocKey::new(CollectionId::DEFAULT, name.as_bytes()).expect("it is short")
    }
}

/// The operation for which a client waits.
#[derive(Clone, Copy, Debug)]
struct PendingOperation {
    node: usize,
    /// The number of the node's process.
    process: u64,
    cookie: u64,
    key: SimKey,
    /// The index in the history.
    event: usize,
}

/// The CAS values of a key's acknowledged SyncWrites.
#[derive(Default)]
struct CasOrder {
    /// The highest CAS of each key.
    highest: BTreeMap<SimKey, Cas>,
    /// The highest CAS at the call of a write, by its index in the history.
    before: BTreeMap<usize, Cas>,
    wrong: Option<String>,
}

impl CasOrder {
    fn called(&mut self, key: SimKey, event: usize) {
        let highest = self.highest.get(&key).copied();
        self.before.insert(event, highest.unwrap_or(Cas(0)));
    }

    fn answered(&mut self, key: SimKey, event: usize, cas: Cas) {
        let before = self.before.remove(&event).unwrap_or(Cas(0));
        if cas <= before {
            self.wrong = Some(format!("{key:?} had CAS {before:?}, and then got {cas:?}"));
        }
        let highest = self.highest.entry(key).or_default();
        *highest = cas.max(*highest);
    }
}

/// A call of a node.
#[derive(Clone, Copy)]
pub(crate) struct Called<'a> {
    number: usize,
    bucket: &'a Bucket,
    ctx: Ctx,
    vb: VbId,
}

/// All clients.
pub(crate) struct Clients {
    plan: HistoryPlan,
    waiting: Vec<Option<PendingOperation>>,
    /// The history of keys that SyncWrites change.
    history: Vec<(SimKey, Operation)>,
    cas: CasOrder,
    /// The clock of calls and replies.
    moment: u64,
    cookies: u64,
    pub(crate) acknowledged: u64,
    pub(crate) unknown: u64,
}

/// The outcome of a read, if it has ended.
pub(crate) enum ReadOutcome {
    Value(RegisterValue),
    Parked,
    Refused,
}

impl Clients {
    pub(crate) fn new(plan: &HistoryPlan) -> Self {
        Self {
            plan: plan.clone(),
            waiting: vec![None; plan.clients],
            history: Vec::new(),
            cas: CasOrder::default(),
            moment: 0,
            cookies: 0,
            acknowledged: 0,
            unknown: 0,
        }
    }

    fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Lets a client start an operation, or checks whether the awaited one has ended.
    ///
    /// # Errors
    /// A node has accepted an operation on a vBucket whose active it is no more.
    pub(crate) fn step(
        &mut self,
        rng: &mut Rng,
        nodes: &mut [SimNode],
        starts: &[u64],
        map: &SimMap,
    ) -> Result<(), String> {
        let client = rng.below(self.waiting.len() as u64) as usize;
        if let Some(waiting) = self.waiting[client] {
            self.look(client, waiting, nodes, starts);
            return Ok(());
        }
        let n = rng.below(self.plan.keys);
        let key = if rng.below(4) == 0 {
            SimKey::Plain(n)
        } else {
            SimKey::Durable(n)
        };
        let document = key.document();
        let vb = document.vbucket(self.plan.vbuckets);
        let Some(active) = map.active(vb) else {
            return Ok(());
        };
        // Clients may know an older map.
        let node = match rng.below(3) {
            0 => {
                let mut late = nodes.iter().filter(|node| node.has_stale_batch());
                let any = rng.below(nodes.len() as u64) as usize;
                late.next().map_or(any, |node| node.number)
            }
            _ => active,
        };
        if nodes[node].is_paused() {
            return Ok(());
        }
        let ctx = nodes[node].client_ctx();
        let Some(process) = nodes[node].process.as_ref() else {
            return Ok(());
        };
        let called = Called {
            number: node,
            bucket: &process.bucket,
            ctx,
            vb,
        };
        let accepted = match key {
            SimKey::Plain(_) => self.write_plain(rng, called, &document),
            SimKey::Durable(_) if rng.below(3) == 0 => {
                self.read_once(client, starts[node], called, key)
            }
            SimKey::Durable(_) => self.write(rng, client, starts[node], called, key),
        };
        // A vBucket whose state is not known yet parks operations.
        match accepted && node != active && nodes[node].is_active(vb) {
            true => Err(format!(
                "{key:?} is served by node {node}, and {active} is its active"
            )),
            false => Ok(()),
        }
    }

    /// Starts a SyncWrite. Returns whether the node has accepted it.
    fn write(
        &mut self,
        rng: &mut Rng,
        client: usize,
        process: u64,
        called: Called<'_>,
        key: SimKey,
    ) -> bool {
        let Called {
            number: node,
            bucket,
            ctx,
            vb,
        } = called;
        let levels = &self.plan.levels;
        let level = levels[rng.below(levels.len() as u64) as usize];
        let deletes = rng.below(6) == 0;
        self.cookies += 1;
        let cookie = self.cookies;
        let write = Write {
            vb,
            key: &key.document(),
            cas: Cas(0),
            durability: Some(Durability {
                level,
                timeout_ms: Some(self.plan.timeout_ms),
            }),
            new_cas: Cas(0),
            preserve_ttl: false,
            cookie: Cookie(cookie),
        };
        let value = (!deletes).then_some(cookie);
        let called = self.next_moment();
        let outcome = store(ctx, bucket, &write, value);
        let event = Operation {
            did: OperationKind::Wrote(value),
            called,
            answered: None,
        };
        self.history.push((key, event));
        let event = self.history.len() - 1;
        self.cas.called(key, event);
        note!(
            name(node),
            "write {event}: {key:?} becomes {value:?}, {level:?}"
        );
        let is_accepted = outcome.is_ok();
        match outcome {
            Ok(Outcome::Done(done)) => self.end_write(node, event, Ok(done.cas)),
            Ok(Outcome::Parked) => {
                self.waiting[client] = Some(PendingOperation {
                    node,
                    process,
                    cookie,
                    key,
                    event,
                });
            }
            Err(status) => self.end_write(node, event, Err(status)),
        }
        // The disk may be slower than the other nodes.
        match rng.below(4) {
            0 => bucket.persistence().writers().request_flush(true),
            1 => bucket.persistence().writers().request_flush(false),
            _ => {}
        }
        is_accepted
    }

    /// Makes a write without a level, whose outcome no client needs. Returns whether the node has accepted it.
    fn write_plain(&mut self, rng: &mut Rng, called: Called<'_>, key: &DocKey) -> bool {
        let Called {
            bucket, ctx, vb, ..
        } = called;
        self.cookies += 1;
        let write = Write {
            vb,
            key,
            cas: Cas(0),
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            cookie: Cookie(self.cookies),
        };
        match rng.below(8) {
            0 => store(ctx, bucket, &write, None).is_ok(),
            1 => store_from_elsewhere(rng, ctx, bucket, &write, self.cookies).is_ok(),
            _ => store(ctx, bucket, &write, Some(self.cookies)).is_ok(),
        }
    }

    fn end_write(&mut self, node: usize, event: usize, result: Result<Cas, Status>) {
        let moment = self.next_moment();
        match result {
            Ok(cas) => {
                note!(name(node), "write {event}: acknowledged");
                self.cas.answered(self.history[event].0, event, cas);
                self.history[event].1.answered = Some(moment);
                self.acknowledged += 1;
            }
            Err(Status::SyncWriteAmbiguous) => {
                note!(name(node), "write {event}: its outcome is not known");
                self.unknown += 1;
            }
            // It never happened: an unfinished read in its place has no meaning.
            Err(status) => {
                note!(name(node), "write {event}: refused, {status:?}");
                self.history[event].1.called = u64::MAX;
            }
        }
    }

    /// Reads a key. Returns whether the node has accepted it.
    fn read_once(&mut self, client: usize, process: u64, called: Called<'_>, key: SimKey) -> bool {
        let number = called.number;
        self.cookies += 1;
        let cookie = self.cookies;
        let moment = self.next_moment();
        let seen = get(&called, &key.document(), cookie);
        let event = Operation {
            did: OperationKind::Read(None),
            called: moment,
            answered: None,
        };
        match seen {
            ReadOutcome::Refused => return false,
            ReadOutcome::Value(value) => {
                note!(name(number), "read: {key:?} is {value:?}");
                let answered = self.next_moment();
                let event = Operation {
                    did: OperationKind::Read(value),
                    answered: Some(answered),
                    ..event
                };
                self.history.push((key, event));
            }
            ReadOutcome::Parked => {
                self.history.push((key, event));
                self.waiting[client] = Some(PendingOperation {
                    node: number,
                    process,
                    cookie,
                    key,
                    event: self.history.len() - 1,
                });
            }
        }
        true
    }

    fn look(
        &mut self,
        client: usize,
        waiting: PendingOperation,
        nodes: &[SimNode],
        starts: &[u64],
    ) {
        let is_read = matches!(self.history[waiting.event].1.did, OperationKind::Read(_));
        if starts[waiting.node] != waiting.process {
            // The node has died.
            self.waiting[client] = None;
            if is_read {
                self.history[waiting.event].1.called = u64::MAX;
            } else {
                self.unknown += 1;
            }
            return;
        }
        let Some(done) = nodes[waiting.node].take_done(waiting.cookie) else {
            return;
        };
        if is_read {
            note!(name(waiting.node), "read: {:?} is {done:?}", waiting.key);
        }
        self.waiting[client] = None;
        match done {
            Completion::SyncWrite { result, .. } => {
                self.end_write(
                    waiting.node,
                    waiting.event,
                    result.map(|done: Mutated| done.cas),
                );
            }
            Completion::Read { result } => {
                let answered = self.next_moment();
                let event = &mut self.history[waiting.event].1;
                match result {
                    Ok((item, _)) => {
                        event.did = OperationKind::Read(number(item.value()));
                        event.answered = Some(answered);
                    }
                    Err(Status::KeyNotFound) => event.answered = Some(answered),
                    Err(_) => event.called = u64::MAX,
                }
            }
            other => panic!("{:?} came to {other:?}", waiting.key),
        }
    }

    /// Returns whether a client still waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.iter().any(Option::is_some)
    }

    /// Checks whether awaited operations have ended.
    pub(crate) fn look_all(&mut self, nodes: &[SimNode], starts: &[u64]) {
        for client in 0..self.waiting.len() {
            if let Some(waiting) = self.waiting[client] {
                self.look(client, waiting, nodes, starts);
            }
        }
    }

    /// Records a last read of a key.
    pub(crate) fn saw(&mut self, key: SimKey, value: RegisterValue) {
        let called = self.next_moment();
        let answered = self.next_moment();
        let event = Operation {
            did: OperationKind::Read(value),
            called,
            answered: Some(answered),
        };
        self.history.push((key, event));
    }

    /// Returns a description of unexplainable observations, if there are any.
    pub(crate) fn judge(&self) -> Option<String> {
        if self.cas.wrong.is_some() {
            return self.cas.wrong.clone();
        }
        for n in 0..self.plan.keys {
            let key = SimKey::Durable(n);
            let of_key = self.history.iter().filter(|(of, _)| *of == key);
            let events: Vec<Operation> = of_key
                .map(|(_, event)| *event)
                .filter(|event| event.called != u64::MAX)
                .collect();
            if !is_linearizable(&events) {
                let lines: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
                return Some(format!(
                    "what clients saw of {key:?} cannot be:\n{}",
                    lines.join("\n")
                ));
            }
        }
        None
    }

    /// Iterates over all keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = SimKey> + use<> {
        let keys = self.plan.keys;
        (0..keys).flat_map(|n| [SimKey::Durable(n), SimKey::Plain(n)])
    }
}

fn store(
    ctx: Ctx,
    bucket: &Bucket,
    write: &Write<'_>,
    value: RegisterValue,
) -> Result<Outcome<Mutated>, Status> {
    match value {
        Some(number) => {
            let text = number.to_string();
            let (value, mode) = (text.as_bytes(), StoreMode::Set);
            bucket.documents().store(
                ctx,
                write,
                &kedge_bucket::StoreArgs {
                    mode,
                    value,
                    datatype: Datatype::RAW,
                    flags: 0,
                    expiry: 0,
                },
            )
        }
        None => bucket.documents().delete(ctx, write),
    }
}

/// Stores a document of another cluster, whose clock may be far ahead.
fn store_from_elsewhere(
    rng: &mut Rng,
    ctx: Ctx,
    bucket: &Bucket,
    write: &Write<'_>,
    value: u64,
) -> Result<Outcome<Mutated>, Status> {
    let ahead_ms = rng.below(CAS_AHEAD_MS_MAX);
    let value = value.to_string();
    let with = WriteWithMeta {
        cas: Cas(ctx.now.unix_ns + ahead_ms * 1_000_000),
        rev: RevSeqno(1 + rng.below(100)),
        flags: 0,
        expiry: 0,
        deleted: None,
        only_new: false,
        new_cas: false,
        skip_conflicts: rng.below(2) == 0,
        for_last_write: false,
        value: value.as_bytes(),
        datatype: Datatype::RAW,
        patches: &Patches::default(),
    };
    bucket.documents().write_with_meta(ctx, write, &with)
}

/// Reads a key at its active.
fn get(called: &Called<'_>, key: &DocKey, cookie: u64) -> ReadOutcome {
    let wanted = Read {
        vb: called.vb,
        key,
        cookie: Cookie(cookie),
    };
    let documents = called.bucket.documents();
    let outcome = documents.get(called.ctx, &wanted, |document| {
        number(document.item.value())
    });
    match outcome {
        Ok(Outcome::Done(value)) => ReadOutcome::Value(value),
        Ok(Outcome::Parked) => ReadOutcome::Parked,
        Err(Status::KeyNotFound) => ReadOutcome::Value(None),
        Err(_) => ReadOutcome::Refused,
    }
}

pub(crate) fn number(value: &[u8]) -> RegisterValue {
    let text = std::str::from_utf8(value).ok();
    let number = text.and_then(|text| text.parse().ok());
    Some(number.expect("clients write numbers"))
}
