//! What became of loading, for who waits for it.

use kedge_bucket_core::BucketError;
use kedge_persistence::LoadReport;
use kedge_sync::{RankedCondvar, RankedMutex, ranks::LoadedOutcome};

/// What became of loading, for who waits for it.
#[derive(Default)]
pub(crate) struct Loaded {
    outcome: RankedMutex<LoadedOutcome, LoadOutcome>,
    changed: RankedCondvar,
}

#[derive(Default)]
struct LoadOutcome {
    result: Option<Result<LoadReport, Option<BucketError>>>,
    /// Called once there is a result.
    listeners: Vec<Box<dyn FnOnce() + Send>>,
}

impl Loaded {
    /// The first result counts.
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
