//! The placeholder for operating systems without asynchronous reads.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// A file for reads through a [`ReadRing`], of which none exists.
#[derive(Debug, Clone)]
pub enum RingFile {}

/// A ring of asynchronous reads, of which none exists.
#[derive(Debug)]
pub enum ReadRing {}

impl ReadRing {
    /// Always fails.
    ///
    /// # Errors
    /// `Unsupported`, always.
    pub fn new(_: u32) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Never called.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub fn has_more_to_submit(&self) -> bool {
        match *self {}
    }

    /// Never called.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match *self {}
    }

    /// Never called.
    pub fn read(&mut self, _: RingFile, _: u64, _: usize, _: u64) {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn submit(&mut self) -> io::Result<()> {
        match *self {}
    }

    /// Never called.
    pub fn take_done(&mut self, _: impl FnMut(u64, io::Result<Vec<u8>>)) {
        match *self {}
    }
}

impl AsRawFd for ReadRing {
    fn as_raw_fd(&self) -> RawFd {
        match *self {}
    }
}
