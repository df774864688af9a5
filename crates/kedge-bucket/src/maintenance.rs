//! What a bucket does when nobody asks: time-outs, expiry, and log segments made ready.

use crate::bucket::Bucket;
use kedge_log::SegmentPreparer;
use std::sync::atomic::Ordering;
use std::thread::Thread;
use std::time::Duration;

/// Time-outs of parked commands are looked at this often while there are any.
const PARKED_TICK: Duration = Duration::from_millis(20);
/// How soon a command that was parked just now is noticed, and how soon a log segment is made ready.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Segments are filled with zeros no faster than this. A log that grows faster is under a load whose syncs are long for
/// the bytes that they carry; writing every byte twice would only take the disk away from it.
const PREPARE_BYTES_PER_SEC: u64 = 16 << 20;
/// A sweep of all documents for what has expired takes this long, spread evenly.
const SWEEP_SECS: u64 = 60;

/// Where a sweep is.
#[derive(Debug, Default)]
struct Sweep {
    vbucket: usize,
    shard: usize,
    last_ns: u64,
    /// Shards owed to the pace, in fractions.
    owed: f64,
}

impl Bucket {
    pub(crate) fn stop_maintenance(&self) {
        if let Some(preparer) = self.preparer.get() {
            preparer.stop();
        }
        for thread in self.threads.lock().iter() {
            let thread: &Thread = thread.thread();
            thread.unpark();
        }
    }

    pub(crate) fn run_maintenance(&self) {
        let mut sweep = Sweep {
            last_ns: self.setup.clock.now().mono_ns,
            ..Sweep::default()
        };
        let mut prepare_ns = 0;
        loop {
            let parked = self.parked.load(Ordering::Relaxed) > 0;
            std::thread::park_timeout(if parked { PARKED_TICK } else { IDLE_TICK });
            match self.phase() {
                crate::bucket::Phase::Loading | crate::bucket::Phase::Open => {}
                _ => return,
            }
            let now_ns = self.setup.clock.now().mono_ns;
            if prepare_ns <= now_ns
                && let Some(preparer) = self.preparer.get()
                && preparer.is_needed()
            {
                prepare_ns = now_ns + self.prepare_segment(preparer);
            }
            if parked {
                self.check_time();
            }
            self.sweep(&mut sweep);
        }
    }

    /// Makes the next log segment ready and says how many nanoseconds to wait before the one after it.
    fn prepare_segment(&self, preparer: &SegmentPreparer) -> u64 {
        match preparer.prepare_if_needed() {
            Ok(_) => preparer.ready_bytes() * 1_000_000_000 / PREPARE_BYTES_PER_SEC,
            Err(error) => {
                tracing::warn!(bucket = self.name(), %error, "no log segment could be made ready");
                1_000_000_000
            }
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
        if !done.is_empty() {
            self.deliver(now, &mut done);
        }
    }

    fn sweep(&self, sweep: &mut Sweep) {
        let now = self.setup.clock.now();
        let shards = self.vbuckets[0].lock().table().shard_count();
        let all = (shards * self.vbuckets.len()) as f64;
        let elapsed_secs = (now.mono_ns - sweep.last_ns) as f64 / 1e9;
        sweep.last_ns = now.mono_ns;
        sweep.owed = (sweep.owed + all * elapsed_secs / SWEEP_SECS as f64).min(all);
        while sweep.owed >= 1.0 {
            sweep.owed -= 1.0;
            let mut vbucket = self.vbuckets[sweep.vbucket].lock();
            let shard = sweep.shard;
            self.account(now, &mut vbucket, |vbucket| vbucket.sweep(now, shard));
            sweep.shard += 1;
            if sweep.shard == shards {
                sweep.shard = 0;
                sweep.vbucket = (sweep.vbucket + 1) % self.vbuckets.len();
            }
        }
    }
}
