//! Telling streams that there is more to read, or that their vBucket is something else by now.
//!
//! What is new is noted under the vBucket's lock, where it happens, and told without it, by the same thread.

use super::StreamSignals;
use super::stream::Shared;
use crate::dcp::component::Dcp;
use kedge_bucket_core::BucketCore;
use kedge_replication::EndReason;
use kedge_types::VbId;
use kedge_vbucket::{StreamEvents, VbIdentity};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl StreamSignals {
    /// Notes the events of a step, whose caller has locked the vBucket, for its streams. Whoever runs steps calls
    /// [`StreamSignals::tell_streams`] when it has let the lock go.
    pub(crate) fn note_news(&self, vb: VbId, news: StreamEvents) {
        if news != StreamEvents::default() {
            self.news.lock().push((vb, news));
            self.has_news.store(true, Ordering::Release);
        }
    }

    /// Tells streams what was noted. Cheap when nothing was.
    pub(crate) fn tell_streams(&self, core: &BucketCore) {
        let has_news = &self.has_news;
        if !has_news.load(Ordering::Relaxed) || !has_news.swap(false, Ordering::AcqRel) {
            return;
        }
        let news = std::mem::take(&mut *self.news.lock());
        for (vb, news) in news {
            let streams = self.open_streams(vb);
            if news.state && !streams.is_empty() {
                let identity = core.vbuckets[vb.index()].lock().identity();
                for stream in &streams {
                    stream.check_identity(identity);
                }
            }
            if news.changes {
                streams.iter().for_each(|stream| stream.wake());
            }
        }
    }

    /// The streams of a vBucket.
    pub(super) fn open_streams(&self, vb: VbId) -> Vec<Arc<Shared>> {
        self.open[vb.index()].lock().clone()
    }
}

impl Dcp {
    /// All streams end, as the bucket does.
    pub(crate) fn end_streams(&self) {
        for vb in (0..self.core.vbucket_count()).map(VbId) {
            for stream in self.signals.open_streams(vb) {
                stream.end(EndReason::Disconnected);
            }
        }
    }
}

/// Why a stream ends whose vBucket is another now.
pub(super) fn reason(was: VbIdentity, is: VbIdentity) -> EndReason {
    if was.state == is.state && was.history != is.history {
        EndReason::Rollback
    } else {
        EndReason::StateChanged
    }
}
