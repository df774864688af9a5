//! The result of loading a bucket, and the threads and listeners that wait for it.

use kedge_bucket_core::BucketError;
use kedge_persistence::LoadReport;
use kedge_sync::{RankedCondvar, RankedMutex, ranks::LoadedOutcome};

/// The result of loading a bucket, and the threads and listeners that wait for it.
#[derive(Default)]
pub(crate) struct LoadStatus {
    outcome: RankedMutex<LoadedOutcome, LoadOutcome>,
    changed: RankedCondvar,
}

#[derive(Default)]
struct LoadOutcome {
    result: Option<Result<LoadReport, Option<BucketError>>>,
    /// The functions to call when there is a result.
    listeners: Vec<Box<dyn FnOnce() + Send>>,
}

impl LoadStatus {
    /// Sets the result and notifies all who wait. Later results are ignored.
    pub(crate) fn set(&self, result: Result<LoadReport, BucketError>) {
        let listeners = {
            let mut outcome = self.outcome.lock();
            if outcome.result.is_some() {
                return;
            }
            outcome.result = Some(result.map_err(Some));
            std::mem::take(&mut outcome.listeners)
        };
        self.changed.notify_all();
        for listener in listeners {
            listener();
        }
    }

    pub(crate) fn listen(&self, listener: Box<dyn FnOnce() + Send>) {
        let mut outcome = self.outcome.lock();
        if outcome.result.is_none() {
            outcome.listeners.push(listener);
            return;
        }
        drop(outcome);
        listener();
    }

    pub(crate) fn wait(&self, name: &str) -> Result<LoadReport, BucketError> {
        let mut outcome = self.outcome.lock();
        loop {
            match &mut outcome.result {
                Some(Ok(report)) => return Ok(report.clone()),
                Some(Err(error)) => {
                    let gone = || BucketError::NotLoaded(name.to_owned());
                    return Err(error.take().unwrap_or_else(gone));
                }
                None => self.changed.wait(&mut outcome),
            }
        }
    }
}
