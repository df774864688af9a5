//! Tests of commands about a whole node or bucket, beside a client with short commands.
//!
//! Long answers have to be composed in many turns, and every opcode that `every_opcode.rs` leaves to this test has to be
//! sent. `KEDGE_LONG_COMMANDS=full` uses the default number of vBuckets, and nearly the largest number of collections;
//! then a turn that is a stall fails the test.

use std::collections::BTreeSet;

use kedge_protocol::binary::commands::dcp::{BufferAck, DcpBody, DcpStreamRequest, SeqnoAck};
use kedge_protocol::binary::commands::range_scan::ScanId;
use kedge_protocol::binary::commands::{FileFragment, PreparedSnapshot};
use kedge_protocol::binary::{ConnectionKind, Opcode};
use kedge_types::limits::{DCP_NAME_BYTES_MAX, FILE_PART_BYTES_MAX};
use kedge_types::{Seqno, Status, VbId};

use crate::canary::{Canary, check_turns, is_full};
use crate::client::{Came, Client, Frame, Reply, SDK_FEATURES};
use crate::collections::{create, create_scope, edit};
use crate::dcp::{Follower, Got, request};
use crate::every_opcode::{SMALL, WALKS, is_about_documents};
use crate::range_scan::{Limits, cancel, create_in, go_on, range};
use crate::replication::bucket;
use crate::server::{Kedge, PASSWORD, Setup};
use crate::stats::stat;

struct Size {
    vbuckets: u16,
    collections: usize,
    /// A key of the first vBucket.
    documents: usize,
}

fn client(kedge: &Kedge) -> Client {
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in("root", PASSWORD);
    client.select("default");
    client
}

/// Stores documents of the first vBucket, many at a time.
pub(crate) fn store(client: &mut Client, documents: usize) {
    let keys: Vec<String> = (0..documents)
        .map(|number| format!("key-{number:06}"))
        .collect();
    for keys in keys.chunks(1_000) {
        let mut bytes = Vec::new();
        for key in keys {
            let mut frame = client.request(Opcode::Set).store(key, b"v");
            frame.vb = 0;
            bytes.extend(frame.bytes());
        }
        client.send(&bytes);
        for _ in keys {
            client.reply().ok();
        }
    }
}

fn first_vbucket(client: &mut Client, opcode: Opcode) -> Frame {
    let mut frame = client.request(opcode).key("key-000000");
    frame.vb = 0;
    frame
}

/// Output of a connection above which an answer is continued in a later turn: less than by default, so that answers of
/// a small node are continued, too.
const QUEUED_BYTES_MAX: usize = 16 << 10;

/// A node with many collections and documents, and clients whose commands are about all of them.
struct WholeNode<'a> {
    kedge: &'a Kedge,
    canary: &'a Canary,
    size: Size,
    /// The name of the last collection, which has no document.
    last: String,
    /// The client that sends most of the commands.
    client: Client,
    /// Numbers of the opcodes that other clients sent.
    sent: BTreeSet<u8>,
}

