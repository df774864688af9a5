//! Outbound streams: their items, notifications and ends.

use super::*;
use kedge_bucket::{NodeName, SnapshotKind, StreamState, Topology, VbRole, VbState};
use kedge_disk::SimDisk;
use kedge_executor::Pool;

const VB: VbId = VbId(1);

#[test]
fn stream_sends_changes_as_they_happen_and_notifies_the_reader_once() {
    let (open, _steps) = sim(&SimDisk::new(1)).open_with_manual_tasks();
    let names = names_in(VB, 3);
    let line = TestConnection::new(&open);
    let mut client = line.open(&open, VB, 0);
    assert_eq!(client.read(), SourceState::Idle);
    assert_eq!(line.ear.take(), []);
    open.set(&names[0], b"1").unwrap();
    open.set(&names[1], b"2").unwrap();
    let other = names_in(VbId(2), 1);
    open.set(&other[0], b"of another vBucket").unwrap();
    assert_eq!(line.ear.take(), [VB]);
    client.drain();
    assert_eq!((client.copy.last, client.copy.markers), (2, 1));
    let snapshot = client.copy.snapshot.unwrap();
    assert_eq!(snapshot.kind, SnapshotKind::Memory);
    assert_eq!((snapshot.start, snapshot.end), (Seqno(0), Seqno(2)));
    assert_eq!(line.ear.take(), []);
    open.set(&names[2], b"3").unwrap();
    assert_eq!(line.ear.take(), [VB], "before the log has it");
    client.drain();
    let snapshot = client.copy.snapshot.unwrap();
    assert_eq!((snapshot.start, snapshot.end), (Seqno(3), Seqno(3)));
    assert_eq!(client.copy.values(), values(&open, names.into_iter()));
    open.bucket.shutdown();
}

#[test]
fn stream_sends_prepares_commits_and_aborts_in_seqno_order() {
    let (open, steps) = sim(&SimDisk::new(2)).open_with_manual_tasks();
    let names = names_in(VB, 2);
    let line = TestConnection::new(&open);
    let mut client = line.open(&open, VB, 0);
    client.drain();
    open.persist(&names[0], b"durable", 1).unwrap();
    open.set(&names[1], b"plain").unwrap();
    assert_eq!(
        line.ear.take(),
        [VB],
        "the prepare goes out before it is on disk"
    );
    client.drain();
    assert_eq!(client.copy.prepares.len(), 1);
    assert_eq!(client.copy.snapshot.unwrap().max_visible, Some(Seqno(2)));
    open.bucket.persistence().writers().request_flush(false);
    steps.run();
    assert_eq!(line.ear.take(), [VB], "it was committed");
    client.drain();
    assert_eq!((client.copy.prepares.len(), client.copy.last), (0, 3));
    assert_eq!(client.copy.values(), values(&open, names.into_iter()));
    open.bucket.shutdown();
}

#[test]
fn stream_ends_at_its_end_seqno() {
    let (open, _steps) = sim(&SimDisk::new(3)).open_with_manual_tasks();
    let names = names_in(VB, 6);
    for name in &names[..4] {
        open.set(name, b"1").unwrap();
    }
    let line = TestConnection::new(&open);
    let asked = request(&open, VB, 0);
    let mut early = line
        .try_open(&StreamRequest {
            end: Seqno(2),
            ..asked.clone()
        })
        .unwrap();
    let mut latest = line
        .try_open(&StreamRequest {
            flags: StreamFlags::TO_LATEST,
            ..asked.clone()
        })
        .unwrap();
    let mut future = line
        .try_open(&StreamRequest {
            end: Seqno(5),
            ..asked.clone()
        })
        .unwrap();
    let mut from_latest = line
        .try_open(&StreamRequest {
            flags: StreamFlags::FROM_LATEST,
            ..asked
        })
        .unwrap();
    from_latest.copy.last = 4;
    open.set(&names[4], b"2").unwrap();
    for client in [&mut early, &mut latest, &mut future, &mut from_latest] {
        client.drain();
    }
    assert_eq!((early.copy.last, early.ended), (2, Some(EndReason::Ok)));
    assert_eq!(early.copy.snapshot.unwrap().end, Seqno(2));
    assert_eq!((latest.copy.last, latest.ended), (4, Some(EndReason::Ok)));
    assert_eq!((future.copy.last, future.ended), (5, Some(EndReason::Ok)));
    assert_eq!((from_latest.copy.last, from_latest.ended), (5, None));
    assert_eq!(from_latest.copy.documents.len(), 1);
    open.bucket.shutdown();
}

