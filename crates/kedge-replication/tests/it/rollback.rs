//! Rollback points of consumers, compared with histories of documents.
//!
//! A vBucket on branch 1 was followed by a consumer. The branch ended somewhere for the others, who went on with branch 2,
//! while the vBucket went on by itself for a while. Then the consumer asks one of the others for the rest. Whatever it is
//! told, it must end up with what the other has.

use kedge_replication::{Filter, StreamFlags, StreamRequest, rollback_point};
use kedge_types::{Seqno, VbId, VbUuid};
use kedge_vbucket::FailoverTable;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Writes in the order of their seqnos, from 1 on: a key, and whether it is deleted.
type History = Vec<(u8, bool)>;
/// The seqno of the newest write of each key that is not deleted.
type Documents = BTreeMap<u8, u64>;

fn apply(documents: &mut Documents, seqno: u64, (key, deleted): (u8, bool)) {
    if deleted {
        documents.remove(&key);
    } else {
        documents.insert(key, seqno);
    }
}

fn numbered(history: &History) -> impl DoubleEndedIterator<Item = (u64, (u8, bool))> {
    history
        .iter()
        .zip(1..)
        .map(|(write, seqno)| (seqno, *write))
        .collect::<Vec<_>>()
        .into_iter()
}

/// Returns the documents at a seqno.
fn documents_at(history: &History, at: u64) -> Documents {
    let mut documents = Documents::new();
    for (seqno, write) in numbered(history).take_while(|(seqno, _)| *seqno <= at) {
        apply(&mut documents, seqno, write);
    }
    documents
}

/// Returns the content of a disk behind `start` up to `end`: the newest write of each key, without deletions up to
/// `purged`.
fn on_disk(history: &History, start: u64, end: u64, purged: u64) -> Vec<(u64, (u8, bool))> {
    let mut newest = BTreeMap::new();
    for (seqno, write) in numbered(history).take_while(|(seqno, _)| *seqno <= end) {
        newest.insert(write.0, (seqno, write));
    }
    let mut writes: Vec<_> = newest.into_values().collect();
    writes.retain(|(seqno, (_, deleted))| *seqno > start && !(*deleted && *seqno <= purged));
    writes.sort_unstable();
    writes
}

/// Goes on from `start` with all that the other's disk has.
fn follow(mut documents: Documents, other: &History, start: u64, purged: u64) -> Documents {
    for (seqno, write) in on_disk(other, start, other.len() as u64, purged) {
        apply(&mut documents, seqno, write);
    }
    documents
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn rollback_point_leads_to_the_documents_of_the_producer(
        shared in vec((0_u8..5, any::<bool>()), 0..12),
        lost in vec((0_u8..5, any::<bool>()), 0..6),
        new in vec((0_u8..5, any::<bool>()), 0..6),
        points in (0_u64..20, 0_u64..20, 0_u64..20),
        same_branch in any::<bool>(),
        purged in 0_u64..20,
        saw_purge in any::<bool>(),
    ) {
        let branch_end = shared.len() as u64;
        let other: History = [shared.clone(), new].concat();
        let high = other.len() as u64;
        // The consumer followed the other itself, or the node that was left behind.
        let (followed, uuid) = if same_branch || saw_purge {
            (other.clone(), 2)
        } else {
            ([shared, lost].concat(), 1)
        };
        let followed_high = followed.len() as u64;
        let mut points = [points.0, points.1, points.2].map(|point| point.min(followed_high));
        points.sort_unstable();
        let [snap_start, start, snap_end] = points;
        let purged = purged.min(high);
        // Who knows of the purge began anew since: the snapshot reaches beyond it, and is not all there yet.
        let (snap_start, snap_end) = if saw_purge {
            (0, snap_end.max(purged))
        } else {
            (snap_start, snap_end)
        };
        // It has all up to the start of the snapshot, and of the snapshot what is up to its own seqno.
        let mut has = documents_at(&followed, snap_start);
        let snapshot = on_disk(&followed, snap_start, snap_end, 0);
        for (seqno, write) in snapshot.into_iter().take_while(|(seqno, _)| *seqno <= start) {
            apply(&mut has, seqno, write);
        }
        let entries = vec![(VbUuid(2), Seqno(branch_end)), (VbUuid(1), Seqno(0))];
        let table = FailoverTable::from_entries(entries).unwrap();
        let request = StreamRequest {
            vb: VbId(0),
            flags: StreamFlags(0),
            start: Seqno(start),
            end: Seqno(u64::MAX),
            uuid: VbUuid(uuid),
            snap_start: Seqno(snap_start),
            snap_end: Seqno(snap_end),
            purge_seen: saw_purge.then_some(Seqno(purged)),
            manifest_seen: None,
            filter: Filter::Everything,
            unordered: false,
            sync_writes: true,
            consumer: None,
        };
        let decided = rollback_point(&table, Seqno(high), Seqno(purged), None, &request);
        let ends_with = match decided {
            Ok(()) => follow(has, &other, start, purged),
            Err(to) => {
                let to = to.get();
                let is_complete = start == snap_end;
                prop_assert!(to <= snap_start || (is_complete && to <= start), "it can go there");
                prop_assert!(to < start || to == 0, "it would ask the same again");
                // A purge counts for who asks from 0 too, but he has nothing that was deleted.
                let back = documents_at(&followed, to);
                let again = StreamRequest {
                    start: Seqno(to),
                    snap_start: Seqno(to),
                    snap_end: Seqno(to),
                    ..request
                };
                let again = rollback_point(&table, Seqno(high), Seqno(purged), None, &again);
                match again {
                    Ok(()) => follow(back, &other, to, purged),
                    Err(to) => {
                        prop_assert_eq!(to, Seqno(0));
                        follow(Documents::new(), &other, 0, purged)
                    }
                }
            }
        };
        prop_assert_eq!(ends_with, documents_at(&other, high));
    }
}
