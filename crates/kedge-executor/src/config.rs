//! What an executor and a task are made from.

use crate::kind::{Kind, Pool};
use crate::owners::OwnerId;
use crate::threads::Threads;
use std::borrow::Cow;
use std::time::Duration;

/// How many threads the pools have, and how the operating system treats them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Threads of [`Pool::Reader`].
    pub reader: Threads,
    /// Threads of [`Pool::Writer`].
    pub writer: Threads,
    /// Threads of [`Pool::AuxIo`].
    pub auxio: Threads,
    /// Threads of [`Pool::NonIo`].
    pub nonio: Threads,
    /// What is added to the nice value of the threads of [`Pool::AuxIo`], 0 to 19: long work leaves the processor to
    /// what clients wait for.
    pub auxio_nice: i32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reader: Threads::default(),
            writer: Threads::default(),
            auxio: Threads::default(),
            nonio: Threads::default(),
            auxio_nice: 5,
        }
    }
}

impl Config {
    /// The threads of one pool.
    #[must_use]
    pub fn threads(&self, pool: Pool) -> Threads {
        match pool {
            Pool::Reader => self.reader,
            Pool::Writer => self.writer,
            Pool::AuxIo => self.auxio,
            Pool::NonIo => self.nonio,
        }
    }
}

/// What a task is scheduled with.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// What it is.
    pub kind: &'static Kind,
    /// Whom it belongs to.
    pub owner: OwnerId,
    /// What it does, for who looks at the list of tasks; the kind's name if it is empty.
    pub description: Cow<'static, str>,
    /// When it runs first: so long from now; None to sleep until it is woken.
    pub first_run: Option<Duration>,
    /// When its owner is unregistered without force it gets one more run, see [`crate::Context::is_last_run`].
    pub wants_last_run: bool,
}

impl TaskSpec {
    /// A task that runs as soon as there is a thread.
    #[must_use]
    pub fn new(kind: &'static Kind, owner: OwnerId) -> Self {
        Self {
            kind,
            owner,
            description: Cow::Borrowed(""),
            first_run: Some(Duration::ZERO),
            wants_last_run: false,
        }
    }
}
