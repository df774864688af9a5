//! The task pools of the server: how many threads each has, and how long their tasks waited and ran.

use std::io;

use kedge_bucket::TimingSnapshot;
use kedge_executor::{Config, Executor, Histogram, KindInfo, MAX_THREADS, OwnerId, Pool, Threads};
use kedge_sync::{RankedMutex, ranks::PoolConfig};

use crate::tasks::OWNER;

/// One thread in each pool: enough for a server of a test, of which many run at a time.
pub const ONE_THREAD_EACH: Config = Config {
    reader: Threads::Fixed(1),
    writer: Threads::Fixed(1),
    auxio: Threads::Fixed(1),
    nonio: Threads::Fixed(1),
    auxio_nice: 0,
};

/// The executor of a server, and what it was told.
#[derive(Debug)]
pub struct TaskPools {
    executor: Executor,
    owner: OwnerId,
    config: RankedMutex<PoolConfig, Config>,
}

impl TaskPools {
    /// Begins the threads.
    ///
    /// # Errors
    /// What the system says when a thread cannot be begun.
    pub fn start(config: Config) -> io::Result<Self> {
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
    pub fn threads(&self, pool: Pool) -> Threads {
        self.config.lock().threads(pool)
    }

    /// Changes the threads of a pool while it works.
    ///
    /// # Errors
    /// What the system says when a thread cannot be begun.
    pub fn set_threads(&self, pool: Pool, threads: Threads) -> io::Result<()> {
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
    pub fn kinds(&self) -> Vec<KindInfo> {
        self.executor.kinds()
    }
}

/// A histogram of the executor in the shape of the others.
pub fn snapshot(histogram: &Histogram) -> TimingSnapshot {
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
pub fn parse_threads(text: &str) -> Result<Threads, String> {
    match text {
        "balanced" => Ok(Threads::Balanced),
        "disk_io_optimized" => Ok(Threads::DiskIoOptimized),
        number => match number.parse() {
            Ok(count @ 1..=MAX_THREADS) => Ok(Threads::Fixed(count)),
            _ => Err(format!("expected {THREADS_KIND}")),
        },
    }
}

/// Shows a number of threads so that [`parse_threads`] reads the same.
#[must_use]
pub fn threads_text(threads: Threads) -> String {
    match threads {
        Threads::Balanced => "balanced".to_owned(),
        Threads::DiskIoOptimized => "disk_io_optimized".to_owned(),
        Threads::Fixed(count) => count.to_string(),
    }
}

const _: () = assert!(MAX_THREADS == 128, "THREADS_KIND says so");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads_are_read_as_they_are_shown() {
        for (text, expected) in [
            ("balanced", Some(Threads::Balanced)),
            ("disk_io_optimized", Some(Threads::DiskIoOptimized)),
            ("1", Some(Threads::Fixed(1))),
            ("128", Some(Threads::Fixed(128))),
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
