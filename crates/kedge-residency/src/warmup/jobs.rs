//! The jobs of warmup, in rounds.

use kedge_types::VbId;
use std::collections::VecDeque;

/// A job.
#[derive(Debug)]
pub(super) enum WarmupJob {
    /// The places of documents in a file.
    Places(VbId),
    /// The keys of a file, with metadata.
    Keys(VbId),
    /// These documents.
    Hot(VbId, Vec<Box<[u8]>>),
    /// The documents of a file.
    Documents(VbId),
    /// Values of documents whose keys are in memory.
    Values(VbId),
}

impl WarmupJob {
    pub(super) fn vb(&self) -> VbId {
        match self {
            Self::Places(vb)
            | Self::Keys(vb)
            | Self::Hot(vb, _)
            | Self::Documents(vb)
            | Self::Values(vb) => *vb,
        }
    }
}

/// The jobs that are left: rounds, each of which begins when the one before it has ended.
#[derive(Debug, Default)]
pub(super) struct WarmupPlan {
    pub(super) rounds: VecDeque<VecDeque<WarmupJob>>,
    /// WarmupPlan of the first round that are being done.
    running: usize,
}

/// The next job of a worker.
pub(super) enum NextJob {
    Begin(WarmupJob),
    /// Others have to end first.
    Wait,
    Nothing,
}

impl WarmupPlan {
    pub(super) fn new(rounds: impl IntoIterator<Item = VecDeque<WarmupJob>>) -> Self {
        let rounds = rounds.into_iter().filter(|round| !round.is_empty());
        Self {
            rounds: rounds.collect(),
            running: 0,
        }
    }

    pub(super) fn take(&mut self) -> NextJob {
        while let Some(round) = self.rounds.front_mut() {
            if let Some(job) = round.pop_front() {
                self.running += 1;
                return NextJob::Begin(job);
            }
            if self.running > 0 {
                return NextJob::Wait;
            }
            self.rounds.pop_front();
        }
        NextJob::Nothing
    }

    /// Counts a job that was done, or given up.
    pub(super) fn end_job(&mut self) {
        self.running -= 1;
    }
}

/// Returns the rounds of the access log, which has all vBuckets once for each band. Each band is a round, so that documents
/// that are used most do not miss their place in memory because a worker was slow.
pub(super) fn hot_rounds(
    blocks: impl Iterator<Item = (VbId, Vec<Box<[u8]>>)>,
) -> Vec<VecDeque<WarmupJob>> {
    let mut rounds: Vec<VecDeque<WarmupJob>> = Vec::new();
    let mut last = None;
    for (vb, keys) in blocks {
        if last.is_none_or(|last| vb < last) {
            rounds.push(VecDeque::new());
        }
        last = Some(vb);
        if let Some(round) = rounds.last_mut() {
            round.push_back(WarmupJob::Hot(vb, keys));
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_band_of_the_access_log_is_a_round_of_jobs() {
        let block = |vb| (VbId(vb), Vec::new());
        let of = |blocks: &[u16]| -> Vec<Vec<u16>> {
            let rounds = hot_rounds(blocks.iter().copied().map(block));
            let vbuckets =
                |round: &VecDeque<WarmupJob>| round.iter().map(|job| job.vb().get()).collect();
            rounds.iter().map(vbuckets).collect()
        };
        assert_eq!(of(&[]), Vec::<Vec<u16>>::new());
        // More than one block of a vBucket in a band, and bands without some vBuckets.
        let rounds = of(&[0, 1, 1, 3, 1, 2, 0]);
        assert_eq!(rounds, [vec![0, 1, 1, 3], vec![1, 2], vec![0]]);
    }
}
