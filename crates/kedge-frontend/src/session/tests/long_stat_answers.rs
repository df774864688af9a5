//! Tests of answers to STAT that are longer than the limit of the output.
//!
//! `STAT collections-details` of 1,189 collections in 1,024 vBuckets is 12 million lines. They were once composed in
//! one turn: the front-end thread did nothing else for 23 seconds, and each such request of a client that did not read
//! took hundreds of megabytes of output.

use kedge_node::output::Output;
use kedge_types::{Collection, CollectionId, Manifest, ManifestUid};

use super::*;

const COLLECTIONS: u32 = 600;
/// More bytes than a step composes: 32 collections of ten lines.
const STEP_BYTES: usize = 32 << 10;

fn rig(port: Port) -> Rig {
    let rig = Rig::new(port, Features::NONE);
    let mut manifest = Manifest {
        uid: ManifestUid(1),
        ..Manifest::default()
    };
    let more = (8..8 + COLLECTIONS).map(|id| Collection {
        id: CollectionId(id),
        name: format!("collection{id}"),
        max_ttl: None,
        history: false,
    });
    manifest.scopes[0].collections.extend(more);
    rig.bucket.collections().set_manifest(Arc::new(manifest));
    rig
}

impl Rig {
    /// Takes the queued output, as a client does, and lets the session continue. Returns the output.
    fn take(&mut self) -> Vec<u8> {
        let taken = self.out.to_vec();
        self.out = Output::default();
        let mut turn = turn(&self.shared, &mut self.flush_requests);
        if self.session.stat.is_active() {
            self.session.continue_stat(&mut turn, &mut self.out);
        } else {
            self.give(&[]);
        }
        taken
    }

    fn limit(&self) -> usize {
        self.shared.limits.queued_bytes_max + STEP_BYTES
    }

    /// Takes all output, never more at a time than the limit.
    fn take_all(&mut self) -> (Vec<u8>, usize) {
        let (mut all, mut times) = (Vec::new(), 0);
        while !self.out.is_empty() || self.session.stat.is_active() {
            assert!(self.out.queued() <= self.limit(), "{}", self.out.queued());
            all.extend(self.take());
            times += 1;
        }
        (all, times)
    }
}

fn names(bytes: &[u8], opaque: u32) -> (Vec<String>, usize) {
    let (mut names, mut at) = (Vec::new(), 0);
    while let ParseReply::Reply { reply, consumed } = parse_response(&bytes[at..], 1 << 20) {
        assert_eq!((reply.opaque, reply.status().unwrap()), (opaque, OK));
        at += consumed;
        if reply.key.is_empty() {
            break;
        }
        names.push(String::from_utf8(reply.key.to_vec()).unwrap());
    }
    (names, at)
}

#[test]
fn long_stat_answer_is_composed_as_the_client_reads() {
    let mut rig = rig(Port::Kv);
    let stat = |opaque| {
        let group = "collections-details";
        frame(Opcode::Stat, opaque, group, FrameInfos::default())
    };
    let bytes = [stat(1), stat(2), get(3)].concat();
    assert_eq!(rig.give(&bytes), Halt::Parked);
    assert_eq!(rig.waiting.len(), bytes.len() - stat(1).len());
    assert_eq!(rig.session.in_flight(), 1);
    let (all, times) = rig.take_all();
    assert!(rig.waiting.is_empty());
    let (first, at) = names(&all, 1);
    let (second, more) = names(&all[at..], 2);
    // A name for each collection, then ten lines in each of four vBuckets, and a few beside.
    let expected = 1 + COLLECTIONS as usize;
    assert!(first.len() > expected * 41, "{}", first.len());
    assert_eq!(first, second);
    let unique: std::collections::BTreeSet<&String> = first.iter().collect();
    assert_eq!(unique.len(), first.len(), "a name comes once");
    assert!(all.len() > 50 * rig.limit(), "it is much longer");
    assert!(times > 50, "{times}");
    let ParseReply::Reply { reply, .. } = parse_response(&all[at + more..], 1 << 20) else {
        panic!("no reply behind the statistics");
    };
    assert_eq!((reply.opaque, reply.status().unwrap()), (3, MISS));
}

#[test]
fn long_text_stat_answer_is_composed_as_the_client_reads() {
    let mut rig = rig(Port::Memcached);
    let halt = rig.give(b"stats collections-details\r\nstats scopes-details 0\r\nmn\r\n");
    assert_eq!(halt, Halt::Parked);
    let (all, times) = rig.take_all();
    assert!(times > 50, "{times}");
    let all = String::from_utf8(all).unwrap();
    let mut ends = all.split("END\r\n");
    let details = ends.next().unwrap().lines().count();
    assert!(details > COLLECTIONS as usize * 41, "{details}");
    let scopes = ends.next().unwrap();
    let items = scopes.lines().filter(|line| line.contains(":items 0"));
    assert_eq!(items.count(), COLLECTIONS as usize + 1);
    assert_eq!(ends.next(), Some("MN\r\n"));
}

/// The lines of a scope were once composed in one step, however many collections it had.
#[test]
fn step_shows_a_bounded_number_of_collections() {
    let mut rig = rig(Port::Memcached);
    rig.give(b"stats scopes-details 0\r\n");
    let shortest = "STAT vb_0:0x0:0x8:items 0\r\n".len();
    // The lines that fit, and one step of 32 collections with the name of the scope.
    let most = rig.shared.limits.queued_bytes_max / shortest + 32 + 2;
    let (mut lines, mut times) = (0, 0);
    while !rig.out.is_empty() || rig.session.stat.is_active() {
        let taken = String::from_utf8(rig.take()).unwrap();
        assert!(taken.lines().count() <= most, "{taken}");
        lines += taken.lines().count();
        times += 1;
    }
    assert!(
        lines > COLLECTIONS as usize && times > 3,
        "{lines} in {times}"
    );
}

#[test]
fn time_slice_stops_commands_and_stat_lines() {
    let mut rig = rig(Port::Kv);
    let stat = frame(
        Opcode::Stat,
        1,
        "collections-details",
        FrameInfos::default(),
    );
    {
        let mut turn = turn(&rig.shared, &mut rig.flush_requests);
        turn.until_ns = turn.last_ns;
        let (consumed, halt) = rig.session.on_bytes(&mut turn, &stat, &mut rig.out);
        assert_eq!((consumed, halt), (0, Halt::Slice));
    }
    assert_eq!(rig.give(&stat), Halt::Parked);
    let queued = rig.out.queued();
    let mut turn = turn(&rig.shared, &mut rig.flush_requests);
    turn.until_ns = turn.last_ns;
    rig.session.continue_stat(&mut turn, &mut rig.out);
    assert_eq!(rig.out.queued(), queued);
    assert!(rig.session.stat.is_active());
}

#[test]
fn stat_answer_ends_when_its_bucket_is_dropped() {
    let mut rig = rig(Port::Kv);
    let stat = frame(
        Opcode::Stat,
        1,
        "collections-details",
        FrameInfos::default(),
    );
    assert_eq!(rig.give(&stat), Halt::Parked);
    rig.shared.registry.drop_bucket("default").unwrap();
    rig.session.refresh(&rig.shared);
    let (all, _) = rig.take_all();
    let mut at = 0;
    let mut last = OK;
    while let ParseReply::Reply { reply, consumed } = parse_response(&all[at..], 1 << 20) {
        assert_eq!(last, OK, "an error is the end");
        last = reply.status().unwrap();
        at += consumed;
    }
    assert_eq!(last, Status::NoBucket);
    assert!(!rig.session.is_blocked());
}
