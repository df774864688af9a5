//! The vBuckets of a link that are filled with files of the peer before their streams begin.

use std::sync::Arc;

use kedge_bucket::Bucket;
use kedge_types::{Seqno, VbId};

use super::super::files::{COPIES_PER_LINK, FileCopyError, FileRequest, wanted_min_bytes};
use super::super::status::LinkTotals;
use super::{FollowPhase, FollowedStream, LinkStreams};

impl LinkStreams {
    /// Begins to copy the peer's file, or lets the vBucket wait for other copies, if it is to be filled with a file.
    pub(super) fn begin_file(&mut self, bucket: &Arc<Bucket>, vb: VbId, from: Seqno) -> bool {
        let Some(identity) = self.identity.clone().filter(|_| self.from_files) else {
            return false;
        };
        let stream = self.streams.get(&vb);
        let Some(min_bytes) = stream
            .filter(|stream| stream.copy && stream.takeover.is_none() && !stream.tried_file)
            .and_then(|_| wanted_min_bytes(bucket, vb, from))
        else {
            return false;
        };
        let is_copying = |stream: &&FollowedStream| stream.phase == FollowPhase::Copying;
        if self.streams.values().filter(is_copying).count() >= COPIES_PER_LINK {
            self.set(vb, FollowPhase::WaitingForFiles);
            return true;
        }
        self.set(vb, FollowPhase::Copying);
        self.begin_attempt(vb);
        let Some(stream) = self.streams.get(&vb) else {
            return false;
        };
        let request = FileRequest {
            link: self.link,
            vb,
            asked: stream.asked,
            peer: self.peer.clone(),
            identity,
            bucket: Arc::clone(bucket),
            min_bytes,
            totals: Arc::clone(&self.totals),
        };
        request.begin(&self.inbox, stream.still());
        true
    }

    /// Handles the end of a copy of the peer's file. A stream follows in any case.
    pub(in super::super) fn on_file_copied(
        &mut self,
        vb: VbId,
        asked: u64,
        result: Result<Seqno, FileCopyError>,
        now_ns: u64,
    ) {
        let is_it = |stream: &&mut FollowedStream| {
            stream.asked == asked && stream.phase == FollowPhase::Copying
        };
        let Some(stream) = self.streams.get_mut(&vb).filter(is_it) else {
            return;
        };
        stream.tried_file = true;
        match result {
            Ok(seqno) => {
                tracing::info!(peer = %self.peer, vbucket = %vb, %seqno, "a vBucket was filled with a file");
                LinkTotals::add(&self.totals.files, 1);
                self.show(vb, |status| {
                    (status.received, status.announced) = (seqno, seqno);
                });
            }
            Err(FileCopyError::Small) => {}
            Err(why) => {
                tracing::warn!(peer = %self.peer, vbucket = %vb, %why, "a file could not be copied; its changes are streamed");
                LinkTotals::add(&self.totals.file_failures, 1);
                self.show(vb, |status| status.last_error = Some(why.to_string()));
            }
        }
        self.set(vb, FollowPhase::Waiting(now_ns));
        self.resume_waiting_for_files(now_ns);
    }

    pub(super) fn resume_waiting_for_files(&mut self, now_ns: u64) {
        let waits = |(vb, stream): (&VbId, &FollowedStream)| {
            (stream.phase == FollowPhase::WaitingForFiles).then_some(*vb)
        };
        let waiting: Vec<VbId> = self.streams.iter().filter_map(waits).collect();
        for vb in waiting {
            self.set(vb, FollowPhase::Waiting(now_ns));
        }
    }
}
