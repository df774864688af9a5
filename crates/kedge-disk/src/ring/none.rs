//! No reads: what there is on other systems.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// A file whose bytes are read through a [`ReadRing`]: there is none.
#[derive(Debug, Clone)]
pub enum RingFile {}

/// Reads of one thread: there are none.
#[derive(Debug)]
pub enum ReadRing {}

impl ReadRing {
    /// Never one.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: u32) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Never asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match *self {}
    }

    /// Never asked.
    #[must_use]
    pub fn has_more_to_submit(&self) -> bool {
        match *self {}
    }

    /// Never asked.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match *self {}
    }

    /// Never asked.
    pub fn read(&mut self, _: RingFile, _: u64, _: usize, _: u64) {
        match *self {}
    }

    /// Never asked.
    ///
    /// # Errors
    /// None.
    pub fn submit(&mut self) -> io::Result<()> {
        match *self {}
    }

    /// Never asked.
    pub fn take_done(&mut self, _: impl FnMut(u64, io::Result<Vec<u8>>)) {
        match *self {}
    }
}

impl AsRawFd for ReadRing {
    fn as_raw_fd(&self) -> RawFd {
        match *self {}
    }
}