#[test]
fn stream_request_that_cannot_be_served_is_rejected() {
    let (open, _steps) = sim(&SimDisk::new(4)).open_with_manual_tasks();
    for name in names_in(VB, 5) {
        open.set(&name, b"1").unwrap();
    }
    let line = TestConnection::new(&open);
    let asked = |start: u64| request(&open, VB, start);
    let refused = |request: StreamRequest| line.try_open(&request).err();
    let range = Some(StreamRefused::Status(Status::OutOfRange));
    let elsewhere = Some(StreamRefused::Status(Status::NotMyVbucket));
    let with = |start, snap_start, snap_end| StreamRequest {
        snap_start: Seqno(snap_start),
        snap_end: Seqno(snap_end),
        ..asked(start)
    };
    assert_eq!(refused(with(3, 4, 5)), range);
    assert_eq!(refused(with(3, 1, 2)), range);
    let backwards = StreamRequest {
        end: Seqno(2),
        ..asked(3)
    };
    assert_eq!(refused(backwards), range);
    let nowhere = StreamRequest {
        vb: VbId(4),
        ..asked(0)
    };
    assert_eq!(refused(nowhere), elsewhere);
    let ahead = Some(StreamRefused::Rollback(Seqno(5)));
    assert_eq!(refused(asked(6)), ahead);
    let stranger = StreamRequest {
        uuid: VbUuid(99),
        ..asked(3)
    };
    assert_eq!(refused(stranger), Some(StreamRefused::Rollback(Seqno(0))));
    open.bucket
        .states()
        .set_vbucket(VB, VbState::Replica)
        .unwrap();
    let active_only = StreamRequest {
        flags: StreamFlags::ACTIVE_ONLY,
        ..asked(5)
    };
    assert_eq!(refused(active_only), elsewhere);
    open.bucket.states().set_vbucket(VB, VbState::Dead).unwrap();
    assert_eq!(refused(asked(0)), elsewhere);
    open.bucket.shutdown();
    let closed = Some(StreamRefused::Status(Status::TemporaryFailure));
    assert_eq!(refused(asked(0)), closed);
}

#[test]
fn stream_ends_when_its_vbucket_changes_state_or_history() {
    let (open, _steps) = sim(&SimDisk::new(5)).open_with_manual_tasks();
    open.set(&names_in(VB, 1)[0], b"1").unwrap();
    let line = TestConnection::new(&open);
    let ended = |end: &dyn Fn()| {
        let mut client = line.open(&open, VB, 0);
        client.drain();
        line.ear.take();
        end();
        assert_eq!(line.ear.take(), [VB]);
        client.drain();
        assert_eq!(
            client.drain_again(),
            SourceState::Ended(client.ended.unwrap())
        );
        client.ended
    };
    let make = |state| move |open: &Open| open.bucket.states().set_vbucket(VB, state).unwrap();
    let changed = Some(EndReason::StateChanged);
    assert_eq!(ended(&|| make(VbState::Replica)(&open)), changed);
    assert_eq!(ended(&|| make(VbState::Active)(&open)), changed);
    let reset = || open.bucket.flush_all(open.ctx()).unwrap();
    assert_eq!(ended(&reset), Some(EndReason::Rollback));
    let deleted = || open.bucket.states().delete_vbucket(VB).unwrap();
    assert_eq!(ended(&deleted), changed);
    make(VbState::Active)(&open);
    let ends = || open.bucket.shutdown();
    assert_eq!(ended(&ends), Some(EndReason::Disconnected));
    assert_eq!(open.bucket.dcp().stream_figures(), []);
}