impl WholeNode<'_> {
    fn check(&self, what: &str) {
        check_turns(self.kedge, self.canary, what);
    }

    fn call(&mut self, frame: &Frame) -> Reply {
        let reply = self.client.call(frame);
        self.check(frame.opcode.name());
        reply
    }

    fn in_first_vbucket(&mut self, opcode: Opcode) -> Frame {
        first_vbucket(&mut self.client, opcode)
    }

    /// Adds the opcodes that a client sent.
    fn add(&mut self, sent: &BTreeSet<u8>) {
        self.sent.extend(sent);
    }

    /// A long answer to STAT is composed in many turns.
    fn stat(&mut self, group: &str) {
        let continued = |kedge: &Kedge| kedge.server().metrics().snapshot().continued_answers;
        let before = continued(self.kedge);
        let lines = stat(&mut self.client, group).unwrap();
        let bytes: usize = lines
            .iter()
            .map(|(name, value)| 24 + name.len() + value.len())
            .sum();
        self.check(&format!("STAT {group}: {} lines", lines.len()));
        // Each turn composes as much as the output may have, and one more step.
        let turns = bytes / (2 * QUEUED_BYTES_MAX);
        let continued = continued(self.kedge) - before;
        assert!(
            continued + 1 >= turns as u64,
            "STAT {group}: {bytes} bytes in {continued} turns more"
        );
    }

    fn statistics(&mut self) {
        for group in GROUPS {
            self.stat(group);
        }
        // At least one of them is long, whatever the size of the node.
        let continued = self.kedge.server().metrics().snapshot().continued_answers;
        assert!(continued > 0);
    }

    fn requests_about_the_node(&mut self) {
        for opcode in [
            Opcode::CollectionsGetManifest,
            Opcode::GetAllVbSeqnos,
            Opcode::GetClusterConfig,
            Opcode::ListBuckets,
            Opcode::GetRandomKey,
            Opcode::Noop,
            Opcode::Version,
            Opcode::SaslListMechs,
        ] {
            let frame = self.client.request(opcode);
            self.call(&frame).ok();
        }
        let of_all_buckets = self
            .client
            .request(Opcode::GetCmdTimer)
            .extras(&[Opcode::Get.wire()]);
        let of_all_buckets = Frame {
            key: b"/all/".to_vec(),
            ..of_all_buckets
        };
        self.call(&of_all_buckets).ok();
        let newest = 2_u16.to_be_bytes();
        let error_map = self.client.request(Opcode::GetErrorMap).value(&newest);
        self.call(&error_map).ok();
        let level = 1_u32.to_be_bytes();
        let verbosity = self.client.request(Opcode::Verbosity).extras(&level);
        self.call(&verbosity).ok();
    }

    fn requests_about_collections(&mut self) {
        // In the last collection, which has no document, so each vBucket is searched.
        let last = u32::try_from(self.size.collections).unwrap() + 7;
        let state = 1_u32.to_be_bytes();
        let frame = self.client.request(Opcode::GetAllVbSeqnos);
        let frame = frame.extras(&[state, last.to_be_bytes()].concat());
        let seqnos = self.call(&frame).ok().value;
        assert_eq!(seqnos.len(), usize::from(self.size.vbuckets) * 10);
        let frame = self.client.request(Opcode::GetRandomKey);
        let frame = frame.extras(&last.to_be_bytes());
        assert_eq!(self.call(&frame).status, Status::KeyNotFound);
        let path = format!("s.{}", self.last);
        for (opcode, path) in [
            (Opcode::CollectionsGetId, path.as_bytes()),
            (Opcode::CollectionsGetScopeId, b"s"),
        ] {
            let frame = self.client.request(opcode).value(path);
            self.call(&frame).ok();
        }
    }

    fn requests_about_a_vbucket(&mut self) {
        let frame = self.in_first_vbucket(Opcode::GetKeys);
        self.call(&frame.extras(&10_000_u32.to_be_bytes())).ok();
        let keyless = |frame: Frame| Frame {
            key: Vec::new(),
            ..frame
        };
        let frame = keyless(self.in_first_vbucket(Opcode::GetFailoverLog));
        let log = self.call(&frame).ok().value;
        let frame = keyless(self.in_first_vbucket(Opcode::GetVbucket));
        self.call(&frame).ok();
        let frame = keyless(self.in_first_vbucket(Opcode::ObserveSeqno));
        self.call(&frame.value(&log[..8])).ok();
        let documents = self.size.documents as u64;
        let frame = keyless(self.in_first_vbucket(Opcode::SeqnoPersistence));
        self.call(&frame.extras(&documents.to_be_bytes())).ok();
    }

    fn range_scans(&mut self) {
        for is_cancelled in [false, true] {
            let created = create_in(&mut self.client, 0, &range("a", "z")).ok();
            self.check("RANGE_SCAN_CREATE");
            let id = ScanId(created.value.try_into().unwrap());
            if is_cancelled {
                assert_eq!(cancel(&mut self.client, id), Status::Success);
                self.check("RANGE_SCAN_CANCEL");
                continue;
            }
            let replies = go_on(&mut self.client, id, Limits::default());
            assert_eq!(replies.last().unwrap().status, Status::RangeScanComplete);
            self.check("RANGE_SCAN_CONTINUE");
        }
    }

    /// Streams all documents of the first vBucket, with a filter that names nearly all collections.
    fn streams(&mut self) {
        let name = "n".repeat(DCP_NAME_BYTES_MAX);
        let buffer = ("connection_buffer_size", "65536");
        let mut reader = Follower::open(self.kedge, &name, &[buffer]);
        self.check("DCP_OPEN, DCP_CONTROL");
        let ids = (0..self.size.collections).map(|at| format!("\"{:x}\"", at + 8));
        let ids = ids.take(1_000).collect::<Vec<String>>().join(",");
        let filter = format!("{{\"collections\":[\"0\",{ids}]}}");
        let wanted = DcpStreamRequest {
            filter: filter.as_bytes(),
            ..request(0, 0)
        };
        let opened = reader.ask(VbId(0), wanted);
        assert!(
            matches!(opened, Got::Reply(_, Status::Success, _)),
            "{opened:?}"
        );
        self.check("DCP_STREAM_REQ");
        let (mut frames, mut documents) = (0, 0);
        while documents < self.size.documents {
            documents += usize::from(matches!(reader.next(), Got::Mutation(..)));
            frames += 1;
            if frames % 100 == 0 {
                // More than was received: the buffer is never full.
                reader.send(0, DcpBody::BufferAck(BufferAck { bytes: 1 << 16 }));
            }
        }
        self.check("items of a stream, DCP_BUFFER_ACKNOWLEDGEMENT");
        reader.send(0, DcpBody::Noop);
        reader.send(0, DcpBody::CloseStream);
        reader.rest();
        self.check("DCP_NOOP, DCP_CLOSE_STREAM, DCP_GET_FAILOVER_LOG");
        self.add(reader.sent());
        let mut node = Follower::node(self.kedge);
        let prepared = Seqno(1);
        node.send(0, DcpBody::SeqnoAck(SeqnoAck { prepared }));
        self.check("DCP_SEQNO_ACKNOWLEDGED");
        self.add(node.sent());
    }

    /// Reads the file of the first vBucket in large parts.
    fn copies_of_files(&mut self) {
        bucket(self.kedge).persistence().apply().unwrap();
        let of_first = |frame: Frame| Frame { vb: 0, ..frame };
        let prepare = of_first(self.client.request(Opcode::PrepareSnapshot));
        let prepared = PreparedSnapshot::decode(&self.call(&prepare).ok().value).unwrap();
        assert!(prepared.documents as usize >= self.size.documents);
        let mut read = 0;
        while read < prepared.bytes {
            let length = FILE_PART_BYTES_MAX.min(prepared.bytes - read);
            let fields = [prepared.id, read, length].map(u64::to_be_bytes).concat();
            let part = self.client.request(Opcode::GetFileFragment);
            let reply = self.call(&of_first(part).extras(&fields)).ok();
            FileFragment::decode(&reply.extras).unwrap();
            assert_eq!(reply.value.len() as u64, length);
            read += length;
        }
        let release = self.client.request(Opcode::ReleaseSnapshot);
        let release = of_first(release).extras(&prepared.id.to_be_bytes());
        self.call(&release).ok();
        assert_eq!(self.call(&release).status, Status::KeyNotFound);
    }

    fn changes_of_vbuckets(&mut self) {
        let of = |vb, frame: Frame| Frame { vb, ..frame };
        let compact = self.client.request(Opcode::CompactDb).extras(&[0; 24]);
        self.call(&of(0, compact)).ok();
        let replica = self.client.request(Opcode::SetVbucket).extras(&[2]);
        self.call(&of(1, replica)).ok();
        let delete = self.client.request(Opcode::DelVbucket);
        self.call(&of(1, delete)).ok();
    }

    fn flushes(&mut self) {
        self.canary.expect_flush();
        let flush = self.client.request(Opcode::Flush);
        self.call(&flush).ok();
        let flush = self.client.request(Opcode::Flushq);
        self.client.send(&flush.bytes());
        let noop = self.client.request(Opcode::Noop);
        self.call(&noop).ok();
        self.check("FLUSHQ");
    }

    fn ends_of_connections(&mut self) {
        for opcode in [Opcode::Quit, Opcode::Quitq] {
            let mut other = client(self.kedge);
            let frame = other.request(opcode);
            other.send(&frame.bytes());
            if opcode == Opcode::Quit {
                other.reply().ok();
            }
            other.assert_closed();
            self.check(opcode.name());
            self.add(&other.sent);
        }
    }

    /// Sends each opcode with the largest value, which most refuse.
    fn largest_requests(&mut self, bytes: usize) {
        let value = vec![b'7'; bytes];
        for &opcode in SMALL.iter().chain(WALKS) {
            let mut other = client(self.kedge);
            let frame = other.request(opcode).key("key-000000").value(&value);
            let noop = other.request(Opcode::Noop);
            other.send(&[frame.bytes(), noop.bytes()].concat());
            let mut status = None;
            while let Came::Reply(reply) = other.next() {
                if reply.opaque == noop.opaque {
                    break;
                }
                status = Some(reply.status);
            }
            self.check(&format!("{} of {bytes} bytes: {status:?}", opcode.name()));
        }
    }
}

