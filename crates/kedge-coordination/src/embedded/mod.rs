//! The embedded store: files in a directory that the processes of one machine share, for development and tests.
//!
//! Two files take turns: each change overwrites the one with the older state, in space that was allocated before. So nodes
//! renew their leases on a full disk.
//!
//! Invariants:
//! * The state is changed only under the directory's lock. A process that is killed at any point leaves the file with the
//!   state before, and the system releases its lock. A file that is partly written has a wrong checksum.
//! * A call returns a revision only after it is durable, whoever wrote it. A file without the mark of a sync is written again
//!   under the lock, because its writer may have been killed before.
//! * Reads take no lock if the newest file has the mark. The other one is the next to be overwritten, and the checksum shows that
//!   a file changed while it was read.

mod file;
mod state;
mod watch;

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kedge_disk::{DirLock, Disk, DiskError, File, Operation, PosixDisk, replace_file};

use crate::position::Seen;
use crate::{
    CoordinationError, Coordinator, Revision, Snapshot, StorePosition, Transaction, Watch,
};
use file::Header;
use state::State;
use watch::EmbeddedWatch;

/// The names of the files.
const FILES: [&str; 2] = ["coordination-a", "coordination-b"];
/// The space of a file is a multiple of this, in bytes, and at least [`SPARE_BYTES`] more than its state needs.
const SPACE_STEP: u64 = 256 << 10;
/// The space in bytes by which the state may grow on a full disk: the history fills.
const SPARE_BYTES: u64 = 128 << 10;
/// The time between two looks of a watch at the file.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The time between two attempts to lock the directory.
const LOCK_INTERVAL: Duration = Duration::from_millis(1);

/// The parameters of a store that are not its directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbeddedOptions {
    /// The newest position that an earlier handle has seen.
    pub seen: Option<StorePosition>,
}

/// A coordination store in a directory.
#[derive(Clone, Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    seen: Seen,
    /// Files are created so that nobody else can read them.
    is_private: bool,
}

/// The newest state of the files.
struct Loaded {
    store: u64,
    state: State,
    /// The file that has it.
    file: usize,
}

/// A file of the store: its first line, its number, and itself.
type OpenedFile = (Result<Header, CoordinationError>, usize, Box<dyn File>);

/// The result of a step under the lock: whether it changed the state, and its answer.
type Step<T> = Result<(bool, T), CoordinationError>;

impl Embedded {
    /// Opens the store in a directory of the operating system, or creates both. Nobody else can read what it creates.
    ///
    /// # Errors
    /// `Disk`, or `Damaged`.
    pub fn open(dir: &Path, options: EmbeddedOptions) -> Result<Self, CoordinationError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(dir)
            .map_err(|source| DiskError::new(Operation::CreateDir, dir, source))?;
        let shared = Shared::new(Arc::new(PosixDisk), dir, options, true);
        shared.precreate(&dir.join("LOCK"))?;
        Ok(Embedded {
            shared: Arc::new(shared),
        })
    }

    /// Opens the store on another disk, as a simulated one.
    ///
    /// # Errors
    /// Those of [`Embedded::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: EmbeddedOptions,
    ) -> Result<Self, CoordinationError> {
        disk.create_dir_all(dir)?;
        let shared = Shared::new(disk, dir, options, false);
        Ok(Embedded {
            shared: Arc::new(shared),
        })
    }
}

impl Coordinator for Embedded {
    fn read_prefix(&self, prefix: &str, timeout: Duration) -> Result<Snapshot, CoordinationError> {
        let entries = |state: &State| state.entries(prefix);
        let (position, entries) = self.shared.view(timeout, entries)?;
        Ok(Snapshot { position, entries })
    }

    fn transact(
        &self,
        transaction: &Transaction,
        timeout: Duration,
    ) -> Result<Revision, CoordinationError> {
        transaction.check()?;
        let step = |state: &mut State| {
            let before = state.revision;
            let revision = state.transact(transaction)?;
            Ok((revision.0 != before, revision))
        };
        let (_, revision) = self.shared.step(timeout, step)?;
        Ok(revision)
    }

