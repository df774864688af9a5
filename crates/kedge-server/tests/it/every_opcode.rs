//! Tests of every served opcode at its limits, beside a client with short commands.
//!
//! No turn of a front-end thread is to take longer than 10 ms. The test checks a rule for that, for each opcode and
//! each kind of large document: a command that reads, inflates or copies a large value, or walks over a whole vBucket,
//! is executed by a task. The waits of the other client and the longest turn are printed.
//! `KEDGE_LONG_COMMANDS=full` makes documents of the largest size; then a turn that is a stall fails the test.

use kedge_protocol::binary::commands::subdoc::{DocFlags, PathFlags, SubdocOp};
use kedge_protocol::binary::{Feature, Features, Opcode};
use kedge_types::limits::LONG_VALUE_BYTES;
use kedge_types::{Datatype, Status, VbId};

use crate::canary::{Canary, check_turns, is_full};
use crate::client::{Client, Frame, Reply};
use crate::commands::count;
use crate::long_commands::{array, runs};
use crate::server::{Kedge, PASSWORD, Setup};
use crate::subdoc::{PX, spec};
use crate::with_meta::Meta;

/// All features for documents but compression: documents are inflated for this client.
const FEATURES: Features = Features::of(&[Feature::Xerror, Feature::Json, Feature::Xattr]);
/// The large document.
const LONG: &str = "long";

/// The kind of the document, which is large but for the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Small,
    Plain,
    Compressed,
    /// With an extended attribute in front of its body.
    Attributes,
}

const KINDS: [Kind; 4] = [Kind::Small, Kind::Plain, Kind::Compressed, Kind::Attributes];

/// Relation of an opcode to a large document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It reads or copies the document.
    Reads,
    /// It sends the body, without a copy if possible.
    Sends,
    /// It replaces the document; extended attributes stay.
    Replaces,
    /// It removes the document; system xattrs stay.
    Removes,
    /// It needs the metadata of the document only, or sends the document as it is stored.
    Takes,
}

impl Use {
    fn is_long(self, kind: Kind) -> bool {
        match self {
            Self::Reads => kind != Kind::Small,
            Self::Sends => matches!(kind, Kind::Compressed | Kind::Attributes),
            Self::Replaces | Self::Removes => kind == Kind::Attributes,
            Self::Takes => false,
        }
    }
}

/// Opcodes about a document, and their relation to its value.
fn use_of(opcode: Opcode) -> Option<Use> {
    Some(match opcode {
        Opcode::Get | Opcode::Getq | Opcode::Getk | Opcode::Getkq | Opcode::GetReplica => {
            Use::Sends
        }
        Opcode::Set
        | Opcode::Setq
        | Opcode::Add
        | Opcode::Addq
        | Opcode::Replace
        | Opcode::Replaceq
        | Opcode::ReturnMeta => Use::Replaces,
        Opcode::Delete | Opcode::Deleteq => Use::Removes,
        Opcode::GetEx
        | Opcode::GetExReplica
        | Opcode::GetMeta
        | Opcode::GetqMeta
        | Opcode::SetWithMeta
        | Opcode::SetqWithMeta
        | Opcode::AddWithMeta
        | Opcode::AddqWithMeta
        | Opcode::DelWithMeta
        | Opcode::DelqWithMeta
        | Opcode::MutateWithMeta => Use::Takes,
        Opcode::Append
        | Opcode::Appendq
        | Opcode::Prepend
        | Opcode::Prependq
        | Opcode::Increment
        | Opcode::Incrementq
        | Opcode::Decrement
        | Opcode::Decrementq
        | Opcode::Touch
        | Opcode::Gat
        | Opcode::Gatq
        | Opcode::GetLocked
        | Opcode::UnlockKey
        | Opcode::SubdocGet
        | Opcode::SubdocExists
        | Opcode::SubdocGetCount
        | Opcode::SubdocDictAdd
        | Opcode::SubdocDictUpsert
        | Opcode::SubdocDelete
        | Opcode::SubdocReplace
        | Opcode::SubdocArrayPushLast
        | Opcode::SubdocArrayPushFirst
        | Opcode::SubdocArrayInsert
        | Opcode::SubdocArrayAddUnique
        | Opcode::SubdocCounter
        | Opcode::SubdocMultiLookup
        | Opcode::SubdocMultiMutation => Use::Reads,
        _ => return None,
    })
}

