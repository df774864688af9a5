use super::*;
use crate::apply::PersistenceMode;
use crate::checkpoint::CursorId;
use crate::item::{Item, ItemMeta};
use crate::topology::Topology;
use crate::vbucket::{VBucket, VbSetup};
use foldhash::fast::RandomState;
use kedge_types::VbId;
use proptest::prelude::*;

fn vbucket() -> VBucket {
    VBucket::new(VbSetup {
        id: VbId(0),
        uuid: VbUuid(7),
        shards: 1,
        hasher: RandomState::default(),
        persistence: PersistenceMode::LogThenFile,
        topology: Some(Topology::alone()),
    })
}

fn push(vbucket: &mut VBucket) {
    let seqno = vbucket.store.history.next_seqno();
    let meta = ItemMeta {
        seqno,
        ..ItemMeta::default()
    };
    let value = vec![b'v'; seqno.get() as usize % 50];
    let item = Item::new(&meta, b"key", &[&value]);
    vbucket.store.changes.push(Change::Document(item));
}

fn log(vbucket: &mut VBucket, max: usize) {
    let queue = &mut vbucket.store.changes.checkpoints;
    let to = queue.until(CursorId::LOG, max, usize::MAX);
    queue.advance(CursorId::LOG, to);
}

fn read(vbucket: &mut VBucket, cursor: StreamCursor, max: usize) -> Result<Vec<u64>, CursorGone> {
    let mut out = Vec::new();
    vbucket
        .changes_mut()
        .read_cursor(cursor, max, usize::MAX, &mut out)?;
    let items = out.iter().filter_map(Change::item);
    Ok(items.map(|item| item.seqno().get()).collect())
}

#[test]
fn stream_cursor_starts_in_memory_only_with_all_later_changes() {
    let mut vb = vbucket();
    for _ in 0..6 {
        push(&mut vb);
    }
    log(&mut vb, 3);
    let opened = vb.open_cursor(Seqno(2));
    let CursorOpening::OnDisk { cursor, behind } = opened else {
        panic!("{opened:?}");
    };
    assert_eq!(behind, Seqno(3));
    assert_eq!(read(&mut vb, cursor, 10), Ok(vec![4, 5, 6]));
    for (after, expected) in [(3, vec![4, 5, 6]), (5, vec![6]), (6, vec![]), (9, vec![])] {
        let opened = vb.open_cursor(Seqno(after));
        let CursorOpening::InMemory(cursor) = opened else {
            panic!("{opened:?}");
        };
        assert_eq!(read(&mut vb, cursor, 10), Ok(expected));
        vb.changes_mut().close_cursor(cursor);
    }
    log(&mut vb, 9);
    assert!(vb.store.changes.checkpoints.is_empty());
    let opened = vb.open_cursor(Seqno(5));
    assert!(matches!(
        opened,
        CursorOpening::OnDisk {
            behind: Seqno(6),
            ..
        }
    ));
}

#[test]
fn stream_cursor_does_not_read_changes_before_a_reset() {
    let mut vb = vbucket();
    push(&mut vb);
    vb.reset(VbUuid(8));
    let CursorOpening::InMemory(cursor) = vb.open_cursor(Seqno(0)) else {
        panic!("the new history is empty");
    };
    push(&mut vb);
    assert_eq!(read(&mut vb, cursor, 9), Ok(vec![1]));
    assert_eq!(vb.high_seqno(), Seqno(1));
}

#[test]
fn dropped_cursor_stays_invalid() {
    let mut vb = vbucket();
    let CursorOpening::InMemory(slow) = vb.open_cursor(Seqno(0)) else {
        panic!("nothing was written");
    };
    push(&mut vb);
    assert_eq!(vb.changes().cursor_bytes(), 0, "the log needs it, too");
    assert!(vb.changes_mut().drop_slowest_cursors().is_empty());
    log(&mut vb, 1);
    assert!(
        vb.changes().cursor_bytes() > 0
            && vb.store.changes.checkpoints.bytes() == vb.changes().cursor_bytes()
    );
    assert_eq!(vb.changes_mut().drop_slowest_cursors().len(), 1);
    assert_eq!(
        (
            vb.changes().cursor_bytes(),
            vb.store.changes.checkpoints.bytes()
        ),
        (0, 0)
    );
    let CursorOpening::InMemory(other) = vb.open_cursor(Seqno(1)) else {
        panic!("there is nothing behind it");
    };
    assert_eq!(other.slot, slow.slot);
    assert_eq!(read(&mut vb, slow, 1), Err(CursorGone));
    assert!(vb.changes_mut().close_cursor(slow).is_empty());
    assert_eq!(read(&mut vb, other, 1), Ok(vec![]));
}

