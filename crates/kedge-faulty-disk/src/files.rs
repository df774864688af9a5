//! The files of the directory below, by the numbers of the kernel.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::nodes::Nodes;
use crate::replies::Reply;
use crate::requests::{Request, op};

/// Flags of a change of attributes: the fields that it has.
const SETS_MODE: u32 = 1;
const SETS_SIZE: u32 = 8;
const SETS_MTIME: u32 = 32;
const SETS_MTIME_NOW: u32 = 256;
/// The only flag of a sync: attributes need not be synced.
const SYNCS_DATA: u32 = 1;
/// The access mode in the flags of an open: reads only.
const READS_ONLY: u32 = 0;
const ACCESS_MODE: u32 = 3;

/// An open file or directory.
#[derive(Clone, Debug)]
struct Opened {
    node: u64,
    file: Arc<File>,
    /// The entries of a directory: names, and the kinds of files.
    entries: Arc<Vec<(OsString, u32)>>,
}

#[derive(Debug, Default)]
struct Tables {
    nodes: Nodes,
    opened: HashMap<u64, Opened>,
    next_handle: u64,
}

/// The files of the directory below.
#[derive(Debug)]
pub(crate) struct Files {
    below: PathBuf,
    tables: Mutex<Tables>,
}

type Replied = Result<Reply, Errno>;

