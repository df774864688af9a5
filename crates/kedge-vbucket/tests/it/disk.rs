//! A minimal log and file: the state that a vBucket leaves behind in a crash.

use kedge_types::{Now, Seqno, VbUuid};
use kedge_vbucket::{
    ApplyBatch, BatchPart, Change, FileChange, FileCollections, FileState, Item, NewBranch,
    PersistedState, Position, Rewind, VBucket, VbState,
};
use std::collections::BTreeMap;

type Key = Vec<u8>;

/// A header of a file with the data that it references.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) documents: BTreeMap<Key, Item>,
    prepares: BTreeMap<Key, FileChange>,
    pub(crate) state: PersistedState,
    pub(crate) high: Seqno,
}

impl File {
    pub(crate) fn new(state: PersistedState) -> Self {
        Self {
            documents: BTreeMap::new(),
            prepares: BTreeMap::new(),
            state,
            high: Seqno(0),
        }
    }

    /// Applies a commit, with the requirements of a couchstore file.
    fn commit(&mut self, part: &BatchPart<'_>) {
        let mut met = std::collections::BTreeSet::new();
        for apply in part.items {
            let item = apply.item();
            assert!(item.seqno() > self.high, "above what the file has");
            assert!(
                met.insert((apply.is_committed_namespace(), item.key().to_vec())),
                "a key is once in a namespace"
            );
            let key = item.key().to_vec();
            match apply {
                FileChange::Document(item) => drop(self.documents.insert(key, copy(item))),
                other => drop(self.prepares.insert(key, other.clone())),
            }
        }
        let highest = part.items.iter().map(|apply| apply.item().seqno()).max();
        self.high = highest.unwrap_or(self.high);
        self.state = part.state.clone();
        // If the last seqnos have no items, the file ends before them.
        let ends_before = self.high < part.upto && self.is_consistent();
        assert!(self.high == part.upto || ends_before);
        assert!(self.state.snap_start <= self.high && self.high <= self.state.snap_end);
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Item> {
        self.documents.values().filter(|item| !item.is_deleted())
    }

    /// Returns whether the file has a whole batch.
    pub(crate) fn is_consistent(&self) -> bool {
        self.high == self.state.snap_end
    }

    pub(crate) fn base(&self) -> FileState {
        let open = |apply: &&FileChange| {
            let item = apply.item();
            let seqno = item.seqno();
            let newer = self.documents.get(item.key());
            seqno > self.state.completed
                && seqno <= self.state.prepared
                && newer.is_none_or(|newer| newer.seqno() < seqno)
        };
        let open = self.prepares.values().filter(open);
        let open = open.filter_map(|apply| match apply {
            FileChange::Prepare(item) => Some(item.clone()),
            _ => None,
        });
        FileState {
            prepares: open.collect(),
            state: self.state.clone(),
            high_seqno: self.high,
            documents: self.live().count() as u64,
            collections: FileCollections::default(),
            installed: None,
        }
    }
}

/// The log, the headers of the file, and the changes that they represent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) log: Vec<Change>,
    /// All changes that were logged since the last reset, including truncated ones.
    pub(crate) logged: Vec<Change>,
    /// The headers, newest last. Empty if there is no file.
    pub(crate) headers: Vec<File>,
    /// True if there is a deletion marker.
    pub(crate) is_deleted: bool,
}

/// The extent and the end of an apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applying {
    pub(crate) max_items: usize,
    /// The number of parts to write.
    pub(crate) parts: usize,
    /// True if the apply ends properly, false if the node crashes.
    pub(crate) ends: bool,
}

/// An apply of the whole batch in one commit.
pub(crate) const WHOLE: Applying = Applying {
    max_items: usize::MAX,
    parts: usize::MAX,
    ends: true,
};

impl Disk {
    pub(crate) fn file(&self) -> Option<&File> {
        self.headers.last()
    }

    /// Writes up to `max` changes to the log. The caller notifies the vBucket.
    pub(crate) fn append(&mut self, vb: &VBucket, max: usize) -> Position {
        let mut changes = Vec::new();
        let to = vb.changes().for_log(max, usize::MAX, &mut changes);
        for change in changes {
            self.log.push(as_logged(&change));
            apply(&mut self.logged, change);
        }
        to
    }

    pub(crate) fn log(&mut self, vb: &mut VBucket, max: usize) {
        let to = self.append(vb, max);
        vb.on_logged(to);
    }

    /// Writes up to `max` changes directly into the file, in one commit. The caller notifies the vBucket.
    pub(crate) fn write_through(&mut self, vb: &mut VBucket, max: usize) -> Position {
        self.write_through_in(vb, max, 1)
    }

