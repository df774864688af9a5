//! Output encrypted into records.

use std::io::{self, IoSlice, Write};

use kedge_tls::rustls::server::ServerConnectionData;
use kedge_tls::rustls::unbuffered::WriteTraffic;

/// The number of bytes of output in a full record.
pub(super) const RECORD_PLAIN_BYTES: usize = 16 << 10;
/// The number of bytes by which a record may be longer than its content: header, nonce, padding and tag. A key update
/// that precedes it fits in, too.
pub(super) const RECORD_EXTRA_BYTES: usize = 256;

/// Encrypts output into the records of a buffer. The last slices that fill no record together with others are copied
/// once; of a large value, full records are encrypted from where it lies.
pub(super) struct RecordWriter<'w> {
    pub(super) traffic: WriteTraffic<'w, ServerConnectionData>,
    pub(super) buffer: &'w mut [u8],
    /// The number of bytes of the buffer that have records.
    pub(super) filled: usize,
    /// Memory for the content of a record that consists of several slices.
    pub(super) gathered: &'w mut Vec<u8>,
}

impl RecordWriter<'_> {
    /// Returns true if a full record fits in.
    fn has_room(&self) -> bool {
        self.buffer.len() - self.filled >= RECORD_PLAIN_BYTES + RECORD_EXTRA_BYTES
    }

    fn encrypt(&mut self, content: &[u8]) -> io::Result<()> {
        let room = &mut self.buffer[self.filled..];
        let written = self.traffic.encrypt(content, room);
        self.filled += written.map_err(io::Error::other)?;
        Ok(())
    }

    /// Encrypts a record with the first bytes of these slices. Returns their number.
    fn encrypt_gathered(&mut self, slices: &[IoSlice<'_>], skipped: usize) -> io::Result<usize> {
        let mut gathered = std::mem::take(self.gathered);
        gathered.clear();
        let mut skipped = skipped;
        for slice in slices {
            let rest = &slice[skipped..];
            skipped = 0;
            let room = RECORD_PLAIN_BYTES - gathered.len();
            gathered.extend_from_slice(&rest[..rest.len().min(room)]);
            if gathered.len() == RECORD_PLAIN_BYTES {
                break;
            }
        }
        let result = self.encrypt(&gathered);
        let count = gathered.len();
        *self.gathered = gathered;
        result.map(|()| count)
    }
}

impl Write for RecordWriter<'_> {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        for part in content.chunks(RECORD_PLAIN_BYTES) {
            if !self.has_room() {
                break;
            }
            self.encrypt(part)?;
            taken += part.len();
        }
        Ok(taken)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        let (mut at, mut skipped) = (0, 0);
        while at < slices.len() && self.has_room() {
            let rest = slices[at].len() - skipped;
            let is_last = at + 1 == slices.len();
            let mut count = if is_last || rest >= RECORD_PLAIN_BYTES {
                let count = rest.min(RECORD_PLAIN_BYTES);
                self.encrypt(&slices[at][skipped..skipped + count])?;
                count
            } else {
                self.encrypt_gathered(&slices[at..], skipped)?
            };
            taken += count;
            while at < slices.len() && count >= slices[at].len() - skipped {
                count -= slices[at].len() - skipped;
                (at, skipped) = (at + 1, 0);
            }
            skipped += count;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
