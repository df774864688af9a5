//! The counts of a run.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use hdrhistogram::Histogram;

use super::wire::RequestOutcome;
use crate::client::status_text;

/// The longest distinguishable latency, in nanoseconds (10 minutes).
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Significant digits of latencies.
const DIGITS: u8 = 3;
/// The largest number of kinds of errors that are counted by name.
const ERROR_KINDS_MAX: usize = 64;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Get,
    Set,
}

/// Counters of a run in progress, for the thread that displays it.
#[derive(Debug, Default)]
pub(super) struct LoadProgress {
    pub(super) done: AtomicU64,
    pub(super) errors: AtomicU64,
}

/// Counts of one thread, or of several merged.
#[derive(Clone, Debug)]
pub(super) struct LoadTally {
    /// Latencies of GETs whose reply was an item or a miss, in nanoseconds.
    pub(super) gets: Histogram<u64>,
    /// Latencies of successful SETs, in nanoseconds.
    pub(super) sets: Histogram<u64>,
    /// The number of GETs that were misses.
    pub(super) misses: u64,
    /// The numbers of failed requests, by error.
    pub(super) errors: BTreeMap<String, u64>,
    /// The numbers of lost and of reconnected connections.
    pub(super) lost: u64,
    pub(super) reconnected: u64,
    /// Bytes sent and received.
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    /// The time from the start of the measurement to the last reply, in nanoseconds.
    pub(super) elapsed_ns: u64,
}

impl LoadTally {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS);
        let histogram = histogram.expect("the bounds of a histogram are valid");
        Self {
            gets: histogram.clone(),
            sets: histogram,
            misses: 0,
            errors: BTreeMap::new(),
            lost: 0,
            reconnected: 0,
            bytes_sent: 0,
            bytes_received: 0,
            elapsed_ns: 0,
        }
    }

    /// Counts a reply. Returns whether it is an error.
    #[inline]
    pub(super) fn answered(
        &mut self,
        kind: RequestKind,
        outcome: RequestOutcome<'_>,
        latency_ns: u64,
    ) -> bool {
        match (kind, outcome) {
            (RequestKind::Get, RequestOutcome::Done) => self.gets.saturating_record(latency_ns),
            (RequestKind::Get, RequestOutcome::Missing) => {
                self.misses += 1;
                self.gets.saturating_record(latency_ns);
            }
            (RequestKind::Set, RequestOutcome::Done) => self.sets.saturating_record(latency_ns),
            (_, outcome) => {
                self.error(&outcome_name(outcome), 1);
                return true;
            }
        }
        false
    }

    /// Counts `times` failed requests.
    #[cold]
    pub(super) fn error(&mut self, name: &str, times: u64) {
        if times == 0 {
            return;
        }
        if let Some(count) = self.errors.get_mut(name) {
            *count += times;
        } else if self.errors.len() < ERROR_KINDS_MAX {
            self.errors.insert(name.to_owned(), times);
        } else {
            *self.errors.entry("other".to_owned()).or_default() += times;
        }
    }

    /// Returns the number of successful requests.
    pub(super) fn ops(&self) -> u64 {
        self.gets.len() + self.sets.len()
    }

    /// Returns the number of failed requests.
    pub(super) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Adds the concurrent counts of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [(&mut self.gets, &other.gets), (&mut self.sets, &other.sets)] {
            mine.add(theirs)
                .expect("all histograms have the same bounds");
        }
        for (name, count) in &other.errors {
            self.error(name, *count);
        }
        self.misses += other.misses;
        self.lost += other.lost;
        self.reconnected += other.reconnected;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
    }

    /// Returns all latencies, in nanoseconds.
    pub(super) fn latencies(&self) -> Histogram<u64> {
        let mut all = self.gets.clone();
        all.add(&self.sets)
            .expect("all histograms have the same bounds");
        all
    }
}

fn outcome_name(outcome: RequestOutcome<'_>) -> String {
    /// The length to which an error text is shortened.
    const WORDS_BYTES_MAX: usize = 80;
    match outcome {
        RequestOutcome::Done => "unexpected success".to_owned(),
        RequestOutcome::Missing => "not stored: no such item".to_owned(),
        RequestOutcome::Status(code) => status_text(code),
        RequestOutcome::Text(words) => {
            String::from_utf8_lossy(&words[..words.len().min(WORDS_BYTES_MAX)]).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use kedge_types::Status;

    use super::*;

    #[test]
    fn replies_are_counted_by_kind_and_outcome() {
        let mut tally = LoadTally::new();
        let busy = RequestOutcome::Status(Status::TemporaryFailure.wire());
        for (kind, outcome, is_error) in [
            (RequestKind::Get, RequestOutcome::Done, false),
            (RequestKind::Get, RequestOutcome::Missing, false),
            (RequestKind::Get, busy, true),
            (RequestKind::Set, RequestOutcome::Done, false),
            (RequestKind::Set, RequestOutcome::Missing, true),
            (RequestKind::Set, busy, true),
            (RequestKind::Set, RequestOutcome::Text(b"ERROR"), true),
        ] {
            assert_eq!(
                tally.answered(kind, outcome, 1000),
                is_error,
                "{kind:?} {outcome:?}"
            );
        }
        let mut both = tally.clone();
        both.merge(&tally);
        assert_eq!((both.ops(), both.misses, both.error_count()), (6, 2, 8));
        assert_eq!(both.errors["TemporaryFailure (0x86)"], 4);
        assert_eq!(both.latencies().max(), 1000);
    }

    #[test]
    fn error_kinds_are_bounded() {
        let mut tally = LoadTally::new();
        for number in 0..1000 {
            tally.error(&format!("error {number}"), 1);
        }
        assert_eq!(tally.error_count(), 1000);
        assert!(tally.errors.len() <= ERROR_KINDS_MAX + 1);
    }
}
