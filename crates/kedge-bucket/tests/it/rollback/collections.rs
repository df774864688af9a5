//! Rollbacks of vBuckets past changes of their collections.

use super::*;
use crate::collections::{follow, get, items, set};
use crate::dcp::{Client, TestConnection, request};
use kedge_bucket::{StreamRefused, StreamRequest};
use kedge_replication::Filter;
use kedge_types::CollectionId;

/// Returns the documents of a collection as a stream of the vBucket sends them, in any state of the vBucket.
fn streamed(open: &Open, id: u8) -> Result<Documents, Status> {
    let line = TestConnection::new(open);
    let request = StreamRequest {
        filter: Filter::Collections(vec![CollectionId(u32::from(id))]),
        ..request(open, VB, 0)
    };
    let opened = match line.connection.open_stream(&request) {
        Ok(opened) => opened,
        Err(StreamRefused::Status(status)) => return Err(status),
        Err(other) => panic!("{other:?}"),
    };
    let mut client = Client::new(opened.stream, 0);
    let high = open.bucket.vbucket_figures(VB).unwrap().high_seqno;
    until("the stream has all", || {
        client.drain();
        client.copy.last >= high.get()
    });
    let documents = client.copy.documents.into_iter();
    Ok(documents
        .filter(|(key, _)| key[0] == id)
        .filter_map(|(key, (_, value))| {
            Some((String::from_utf8(key[1..].to_vec()).unwrap(), value?))
        })
        .collect())
}

fn value(id: u32, name: &str) -> Vec<u8> {
    format!("{name} of {id}").into_bytes()
}

fn of(id: u32, names: &[String]) -> Documents {
    let of = |name: &String| (name.clone(), value(id, name));
    names.iter().map(of).collect()
}

/// Stores each document once in each of the collections. Returns the seqno of the file.
fn fill(open: &Open, ids: &[u32], names: &[String]) -> Seqno {
    for name in names {
        for id in ids {
            set(open, *id, name, &value(*id, name)).unwrap();
        }
    }
    open.bucket.persistence().apply().unwrap();
    open.bucket.vbucket_figures(VB).unwrap().high_seqno
}

#[test]
fn rollback_of_a_collection_drop_restores_its_documents() {
    let names: Vec<String> = names().take(10).collect();
    for commit_log in [true, false] {
        for policy in [EvictionPolicy::ValueOnly, EvictionPolicy::FullEviction] {
            let (disk, mut site) = site(7, commit_log);
            site.config.eviction_policy = policy;
            let open = site.open();
            follow(&open, 1, &[8, 10]);
            let reached = fill(&open, &[0, 8, 10], &names);
            follow(&open, 2, &[10]);
            set(&open, 10, &names[0], b"after the drop").unwrap();
            open.bucket.persistence().apply().unwrap();
            let documents = || open.bucket.vbucket_figures(VB).unwrap().documents;
            until("they have left memory", || documents() == 20);
            assert_eq!(streamed(&open, 8), Err(Status::UnknownCollection));

            let high = open.bucket.vbucket_figures(VB).unwrap().high_seqno;
            let wanted = Seqno(high.get() - 1);
            assert_eq!(roll_back(&open, wanted), back_to(reached));
            assert_eq!(documents(), 30);
            for id in [0, 8, 10] {
                let documents = streamed(&open, id).unwrap();
                assert_eq!(documents, of(u32::from(id), &names), "{policy:?}");
            }
            disk.crash(1);
            open.bucket.shutdown();
            // Another node has a manifest that still contains the collection.
            let again = site.open();
            assert_eq!(streamed(&again, 8), Ok(of(8, &names)));
            follow(&again, 1, &[8, 10]);
            again
                .bucket
                .states()
                .set_vbucket(VB, VbState::Active)
                .unwrap();
            assert_eq!(items(&again.bucket), [(0, 10), (8, 10), (10, 10)]);
            for name in &names {
                for id in [0, 8, 10] {
                    assert_eq!(get(&again, id, name), Ok(value(id, name)));
                }
            }
            // The collection is dropped again, as on the other nodes.
            follow(&again, 3, &[10]);
            assert_eq!(get(&again, 8, &names[0]), Err(Status::UnknownCollection));
            assert_eq!(items(&again.bucket), [(0, 10), (10, 10)]);
            again.bucket.shutdown();
        }
    }
}

#[test]
fn rollback_of_a_collection_creation_leaves_it_empty_when_it_is_created_again() {
    let names: Vec<String> = names().take(10).collect();
    for commit_log in [true, false] {
        let (_, site) = site(8, commit_log);
        let open = site.open();
        follow(&open, 1, &[8]);
        let reached = fill(&open, &[0, 8], &names);
        follow(&open, 2, &[8, 11]);
        fill(&open, &[11], &names[..3]);
        assert_eq!(streamed(&open, 11), Ok(of(11, &names[..3])));
        assert_eq!(roll_back(&open, reached), back_to(reached));
        assert_eq!(streamed(&open, 11), Err(Status::UnknownCollection));
        assert_eq!(streamed(&open, 8), Ok(of(8, &names)));
        // When the vBucket becomes active, it applies the manifest of the bucket.
        open.bucket
            .states()
            .set_vbucket(VB, VbState::Active)
            .unwrap();
        assert_eq!(get(&open, 11, &names[0]), Err(Status::KeyNotFound));
        set(&open, 11, &names[1], &value(11, &names[1])).unwrap();
        assert_eq!(items(&open.bucket), [(0, 10), (8, 10), (11, 1)]);
        assert_eq!(streamed(&open, 11), Ok(of(11, &names[1..2])));
        open.bucket.shutdown();
    }
}
