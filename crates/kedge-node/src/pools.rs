//! The task pools of the server: their numbers of threads, and the queue and run times of their tasks.

use std::io;

use kedge_bucket::TimingSnapshot;
use kedge_executor::{
    Executor, ExecutorConfig, LatencyHistogram, MAX_THREADS, OwnerId, Pool, TaskKindStats,
    ThreadCount,
};
use kedge_sync::{RankedMutex, ranks::PoolConfig};

use crate::tasks::OWNER;

/// One thread in each pool: enough for the server of a test, of which many run at a time.
pub const ONE_THREAD_EACH: ExecutorConfig = ExecutorConfig {
    reader: ThreadCount::Fixed(1),
    writer: ThreadCount::Fixed(1),
    auxio: ThreadCount::Fixed(1),
    nonio: ThreadCount::Fixed(1),
    auxio_nice: 0,
};

/// The executor of a server, with its configuration.
#[derive(Debug)]
pub struct TaskPools {
    executor: Executor,
    owner: OwnerId,
    config: RankedMutex<PoolConfig, ExecutorConfig>,
}

impl TaskPools {
    /// Starts the threads.
    ///
    /// # Errors
    /// The error of the system when a thread cannot be started.
    pub fn start(config: ExecutorConfig) -> io::Result<Self> {
        let executor = Executor::new(config)?;
        let owner = executor.register(OWNER).map_err(io::Error::other)?;
        Ok(Self {
            executor,
            owner,
            config: RankedMutex::new(config),
        })
    }

    /// Returns the executor.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Returns the owner of the server's own tasks.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Returns the configured number of threads of a pool; [`Executor::pools`] has the resulting number.
    #[must_use]
    pub fn threads(&self, pool: Pool) -> ThreadCount {
        self.config.lock().threads(pool)
    }

    /// Changes the number of threads of a pool while it works.
    ///
    /// # Errors
    /// The error of the system when a thread cannot be started.
    pub fn set_threads(&self, pool: Pool, threads: ThreadCount) -> io::Result<()> {
        // Locked during the change, so that of two concurrent changes the recorded one is the effective one.
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

    /// Returns the histograms of all kinds of tasks, `queue_time.KIND` and `run_time.KIND`.
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

    /// Returns the figures of each kind of task.
    pub fn kinds(&self) -> Vec<TaskKindStats> {
        self.executor.kinds()
    }
}

/// Converts a histogram of the executor to the common form.
pub fn snapshot(histogram: &LatencyHistogram) -> TimingSnapshot {
    TimingSnapshot {
        count: histogram.count,
        buckets: histogram.buckets.clone(),
    }
}

/// Returns the name of the setting for the threads of a pool.
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

/// Parses a number of threads.
///
/// # Errors
/// The expected form, as the end of a sentence.
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

/// Formats a number of threads in the form of [`parse_threads`].
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
    fn thread_counts_parse_as_they_are_displayed() {
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
