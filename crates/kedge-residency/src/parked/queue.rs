//! The queue of parked operations.
//!
//! Invariants:
//! * Operations of a line are taken in the order in which they came; one that is put back comes before the others.
//! * A line with waiting operations is in the turns of its lane, once.
//! * An operation counts as waiting from its admission to its release, also while its component works on it.
//! * A closed queue takes no operation, and has none: each that was parked is taken once, or fails when the queue closes.

use super::PendingOp;
use kedge_bucket_core::BucketCore;
use kedge_sync::{RankedMutex, RankedMutexGuard, ranks::ParkedLane};
use kedge_types::Status;
use kedge_types::limits::COMMANDS_WAITING_MAX;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Divisor of the quota for the values of all waiting operations; one larger operation may still wait.
const BYTES_RATIO: u64 = 10;

/// Operations that wait for conditions of the same kind. `L` names a line: operations that are resumed one after the
/// other.
#[derive(Debug)]
pub(crate) struct ParkedOperations<L> {
    lanes: Box<[RankedMutex<ParkedLane, Lane<L>>]>,
    operations: AtomicUsize,
    /// Bytes of the values that they brought.
    bytes: AtomicUsize,
}

/// The lines that one task resumes.
#[derive(Debug)]
pub(crate) struct Lane<L> {
    /// Lines with waiting operations, in the order of their turns.
    turns: VecDeque<L>,
    waiting: HashMap<L, VecDeque<PendingOp>>,
    closed: bool,
}

impl<L> Default for Lane<L> {
    fn default() -> Self {
        Self {
            turns: VecDeque::new(),
            waiting: HashMap::new(),
            closed: false,
        }
    }
}

impl<L: Copy + Eq + Hash> Lane<L> {
    /// Returns whether no operation waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Returns the number of operations that wait in a line.
    pub(crate) fn waiting(&self, line: L) -> usize {
        self.waiting.get(&line).map_or(0, VecDeque::len)
    }

    /// Returns the first operation of the line whose turn it is.
    pub(crate) fn front(&self) -> Option<&PendingOp> {
        self.waiting.get(self.turns.front()?)?.front()
    }

    /// Takes up to `max` operations of the line whose turn it is. A line that has more waits for its next turn.
    pub(crate) fn take(&mut self, max: usize) -> Option<(L, Vec<PendingOp>)> {
        let line = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&line)?;
        let taken = waiting.drain(..max.min(waiting.len())).collect();
        if waiting.is_empty() {
            self.waiting.remove(&line);
        } else {
            self.turns.push_back(line);
        }
        Some((line, taken))
    }

    /// Takes all operations of a line.
    pub(crate) fn take_line(&mut self, line: L) -> VecDeque<PendingOp> {
        let all = self.waiting.remove(&line).unwrap_or_default();
        if !all.is_empty() {
            self.turns.retain(|other| *other != line);
        }
        all
    }

    /// Puts operations back that have to wait again, before those that came later.
    pub(crate) fn put_back(&mut self, line: L, again: Vec<PendingOp>) {
        for op in again.into_iter().rev() {
            self.line(line).push_front(op);
        }
    }

    fn line(&mut self, line: L) -> &mut VecDeque<PendingOp> {
        let waiting = self.waiting.entry(line).or_default();
        if waiting.is_empty() {
            self.turns.push_back(line);
        }
        waiting
    }

    /// Takes no more operations, and gives those that wait.
    fn close(&mut self) -> impl Iterator<Item = PendingOp> {
        self.closed = true;
        self.turns.clear();
        std::mem::take(&mut self.waiting).into_values().flatten()
    }
}

impl<L: Copy + Eq + Hash> Default for ParkedOperations<L> {
    fn default() -> Self {
        Self::new(1)
    }
}

impl<L: Copy + Eq + Hash> ParkedOperations<L> {
    /// Returns a queue with so many lanes.
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            lanes: (0..lanes).map(|_| RankedMutex::default()).collect(),
            operations: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Returns the number of lanes.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the number of waiting operations.
    pub(crate) fn waiting(&self) -> usize {
        self.operations.load(Ordering::SeqCst)
    }

    /// Counts an operation that is to wait.
    ///
    /// # Errors
    /// `TemporaryFailure` when too many wait.
    pub(crate) fn admit(&self, op: &PendingOp, quota_bytes: u64) -> Result<(), Status> {
        let bytes = op.op.bytes();
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting = self.operations.fetch_add(1, Ordering::SeqCst);
        let too_large = before > 0 && (before + bytes) as u64 > quota_bytes / BYTES_RATIO;
        if waiting >= COMMANDS_WAITING_MAX || (bytes > 0 && too_large) {
            self.release(op);
            return Err(Status::TemporaryFailure);
        }
        Ok(())
    }

