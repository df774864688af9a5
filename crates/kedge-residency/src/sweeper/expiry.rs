//! The expiry sweep: it deletes expired documents, and tombstones that are old enough.
//!
//! Invariant: while a vBucket wants a sweep ([`VBucket::wants_sweep`]), every shard of every hash table is visited once
//! in [`ROUND_SECS`]. Shards that are added during a round make it longer.

use super::component::Sweeper;
use kedge_bucket_core::TaskBody;
use kedge_executor::Next;
use kedge_vbucket::VBucket;
use std::time::Duration;

/// Duration of a round over all shards, which are spread evenly.
const ROUND_SECS: u64 = 60;
/// Interval between two runs of a round.
const TICK: Duration = Duration::from_secs(1);
/// Largest number of shards of one run, after which other tasks run.
const SHARDS_PER_RUN: u32 = 64;
/// Interval between two rounds for tombstones while no document has an expiry.
const TOMBSTONES: Duration = Duration::from_secs(600);

/// The task, with its position.
#[derive(Debug, Default)]
pub(crate) struct ExpirySweep {
    /// True during a round.
    sweeping: bool,
    vbucket: usize,
    shard: usize,
    /// The number of shards of all hash tables when the round began.
    shards: usize,
    last_ns: u64,
    /// Shards owed to the throttle, in fractions.
    owed: f64,
}

impl TaskBody<Sweeper> for ExpirySweep {
    fn run(&mut self, sweeper: &Sweeper, _: Duration) -> Next {
        if !self.sweeping {
            return self.begin_or_pause(sweeper);
        }
        let now = sweeper.core.setup.clock.now();
        let all = self.shards as f64;
        let elapsed_secs = now.mono_ns.saturating_sub(self.last_ns) as f64 / 1e9;
        self.last_ns = now.mono_ns;
        self.owed = (self.owed + all * elapsed_secs / ROUND_SECS as f64).min(all);
        for _ in 0..SHARDS_PER_RUN {
            if self.owed < 1.0 {
                return Next::Snooze(TICK);
            }
            self.owed -= 1.0;
            let mut vbucket = sweeper.core.vbuckets[self.vbucket].lock();
            let shard = self.shard;
            sweeper
                .core
                .account(now, &mut vbucket, |vbucket| vbucket.at(now).sweep(shard));
            self.shard += 1;
            let is_last = self.shard >= vbucket.table().shard_count();
            drop(vbucket);
            sweeper.core.after_step();
            if is_last {
                self.shard = 0;
                self.vbucket += 1;
            }
            if self.vbucket == sweeper.core.vbuckets.len() {
                self.vbucket = 0;
                return self.begin_or_pause(sweeper);
            }
        }
        Next::Again
    }
}

impl ExpirySweep {
    /// Begins a round, after another one or a pause, if there is anything to delete.
    fn begin_or_pause(&mut self, sweeper: &Sweeper) -> Next {
        let any = |wants: fn(&VBucket) -> bool| {
            let mut vbuckets = sweeper.core.vbuckets.iter();
            vbuckets.any(|vbucket| wants(&vbucket.lock()))
        };
        sweeper.signals.expiry_sweep.park();
        let was_sweeping = self.sweeping;
        self.sweeping = any(|vbucket| vbucket.documents().wants_sweep())
            || (!was_sweeping && any(|vbucket| vbucket.table().tombstones() > 0));
        if !self.sweeping {
            return Next::Snooze(TOMBSTONES);
        }
        sweeper.signals.expiry_sweep.clear();
        self.shards = sweeper.core.table_shards().sum();
        if !was_sweeping {
            self.owed = 0.0;
            self.last_ns = sweeper.core.setup.clock.now().mono_ns;
        }
        Next::Snooze(TICK)
    }
}
