//! Replies to the kernel, as bytes.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::StatVfs;
use rustix::io::Errno;

/// The largest write, in bytes.
pub(crate) const WRITE_BYTES_MAX: u32 = 128 << 10;
/// The minor version of the protocol.
const MINOR: u32 = 31;
/// Reads need not come in their order, and writes may be larger than a page.
const FLAGS: u32 = 1 | 1 << 5;

/// The bytes of a reply, without its header.
#[derive(Debug, Default)]
pub(crate) struct Reply(Vec<u8>);

impl Reply {
    pub(crate) fn data(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn zeros(mut self, bytes: usize) -> Self {
        self.0.resize(self.0.len() + bytes, 0);
        self
    }

    /// The parameters of the file system. `minor` is the version of the kernel.
    pub(crate) fn init(minor: u32, readahead: u32) -> Self {
        let reply = Self::default().u32(7).u32(MINOR.min(minor));
        let reply = reply.u32(readahead).u32(FLAGS);
        // Calls in flight that nobody waits for, and those at which the kernel makes processes wait.
        let reply = reply.u16(64).u16(48);
        // The granularity of times in nanoseconds.
        reply.u32(WRITE_BYTES_MAX).u32(1).zeros(36)
    }

    fn attributes(self, node: u64, file: &Metadata) -> Self {
        let reply = self.u64(node).u64(file.size()).u64(file.blocks());
        let times = [file.atime(), file.mtime(), file.ctime()];
        let reply = times
            .iter()
            .fold(reply, |reply, time| reply.u64(time.cast_unsigned()));
        let parts = [file.atime_nsec(), file.mtime_nsec(), file.ctime_nsec()];
        let reply = parts.iter().fold(reply, |reply, part| {
            reply.u32(low_u32(part.cast_unsigned()))
        });
        let reply = reply.u32(file.mode()).u32(low_u32(file.nlink()));
        let reply = reply.u32(file.uid()).u32(file.gid());
        reply.u32(0).u32(low_u32(file.blksize())).u32(0)
    }

    /// The attributes of a file, which the kernel asks for again each time.
    pub(crate) fn attr(node: u64, file: &Metadata) -> Self {
        Self::default().u64(0).u64(0).attributes(node, file)
    }

    /// A name that was found or made.
    pub(crate) fn entry(node: u64, file: &Metadata) -> Self {
        let reply = Self::default().u64(node).zeros(32);
        reply.attributes(node, file)
    }

    /// A file that was opened.
    pub(crate) fn open(self, handle: u64) -> Self {
        self.u64(handle).u64(0)
    }

    pub(crate) fn written(bytes: usize) -> Self {
        Self::default().u32(low_u32(bytes as u64)).u32(0)
    }

    /// One entry of a directory, if there is room for it within `limit` bytes. `next` is the position of the entry behind it.
    pub(crate) fn dir_entry(&mut self, limit: usize, next: u64, name: &OsStr, kind: u32) -> bool {
        let len = (24 + name.len()).next_multiple_of(8);
        if self.0.len() + len > limit {
            return false;
        }
        let begin = self.0.len();
        let reply = Self(std::mem::take(&mut self.0));
        // The kernel knows this number as that of a file whose number is unknown.
        let reply = reply.u64(0xffff_ffff).u64(next);
        let mut bytes = reply.u32(low_u32(name.len() as u64)).u32(kind).0;
        bytes.extend(name.as_bytes());
        bytes.resize(begin + len, 0);
        self.0 = bytes;
        true
    }

    pub(crate) fn statfs(stat: &StatVfs) -> Self {
        let reply = Self::default().u64(stat.f_blocks).u64(stat.f_bfree);
        let reply = reply.u64(stat.f_bavail).u64(stat.f_files).u64(stat.f_ffree);
        let reply = reply
            .u32(low_u32(stat.f_bsize))
            .u32(low_u32(stat.f_namemax));
        reply.u32(low_u32(stat.f_frsize)).zeros(28)
    }
}

fn low_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Returns the reply to a request, with its header.
pub(crate) fn message(unique: u64, reply: Result<Reply, Errno>) -> Vec<u8> {
    let (error, body) = match reply {
        Ok(reply) => (0, reply.0),
        Err(errno) => (-errno.raw_os_error(), Vec::new()),
    };
    let len = low_u32(16 + body.len() as u64);
    let header = Reply::default().u32(len).u32(error.cast_unsigned());
    let mut bytes = header.u64(unique).0;
    bytes.extend(body);
    bytes
}
