//! Notification of streams about new items and about changes of their vBucket's identity.
//!
//! An event is recorded under the lock of the vBucket. The same thread notifies the streams after it has released the lock.

use super::signals::StreamSignals;
use super::stream::shared::StreamShared;
use crate::dcp::component::Dcp;
use kedge_bucket_core::BucketCore;
use kedge_replication::EndReason;
use kedge_types::VbId;
use kedge_vbucket::StreamEvents;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl StreamSignals {
    /// Records the events of a step for the vBucket's streams. The caller holds the lock of the vBucket, and calls
    /// [`StreamSignals::notify_streams`] after it has released the lock.
    #[inline]
    pub(crate) fn record_news(&self, vb: VbId, news: StreamEvents) {
        if news != StreamEvents::default() {
            self.news.lock().push((vb, news));
            self.has_news.store(true, Ordering::Release);
        }
    }

    /// Notifies streams of the recorded events. It is cheap if there are none.
    #[inline]
    pub(crate) fn notify_streams(&self, core: &BucketCore) {
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

    /// Returns the open streams of a vBucket.
    pub(super) fn open_streams(&self, vb: VbId) -> Vec<Arc<StreamShared>> {
        self.open[vb.index()].lock().clone()
    }
}

impl Dcp {
    /// Ends all streams at shutdown.
    pub(crate) fn end_streams(&self) {
        for vb in (0..self.core.vbucket_count()).map(VbId) {
            for stream in self.signals.open_streams(vb) {
                stream.end(EndReason::Disconnected);
            }
        }
    }
}