/// Groups of STAT.
const GROUPS: &[&str] = &[
    "",
    "collections",
    "collections-details",
    "scopes",
    "scopes-details",
    "vbucket",
    "vbucket-details",
    "vbucket-seqno",
    "hash",
    "failovers",
    "checkpoint",
    "diskinfo",
    "diskinfo detail",
    "durability-monitor",
    "vbucket-durability-state",
    "timings",
    "kvtimings",
    "tasks-all",
    "runtimes",
    "scheduler",
    "dcp",
    "dcpagg",
    "config",
    "memory",
    "manifest",
    "connections",
    "settings",
    "conns",
    "frequency-counters",
    "eviction",
];

#[test]
fn node_wide_commands_do_not_block_others() {
    let size = match is_full() {
        true => Size {
            vbuckets: 1_024,
            collections: 1_190,
            documents: 300_000,
        },
        false => Size {
            vbuckets: 16,
            collections: 20,
            documents: 2_000,
        },
    };
    let mut setup = Setup::default();
    setup.bucket.vbuckets = size.vbuckets;
    setup.bucket.quota_bytes = 2 << 30;
    setup.limits.queued_bytes_max = QUEUED_BYTES_MAX;
    let kedge = Kedge::with(setup);
    let name = |number: usize| {
        format!(
            "{}-{number:04}",
            "c".repeat(if is_full() { 200 } else { 9 })
        )
    };
    let names: Vec<String> = (0..size.collections).map(name).collect();
    let mut edits = vec![create_scope("s")];
    edits.extend(names.iter().map(|name| create("s", name)));
    edit(&kedge, &edits);
    let mut asks = client(&kedge);
    store(&mut asks, size.documents);
    let canary = Canary::default();
    std::thread::scope(|scope| {
        let other = client(&kedge);
        let canary = &canary;
        scope.spawn(move || canary.run_in(other, VbId(0), "key-000000"));
        let _over = canary.ends();
        let mut node = WholeNode {
            kedge: &kedge,
            canary,
            size,
            last: names[names.len() - 1].clone(),
            client: asks,
            sent: BTreeSet::new(),
        };
        node.check("");
        node.statistics();
        node.requests_about_the_node();
        node.requests_about_collections();
        node.requests_about_a_vbucket();
        node.range_scans();
        node.streams();
        node.copies_of_files();
        node.changes_of_vbuckets();
        node.flushes();
        node.ends_of_connections();
        let sent = node.client.sent.clone();
        node.add(&sent);
        node.largest_requests(if is_full() { 19 << 20 } else { 1 << 20 });
        let about_documents = |number: &u8| {
            let opcode = Opcode::from_wire(*number, ConnectionKind::Couchbase);
            opcode.is_some_and(is_about_documents)
        };
        node.sent.retain(|number| !about_documents(number));
        let claimed = SMALL.iter().chain(WALKS).map(|opcode| opcode.wire());
        assert_eq!(node.sent, claimed.collect(), "every opcode is sent");
    });
}
