//! Whom tasks belong to.
//!
//! Invariant: who adds a task fills its place, then looks whether the owner is open, then lets it run; who ends an owner
//! closes it, then looks for its tasks. So one of them sees the other, and no task outlives its owner.

use crate::sync::{AtomicU32, Condvar, Mutex, Ordering};

/// Owners that there may be at a time. Few in models, which try the orders of all looks at them.
pub(crate) const MAX_OWNERS: usize = if cfg!(kedge_model) { 4 } else { 1_024 };

const FREE: u32 = 0;
const OPEN: u32 = 1;
const CLOSING: u32 = 2;
const PHASE: u32 = 3;
const GENERATION: u32 = 4;

/// Whom a task belongs to: a bucket, say. When it goes, [`crate::Executor::unregister`] ends all of its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId {
    index: u16,
    word: u32,
}

impl OwnerId {
    pub(crate) fn index(self) -> u16 {
        self.index
    }

    /// The word while it is being ended.
    fn closing(self) -> u32 {
        self.word & !PHASE | CLOSING
    }
}

#[derive(Debug)]
pub(crate) struct Owners {
    words: Box<[AtomicU32]>,
    names: Mutex<Vec<String>>,
    progress: Condvar,
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            words: (0..MAX_OWNERS).map(|_| AtomicU32::new(FREE)).collect(),
            names: Mutex::default(),
            progress: Condvar::default(),
        }
    }
}

impl Owners {
    /// Enters an owner. None when there are [`MAX_OWNERS`].
    pub(crate) fn open(&self, name: &str) -> Option<OwnerId> {
        let mut names = self.names.lock();
        let free = |word: &AtomicU32| word.load(Ordering::SeqCst) & PHASE == FREE;
        let at = self.words.iter().position(free)?;
        let before = self.words[at].load(Ordering::SeqCst);
        let word = (before.wrapping_add(GENERATION) & !PHASE) | OPEN;
        if names.len() <= at {
            names.resize(at + 1, String::new());
        }
        name.clone_into(&mut names[at]);
        self.words[at].store(word, Ordering::SeqCst);
        Some(OwnerId {
            index: at as u16,
            word,
        })
    }

    fn word(&self, owner: u16) -> &AtomicU32 {
        &self.words[usize::from(owner)]
    }

    pub(crate) fn is_open(&self, owner: OwnerId) -> bool {
        self.word(owner.index).load(Ordering::SeqCst) == owner.word
    }

    /// Refuses further tasks. False if it was not open.
    pub(crate) fn close(&self, owner: OwnerId) -> bool {
        self.word(owner.index)
            .compare_exchange(
                owner.word,
                owner.closing(),
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .is_ok()
    }

    /// A task of that owner is gone: tells who waits for the last one.
    pub(crate) fn on_gone(&self, owner: u16) {
        if self.word(owner).load(Ordering::SeqCst) & PHASE == CLOSING {
            let _names = self.names.lock();
            self.progress.notify_all();
        }
    }

    /// Waits until `is_gone`, which is asked again after every [`Self::on_gone`] and [`Self::forget`].
    pub(crate) fn wait(&self, is_gone: impl Fn() -> bool) {
        let mut names = self.names.lock();
        while !is_gone() {
            names = self.progress.wait(names);
        }
    }

    /// Whether it was closed and is not forgotten yet.
    pub(crate) fn is_closing(&self, owner: OwnerId) -> bool {
        self.word(owner.index).load(Ordering::SeqCst) == owner.closing()
    }

    /// Forgets an owner that was closed and has no tasks. Several may do so, and one of them does.
    pub(crate) fn forget(&self, owner: OwnerId) {
        let free = owner.word & !PHASE | FREE;
        let forgotten = self.word(owner.index).compare_exchange(
            owner.closing(),
            free,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if forgotten.is_ok() {
            let _names = self.names.lock();
            self.progress.notify_all();
        }
    }

    /// All that there are, those too that are closed and not forgotten yet.
    pub(crate) fn all(&self) -> Vec<OwnerId> {
        let owners = self.words.iter().enumerate().filter_map(|(at, word)| {
            let word = word.load(Ordering::SeqCst);
            (word & PHASE != FREE).then_some(OwnerId {
                index: at as u16,
                word: word & !PHASE | OPEN,
            })
        });
        owners.collect()
    }

    pub(crate) fn name(&self, owner: u16) -> String {
        let names = self.names.lock();
        names.get(usize::from(owner)).cloned().unwrap_or_default()
    }
}