    fn watch(&self, after: Revision) -> Result<Box<dyn Watch>, CoordinationError> {
        self.shared.seen.newest()?;
        let watch = EmbeddedWatch::new(self.shared.clone(), after);
        Ok(Box::new(watch))
    }

    fn seen(&self) -> Option<StorePosition> {
        self.shared.seen.last()
    }
}

impl Shared {
    fn new(disk: Arc<dyn Disk>, dir: &Path, options: EmbeddedOptions, is_private: bool) -> Self {
        Shared {
            disk,
            dir: dir.to_owned(),
            seen: Seen::new(options.seen),
            is_private,
        }
    }

    fn path(&self, file: usize) -> PathBuf {
        self.dir.join(FILES[file])
    }

    /// Looks at the present state, under the lock only if it is not known to be durable.
    fn view<T>(
        &self,
        timeout: Duration,
        look: impl FnOnce(&State) -> T,
    ) -> Result<(StorePosition, T), CoordinationError> {
        let before = self.seen.newest()?;
        let Some(Loaded { store, state, .. }) = self.load_synced()? else {
            return self.step(timeout, |state| Ok((false, look(state))));
        };
        let position = position(store, &state);
        self.seen.observe(before, position)?;
        Ok((position, look(&state)))
    }

    /// Runs a step under the lock, with the present state, and makes what has changed durable.
    fn step<T>(
        &self,
        timeout: Duration,
        step: impl FnOnce(&mut State) -> Step<T>,
    ) -> Result<(StorePosition, T), CoordinationError> {
        let before = self.seen.newest()?;
        let _lock = self.lock(timeout)?;
        let Loaded {
            store,
            mut state,
            file,
        } = self.load()?;
        self.seen.observe(before, position(store, &state))?;
        let done = step(&mut state);
        if matches!(done, Ok((true, _))) {
            self.save(1 - file, store, &state)?;
        }
        let position = position(store, &state);
        self.seen.observe(before, position)?;
        done.map(|(_, answer)| (position, answer))
    }

    fn lock(&self, timeout: Duration) -> Result<DirLock, CoordinationError> {
        let began = Instant::now();
        loop {
            match self.disk.lock_dir(&self.dir) {
                Ok(lock) => return Ok(lock),
                Err(error) if !error.is_locked() => return Err(error.into()),
                Err(error) if began.elapsed() >= timeout => {
                    return Err(CoordinationError::Unreachable(error.to_string()));
                }
                Err(_) => thread::sleep(LOCK_INTERVAL),
            }
        }
    }

