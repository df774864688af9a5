//! Time-outs of parked commands. While there are none the task sleeps.

use crate::bucket::Bucket;
use crate::tasks::TaskBody;
use kedge_executor::Next;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time-outs of parked commands are looked at this often while there are any.
const TICK: Duration = Duration::from_millis(20);

/// The task.
pub(crate) struct DurabilityTimeout;

impl TaskBody for DurabilityTimeout {
    fn run(&mut self, bucket: &Bucket, _: Duration) -> Next {
        let none_parked = || bucket.parked.load(Ordering::SeqCst) <= 0;
        if none_parked() {
            bucket.timeouts.park();
            if none_parked() {
                return Next::Sleep;
            }
            bucket.timeouts.clear();
        }
        bucket.check_time();
        Next::Snooze(TICK)
    }
}

impl Bucket {
    /// A command was parked, and is counted in `parked`.
    pub(crate) fn on_parked(&self) {
        let Some(task) = self.timeouts.unpark() else {
            return;
        };
        let executor = &self.setup.executor;
        // The first look is a tick from now; a task that is still falling asleep takes it at once.
        if !executor.snooze(task, TICK) {
            executor.wake(task);
        }
    }

    /// Tells every vBucket in which someone waits what time it is.
    fn check_time(&self) {
        let now = self.setup.clock.now();
        let mut done = Vec::new();
        for vbucket in &self.vbuckets {
            let mut vbucket = vbucket.lock();
            if vbucket.has_waiters() {
                let (_, mut ended) =
                    self.account(now, &mut vbucket, |vbucket| vbucket.on_time(now));
                done.append(&mut ended);
            }
        }
        self.tell_streams();
        if !done.is_empty() {
            self.deliver(now, &mut done);
        }
    }
}
