//! Copies of files: a thread requests the file of a vBucket from its active in parts, and hands it to the bucket.
//!
//! A new copy of a large vBucket costs less as a file: its changes are neither parsed nor logged, and are written once.
//! Whatever fails, DCP sends the changes instead.
//!
//! Invariants:
//! * A copy is for an empty replica that is in no chain, and is tried once before its stream. So no SyncWrite waits for it,
//!   and the throttles of both nodes may delay it.
//! * A thread copies one file, on a connection of its own, and ends with it. Each link has at most
//!   [`COPIES_PER_LINK`] of them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kedge_bucket::{Bucket, FileCopy, VbState};
use kedge_node::coordination::PeerAddress;
use kedge_node::inbox::Inbox;
use kedge_protocol::binary::commands::{
    FileFragment, GetFileFragment, PreparedSnapshot, ReleaseSnapshot,
};
use kedge_protocol::binary::{Opcode, RequestWriter};
use kedge_types::{Seqno, Status, VbId};

use super::dial::{DialError, Dialog};
use super::status::LinkTotals;
use super::{LinkMessage, NodeIdentity};

/// The number of files that a link copies at once.
pub(super) const COPIES_PER_LINK: usize = 2;
/// The number of bytes of a part. Parts are small, so that a throttled source sends an even stream.
const PART_BYTES: u64 = 512 << 10;
/// The longest time until a thread notices that its copy is not wanted any more.
const STEP: Duration = Duration::from_millis(50);

/// The reason why a vBucket was not copied as a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FileCopyError {
    /// The file is smaller than the setting, so that DCP is as fast.
    #[error("the file is small")]
    Small,
    #[error("the vBucket does not follow the peer any more")]
    NotWanted,
    #[error("the peer: {0}")]
    Peer(#[from] DialError),
    #[error("the peer's answer to {0} cannot be read")]
    Malformed(&'static str),
    #[error("a part of the file has another checksum than the peer computed")]
    Checksum,
    #[error("this node: {}", .0.name())]
    Own(Status),
    #[error("the thread does not start: {0}")]
    Thread(#[from] std::io::Error),
}

impl From<Status> for FileCopyError {
    fn from(status: Status) -> Self {
        Self::Own(status)
    }
}

/// A vBucket to copy.
pub(super) struct FileRequest {
    pub(super) link: u64,
    pub(super) vb: VbId,
    /// The number of the attempt.
    pub(super) asked: u64,
    pub(super) peer: PeerAddress,
    pub(super) identity: Arc<NodeIdentity>,
    pub(super) bucket: Arc<Bucket>,
    pub(super) min_bytes: u64,
    pub(super) totals: Arc<LinkTotals>,
}

/// Returns the size from which on a vBucket is copied as a file, if it is an empty replica of a bucket that copies files.
pub(super) fn wanted_min_bytes(bucket: &Bucket, vb: VbId, from: Seqno) -> Option<u64> {
    let is_empty_replica = from == Seqno(0) && bucket.vbucket_state(vb) == Ok(VbState::Replica);
    bucket.copies().min_bytes().filter(|_| is_empty_replica)
}

impl FileRequest {
    /// Starts the thread. The result is a message to the inbox.
    pub(super) fn begin(
        self,
        inbox: &Arc<Inbox<LinkMessage>>,
        still: impl Fn() -> bool + Clone + Send + 'static,
    ) {
        let (link, vb, asked) = (self.link, self.vb, self.asked);
        let answers = Arc::clone(inbox);
        let answer = move |result| {
            answers.send([LinkMessage::FileCopied {
                link,
                vb,
                asked,
                result,
            }]);
        };
        let on_thread = answer.clone();
        let work = move || match self.copy(&still) {
            Ok(copy) => {
                let done = move |installed: Result<Seqno, Status>| {
                    on_thread(installed.map_err(FileCopyError::from));
                };
                self.bucket.copies().install(vb, copy, still, done);
            }
            Err(error) => on_thread(Err(error)),
        };
        let named = thread::Builder::new().name("kedge-files".to_owned());
        if let Err(error) = named.spawn(work) {
            answer(Err(error.into()));
        }
    }

    /// Copies the file, without installing it.
    fn copy(&self, still: &dyn Fn() -> bool) -> Result<FileCopy, FileCopyError> {
        let mut dialog = Dialog::begin(&self.peer, self.bucket.name(), &self.identity)?;
        let prepared = {
            let opcode = Opcode::PrepareSnapshot;
            dialog.send(|out| self.writer(opcode).write(&[], &[], &[], out))?;
            let answer = dialog.whole_answer(opcode)?;
            PreparedSnapshot::decode(&answer.value)
                .map_err(|_| FileCopyError::Malformed(opcode.name()))?
        };
        let copied = if prepared.bytes < self.min_bytes {
            Err(FileCopyError::Small)
        } else {
            self.copy_parts(&mut dialog, &prepared, still)
        };
        let release = ReleaseSnapshot { id: prepared.id };
        let opcode = Opcode::ReleaseSnapshot;
        // A file that is not released is closed after a while.
        if dialog
            .send(|out| release.encode(&self.writer(opcode), out))
            .is_ok()
        {
            let _ = dialog.whole_answer(opcode);
        }
        if !matches!(
            copied,
            Ok(_) | Err(FileCopyError::Small | FileCopyError::NotWanted)
        ) {
            self.bucket.copies().failed();
        }
        copied
    }

    fn copy_parts(
        &self,
        dialog: &mut Dialog,
        prepared: &PreparedSnapshot,
        still: &dyn Fn() -> bool,
    ) -> Result<FileCopy, FileCopyError> {
        let mut copy = self.bucket.copies().begin(self.vb)?;
        let opcode = Opcode::GetFileFragment;
        while copy.bytes() < prepared.bytes {
            let wanted = GetFileFragment {
                id: prepared.id,
                offset: copy.bytes(),
                length: PART_BYTES.min(prepared.bytes - copy.bytes()),
            };
            dialog.send(|out| wanted.encode(&self.writer(opcode), out))?;
            let answer = dialog.whole_answer(opcode)?;
            let part = FileFragment::decode(&answer.extras)
                .map_err(|_| FileCopyError::Malformed(opcode.name()))?;
            if answer.value.len() as u64 != wanted.length {
                return Err(FileCopyError::Malformed(opcode.name()));
            }
            if crc32c::crc32c(&answer.value) != part.checksum {
                return Err(FileCopyError::Checksum);
            }
            copy.append(&answer.value).map_err(|error| {
                tracing::warn!(bucket = self.bucket.name(), vbucket = %self.vb, %error, "a copy of a file cannot be written");
                FileCopyError::Own(Status::TemporaryFailure)
            })?;
            LinkTotals::add(&self.totals.file_bytes, wanted.length);
            let here = self.bucket.copies().receive_pause(wanted.length);
            let pause = here.max(Duration::from_micros(part.pause_us.into()));
            if !wait(pause, still) {
                return Err(FileCopyError::NotWanted);
            }
        }
        Ok(copy)
    }

    fn writer(&self, opcode: Opcode) -> RequestWriter<'static> {
        RequestWriter {
            vb: self.vb,
            ..RequestWriter::new(opcode)
        }
    }
}

/// Waits until the throttles allow the next part. Returns false if the copy is not wanted any more.
fn wait(pause: Duration, still: &dyn Fn() -> bool) -> bool {
    let end = Instant::now() + pause;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if !still() || left.is_zero() {
            return still();
        }
        thread::sleep(left.min(STEP));
    }
}
