//! The owners of tasks.
//!
//! Invariant: a thread that adds a task fills its slot, then checks that the owner is open, then makes the task
//! runnable. A thread that ends an owner closes it, then lists its tasks. So at least one of the two sees the other,
//! and no task outlives its owner.

use crate::sync::{AtomicU32, Condvar, Mutex, Ordering};

/// Largest number of concurrent owners. Models have few, because the checker explores the orders of all accesses.
pub(crate) const MAX_OWNERS: usize = if cfg!(kedge_model) { 4 } else { 1_024 };

const FREE: u32 = 0;
const OPEN: u32 = 1;
const CLOSING: u32 = 2;
const PHASE: u32 = 3;
const GENERATION: u32 = 4;

/// The owner of a set of tasks, for example a bucket. [`crate::Executor::unregister`] ends all tasks of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId {
    index: u16,
    word: u32,
}

impl OwnerId {
    pub(crate) fn index(self) -> u16 {
        self.index
    }

    /// Returns the word of an owner that is being unregistered.
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
    /// Registers an owner. Returns `None` if there are [`MAX_OWNERS`].
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

    /// Rejects further tasks. Returns `false` if the owner was not open.
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

    /// Notifies waiters that a task of the owner is gone.
    pub(crate) fn on_gone(&self, owner: u16) {
        if self.word(owner).load(Ordering::SeqCst) & PHASE == CLOSING {
            let _names = self.names.lock();
            self.progress.notify_all();
        }
    }

    /// Waits until `is_gone`, which is evaluated again after every [`Self::on_gone`] and [`Self::forget`].
    pub(crate) fn wait(&self, is_gone: impl Fn() -> bool) {
        let mut names = self.names.lock();
        while !is_gone() {
            names = self.progress.wait(names);
        }
    }

    /// Returns `true` if the owner is closed and still has its slot.
    pub(crate) fn is_closing(&self, owner: OwnerId) -> bool {
        self.word(owner.index).load(Ordering::SeqCst) == owner.closing()
    }

    /// Frees the slot of a closed owner without tasks. Of concurrent calls, one has the effect.
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

    /// Returns all owners, including closed ones whose slots are not free yet.
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