/// Returns true if requests with this opcode name documents.
pub(crate) fn is_about_documents(opcode: Opcode) -> bool {
    use_of(opcode).is_some() || opcode == Opcode::Observe
}

/// Opcodes about a whole vBucket.
pub(crate) const WALKS: &[Opcode] = &[
    Opcode::GetKeys,
    Opcode::GetRandomKey,
    Opcode::SetVbucket,
    Opcode::DelVbucket,
];

/// Opcodes whose requests and replies do not grow with the stored data, that are answered in steps, or that have tasks
/// of their own. `whole_node.rs` sends all of them, and checks that it does.
pub(crate) const SMALL: &[Opcode] = &[
    Opcode::PrepareSnapshot,
    Opcode::GetFileFragment,
    Opcode::ReleaseSnapshot,
    Opcode::CollectionsGetId,
    Opcode::CollectionsGetManifest,
    Opcode::CollectionsGetScopeId,
    Opcode::CompactDb,
    Opcode::DcpBufferAcknowledgement,
    Opcode::DcpCloseStream,
    Opcode::DcpControl,
    Opcode::DcpGetFailoverLog,
    Opcode::DcpNoop,
    Opcode::DcpOpen,
    Opcode::DcpSeqnoAcknowledged,
    Opcode::DcpStreamReq,
    Opcode::Flush,
    Opcode::Flushq,
    Opcode::GetAllVbSeqnos,
    Opcode::GetClusterConfig,
    Opcode::GetCmdTimer,
    Opcode::GetErrorMap,
    Opcode::GetFailoverLog,
    Opcode::GetVbucket,
    Opcode::Hello,
    Opcode::ListBuckets,
    Opcode::Noop,
    Opcode::ObserveSeqno,
    Opcode::Quit,
    Opcode::Quitq,
    Opcode::RangeScanCancel,
    Opcode::RangeScanContinue,
    Opcode::RangeScanCreate,
    Opcode::SaslAuth,
    Opcode::SaslListMechs,
    Opcode::SaslStep,
    Opcode::SelectBucket,
    Opcode::SeqnoPersistence,
    Opcode::Stat,
    Opcode::Verbosity,
    Opcode::Version,
];

/// The longest request that names the large document, with no more than a few bytes of value.
fn about_document(client: &mut Client, opcode: Opcode) -> Frame {
    let path = if opcode == Opcode::SubdocDictAdd || opcode == Opcode::SubdocDictUpsert {
        "[-1].a"
    } else {
        "[-1]"
    };
    let of_path = |frame: Frame, path: &str, value: &[u8]| {
        let len = u16::try_from(path.len()).unwrap().to_be_bytes();
        let frame = frame.extras(&[&len[..], &[0]].concat());
        frame.value(&[path.as_bytes(), value].concat())
    };
    let frame = client.request(opcode).key(LONG);
    match opcode {
        Opcode::Set | Opcode::Setq | Opcode::Add | Opcode::Addq => frame.store(LONG, b"v"),
        Opcode::Replace | Opcode::Replaceq => frame.store(LONG, b"v"),
        Opcode::Append | Opcode::Appendq | Opcode::Prepend | Opcode::Prependq => frame.value(b" "),
        Opcode::Increment | Opcode::Incrementq | Opcode::Decrement | Opcode::Decrementq => {
            frame.extras(&count(1, 0, 0))
        }
        Opcode::Touch | Opcode::Gat | Opcode::Gatq | Opcode::GetLocked => frame.extras(&[0; 4]),
        Opcode::UnlockKey => frame.cas(1),
        Opcode::ReturnMeta => {
            let kind = 1_u32.to_be_bytes();
            frame.extras(&[&kind[..], &[0; 8]].concat()).value(b"v")
        }
        Opcode::SetWithMeta
        | Opcode::SetqWithMeta
        | Opcode::AddWithMeta
        | Opcode::AddqWithMeta
        | Opcode::DelWithMeta
        | Opcode::DelqWithMeta => crate::with_meta::frame(client, opcode, LONG, Meta::of(9, 9)),
        Opcode::MutateWithMeta => {
            let meta = r#"{"command":"set","rev_seqno":9,"cas":9}"#;
            crate::mutate_with_meta::mutation(client, LONG, Datatype::RAW, b"v", meta)
        }
        Opcode::SubdocGet | Opcode::SubdocExists | Opcode::SubdocDelete => {
            of_path(frame, path, b"")
        }
        Opcode::SubdocGetCount => of_path(frame, "", b""),
        Opcode::SubdocArrayPushLast
        | Opcode::SubdocArrayPushFirst
        | Opcode::SubdocArrayAddUnique => of_path(frame, "", b"7"),
        Opcode::SubdocArrayInsert => of_path(frame, "[0]", b"7"),
        Opcode::SubdocDictAdd
        | Opcode::SubdocDictUpsert
        | Opcode::SubdocReplace
        | Opcode::SubdocCounter => of_path(frame, path, b"7"),
        Opcode::SubdocMultiLookup => {
            let spec = spec(SubdocOp::Get, PathFlags::NONE, path, "");
            crate::subdoc::multi(client, LONG, DocFlags::NONE, &[spec; 16])
        }
        Opcode::SubdocMultiMutation => {
            let spec = spec(SubdocOp::ArrayPushLast, PathFlags::NONE, "", "7");
            crate::subdoc::multi(client, LONG, DocFlags::NONE, &[spec; 16])
        }
        _ => frame,
    }
}

