//! Watches of an embedded store: they look at the files' first lines at short intervals.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::{CoordinationError, ReadAgain, Revision, Watch, WatchEvent};

use super::{POLL_INTERVAL, Shared};

#[derive(Debug)]
pub(super) struct EmbeddedWatch {
    shared: Arc<Shared>,
    /// The last revision whose changes are known.
    after: u64,
    pending: VecDeque<WatchEvent>,
    ended: Option<ReadAgain>,
}

impl EmbeddedWatch {
    pub(super) fn new(shared: Arc<Shared>, after: Revision) -> Self {
        EmbeddedWatch {
            shared,
            after: after.0,
            pending: VecDeque::new(),
            ended: None,
        }
    }

    /// Looks whether the store has changed, and fetches the changes.
    fn poll(&mut self) -> Result<(), CoordinationError> {
        let Some(revision) = self.shared.peek()? else {
            // Only a store that was removed has no file any more.
            let is_new = self.after == 0 && self.shared.seen.newest()?.is_none();
            self.ended = (!is_new).then_some(ReadAgain::WentBackwards);
            return Ok(());
        };
        if revision == self.after {
            return Ok(());
        }
        let after = self.after;
        let fetched = self
            .shared
            .view(Duration::ZERO, |state| state.events_after(after));
        match fetched {
            Ok((position, _)) if position.revision.0 < after => {
                self.ended = Some(ReadAgain::WentBackwards);
            }
            Ok((position, Some(events))) => {
                self.after = position.revision.0;
                self.pending.extend(events);
            }
            Ok((_, None)) => self.ended = Some(ReadAgain::Compacted),
            Err(CoordinationError::WentBackwards { .. }) => {
                self.ended = Some(ReadAgain::WentBackwards);
            }
            // The change is being written.
            Err(CoordinationError::Unreachable(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Watch for EmbeddedWatch {
    fn next(&mut self, timeout: Duration) -> Result<Option<WatchEvent>, CoordinationError> {
        let began = Instant::now();
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            if let Some(why) = self.ended {
                return Ok(Some(WatchEvent::ReadAgain(why)));
            }
            let left = timeout.saturating_sub(began.elapsed());
            self.poll()?;
            if self.pending.is_empty() && self.ended.is_none() {
                if left.is_zero() {
                    return Ok(None);
                }
                thread::sleep(left.min(POLL_INTERVAL));
            }
        }
    }
}
