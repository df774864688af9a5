//! The documents of a file that was copied from another node: a task reads them into memory, as after a start.

use super::component::Warmup;
use super::jobs::WarmupJob;
use super::load::SLICE;
use super::running::RunningJob;
use crate::kinds::WARMUP_DOCUMENTS;
use kedge_bucket_core::{BucketError, TaskBody, add_task};
use kedge_executor::Next;
use kedge_types::VbId;
use std::sync::Arc;
use std::time::Duration;

/// The task, which reads one file.
#[derive(Debug)]
struct LoadInstalled {
    vb: VbId,
    running: Option<RunningJob>,
}

impl TaskBody<Warmup> for LoadInstalled {
    fn run(&mut self, warmup: &Warmup, _: Duration) -> Next {
        let now_ns = || warmup.core.setup.clock.now().mono_ns;
        let began_ns = now_ns();
        loop {
            match self.step(warmup) {
                Ok(true) => {}
                Ok(false) => return Next::Done,
                Err(error) => {
                    warmup.on_failed(self.vb, &error);
                    return Next::Done;
                }
            }
            if now_ns().saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                return Next::Again;
            }
        }
    }
}

impl LoadInstalled {
    /// Reads a few documents. Returns false at the end.
    fn step(&mut self, warmup: &Warmup) -> Result<bool, BucketError> {
        let running = match &mut self.running {
            Some(running) => running,
            begun => match warmup.begin_job(WarmupJob::Documents(self.vb))? {
                Some(job) => begun.insert(job),
                None => return Ok(false),
            },
        };
        running.step(warmup)
    }
}

impl Warmup {
    /// Reads the documents of a vBucket's file into memory while commands run, as far as there is room.
    pub fn load_installed(self: &Arc<Self>, vb: VbId) {
        let body = LoadInstalled { vb, running: None };
        let does = "reads documents of a file that was copied from another node into memory";
        match add_task(self, &WARMUP_DOCUMENTS, does, body) {
            Ok(task) => drop(self.core.setup.executor.wake(task)),
            // Commands read the documents that they need.
            Err(error) => {
                tracing::warn!(bucket = self.core.name(), vbucket = %vb, %error, "a task of the warmup was refused");
            }
        }
    }
}