    /// Reads the newest state without the lock; `None` if it is not known to be durable.
    fn load_synced(&self) -> Result<Option<Loaded>, CoordinationError> {
        let newest = self.files_by_age()?.into_iter().next();
        let Some((Ok(header), file, open)) = newest else {
            return Ok(None);
        };
        match file::read_state(header, &*open) {
            Ok((
                Header {
                    store, is_synced, ..
                },
                state,
            )) => Ok(is_synced.then_some(Loaded { store, state, file })),
            Err(CoordinationError::Damaged(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the files and reads their first lines, the newest one first.
    fn files_by_age(&self) -> Result<Vec<OpenedFile>, CoordinationError> {
        let mut files = Vec::new();
        for file in 0..FILES.len() {
            if let Some(open) = self.open_file(file)? {
                files.push((file::read_header(&*open), file, open));
            }
        }
        files.sort_by_key(|(header, ..)| {
            // A file that is being written comes last.
            std::cmp::Reverse(header.as_ref().map_or(0, |header| header.revision))
        });
        Ok(files)
    }

    /// Reads the newest state, or creates that of a new store.
    fn load(&self) -> Result<Loaded, CoordinationError> {
        let headers = self.files_by_age()?;
        if headers.is_empty() {
            let (store, state) = (random()?, State::new());
            self.save(0, store, &state)?;
            return Ok(Loaded {
                store,
                state,
                file: 0,
            });
        }
        let mut trouble = None;
        for (header, file, open) in headers {
            let read = header.and_then(|header| file::read_state(header, &*open));
            match read {
                Ok((header, state)) => {
                    if !header.is_synced {
                        // Its writer was killed before, or its sync failed, after which another one does not help.
                        self.disk.sync_dir(&self.dir)?;
                        self.save(file, header.store, &state)?;
                    }
                    let store = header.store;
                    return Ok(Loaded { store, state, file });
                }
                // Its writer has not finished.
                Err(error @ CoordinationError::Damaged(_)) => {
                    trouble.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(trouble.unwrap_or_else(|| CoordinationError::Damaged("there is no state".to_owned())))
    }

    /// Overwrites the file with the older state.
    fn save(&self, file: usize, store: u64, state: &State) -> Result<(), CoordinationError> {
        let bytes = file::encode(store, state)?;
        let written = match self.open_file(file)? {
            Some(open) => overwrite(&*open, &bytes)?,
            // Readers know a file only with a state.
            None => self.create_file(file, &bytes)?,
        };
        // Others see the state, which a power failure may take back.
        let unknown = |error: DiskError| CoordinationError::OutcomeUnknown(error.to_string());
        written.map_err(unknown)?;
        match self.open_file(file).map_err(unknown)? {
            Some(open) => file::mark_synced(&*open).map_err(unknown),
            None => Ok(()),
        }
    }

    /// Returns an error of the sync after which the file has its name as the inner result.
    fn create_file(&self, file: usize, bytes: &[u8]) -> Result<Result<(), DiskError>, DiskError> {
        let path = self.path(file);
        if self.is_private {
            self.precreate(&path.with_extension("tmp"))?;
        }
        match replace_file(&*self.disk, &path, bytes) {
            Err(error) if error.op == Operation::SyncDir => Ok(Err(error)),
            created => created.map(Ok),
        }
    }

    /// Opens a file; `None` if there is none yet.
    fn open_file(&self, file: usize) -> Result<Option<Box<dyn File>>, DiskError> {
        match self.disk.open(&self.path(file)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a file that only its owner can read, before the disk opens it.
    fn precreate(&self, path: &Path) -> Result<(), DiskError> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let created = options.open(path).map(|_| ());
        created.map_err(|source| DiskError::new(Operation::Create, path, source))
    }

    /// Returns the newest revision by the first lines of the files; `None` if there is no file yet. Without the lock, so that
    /// it may be wrong while a file is written.
    fn peek(&self) -> Result<Option<u64>, CoordinationError> {
        let mut newest = None;
        for file in 0..FILES.len() {
            if let Some(open) = self.open_file(file)? {
                let header = file::read_header(&*open);
                newest = newest.max(Some(header.map_or(0, |header| header.revision)));
            }
        }
        Ok(newest)
    }
}

fn position(store: u64, state: &State) -> StorePosition {
    StorePosition {
        store,
        revision: Revision(state.revision),
    }
}

/// Overwrites a file, and returns the result of the sync as the inner one.
fn overwrite(file: &dyn File, bytes: &[u8]) -> Result<Result<(), DiskError>, DiskError> {
    let needed = bytes.len() as u64;
    let has = file.len()?;
    if has < needed + SPARE_BYTES {
        let space = (needed + SPARE_BYTES).next_multiple_of(SPACE_STEP);
        match file.allocate(space) {
            // It fits all the same.
            Err(error) if error.is_no_space() && has >= needed => {}
            allocated => allocated?,
        }
    }
    file.write_at(bytes, 0)?;
    Ok(file.sync_data())
}

fn random() -> Result<u64, CoordinationError> {
    getrandom::u64()
        .map_err(|error| CoordinationError::Refused(format!("no random number: {error}")))
}