    /// Writes directly into the file as [`Disk::write_through`], in at most `commits` commits.
    pub(crate) fn write_through_in(
        &mut self,
        vb: &mut VBucket,
        max: usize,
        commits: usize,
    ) -> Position {
        let (batch, mut to) = vb.store().direct_batch(max, usize::MAX);
        let replaces = batch.as_ref().is_some_and(ApplyBatch::replaces_file);
        // The file does not need changes before a reset.
        let is_void = vb.unapplied().replaces_file && !replaces;
        let mut written = 1;
        if let Some(mut batch) = batch {
            self.write(vb, &mut batch, WHOLE);
            while written < commits
                && let Some(next) = vb.store().direct_batch_behind(&batch, to, max, usize::MAX)
            {
                (batch, to) = next;
                self.write(vb, &mut batch, WHOLE);
                written += 1;
            }
        }
        let mut changes = Vec::new();
        let end = vb
            .changes()
            .for_log(written * max, usize::MAX, &mut changes);
        assert_eq!(to, end);
        for change in changes.into_iter().filter(|_| !is_void) {
            apply(&mut self.logged, change);
        }
        to
    }

    pub(crate) fn apply(&mut self, vb: &mut VBucket, how: Applying) {
        let Some(mut batch) = vb.store_mut().begin_apply() else {
            return;
        };
        self.write(vb, &mut batch, how);
        if how.ends {
            drop(vb.store_mut().end_apply(batch));
        }
    }

    pub(crate) fn write(&mut self, vb: &mut VBucket, batch: &mut ApplyBatch, how: Applying) {
        let history = batch.history();
        if batch.removes_file() {
            (self.headers, self.is_deleted) = (Vec::new(), true);
            if how.parts > 0 {
                vb.store_mut().on_applied(history, batch.upto());
            }
            return;
        }
        if batch.replaces_file() || self.headers.is_empty() {
            self.headers = vec![File::new(batch.empty_state())];
            self.is_deleted = false;
        }
        // In a short list, no cut is forbidden because of removed changes.
        let high = self.headers.last().expect("a file").high;
        let changes = batch.upto().get() - high.get();
        let more = if changes < 64 { 0 } else { 64 };
        let max_items = how.max_items.saturating_add(more);
        let parts = batch.parts(how.max_items, usize::MAX);
        assert!(parts.len() > 0);
        for part in parts.take(how.parts) {
            assert!(part.items.len() <= max_items);
            let mut next = self.headers.last().expect("a file").clone();
            let blind = part.items.iter().map(FileChange::item);
            let blind: Vec<(&Item, bool)> = blind
                .filter(|item| item.is_blind())
                .map(|item| {
                    let before = next.documents.get(item.key());
                    (item, before.is_some_and(|before| !before.is_deleted()))
                })
                .collect();
            next.commit(&part);
            self.headers.push(next);
            vb.store_mut().on_applied(history, part.upto);
            for (item, had_document) in blind {
                vb.store_mut().applied_over(history, item, had_document);
            }
        }
    }

    /// Truncates the log before the first record that is needed.
    pub(crate) fn release(&mut self, vb: &VBucket) {
        let figures = vb.unapplied();
        if figures.state_changed || figures.replaces_file || figures.removes_file {
            return;
        }
        let cuts = |change: &Change| change.begins_history();
        let last_history = self.log.iter().rposition(cuts).map_or(0, |at| at + 1);
        let file = self.file().filter(|file| !file.is_consistent());
        let open = file.map(|file| (file.state.snap_kind, file.state.snap_end));
        let is_applied = |change: &Change| match change {
            // The changes of the snapshot need its record, unless the file records that it is inside the snapshot.
            Change::Snapshot(snapshot) => {
                snapshot.end <= vb.applied_seqno() || open == Some((snapshot.kind, snapshot.end))
            }
            other => {
                let item = other.item();
                item.is_none_or(|item| item.seqno() <= vb.applied_seqno())
            }
        };
        let history = &self.log[last_history..];
        let applied = history
            .iter()
            .take_while(|change| is_applied(change))
            .count();
        // The record that started the history is not needed once the file has followed.
        self.log.drain(..last_history + applied);
    }

    /// Rewinds the file to the header of `to`.
    pub(crate) fn rewind(&mut self, to: Seqno, vb: &VBucket) {
        let branch = NewBranch {
            failover: vb.failover().clone(),
            catch_up: vb.history().catch_up().cloned(),
        };
        self.rewind_as(to, vb.state(), branch);
    }

