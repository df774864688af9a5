//! The known history of a vBucket, and the check that the state after a crash is one point of it.

use crate::published_seqnos::Published;
use crate::tools::*;
use kedge_bucket::{Mutated, VbFigures, VbState};
use kedge_types::{Cas, Seqno, Status, VbId};
use std::collections::{BTreeMap, BTreeSet};

/// A document that was written or deleted.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) name: String,
    /// The value; `None` for a deletion.
    pub(super) value: Option<Vec<u8>>,
    pub(super) cas: Cas,
    /// The seqno and CAS; of a SyncWrite those of the prepare.
    pub(super) prepared: Seqno,
    /// As `prepared`; of a SyncWrite those of the commit, if they are known.
    pub(super) seqno: Option<Seqno>,
}

impl Change {
    /// Creates a change that is not a SyncWrite.
    pub(super) fn done(name: String, value: Option<Vec<u8>>, done: Mutated) -> Self {
        Self {
            name,
            value,
            cas: done.cas,
            prepared: done.seqno,
            seqno: Some(done.seqno),
        }
    }

    /// Creates a SyncWrite that has just begun.
    pub(super) fn prepared(name: String, value: Vec<u8>, now: &VbFigures) -> Self {
        Self {
            name,
            value: Some(value),
            cas: now.max_cas,
            prepared: now.high_seqno,
            seqno: None,
        }
    }

    fn is_sync_write(&self) -> bool {
        self.seqno != Some(self.prepared)
    }
}

/// An operation of a step on a vBucket.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Write(Change),
    Reset,
    DeleteVbucket,
    MakeVbucket,
    /// A rollback to this seqno.
    RollBack(Seqno),
    /// A rollback that a power loss interrupted: to this seqno, or to a seqno below it.
    BeginRollback(Seqno),
}

/// The changes of a vBucket in their order.
pub(super) type Changes = Vec<Change>;

/// The contents of a vBucket after a start.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) documents: BTreeMap<String, Document>,
    pub(super) figures: VbFigures,
}

/// An existing document or tombstone.
#[derive(Debug)]
pub(super) struct Document {
    value: Option<Vec<u8>>,
    cas: Cas,
    seqno: Seqno,
}

impl Found {
    /// Reads these keys of a vBucket that was made active. Returns `Ok(None)` if the vBucket does not exist.
    pub(super) fn look(
        open: &Open,
        vb: VbId,
        names: impl Iterator<Item = String>,
    ) -> Result<Option<Self>, Status> {
        match open.bucket.vbucket_state(vb) {
            Ok(VbState::Active) => {}
            // The crash may have come before or after a rollback.
            Ok(VbState::Replica) => open.bucket.states().set_vbucket(vb, VbState::Active)?,
            Err(Status::NotMyVbucket) => return Ok(None),
            other => panic!("{other:?}"),
        }
        let mut documents = BTreeMap::new();
        for name in names.filter(|name| key(name).vbucket(4) == vb) {
            let k = key(&name);
            let meta = match done(open.bucket.documents().get_meta(open.ctx(), &read(&k))) {
                Ok(meta) => meta,
                Err(error) => {
                    assert_eq!(error, Status::KeyNotFound);
                    assert_eq!(open.get(&name), Err(Status::KeyNotFound));
                    continue;
                }
            };
            let value = open.get(&name);
            assert_eq!(value.is_err(), meta.deleted, "{name}: {meta:?}");
            let document = Document {
                value: value.ok(),
                cas: meta.cas,
                seqno: meta.seqno,
            };
            documents.insert(name, document);
        }
        let figures = open.bucket.vbucket_figures(vb).expect("it is there");
        Ok(Some(Self { documents, figures }))
    }