#[test]
fn stream_events_are_handed_out_once_to_waiting_streams() {
    let mut vb = vbucket();
    push(&mut vb);
    assert_eq!(
        vb.take_effects().unwrap_or_default().stream_events,
        StreamEvents::default()
    );
    vb.changes_mut().wait_for_changes();
    assert_eq!(
        vb.take_effects().unwrap_or_default().stream_events,
        StreamEvents::default()
    );
    push(&mut vb);
    vb.changes_mut().wait_for_changes();
    let changes = StreamEvents {
        changes: true,
        state: false,
    };
    assert_eq!(
        vb.take_effects().unwrap_or_default().stream_events,
        changes,
        "one waited before that"
    );
    assert_eq!(
        vb.take_effects().unwrap_or_default().stream_events,
        StreamEvents::default()
    );
    push(&mut vb);
    assert_eq!(
        vb.take_effects().unwrap_or_default().stream_events,
        StreamEvents::default()
    );
    vb.reset(VbUuid(9));
    assert!(vb.take_effects().unwrap_or_default().stream_events.state);
    assert!(!vb.take_effects().unwrap_or_default().stream_events.state);
}

/// A stream in the model.
#[derive(Debug)]
struct Reader {
    cursor: StreamCursor,
    next: u64,
    dropped: bool,
}

proptest! {
    #[test]
    fn stream_cursors_read_all_changes_in_order(steps in proptest::collection::vec((0u8..6, 0usize..5), 1..120)) {
        let mut vb = vbucket();
        let mut logged = 0;
        let mut readers: Vec<Reader> = Vec::new();
        for (step, n) in steps {
            let high = vb.high_seqno().get();
            match step {
                0 => (0..=n).for_each(|_| push(&mut vb)),
                1 => {
                    log(&mut vb, n);
                    logged = (logged + n as u64).min(high);
                }
                2 => {
                    let after = high.saturating_sub(n as u64);
                    let in_queue = readers.iter().filter(|it| !it.dropped).map(|it| it.next - 1);
                    let oldest = in_queue.fold(logged, u64::min);
                    let (cursor, next) = match vb.open_cursor(Seqno(after)) {
                        CursorOpening::InMemory(cursor) => {
                            prop_assert!(oldest <= after);
                            (cursor, after + 1)
                        }
                        CursorOpening::OnDisk { cursor, behind } => {
                            prop_assert_eq!(behind.get(), oldest);
                            prop_assert!(after < oldest);
                            (cursor, behind.get() + 1)
                        }
                    };
                    readers.push(Reader { cursor, next, dropped: false });
                }
                3 if !readers.is_empty() => {
                    let at = n % readers.len();
                    let reader = &mut readers[at];
                    let end = high.min(reader.next + n as u64 - 1);
                    let found = read(&mut vb, reader.cursor, n);
                    if reader.dropped {
                        prop_assert_eq!(found, Err(CursorGone));
                    } else {
                        prop_assert_eq!(found, Ok((reader.next..=end).collect()));
                        reader.next = end + 1;
                    }
                }
                4 if !readers.is_empty() => {
                    let reader = readers.swap_remove(n % readers.len());
                    vb.changes_mut().close_cursor(reader.cursor);
                }
                5 => {
                    let live = readers.iter().filter(|it| !it.dropped).map(|it| it.next);
                    let slowest = live.fold(u64::MAX, u64::min);
                    vb.changes_mut().drop_slowest_cursors();
                    for reader in &mut readers {
                        reader.dropped |= reader.next == slowest && slowest <= logged;
                    }
                }
                _ => {}
            }
            let live = readers.iter().filter(|it| !it.dropped);
            let oldest = live.map(|it| it.next - 1).fold(logged, u64::min);
            let queue = &vb.store.changes.checkpoints;
            prop_assert_eq!(queue.len() as u64, vb.high_seqno().get() - oldest);
            let all: usize = queue.entries.iter().map(QueuedChange::bytes).sum();
            let kept: usize = queue.entries.iter().take((logged - oldest) as usize).map(QueuedChange::bytes).sum();
            prop_assert_eq!((queue.bytes(), queue.bytes_for_streams()), (all, kept));
            prop_assert_eq!(vb.changes().queued() as u64, vb.high_seqno().get() - logged);
        }
    }
}