/// The same request with the largest value, for opcodes with a value.
fn with_long_value(frame: &Frame, value: &[u8]) -> Option<Frame> {
    match frame.opcode {
        Opcode::Set
        | Opcode::Setq
        | Opcode::Add
        | Opcode::Addq
        | Opcode::Replace
        | Opcode::Replaceq
        | Opcode::Append
        | Opcode::Appendq
        | Opcode::Prepend
        | Opcode::Prependq
        | Opcode::ReturnMeta
        | Opcode::SetWithMeta
        | Opcode::SetqWithMeta
        | Opcode::AddWithMeta
        | Opcode::AddqWithMeta => Some(frame.clone().value(value)),
        Opcode::SubdocDictAdd
        | Opcode::SubdocDictUpsert
        | Opcode::SubdocReplace
        | Opcode::SubdocArrayPushLast
        | Opcode::SubdocArrayPushFirst
        | Opcode::SubdocArrayInsert
        | Opcode::SubdocArrayAddUnique
        | Opcode::SubdocCounter => {
            let path = usize::from(u16::from_be_bytes([frame.extras[0], frame.extras[1]]));
            let whole = [&frame.value[..path], value].concat();
            Some(frame.clone().value(&whole))
        }
        _ => None,
    }
}

struct Bench<'a> {
    kedge: &'a Kedge,
    client: Client,
    /// Stores documents; may send compressed ones.
    writer: Client,
    canary: &'a Canary,
    value: Vec<u8>,
    compressed: Vec<u8>,
}