    fn rewind_as(&mut self, to: Seqno, state: VbState, branch: NewBranch) {
        while self.headers.last().is_some_and(|file| file.high > to) {
            self.headers.pop();
        }
        let mut file = self.headers.last().expect("a header that old").clone();
        assert_eq!(file.high, to);
        file.state.state = state;
        file.state.failover = branch.failover;
        file.state.catch_up = branch.catch_up;
        self.headers.push(file);
    }

    /// Ends a rollback after the file was rewound, and loads these documents again.
    pub(crate) fn rewound(&self, vb: &mut VBucket, keys: &[Box<[u8]>]) {
        let file = self.file().expect("it was taken back");
        vb.recovery().rewound(&file.base()).unwrap();
        let history = vb.history_id();
        for key in keys {
            if let Some(item) = file.documents.get(&key[..]) {
                vb.store_mut().warm(history, item.clone());
            }
        }
        vb.store_mut().warmed(history, true);
    }

    /// Recovers a vBucket in a new process and loads all documents.
    pub(crate) fn recover(&mut self, vb: VBucket, branch: Option<VbUuid>) -> VBucket {
        let mut vb = self.recover_cold(vb, branch);
        let history = vb.history_id();
        if let Some(file) = self.file() {
            for item in file.documents.values() {
                vb.store_mut().warm(history, item.clone());
            }
        }
        vb.store_mut().warmed(history, true);
        vb
    }

    /// Recovers a vBucket in a new process without loading documents.
    pub(crate) fn recover_cold(&mut self, mut vb: VBucket, branch: Option<VbUuid>) -> VBucket {
        if let Some(file) = self.file() {
            vb.recovery().begin_from(file.base()).unwrap();
        } else if self.is_deleted {
            vb.recovery().begin_deleted();
        }
        for change in self.log.clone() {
            vb.recovery().replay(change).unwrap();
        }
        if let Some(Rewind { to, branch }) = vb.needs_rewind().cloned() {
            self.rewind_as(to, vb.state(), branch);
            vb.recovery()
                .begin_from(self.file().unwrap().base())
                .unwrap();
        }
        vb.recovery().finish(branch).unwrap();
        vb
    }

    /// Returns the expected documents: everything logged, with open prepares committed as after a restart.
    pub(crate) fn expected(&self, now: Now) -> BTreeMap<Key, Vec<u8>> {
        let mut changes = self.logged.clone();
        let open = open_prepares(&changes);
        changes.extend(open.into_iter().map(Change::Document));
        documents(&changes, now)
    }
}

/// Returns a copy without the in-memory state of an item, as after a read from disk.
fn copy(item: &Item) -> Item {
    Item::new(&item.meta(), item.key(), &[item.value()])
}

/// Returns the log record of a change. Commits and aborts have no value in the log.
fn as_logged(change: &Change) -> Change {
    let bare = |item: &Item| Item::new(&item.meta(), item.key(), &[]);
    match change {
        Change::Commit { item, prepared } => Change::Commit {
            item: bare(item),
            prepared: *prepared,
        },
        Change::Document(item) => Change::Document(copy(item)),
        Change::Prepare(item) => Change::Prepare(copy(item)),
        other => other.clone(),
    }
}

/// Appends a change to a history, which a reset or rollback truncates.
pub(crate) fn apply(history: &mut Vec<Change>, change: Change) {
    match &change {
        Change::Reset(..) | Change::Delete => history.clear(),
        Change::Rollback { to, .. } => history.retain(|change| {
            let item = change.item();
            item.is_none_or(|item| item.seqno() <= *to)
        }),
        _ => {}
    }
    history.push(change);
}

pub(crate) fn open_prepares(changes: &[Change]) -> Vec<Item> {
    let mut open: Vec<Item> = Vec::new();
    for change in changes {
        match change {
            Change::Prepare(item) => open.push(item.clone()),
            Change::Commit { prepared, .. } | Change::Abort { prepared, .. } => {
                open.retain(|item| item.seqno() != *prepared);
            }
            _ => {}
        }
    }
    open
}

/// Returns the documents after a history.
pub(crate) fn documents(changes: &[Change], now: Now) -> BTreeMap<Key, Vec<u8>> {
    let mut documents = BTreeMap::new();
    for change in changes {
        if let Change::Document(item) | Change::Commit { item, .. } = change {
            if item.is_deleted() || item.expiry().has_passed(now.unix_secs()) {
                documents.remove(item.key());
            } else {
                documents.insert(item.key().to_vec(), item.value().to_vec());
            }
        }
    }
    documents
}