    /// Puts an operation that was admitted at the end of its line. Returns the lane, locked.
    ///
    /// # Errors
    /// `TemporaryFailure` when the bucket ends.
    pub(crate) fn push(
        &self,
        lane: usize,
        line: L,
        op: PendingOp,
    ) -> Result<RankedMutexGuard<'_, ParkedLane, Lane<L>>, Status> {
        let mut lane = self.lock(lane);
        if lane.closed {
            self.release(&op);
            return Err(Status::TemporaryFailure);
        }
        lane.line(line).push_back(op);
        Ok(lane)
    }

    /// Locks a lane.
    pub(crate) fn lock(&self, lane: usize) -> RankedMutexGuard<'_, ParkedLane, Lane<L>> {
        self.lanes[lane].lock()
    }

    /// Counts an operation that does not wait any more.
    pub(crate) fn release(&self, op: &PendingOp) {
        self.operations.fetch_sub(1, Ordering::SeqCst);
        self.bytes.fetch_sub(op.op.bytes(), Ordering::Relaxed);
    }

    /// Closes the queue, as the bucket ends and its tasks have: all waiting operations fail, and `others`, which were
    /// taken.
    pub(crate) fn close(&self, core: &BucketCore, others: Vec<PendingOp>) {
        let mut all = others;
        for lane in &self.lanes {
            all.extend(lane.lock().close());
        }
        let failed = all.iter().map(|op| {
            self.release(op);
            (op.cookie, op.op.failed(Status::TemporaryFailure))
        });
        let mut completions: Vec<_> = failed.collect();
        if !completions.is_empty() {
            core.setup.completions.complete(&mut completions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_types::{Cas, CollectionId, DocKey, VbId};
    use kedge_vbucket::{ConcatMode, Cookie, DocOp};

    fn pending(cookie: u64, op: DocOp<'static>) -> PendingOp {
        PendingOp {
            vb: VbId(1),
            key: DocKey::new(CollectionId::DEFAULT, b"key").unwrap(),
            cookie: Cookie(cookie),
            cas: Cas(0),
            durability: None,
            new_cas: Cas(0),
            preserve_ttl: false,
            op: op.into(),
            since_ns: 0,
            memory_bytes: 0,
            attempts: 0,
        }
    }

    fn get(cookie: u64) -> PendingOp {
        pending(cookie, DocOp::Get)
    }

    fn append(bytes: usize) -> PendingOp {
        let (mode, bytes) = (ConcatMode::Append, vec![0; bytes].into());
        pending(2, DocOp::Concat { mode, bytes })
    }

    fn cookies<'a>(of: impl IntoIterator<Item = &'a PendingOp>) -> Vec<u64> {
        of.into_iter().map(|op| op.cookie.0).collect()
    }

    const REFUSED: Result<(), Status> = Err(Status::TemporaryFailure);

    #[test]
    fn admission_is_limited_by_number_and_by_value_bytes() {
        let parked = ParkedOperations::<VbId>::new(1);
        for _ in 0..COMMANDS_WAITING_MAX {
            parked.admit(&get(1), 1_000).unwrap();
        }
        assert_eq!(parked.admit(&get(1), 1_000), REFUSED);
        parked.release(&get(1));
        assert_eq!(parked.admit(&append(500), 1_000), Ok(()), "one in any case");
        parked.release(&get(1));
        assert_eq!(parked.admit(&append(1), 1_000), REFUSED);
        parked.release(&append(500));
        assert_eq!(parked.admit(&append(100), 1_000), Ok(()));
        assert_eq!(parked.waiting(), COMMANDS_WAITING_MAX - 1);
    }

    #[test]
    fn lines_take_turns_and_keep_their_order() {
        let parked = ParkedOperations::new(1);
        let put = |line: u16, cookie| drop(parked.push(0, line, get(cookie)).unwrap());
        (0..5).for_each(|cookie| put(1, cookie));
        put(2, 1_000);
        let mut lane = parked.lock(0);
        assert_eq!(lane.front().map(|op| op.cookie), Some(Cookie(0)));
        let (line, first) = lane.take(3).unwrap();
        assert_eq!((line, cookies(&first)), (1, vec![0, 1, 2]));
        assert_eq!(lane.front().map(|op| op.cookie), Some(Cookie(1_000)));
        assert_eq!(lane.take(3).unwrap().0, 2);
        lane.put_back(1, first.into_iter().skip(1).collect());
        let (line, second) = lane.take(4).unwrap();
        assert_eq!((line, cookies(&second)), (1, vec![1, 2, 3, 4]));
        assert!(lane.take(3).is_none() && lane.front().is_none() && lane.is_empty());
        // A line that is empty again has no turn until an operation is put there.
        lane.put_back(1, second);
        lane.put_back(1, Vec::new());
        assert_eq!(lane.turns, [1]);
    }

    #[test]
    fn a_line_is_taken_as_a_whole_and_loses_its_turn() {
        let parked = ParkedOperations::new(1);
        for (line, cookie) in [(1, 1), (2, 2), (1, 3)] {
            drop(parked.push(0, line, get(cookie)).unwrap());
        }
        let mut lane = parked.lock(0);
        assert_eq!(cookies(&lane.take_line(1)), [1, 3]);
        assert_eq!(cookies(&lane.take_line(1)), [0; 0]);
        let (line, rest) = lane.take(9).unwrap();
        assert_eq!((line, cookies(&rest)), (2, vec![2]));
        assert!(lane.is_empty());
    }

    #[test]
    fn a_closed_lane_gives_all_and_takes_no_more() {
        let parked = ParkedOperations::new(2);
        for (lane, line) in [(0, 1), (1, 2), (1, 3)] {
            parked.admit(&get(line), 1_000).unwrap();
            drop(parked.push(lane, line, get(line)).unwrap());
        }
        assert_eq!(parked.waiting(), 3);
        let mut closed: Vec<u64> = (0..2)
            .flat_map(|lane| cookies(&parked.lock(lane).close().collect::<Vec<_>>()))
            .collect();
        closed.sort_unstable();
        assert_eq!(closed, [1, 2, 3]);
        parked.admit(&get(4), 1_000).unwrap();
        assert!(parked.push(0, 4, get(4)).is_err());
        assert_eq!(parked.waiting(), 3, "the one that was refused was released");
    }
}