impl Bench<'_> {
    /// Stores the document again.
    fn store(&mut self, kind: Kind) {
        let set = self.writer.request(Opcode::Set);
        let set = match kind {
            Kind::Small => set.store(LONG, b"[{}]"),
            Kind::Compressed => set.store(LONG, &self.compressed).datatype(Datatype::SNAPPY),
            Kind::Plain | Kind::Attributes => set.store(LONG, &self.value),
        };
        // Existing xattrs would stay.
        let delete = self.writer.request(Opcode::Delete).key(LONG);
        self.writer.call(&delete);
        self.writer.call(&set).ok();
        if kind == Kind::Attributes {
            let specs = [spec(SubdocOp::DictUpsert, PX, "x", "1")];
            crate::subdoc::call(&mut self.writer, LONG, DocFlags::NONE, &specs).ok();
        }
    }

    /// Sends a request, and another one behind a quiet request. Returns true if a task executed it, and the reply, if
    /// there was one.
    #[expect(clippy::print_stdout, reason = "a test prints what it measures")]
    fn is_long(&mut self, frame: &Frame, what: &str) -> (bool, Option<Reply>) {
        let before = runs(self.kedge);
        self.canary.waited();
        let client = match frame.opcode {
            // For clients that accept documents as they are stored.
            Opcode::GetEx | Opcode::GetExReplica => &mut self.writer,
            _ => &mut self.client,
        };
        let noop = client.request(Opcode::Noop);
        client.send(&[frame.bytes(), noop.bytes()].concat());
        let mut answer = None;
        loop {
            let reply = client.reply();
            if reply.opaque == noop.opaque {
                break;
            }
            answer = Some(reply);
        }
        let is_long = runs(self.kedge) > before;
        println!(
            "{:<24} {what:<24} {:?}: {}, others waited {:?}",
            frame.opcode.name(),
            answer.as_ref().map(|answer| answer.status),
            if is_long { "a task" } else { "the thread" },
            self.canary.waited()
        );
        (is_long, answer)
    }

    /// Tests one opcode with each kind of document.
    fn about_documents(&mut self, opcode: Opcode, uses: Use) {
        for kind in KINDS {
            self.store(kind);
            let frame = about_document(&mut self.client, opcode);
            let (is_long, answer) = self.is_long(&frame, &format!("{kind:?}"));
            assert_eq!(is_long, uses.is_long(kind), "{opcode:?} {kind:?}");
            if let Some(answer) = answer {
                assert_ne!(answer.status, Status::Invalid, "{opcode:?} {kind:?}");
                if opcode == Opcode::GetLocked {
                    let unlock = self.client.request(Opcode::UnlockKey).key(LONG);
                    self.client.call(&unlock.cas(answer.cas)).ok();
                }
            }
            if let Some(frame) = with_long_value(&frame, &self.value) {
                let (is_long, _) = self.is_long(&frame, &format!("{kind:?}, long value"));
                assert!(is_long, "{opcode:?} {kind:?}");
            }
        }
    }

    /// A list of more documents than a front-end thread looks up itself.
    fn about_many(&mut self) {
        let key = self.client.request(Opcode::Get).key(LONG);
        let length = u16::try_from(key.key.len()).unwrap();
        let of_one = [&key.vb.to_be_bytes(), &length.to_be_bytes(), &key.key[..]].concat();
        for (documents, expected) in [(10, false), (5_000, true)] {
            let frame = self.client.request(Opcode::Observe);
            let frame = frame.value(&of_one.repeat(documents));
            let (is_long, _) = self.is_long(&frame, &format!("{documents} documents"));
            assert_eq!(is_long, expected, "{documents} documents");
        }
    }
}

/// A key in the vBucket of another key.
fn neighbour(key: &str) -> String {
    let vb = |key: &str| VbId::of_key(key.as_bytes(), 16);
    let mut all = (0..).map(|number| format!("key-{number}"));
    all.find(|other| vb(other) == vb(key)).unwrap()
}

fn client(kedge: &Kedge, features: Features) -> Client {
    let mut client = kedge.connect();
    client.hello(features);
    client.log_in("root", PASSWORD);
    client.select("default");
    client
}

#[test]
fn long_opcodes_are_offloaded() {
    let (mut setup, bytes) = match is_full() {
        true => (Setup::default().on_a_real_disk(), 19 << 20),
        false => (Setup::default(), LONG_VALUE_BYTES + (4 << 10)),
    };
    setup.bucket.quota_bytes = 2 << 30;
    let kedge = Kedge::with(setup);
    let canary = Canary::default();
    let value = array(bytes);
    let mut bench = Bench {
        kedge: &kedge,
        client: client(&kedge, FEATURES),
        writer: client(&kedge, FEATURES.with(Feature::Snappy)),
        canary: &canary,
        compressed: snap::raw::Encoder::new().compress_vec(&value).unwrap(),
        value,
    };
    let small = neighbour(LONG);
    bench.client.set(&small, b"v").ok();
    std::thread::scope(|scope| {
        let other = client(&kedge, FEATURES);
        let canary = &canary;
        scope.spawn(move || canary.run(other, &small));
        let _over = canary.ends();
        bench.about_many();
        for &opcode in Opcode::ALL {
            match use_of(opcode) {
                Some(uses) => bench.about_documents(opcode, uses),
                None if WALKS.contains(&opcode) => {
                    let frame = bench.client.request(opcode).key(LONG);
                    let (is_long, _) = bench.is_long(&frame, "");
                    assert!(is_long, "{opcode:?}");
                }
                None => continue,
            }
            check_turns(bench.kedge, bench.canary, opcode.name());
        }
    });
}

/// Every opcode that is served is in one of the lists.
#[test]
fn every_served_opcode_is_listed() {
    for &opcode in crate::replies::SERVED {
        let lists = [
            use_of(opcode).is_some(),
            WALKS.contains(&opcode),
            SMALL.contains(&opcode),
            // Offloaded if it names many documents.
            opcode == Opcode::Observe,
        ];
        let of = lists.iter().filter(|is_in| **is_in).count();
        assert_eq!(of, 1, "{opcode:?}");
    }
}