#[test]
fn rollback_ends_the_streams_of_a_replica() {
    let (open, steps) = sim(&SimDisk::new(6)).open_with_manual_tasks();
    let names = names_in(VB, 6);
    for name in &names[..5] {
        open.set(name, b"1").unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    open.set(&names[5], b"2").unwrap();
    open.bucket
        .states()
        .set_vbucket(VB, VbState::Replica)
        .unwrap();
    let line = TestConnection::new(&open);
    let mut client = line.open(&open, VB, 0);
    client.drain();
    open.bucket
        .persistence()
        .rollbacks()
        .rollback(VB, Seqno(5))
        .unwrap();
    client.drain();
    assert_eq!(client.ended, Some(EndReason::Rollback));
    let mut again = line.open(&open, VB, 0);
    again.drain();
    steps.run();
    again.drain();
    assert_eq!((again.copy.last, again.ended), (5, None));
    open.bucket.shutdown();
}

#[test]
fn takeover_stream_hands_the_vbucket_over() {
    let (open, steps) = sim(&SimDisk::new(7)).open_with_manual_tasks();
    let names = names_in(VB, 4);
    open.set(&names[0], b"1").unwrap();
    let line = TestConnection::new(&open);
    let mut client = line
        .try_open(&StreamRequest {
            flags: StreamFlags::TAKEOVER,
            ..request(&open, VB, 0)
        })
        .unwrap();
    client.drain();
    assert_eq!(client.copy.states, [VbState::Pending]);
    open.set(&names[1], b"2").unwrap();
    client.drain();
    assert_eq!(client.copy.last, 2, "it goes on until the answer");
    client.stream.state_answered();
    open.set(&names[2], b"3").unwrap();
    while open.bucket.vbucket_state(VB) == Ok(VbState::Active) {
        assert!(steps.run_one(Pool::Writer));
    }
    steps.run();
    assert!(line.ear.take().contains(&VB));
    assert_eq!(open.set(&names[3], b"4"), Err(Status::NotMyVbucket));
    client.drain();
    assert_eq!(client.copy.last, 3, "what was written last");
    assert_eq!(client.copy.states, [VbState::Pending, VbState::Active]);
    let figures = open.bucket.dcp().stream_figures();
    assert_eq!(figures[0].state, StreamState::TakingOver);
    client.stream.state_answered();
    client.drain();
    assert_eq!(client.ended, Some(EndReason::Ok));
    open.bucket.shutdown();
}

/// Bug: a node with an older map would make the active dead, and not become active by the newer map.
#[test]
fn takeover_in_a_cluster_is_allowed_only_for_the_next_active() {
    let mut site = sim(&SimDisk::new(8));
    site.topology = None;
    let (open, steps) = site.open_with_manual_tasks();
    let chain = |names: [&str; 2]| names.map(NodeName::new).to_vec();
    let assign = |chains: &[[&str; 2]]| {
        let chains = chains.iter().copied().map(chain).collect();
        let role = VbRole {
            topology: Some(Topology::new(chains).unwrap()),
            ..VbState::Active.into()
        };
        open.bucket.states().set_vbucket(VB, role).unwrap();
    };
    assign(&[["a", "b"]]);
    let line = TestConnection::new(&open);
    let takeover = |name: &str| {
        line.try_open(&StreamRequest {
            flags: StreamFlags::TAKEOVER,
            consumer: NodeName::new(name),
            ..request(&open, VB, 0)
        })
    };
    let refused = Some(StreamRefused::Status(Status::NotMyVbucket));
    assert_eq!(takeover("b").err(), refused, "nothing moves");
    assign(&[["a", "b"], ["b", "a"]]);
    assert_eq!(takeover("c").err(), refused);
    assert_eq!(takeover("").err(), refused, "it has no name");
    let mut client = takeover("b").unwrap();
    client.drain();
    assert_eq!(client.copy.states, [VbState::Pending]);
    // The move is abandoned before the other node has responded.
    assign(&[["a", "b"]]);
    client.stream.state_answered();
    steps.run();
    client.drain();
    assert_eq!(client.ended, Some(EndReason::StateChanged));
    assert_eq!(open.bucket.vbucket_state(VB), Ok(VbState::Active));
    open.set(&names_in(VB, 1)[0], b"1").unwrap();
    open.bucket.shutdown();
}

/// The consumer of a takeover loses its connection after the vBucket has become dead. Another stream sends the rest.
#[test]
fn interrupted_takeover_continues_from_the_dead_vbucket() {
    let (open, steps) = sim(&SimDisk::new(7)).open_with_manual_tasks();
    let names = names_in(VB, 3);
    open.set(&names[0], b"1").unwrap();
    let line = TestConnection::new(&open);
    let takeover = |from| StreamRequest {
        flags: StreamFlags::TAKEOVER,
        ..request(&open, VB, from)
    };
    // A failover table of a dead vBucket is not sent.
    let later = takeover(1);
    let mut client = line.try_open(&takeover(0)).unwrap();
    client.drain();
    client.stream.state_answered();
    open.set(&names[1], b"2").unwrap();
    while open.bucket.vbucket_state(VB) == Ok(VbState::Active) {
        assert!(steps.run_one(Pool::Writer));
    }
    steps.run();
    drop(client);
    let role = VbRole {
        unless_dead: true,
        ..VbState::Active.into()
    };
    let refused = open.bucket.states().assign(&[(VB, role)]).unwrap();
    assert_eq!(
        (refused.len(), open.bucket.vbucket_state(VB)),
        (0, Ok(VbState::Dead))
    );
    assert_eq!(open.set(&names[2], b"3"), Err(Status::NotMyVbucket));
    let mut again = line.try_open(&later).unwrap();
    again.drain();
    steps.run();
    again.drain();
    assert_eq!(
        (again.copy.last, &again.copy.states[..]),
        (2, &[VbState::Pending][..])
    );
    again.stream.state_answered();
    steps.run();
    again.drain();
    assert_eq!(again.copy.states, [VbState::Pending, VbState::Active]);
    again.stream.state_answered();
    again.drain();
    assert_eq!(again.ended, Some(EndReason::Ok));
    // A dead vBucket has no other streams, nor has a deleted one, or one that the map has made dead.
    let other = line.try_open(&request(&open, VB, 0)).err();
    assert_eq!(other, Some(StreamRefused::Status(Status::NotMyVbucket)));
    let dead = [(VB, VbState::Dead.into())];
    open.bucket.states().assign(&dead).unwrap();
    let failed_over = line.try_open(&later).err();
    let refused = Some(StreamRefused::Status(Status::NotMyVbucket));
    assert_eq!(failed_over, refused);
    open.bucket.states().delete_vbucket(VB).unwrap();
    let gone = line.try_open(&takeover(0)).err();
    assert_eq!(gone, Some(StreamRefused::Status(Status::NotMyVbucket)));
    open.bucket.shutdown();
}

impl Client {
    fn drain_again(&mut self) -> SourceState {
        self.read()
    }
}

#[test]
fn stream_statistics_describe_its_state_and_progress() {
    let (open, steps) = sim(&SimDisk::new(8)).open_with_manual_tasks();
    let names = names_in(VB, 8);
    for name in &names[..5] {
        open.set(name, b"1").unwrap();
    }
    open.bucket.persistence().apply().unwrap();
    let line = TestConnection::new(&open);
    let mut client = line.open(&open, VB, 0);
    let figures = || open.bucket.dcp().stream_figures();
    assert_eq!(figures()[0].state, StreamState::Backfilling);
    steps.run();
    assert!(figures()[0].buffered_bytes > 0);
    client.drain();
    open.set(&names[6], b"2").unwrap();
    open.set(&names[7], b"2").unwrap();
    let found = figures().remove(0);
    assert_eq!((found.vb, found.connection.as_str()), (VB, "test"));
    assert_eq!(found.state, StreamState::InMemory);
    assert_eq!((found.last_sent, found.remaining), (Seqno(5), 2));
    assert_eq!((found.backfilled, found.from_memory), (5, 0));
    client.drain();
    let found = figures().remove(0);
    assert_eq!((found.from_memory, found.remaining), (2, 0));
    assert_eq!((found.buffered_bytes, found.cursor_drops), (0, 0));
    drop(client);
    assert_eq!(figures(), []);
    open.bucket.shutdown();
}
