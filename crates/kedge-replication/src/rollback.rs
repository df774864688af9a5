//! The comparison of a consumer's history with that of a vBucket.

use crate::request::StreamRequest;
use kedge_protocol::binary::commands::dcp::StreamFlags;
use kedge_types::{Seqno, VbUuid};
use kedge_vbucket::FailoverTable;

/// Checks that a stream may begin at the requested point. The rules, in this order:
///
/// 1. Every consumer may begin at seqno 0, unless it asks for the comparison of its branch and names one.
/// 2. A consumer at a seqno before the purge seqno may have documents whose tombstones are gone: it starts over, unless
///    it knows of exactly this purge, ignores purged tombstones, or the requested part has not changed since.
/// 3. A consumer on a branch that is not in the table starts over.
/// 4. Its branch is shared up to the start of the next newer one, or up to `high` if it is the newest. If its snapshot
///    lies in that part, the stream goes on. A snapshot of which the consumer has nothing counts as its start, and one
///    that it has completely as its end. Otherwise it rolls back to the end of the shared part, or to the start of its
///    snapshot if that is earlier.
///
/// `purge` is the seqno up to which tombstones may be missing. `filtered_high` is the seqno of the last change in the
/// part that a filtered stream covers. The check runs twice: when the request arrives, and when the file of a backfill
/// is open, as tombstones may have been purged in between.
///
/// Source: Couchbase `docs/dcp/documentation/rollback.md`.
///
/// # Errors
/// The seqno to roll back to.
pub fn rollback_point(
    table: &FailoverTable,
    high: Seqno,
    purge: Seqno,
    filtered_high: Option<Seqno>,
    request: &StreamRequest,
) -> Result<(), Seqno> {
    let start = request.start;
    let strict = request.flags.contains(StreamFlags::STRICT_VB_UUID);
    if start == Seqno(0) && (!strict || request.uuid == VbUuid(0)) {
        return Ok(());
    }
    let unchanged = filtered_high.is_some_and(|high| high <= start && high <= purge);
    let exempt = unchanged
        || request
            .flags
            .contains(StreamFlags::IGNORE_PURGED_TOMBSTONES)
        || request.purge_seen == Some(purge);
    if start < purge && start != Seqno(0) && !exempt {
        return Err(Seqno(0));
    }
    let entries = table.entries();
    let Some(branch) = entries.iter().position(|(uuid, _)| *uuid == request.uuid) else {
        return Err(Seqno(0));
    };
    let upper = match branch.checked_sub(1) {
        Some(newer) => entries[newer].1,
        None => high,
    };
    let (mut snap_start, mut snap_end) = (request.snap_start, request.snap_end);
    if start == snap_start {
        snap_end = start;
    }
    if snap_end <= upper {
        return Ok(());
    }
    if start == snap_end {
        snap_start = start;
    }
    Err(upper.min(snap_start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;
    use kedge_types::VbId;

    /// The table of the tests. Branch 3 starts at 20, branch 2 at 10, branch 1 at 0. The high seqno is 30.
    fn table() -> FailoverTable {
        let entries = [(3, 20), (2, 10), (1, 0)].map(|(uuid, seqno)| (VbUuid(uuid), Seqno(seqno)));
        FailoverTable::from_entries(entries.to_vec()).unwrap()
    }

    fn request(uuid: u64, start: u64, snapshot: (u64, u64)) -> StreamRequest {
        StreamRequest {
            vb: VbId(0),
            flags: StreamFlags(0),
            start: Seqno(start),
            end: Seqno(u64::MAX),
            uuid: VbUuid(uuid),
            snap_start: Seqno(snapshot.0),
            snap_end: Seqno(snapshot.1),
            purge_seen: None,
            manifest_seen: None,
            filter: Filter::Everything,
            unordered: false,
            sync_writes: true,
            consumer: None,
        }
    }

    fn decide(purge: u64, filtered_high: Option<u64>, request: &StreamRequest) -> Option<u64> {
        let filtered_high = filtered_high.map(Seqno);
        rollback_point(&table(), Seqno(30), Seqno(purge), filtered_high, request)
            .err()
            .map(Seqno::get)
    }

    #[test]
    fn rollback_from_seqno_zero_only_with_strict_vb_uuid() {
        for (uuid, strict, expected) in [
            (0, false, None),
            (0, true, None),
            (99, false, None),
            (99, true, Some(0)),
            (3, true, None),
            (1, true, None),
        ] {
            let mut request = request(uuid, 0, (0, 0));
            if strict {
                request.flags = StreamFlags::STRICT_VB_UUID;
            }
            for purge in [0, 5] {
                let decided = decide(purge, None, &request);
                assert_eq!(decided, expected, "{uuid} {strict} {purge}");
            }
        }
    }

    #[test]
    fn rollback_to_zero_for_a_consumer_from_before_the_purge() {
        // start, purged up to, expected result.
        for (start, purge, expected) in [
            (5, 4, None),
            (5, 5, None),
            (5, 6, Some(0)),
            (29, 30, Some(0)),
        ] {
            let request = request(3, start, (start, start));
            assert_eq!(decide(purge, None, &request), expected, "{start} {purge}");
        }
        let plain = request(3, 5, (5, 5));
        let ignores = StreamRequest {
            flags: StreamFlags::IGNORE_PURGED_TOMBSTONES,
            ..plain.clone()
        };
        assert_eq!(decide(6, None, &ignores), None);
        for (seen, expected) in [(6, None), (5, Some(0)), (7, Some(0))] {
            let request = StreamRequest {
                purge_seen: Some(Seqno(seen)),
                ..plain.clone()
            };
            assert_eq!(decide(6, None, &request), expected, "{seen}");
        }
        // The last change under the filter: behind the start, before it, and before start and purge.
        for (high, purge, expected) in [(6, 6, Some(0)), (5, 6, None), (4, 6, None)] {
            assert_eq!(decide(purge, Some(high), &plain), expected, "{high}");
        }
    }

    #[test]
    fn rollback_to_zero_for_an_unknown_branch() {
        assert_eq!(decide(0, None, &request(99, 5, (5, 5))), Some(0));
        assert_eq!(decide(0, None, &request(0, 5, (5, 5))), Some(0));
    }

    #[test]
    fn rollback_to_the_end_of_the_shared_branch() {
        // branch, start, its snapshot, expected rollback point.
        for (uuid, start, snapshot, expected) in [
            // On the newest branch, up to the high seqno.
            (3, 25, (25, 25), None),
            (3, 30, (30, 30), None),
            (3, 31, (31, 31), Some(30)),
            (3, 30, (25, 30), None),
            // It has nothing of a snapshot that reaches further: that counts as its start.
            (3, 25, (25, 40), None),
            // It has a part of a snapshot: back to the start of that.
            (3, 26, (25, 40), Some(25)),
            // It has a whole snapshot that reaches further: back to the end of the shared part.
            (3, 40, (25, 40), Some(30)),
            (3, 40, (35, 40), Some(30)),
            // A part of a snapshot that begins behind the shared part.
            (3, 36, (35, 40), Some(30)),
            // The middle branch ended at 20, the oldest at 10.
            (2, 20, (20, 20), None),
            (2, 15, (10, 20), None),
            (2, 21, (21, 21), Some(20)),
            (2, 15, (12, 21), Some(12)),
            (2, 12, (12, 21), None),
            (1, 10, (5, 10), None),
            (1, 11, (5, 11), Some(10)),
            (1, 11, (5, 12), Some(5)),
            (1, 7, (0, 8), None),
            (1, 7, (0, 12), Some(0)),
        ] {
            let decided = decide(0, None, &request(uuid, start, snapshot));
            assert_eq!(decided, expected, "{uuid} {start} {snapshot:?}");
        }
    }
}
