//! The task pools of the server: how many threads each has, and how long their tasks waited and ran.

use std::io;

use kedge_bucket::TimingSnapshot;
use kedge_executor::{
    Executor, ExecutorConfig, LatencyHistogram, MAX_THREADS, OwnerId, Pool, TaskKindStats,
    ThreadCount,
};
use kedge_sync::{RankedMutex, ranks::PoolConfig};

use crate::tasks::OWNER;

/// One thread in each pool: enough for a server of a test, of which many run at a time.
pub const ONE_THREAD_EACH: ExecutorConfig = ExecutorConfig {
    reader: ThreadCount::Fixed(1),
    writer: ThreadCount::Fixed(1),
    auxio: ThreadCount::Fixed(1),
    nonio: ThreadCount::Fixed(1),
    auxio_nice: 0,
};

/// The executor of a server, and what it was told.
#[derive(Debug)]
pub struct TaskPools {
    executor: Executor,
    owner: OwnerId,
    config: RankedMutex<PoolConfig, ExecutorConfig>,
}

impl TaskPools {
    /// Begins the threads.
    ///
    /// # Errors
    /// What the system says when a thread cannot be begun.
    pub fn start(config: ExecutorConfig) -> io::Result<Self> {
        let executor = Executor::new(config)?;
        let owner = executor.register(OWNER).map_err(io::Error::other)?;
        Ok(Self {
            executor,
            owner,
            config: RankedMutex::new(config),
        })
    }

    /// Where tasks are scheduled, and seen.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Whom the server's own tasks belong to.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// The number of threads that a pool was set to; [`Executor::pools`] has the number that results.
    #[must_use]
    pub fn threads(&self, pool: Pool) -> ThreadCount {
        self.config.lock().threads(pool)
    }

    /// Changes the threads of a pool while it works.
    ///
    /// # Errors
    /// What the system says when a thread cannot be begun.
    pub fn set_threads(&self, pool: Pool, threads: ThreadCount) -> io::Result<()> {
        // Held over the change: of two at a time the one that is kept is the one that holds.
        let mut config = self.config.lock();
        self.executor.set_threads(pool, threads)?;
        let kept = match pool {
            Pool::Reader => &mut config.reader,
            Pool::Writer => &mut config.writer,
            Pool::AuxIo => &mut config.auxio,
            Pool::NonIo => &mut config.nonio,
        };
        *kept = threads;
        Ok(())
    }

    /// The histograms of all kinds of tasks, `queue_time.KIND` and `run_time.KIND`.
    pub fn timings(&self) -> Vec<(String, TimingSnapshot)> {
        let kinds = self.executor.kinds();
        let both = kinds.iter().flat_map(|info| {
            let name = info.kind.name();
            [
                (format!("queue_time.{name}"), snapshot(&info.queue_time)),
                (format!("run_time.{name}"), snapshot(&info.run_time)),
            ]
        });
        both.collect()
    }

    /// The figures of each kind of task.
    pub fn kinds(&self) -> Vec<TaskKindStats> {
        self.executor.kinds()
    }
}

/// A histogram of the executor in the shape of the others.
pub fn snapshot(histogram: &LatencyHistogram) -> TimingSnapshot {
    TimingSnapshot {
        count: histogram.count,
        buckets: histogram.buckets.clone(),
    }
}

/// The setting that says how many threads a pool has.
#[must_use]
pub const fn setting_name(pool: Pool) -> &'static str {
    match pool {
        Pool::Reader => "num_reader_threads",
        Pool::Writer => "num_writer_threads",
        Pool::AuxIo => "num_auxio_threads",
        Pool::NonIo => "num_nonio_threads",
    }
}

/// The values that [`parse_threads`] accepts.
pub const THREADS_KIND: &str = "balanced, disk_io_optimized, or a number from 1 to 128";

/// Reads a number of threads.
///
/// # Errors
/// What was expected, as the end of a sentence.
pub fn parse_threads(text: &str) -> Result<ThreadCount, String> {
    match text {
        "balanced" => Ok(ThreadCount::Balanced),
        "disk_io_optimized" => Ok(ThreadCount::DiskIoOptimized),
        number => match number.parse() {
            Ok(count @ 1..=MAX_THREADS) => Ok(ThreadCount::Fixed(count)),
            _ => Err(format!("expected {THREADS_KIND}")),
        },
    }
}

/// Shows a number of threads so that [`parse_threads`] reads the same.
#[must_use]
pub fn threads_text(threads: ThreadCount) -> String {
    match threads {
        ThreadCount::Balanced => "balanced".to_owned(),
        ThreadCount::DiskIoOptimized => "disk_io_optimized".to_owned(),
        ThreadCount::Fixed(count) => count.to_string(),
    }
}

const _: () = assert!(MAX_THREADS == 128, "THREADS_KIND says so");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads_are_read_as_they_are_shown() {
        for (text, expected) in [
            ("balanced", Some(ThreadCount::Balanced)),
            ("disk_io_optimized", Some(ThreadCount::DiskIoOptimized)),
            ("1", Some(ThreadCount::Fixed(1))),
            ("128", Some(ThreadCount::Fixed(128))),
            ("0", None),
            ("129", None),
            ("-1", None),
            ("", None),
            ("Balanced", None),
            ("4 ", None),
        ] {
            let read = parse_threads(text);
            assert_eq!(read.clone().ok(), expected, "{text:?}");
            match read {
                Ok(threads) => assert_eq!(threads_text(threads), text),
                Err(why) => assert!(why.contains("a number from 1 to 128")),
            }
        }
    }
}