    /// Checks that exactly these changes lead to the contents.
    fn is_made_by(&self, changes: &[Change]) -> Result<(), String> {
        let newest: BTreeMap<&String, &Change> = changes
            .iter()
            .map(|change| (&change.name, change))
            .collect();
        let mut seqnos = BTreeSet::new();
        for (name, document) in &self.documents {
            let Some(change) = newest.get(name) else {
                return Err(format!("{name} is there"));
            };
            if change.value != document.value {
                return Err(format!("value of {name}"));
            }
            if change.cas != document.cas {
                return Err(format!(
                    "{:?}, not {:?}, of {name}",
                    document.cas, change.cas
                ));
            }
            if !self.is_place_of(document.seqno, change) {
                return Err(format!(
                    "{:?} of {name}, not {:?} of what was prepared at {:?}",
                    document.seqno, change.seqno, change.prepared
                ));
            }
            if !seqnos.insert(document.seqno) {
                return Err(format!("{:?} twice", document.seqno));
            }
        }
        let purged = self.figures.purge_seqno;
        for (name, change) in newest {
            // Compaction may have purged a tombstone.
            let may_lack = change.value.is_none() && change.prepared <= purged;
            if !may_lack && !self.documents.contains_key(name) {
                return Err(format!("{name} is not there"));
            }
        }
        Ok(())
    }

    fn is_place_of(&self, seqno: Seqno, change: &Change) -> bool {
        if seqno > self.figures.high_seqno {
            return false;
        }
        if change.seqno == Some(seqno) {
            return true;
        }
        // An acknowledged SyncWrite has a durable prepare. The commit may be another one, of the new branch.
        let is_anew = seqno > self.figures.failover[0].1;
        change.is_sync_write() && seqno > change.prepared && (change.seqno.is_none() || is_anew)
    }
}

/// The known history of a vBucket.
pub(super) struct Known {
    /// The changes at the last check; `None` if the vBucket was deleted.
    base: Option<Changes>,
    /// The operations since then in the order of seqnos; SyncWrites at their prepares.
    pub(super) ops: Vec<Op>,
    /// The number of operations that are acknowledged as durable.
    pub(super) durable: usize,
    /// The last report of the vBucket, and the number of operations before it.
    published: Option<(usize, Published)>,
}

impl Known {
    pub(super) fn new() -> Self {
        Self::found(Some(Changes::new()))
    }

    fn found(base: Option<Changes>) -> Self {
        Self {
            base,
            ops: Vec::new(),
            durable: 0,
            published: None,
        }
    }

    /// Returns the possible changes after `count` operations. `begins` are the seqnos at which branches begin.
    fn after(&self, count: usize, begins: &[Seqno]) -> Vec<Option<Changes>> {
        let mut changes = self.base.clone();
        let mut others = Vec::new();
        for op in &self.ops[..count] {
            // It is the last one of a process.
            others.clear();
            match (op, &mut changes) {
                (Op::Write(change), Some(there)) => there.push(change.clone()),
                (Op::Reset, Some(there)) => there.clear(),
                (Op::DeleteVbucket, _) => changes = None,
                (Op::MakeVbucket, None) => changes = Some(Changes::new()),
                (Op::RollBack(to), Some(there)) => roll_back_to(there, *to),
                (Op::BeginRollback(to), Some(there)) => {
                    let below = begins.iter().filter(|begin| *begin <= to);
                    others = below
                        .map(|to| {
                            let mut other = there.clone();
                            roll_back_to(&mut other, *to);
                            Some(other)
                        })
                        .collect();
                }
                (_, None) | (Op::MakeVbucket, _) => {}
            }
        }
        others.push(changes);
        others
    }

    /// Returns the changes that explain the contents: those up to a point that is not before the durable one.
    ///
    /// # Errors
    /// The reasons why no point matches, the latest point first.
    pub(super) fn explain(&self, found: &Option<Found>) -> Result<Option<Changes>, Vec<String>> {
        let failover = found.iter().flat_map(|found| &found.figures.failover);
        let begins: Vec<Seqno> = failover.map(|(_, begin)| *begin).collect();
        let mut reasons = Vec::new();
        for count in (self.durable..=self.ops.len()).rev() {
            for changes in self.after(count, &begins) {
                match self.is_after(found, count, changes.as_ref()) {
                    Ok(()) => return Ok(changes),
                    Err(why) => reasons.push(why),
                }
            }
        }
        Err(reasons)
    }

