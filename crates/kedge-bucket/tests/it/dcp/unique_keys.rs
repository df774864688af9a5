//! Keys within a snapshot are unique, unless its marker allows repetitions.
//!
//! Bug: all changes that were read from the checkpoints at once were announced as one snapshot, whatever their keys, and no
//! marker had the flag for repeated keys. Consumers apply a snapshot's changes by key or in parallel, and lose the order of
//! two changes of one document.

use super::*;
use crate::crash::seeds;
use kedge_bucket::{Cookie, NodeName, VbState, Write};
use kedge_disk::{Rng, SimDisk};
use kedge_types::{Durability, DurabilityLevel};

const VB: VbId = VbId(2);

/// A consumer of one of the existing kinds.
struct Consumer {
    client: Client,
    /// True if snapshots may repeat keys, because the consumer keeps a replica or has a part of a snapshot.
    may_repeat: bool,
}

struct Random {
    rng: Rng,
    names: Vec<String>,
    cookie: u64,
}

impl Random {
    fn name(&mut self) -> String {
        self.names[self.rng.below(self.names.len() as u64) as usize].clone()
    }

    fn write(&mut self, open: &Open) {
        let name = self.name();
        self.cookie += 1;
        let key = key(&name);
        let level = match self.rng.below(4) {
            0 => Some(DurabilityLevel::Majority),
            1 => Some(DurabilityLevel::PersistToMajority),
            _ => None,
        };
        let write = Write {
            durability: level.map(|level| Durability {
                level,
                timeout_ms: None,
            }),
            cookie: Cookie(self.cookie),
            ..write(&key)
        };
        // The write fails while the key has a prepare, or if the document does not exist.
        if self.rng.below(5) == 0 {
            let _ = open.bucket.documents().delete(open.ctx(), &write);
        } else {
            let _ = open.store(&write, self.cookie.to_string().as_bytes());
        }
    }

    fn consumer(&mut self, open: &Open, is_replica: bool) -> Consumer {
        let high = open.bucket.vbucket_figures(VB).unwrap().high_seqno.get();
        let start = self.rng.below(high + 1);
        let mut wanted = request(open, VB, start);
        wanted.sync_writes = self.rng.below(2) == 0;
        if wanted.sync_writes && self.rng.below(2) == 0 {
            wanted.consumer = NodeName::new("node");
        }
        let is_torn = self.rng.below(3) == 0;
        if is_torn {
            wanted.snap_start = Seqno(self.rng.below(start + 1));
            wanted.snap_end = Seqno(start + self.rng.below(high - start + 1));
        }
        let may_repeat = is_replica || is_torn || wanted.consumer.is_some();
        // A connection has at most one stream of a vBucket.
        let mut client = TestConnection::new(open).try_open(&wanted).unwrap();
        client.at_once = 1 + self.rng.below(12) as usize;
        // In the middle of a history, commits may belong to earlier prepares.
        client.copy.is_late = start > 0;
        Consumer { client, may_repeat }
    }
}

fn finish(open: &Open, steps: &Steps, consumer: &mut Consumer) -> (u32, u32) {
    let high = open.bucket.vbucket_figures(VB).unwrap().high_seqno.get();
    while consumer.client.copy.last < high {
        assert_eq!(consumer.client.ended, None);
        consumer.client.drain();
        steps.run();
    }
    let repeating = consumer.client.copy.repeating;
    assert!(consumer.may_repeat || repeating == (0, 0), "{repeating:?}");
    repeating
}

#[test]
fn snapshot_repeats_a_key_only_if_its_marker_says_so() {
    let (mut said, mut did, mut silent) = (0, 0, 0);
    for seed in seeds(40) {
        eprintln!("seed {seed}");
        let mut site = sim(&SimDisk::new(seed));
        site.config.commit_log = !seed.is_multiple_of(3);
        let (open, steps) = site.open_with_manual_tasks();
        let mut random = Random {
            rng: Rng::new(seed),
            names: names_in(VB, 2 + (seed % 9) as usize),
            cookie: 0,
        };
        let mut consumers = Vec::new();
        for _ in 0..400 {
            match random.rng.below(40) {
                0..26 => random.write(&open),
                26..28 => consumers.push(random.consumer(&open, false)),
                28..30 => open.bucket.persistence().writers().request_flush(true),
                30 => drop(open.bucket.persistence().apply()),
                31..33 => drop(steps.run()),
                _ if consumers.is_empty() => {}
                _ => {
                    let at = random.rng.below(consumers.len() as u64) as usize;
                    consumers[at].client.read();
                }
            }
        }
        open.bucket.persistence().writers().request_flush(true);
        steps.run();
        let mut count = |consumer: &Consumer, (of_markers, of_keys): (u32, u32)| {
            (said, did) = (said + of_markers, did + of_keys);
            silent += u32::from(!consumer.may_repeat && consumer.client.copy.markers > 3);
        };
        for mut consumer in consumers.drain(..) {
            let repeating = finish(&open, &steps, &mut consumer);
            count(&consumer, repeating);
        }
        open.bucket
            .states()
            .set_vbucket(VB, VbState::Replica)
            .unwrap();
        for _ in 0..6 {
            let mut consumer = random.consumer(&open, true);
            let repeating = finish(&open, &steps, &mut consumer);
            count(&consumer, repeating);
        }
        assert_eq!(open.sink.fatal(), [""; 0]);
        open.bucket.shutdown();
    }
    if seeds(40).len() > 10 {
        assert!(
            said >= did && did > 100 && silent > 100,
            "{said} {did} {silent}"
        );
    }
}
