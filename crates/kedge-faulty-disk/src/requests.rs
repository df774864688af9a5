//! Requests of the kernel, as bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use rustix::io::Errno;

/// The bytes of the header of a request.
const HEADER_BYTES: usize = 40;

/// The operations that this file system has; the kernel does without the others.
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const RENAME2: u32 = 45;
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) op: u32,
    /// The number of the request, which its reply repeats.
    pub(crate) unique: u64,
    /// The file.
    pub(crate) node: u64,
    body: Vec<u8>,
}

impl Request {
    /// Parses what one read of the device returned.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let body = bytes.get(HEADER_BYTES..)?.to_owned();
        Some(Self {
            op: u32_at(bytes, 4)?,
            unique: u64_at(bytes, 8)?,
            node: u64_at(bytes, 16)?,
            body,
        })
    }

    /// Returns whether nobody waits for a reply.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.op, op::FORGET | op::BATCH_FORGET | op::INTERRUPT)
    }

    pub(crate) fn u32(&self, at: usize) -> Result<u32, Errno> {
        u32_at(&self.body, at).ok_or(Errno::INVAL)
    }

    pub(crate) fn u64(&self, at: usize) -> Result<u64, Errno> {
        u64_at(&self.body, at).ok_or(Errno::INVAL)
    }

    /// Returns the bytes from an offset on.
    pub(crate) fn data(&self, at: usize) -> Result<&[u8], Errno> {
        self.body.get(at..).ok_or(Errno::INVAL)
    }

    /// Returns the names from an offset on, each of which ends with a zero.
    pub(crate) fn names(&self, at: usize) -> Result<Vec<&OsStr>, Errno> {
        let names = self.data(at)?.split(|byte| *byte == 0);
        Ok(names.map(OsStr::from_bytes).collect())
    }

    /// Returns the first name from an offset on.
    pub(crate) fn name(&self, at: usize) -> Result<&OsStr, Errno> {
        self.names(at)?.first().copied().ok_or(Errno::INVAL)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}