    fn is_after(
        &self,
        found: &Option<Found>,
        count: usize,
        changes: Option<&Changes>,
    ) -> Result<(), String> {
        let (found, changes) = match (found, changes) {
            (None, None) => return Ok(()),
            (Some(found), Some(changes)) => (found, changes),
            (Some(_), None) => return Err("it was deleted".to_owned()),
            (None, Some(_)) => return Err("it is not there".to_owned()),
        };
        found.is_made_by(changes)?;
        let Some((at, published)) = &self.published else {
            return Ok(());
        };
        let goes_on = |op: &Op| matches!(op, Op::Write(_));
        if count > *at && !self.ops[*at..count].iter().all(goes_on) {
            // The report belongs to another history.
            return Ok(());
        }
        published.holds(&found.figures)
    }

    /// Starts from contents that were checked and explained by `changes`.
    pub(super) fn begin(&mut self, found: &Option<Found>, mut changes: Option<Changes>) {
        if let (Some(found), Some(changes)) = (found, &mut changes) {
            site(&found.documents, changes);
        }
        *self = Self::found(changes);
    }

    /// Updates seqnos after a rollback before commits, which were repeated with other seqnos.
    pub(super) fn update_positions(&mut self, found: &Found) {
        let mut changes = self.now();
        if let Some(changes) = &mut changes {
            site(&found.documents, changes);
        }
        *self = Self {
            published: self.published.map(|(_, published)| (0, published)),
            ..Self::found(changes)
        };
    }

    fn now(&self) -> Option<Changes> {
        self.after(self.ops.len(), &[]).pop().expect("one at least")
    }

    /// Returns the highest seqno and CAS of the changes. The CAS includes changes that were undone since the last check.
    pub(super) fn highest(&self) -> (Seqno, Cas) {
        let now = self.now().unwrap_or_default();
        let seqnos = now.iter().map(|it| it.seqno.unwrap_or(it.prepared));
        let written = self.ops.iter().filter_map(|op| match op {
            Op::Write(change) => Some(change.cas),
            _ => None,
        });
        let cases = now.iter().map(|it| it.cas).chain(written);
        (
            seqnos.max().unwrap_or_default(),
            cases.max().unwrap_or_default(),
        )
    }

    /// Records a report of the persisted seqno.
    pub(super) fn publish(&mut self, published: Option<Published>) {
        self.published = published.map(|published| (self.ops.len(), published));
    }

    pub(super) fn published(&self) -> Option<Published> {
        self.published.map(|(_, published)| published)
    }
}

/// Undoes the changes after `to`. Prepares up to there that were committed later are committed again.
fn roll_back_to(changes: &mut Changes, to: Seqno) {
    let is_kept = |change: &Change| change.seqno.is_some_and(|seqno| seqno <= to);
    let (kept, mut open): (Changes, Changes) = changes.drain(..).partition(is_kept);
    open.retain(|change| change.is_sync_write() && change.prepared <= to);
    for change in &mut open {
        change.seqno = None;
    }
    *changes = kept;
    changes.append(&mut open);
}

/// Sets unknown seqnos to those that were found. Only the last change of a document can lack one.
fn site(documents: &BTreeMap<String, Document>, changes: &mut Changes) {
    let mut placed = BTreeSet::new();
    for change in changes.iter_mut().rev() {
        if placed.insert(change.name.clone())
            && change.is_sync_write()
            && let Some(document) = documents.get(&change.name)
        {
            change.seqno = Some(document.seqno);
        }
        assert!(change.seqno.is_some(), "{change:?}");
    }
}
