//! The access scanner, which writes the access log at an interval, and at the end of the bucket.

use super::writer::AccessLogWriter;
use crate::warmup::Warmup;
use kedge_bucket_core::{BucketCore, BucketError, Component, Parker, TaskBody};
use kedge_executor::Next;
use std::sync::Arc;
use std::time::Duration;

/// Longest time of a run, after which other tasks of the pool run.
const SLICE: Duration = Duration::from_millis(25);
/// Time until the next attempt during warmup, when frequencies mean nothing.
const WARMING: Duration = Duration::from_secs(60);
/// Longest time that a shutdown spends on the log.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// The access scanner of a bucket.
#[derive(Debug)]
pub struct AccessScanner {
    core: Arc<BucketCore>,
    warmup: Arc<Warmup>,
    pub(crate) parker: Parker,
}

impl Component for AccessScanner {
    fn core(&self) -> &BucketCore {
        &self.core
    }
}

/// The task.
#[derive(Debug, Default)]
pub(crate) struct WriteAccessLog {
    /// The beginning of the last log.
    last: Option<Duration>,
    writer: Option<AccessLogWriter>,
}

impl TaskBody<AccessScanner> for WriteAccessLog {
    fn run(&mut self, scanner: &AccessScanner, now: Duration) -> Next {
        let memory = scanner.core.config().memory.clone();
        let interval = Duration::from_secs(memory.access_scanner_interval_secs);
        if self.writer.is_none() {
            let due = *self.last.get_or_insert(now) + interval;
            if now < due {
                return Next::Snooze(due - now);
            }
            if !memory.access_scanner_enabled {
                self.last = Some(now);
                return Next::Snooze(interval);
            }
            if scanner.warmup.is_warming() {
                return Next::Snooze(WARMING);
            }
            self.last = Some(now);
            match AccessLogWriter::begin(&scanner.core) {
                Ok(Some(writer)) => self.writer = Some(writer),
                Ok(None) => return Next::Snooze(interval),
                Err(error) => {
                    scanner.on_failed(&error);
                    return Next::Snooze(interval);
                }
            }
        }
        if let Some(writer) = &mut self.writer {
            match writer.write(&scanner.core, SLICE) {
                Ok(false) => return Next::Again,
                Ok(true) => {}
                Err(error) => scanner.on_failed(&error),
            }
            self.writer = None;
        }
        Next::Snooze(interval)
    }
}

impl AccessScanner {
    pub(crate) fn new(core: &Arc<BucketCore>, warmup: &Arc<Warmup>) -> Self {
        Self {
            core: Arc::clone(core),
            warmup: Arc::clone(warmup),
            parker: Parker::default(),
        }
    }

    /// Has the scanner look at its settings, which have changed.
    pub(crate) fn on_config(&self) {
        if let Some(task) = self.parker.task() {
            self.core.setup.executor.wake(task);
        }
    }

    /// Writes the log at the end of the bucket, unless that takes too long: the last one stays then.
    pub fn write_at_end(&self) {
        if !self.core.config().memory.access_scanner_enabled || self.warmup.is_warming() {
            return;
        }
        let written = AccessLogWriter::begin(&self.core).and_then(|writer| match writer {
            Some(mut writer) => writer.write(&self.core, SHUTDOWN),
            None => Ok(true),
        });
        match written {
            Ok(true) => {}
            Ok(false) => tracing::info!(
                bucket = self.core.name(),
                "the access log is not written, as that would take too long; the last one stays"
            ),
            Err(error) => self.on_failed(&error),
        }
    }

    fn on_failed(&self, error: &BucketError) {
        tracing::warn!(bucket = self.core.name(), %error, "the access log cannot be written");
    }
}