#[expect(clippy::needless_pass_by_value, reason = "a function for map_err")]
fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Files {
    pub(crate) fn new(below: PathBuf) -> Self {
        Self {
            below,
            tables: Mutex::default(),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of a file within the file system; `None` if it was removed.
    pub(crate) fn path(&self, node: u64) -> Option<PathBuf> {
        self.tables().nodes.path(node).map(ToOwned::to_owned)
    }

    /// Returns the paths of a file in a directory: within the file system, and below.
    fn child(&self, dir: u64, name: &OsStr) -> Result<(PathBuf, PathBuf), Errno> {
        let path = self.path(dir).ok_or(Errno::STALE)?.join(name);
        let below = self.below.join(&path);
        Ok((path, below))
    }

    fn below(&self, node: u64) -> Result<PathBuf, Errno> {
        Ok(self.below.join(self.path(node).ok_or(Errno::STALE)?))
    }

    fn opened(&self, handle: u64) -> Result<Opened, Errno> {
        let tables = self.tables();
        tables.opened.get(&handle).cloned().ok_or(Errno::BADF)
    }

    /// Returns the attributes of a file, which may be removed and still be open.
    fn attributes(&self, node: u64) -> Result<Metadata, Errno> {
        if let Ok(path) = self.below(node) {
            return fs::symlink_metadata(path).map_err(errno);
        }
        let tables = self.tables();
        let open = tables.opened.values().find(|open| open.node == node);
        open.ok_or(Errno::STALE)?.file.metadata().map_err(errno)
    }

    fn open(&self, node: u64, file: File, entries: Vec<(OsString, u32)>) -> u64 {
        let mut tables = self.tables();
        tables.next_handle += 1;
        let handle = tables.next_handle;
        let opened = Opened {
            node,
            file: Arc::new(file),
            entries: Arc::new(entries),
        };
        tables.opened.insert(handle, opened);
        handle
    }

    /// Executes a request.
    ///
    /// # Errors
    /// That of the call below; `ENOSYS` for an operation that this file system does not have.
    pub(crate) fn execute(&self, request: &Request) -> Replied {
        match request.op {
            op::INIT => Ok(Reply::init(request.u32(4)?, request.u32(8)?)),
            op::LOOKUP => self.look_up(request.node, request.name(0)?),
            op::GETATTR => Ok(Reply::attr(request.node, &self.attributes(request.node)?)),
            op::SETATTR => self.set_attributes(request),
            op::MKDIR => {
                let (_, below) = self.child(request.node, request.name(8)?)?;
                fs::create_dir(&below).map_err(errno)?;
                set_mode(&below, request.u32(0)?)?;
                self.look_up(request.node, request.name(8)?)
            }
            op::UNLINK | op::RMDIR => self.remove(request),
            op::RENAME => self.rename(request, 8),
            // There are no flags that any other file system has to know.
            op::RENAME2 if request.u32(8)? == 0 => self.rename(request, 16),
            op::RENAME2 => Err(Errno::INVAL),
            op::OPEN => self.open_file(request),
            op::CREATE => self.create(request),
            op::OPENDIR => self.open_dir(request),
            op::READDIR => self.read_dir(request),
            op::READ => self.read(request),
            op::WRITE => self.write(request),
            op::FSYNC | op::FSYNCDIR => self.sync(request),
            op::FALLOCATE => self.allocate(request),
            op::STATFS => Ok(Reply::statfs(&statvfs(&self.below)?)),
            op::RELEASE | op::RELEASEDIR => {
                self.tables().opened.remove(&request.u64(0)?);
                Ok(Reply::default())
            }
            op::DESTROY => Ok(Reply::default()),
            _ => Err(Errno::NOSYS),
        }
    }

    fn look_up(&self, dir: u64, name: &OsStr) -> Replied {
        let (path, below) = self.child(dir, name)?;
        let found = fs::symlink_metadata(below).map_err(errno)?;
        let node = self.tables().nodes.number(&path);
        Ok(Reply::entry(node, &found))
    }

    fn set_attributes(&self, request: &Request) -> Replied {
        let fields = request.u32(0)?;
        let node = request.node;
        if fields & SETS_SIZE != 0 || fields & (SETS_MTIME | SETS_MTIME_NOW) != 0 {
            let tables = self.tables();
            let open = tables.opened.values().find(|open| open.node == node);
            let open = open.map(|open| open.file.clone());
            drop(tables);
            let file = match open {
                Some(file) => file,
                None => Arc::new(opening(false).open(self.below(node)?).map_err(errno)?),
            };
            if fields & SETS_SIZE != 0 {
                file.set_len(request.u64(16)?).map_err(errno)?;
            }
            if fields & SETS_MTIME_NOW != 0 {
                file.set_modified(SystemTime::now()).map_err(errno)?;
            } else if fields & SETS_MTIME != 0 {
                let at = Duration::new(request.u64(40)?, request.u32(60)?);
                let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + at);
                file.set_times(times).map_err(errno)?;
            }
        }
        if fields & SETS_MODE != 0 {
            set_mode(&self.below(node)?, request.u32(68)?)?;
        }
        Ok(Reply::attr(node, &self.attributes(node)?))
    }

    fn remove(&self, request: &Request) -> Replied {
        let (path, below) = self.child(request.node, request.name(0)?)?;
        let removed = match request.op {
            op::RMDIR => fs::remove_dir(below),
            _ => fs::remove_file(below),
        };
        removed.map_err(errno)?;
        self.tables().nodes.remove(&path);
        Ok(Reply::default())
    }

    /// Renames a file; its names begin at that offset.
    fn rename(&self, request: &Request, names_at: usize) -> Replied {
        let names = request.names(names_at)?;
        let [from, to, ..] = &names[..] else {
            return Err(Errno::INVAL);
        };
        let (from, from_below) = self.child(request.node, from)?;
        let (to, to_below) = self.child(request.u64(0)?, to)?;
        fs::rename(from_below, to_below).map_err(errno)?;
        self.tables().nodes.rename(&from, &to);
        Ok(Reply::default())
    }

    fn open_file(&self, request: &Request) -> Replied {
        let reads_only = request.u32(0)? & ACCESS_MODE == READS_ONLY;
        let file = opening(reads_only).open(self.below(request.node)?);
        let file = file.map_err(errno)?;
        let handle = self.open(request.node, file, Vec::new());
        Ok(Reply::default().open(handle))
    }

    fn create(&self, request: &Request) -> Replied {
        let name = request.name(16)?;
        let (path, below) = self.child(request.node, name)?;
        let mut opening = opening(false);
        let file = opening.create(true).mode(request.u32(4)?).open(below);
        let file = file.map_err(errno)?;
        let node = self.tables().nodes.number(&path);
        let entry = Reply::entry(node, &file.metadata().map_err(errno)?);
        Ok(entry.open(self.open(node, file, Vec::new())))
    }

    fn open_dir(&self, request: &Request) -> Replied {
        let path = self.below(request.node)?;
        let mut entries = Vec::new();
        for entry in fs::read_dir(&path).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            entries.push((entry.file_name(), kind(entry.file_type().map_err(errno)?)));
        }
        let dir = File::open(path).map_err(errno)?;
        let handle = self.open(request.node, dir, entries);
        Ok(Reply::default().open(handle))
    }

    fn read_dir(&self, request: &Request) -> Replied {
        let open = self.opened(request.u64(0)?)?;
        let (from, limit) = (request.u64(8)?, request.u32(16)? as usize);
        let mut reply = Reply::default();
        for ((name, kind), next) in open.entries.iter().zip(1..).skip(from as usize) {
            if !reply.dir_entry(limit, next, name, *kind) {
                break;
            }
        }
        Ok(reply)
    }

    fn read(&self, request: &Request) -> Replied {
        let open = self.opened(request.u64(0)?)?;
        let (mut at, size) = (request.u64(8)?, request.u32(16)? as usize);
        let mut bytes = vec![0; size];
        let mut len = 0;
        while len < size {
            match open.file.read_at(&mut bytes[len..], at).map_err(errno)? {
                0 => break,
                read => (at, len) = (at + read as u64, len + read),
            }
        }
        bytes.truncate(len);
        Ok(Reply::data(bytes))
    }

    fn write(&self, request: &Request) -> Replied {
        let open = self.opened(request.u64(0)?)?;
        let data = request.data(40)?;
        open.file
            .write_all_at(data, request.u64(8)?)
            .map_err(errno)?;
        Ok(Reply::written(data.len()))
    }

    fn sync(&self, request: &Request) -> Replied {
        let open = self.opened(request.u64(0)?)?;
        let synced = match request.u32(8)? & SYNCS_DATA != 0 {
            true => open.file.sync_data(),
            false => open.file.sync_all(),
        };
        synced.map_err(errno)?;
        Ok(Reply::default())
    }

    fn allocate(&self, request: &Request) -> Replied {
        let open = self.opened(request.u64(0)?)?;
        let flags = FallocateFlags::from_bits_retain(request.u32(24)?);
        fallocate(&*open.file, flags, request.u64(8)?, request.u64(16)?)?;
        Ok(Reply::default())
    }
}

fn opening(reads_only: bool) -> fs::OpenOptions {
    let mut opening = File::options();
    opening.read(true).write(!reads_only);
    opening
}

fn set_mode(path: &std::path::Path, mode: u32) -> Result<(), Errno> {
    let permissions = Permissions::from_mode(mode & 0o7777);
    fs::set_permissions(path, permissions).map_err(errno)
}

/// Returns the kind of a file, as directories list it.
fn kind(file: fs::FileType) -> u32 {
    match () {
        () if file.is_dir() => 4,
        () if file.is_symlink() => 10,
        () if file.is_fifo() => 1,
        () if file.is_socket() => 12,
        () => 8,
    }
}
