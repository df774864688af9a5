//! Required and forbidden parts of each request.

use kedge_protocol::binary::Request;
use kedge_protocol::binary::commands::{
    Arithmetic, Concat, Flush, Get, GetAllVbSeqnos, GetClusterConfig, GetCmdTimer, GetCollectionId,
    GetErrorMap, GetKeys, GetLocked, GetManifest, GetMeta, GetRandomKey, GetScopeId, HeaderOnly,
    Hello, MutateWithMeta, Observe, ObserveSeqno, Remove, ReturnMeta, SaslStart, SelectBucket,
    SeqnoPersistence, SetManifest, Stat, Store, Touch, Unlock, Verbosity, WithMeta, range_scan,
    subdoc,
};
use kedge_types::{Cas, Status, VbId};
use proptest::collection::vec;
use proptest::prelude::*;

type Decode = fn(&Request<'_>) -> Result<(), Status>;

macro_rules! decoders {
    ($($name:literal $type:ty,)*) => {
        &[$(($name, |request| <$type>::decode(request).map(|_| ())),)*]
    };
}

/// Every codec under the name of a command.
const DECODERS: &[(&str, Decode)] = decoders! {
    "GET" Get<'_>,
    "SET" Store<'_>,
    "DELETE" Remove<'_>,
    "INCREMENT" Arithmetic<'_>,
    "APPEND" Concat<'_>,
    "TOUCH" Touch<'_>,
    "GET_LOCKED" GetLocked<'_>,
    "UNLOCK_KEY" Unlock<'_>,
    "GET_META" GetMeta<'_>,
    "SET_WITH_META" WithMeta<'_>,
    "MUTATE_WITH_META" MutateWithMeta<'_>,
    "RETURN_META" ReturnMeta<'_>,
    "GET_KEYS" GetKeys<'_>,
    "GET_RANDOM_KEY" GetRandomKey,
    "OBSERVE" Observe<'_>,
    "OBSERVE_SEQNO" ObserveSeqno,
    "GET_ALL_VB_SEQNOS" GetAllVbSeqnos,
    "SEQNO_PERSISTENCE" SeqnoPersistence,
    "STAT" Stat<'_>,
    "HELLO" Hello<'_>,
    "SASL_AUTH" SaslStart<'_>,
    "GET_CLUSTER_CONFIG" GetClusterConfig,
    "GET_ERROR_MAP" GetErrorMap,
    "SELECT_BUCKET" SelectBucket<'_>,
    "COLLECTIONS_GET_ID" GetCollectionId<'_>,
    "COLLECTIONS_GET_SCOPE_ID" GetScopeId<'_>,
    "COLLECTIONS_GET_MANIFEST" GetManifest,
    "COLLECTIONS_SET_MANIFEST" SetManifest<'_>,
    "NOOP" HeaderOnly,
    "VERBOSITY" Verbosity,
    "FLUSH" Flush,
    "GET_CMD_TIMER" GetCmdTimer<'_>,
    "RANGE_SCAN_CREATE" range_scan::RangeScanCreate,
    "RANGE_SCAN_CONTINUE" range_scan::RangeScanContinue,
    "RANGE_SCAN_CANCEL" range_scan::RangeScanCancel,
    "SUBDOC_SINGLE" subdoc::SubdocSingle<'_>,
    "SUBDOC_MULTI" subdoc::SubdocMulti<'_>,
};

fn decoder(name: &str) -> Decode {
    let found = DECODERS.iter().find(|(known, _)| *known == name);
    found.expect("a known command").1
}

/// One row: the lengths of extras that are accepted, then for key, value and CAS `!` required, `-` forbidden, `?`
/// either, then the accepted datatype bits.
const SHAPES: &[(&str, &[usize], &str, u8)] = &[
    ("GET", &[0], "!--", 0),
    ("SET", &[8], "!??", 3),
    ("DELETE", &[0], "!-?", 0),
    ("INCREMENT", &[20], "!--", 0),
    ("APPEND", &[0], "!??", 3),
    ("TOUCH", &[4], "!--", 0),
    ("GET_LOCKED", &[0, 4], "!--", 0),
    ("UNLOCK_KEY", &[0], "!-!", 0),
    ("GET_META", &[0, 1], "!--", 0),
    ("SET_WITH_META", &[24, 26, 28, 30], "!??", 7),
    ("GET_KEYS", &[0, 4], "!--", 0),
    ("GET_RANDOM_KEY", &[0, 4, 5], "---", 0),
    ("GET_ALL_VB_SEQNOS", &[0, 4, 8], "---", 0),
    ("SEQNO_PERSISTENCE", &[8], "---", 0),
    ("HELLO", &[0], "??-", 0),
    ("SASL_AUTH", &[0], "!?-", 0),
    ("GET_CLUSTER_CONFIG", &[0, 16], "---", 0),
    ("SELECT_BUCKET", &[0], "?-?", 0),
    ("COLLECTIONS_GET_MANIFEST", &[0], "---", 0),
    ("COLLECTIONS_SET_MANIFEST", &[0], "-!-", 0),
    ("NOOP", &[0], "---", 0),
    ("VERBOSITY", &[4], "---", 0),
    ("FLUSH", &[0, 4], "---", 0),
    ("GET_CMD_TIMER", &[1], "?--", 0),
    ("RANGE_SCAN_CONTINUE", &[28], "---", 0),
    ("RANGE_SCAN_CANCEL", &[16], "---", 0),
];

#[test]
fn request_shapes_match_the_protocol() {
    for (name, extras_lens, parts, datatypes) in SHAPES {
        let decode = decoder(name);
        let parts: Vec<char> = parts.chars().collect();
        let admits = |part: char, present: bool| part == '?' || (part == '!') == present;
        let zeros = [0; 40];
        for extras_len in 0..=zeros.len() {
            for bits in 0..8 {
                let present = |bit: u8| bits & bit != 0;
                let fits = extras_lens.contains(&extras_len)
                    && admits(parts[0], present(1))
                    && admits(parts[1], present(2))
                    && admits(parts[2], present(4));
                for datatype in 0..16 {
                    let request = Request {
                        opcode: 0,
                        datatype,
                        vb: VbId(0),
                        opaque: 0,
                        cas: Cas(u64::from(present(4))),
                        framing: &[],
                        extras: &zeros[..extras_len],
                        key: if present(1) { b"key" } else { b"" },
                        value: if present(2) { &zeros[..8] } else { b"" },
                    };
                    let expected = if fits && datatype & !datatypes == 0 {
                        Ok(())
                    } else {
                        Err(Status::Invalid)
                    };
                    assert_eq!(decode(&request), expected, "{name}: {request:?}");
                }
            }
        }
    }
}

#[test]
fn document_keys_have_a_length_limit() {
    for name in ["GET", "DELETE", "UNLOCK_KEY", "APPEND"] {
        for (len, accepted) in [(250, true), (251, true), (252, false)] {
            let key = vec![b'k'; len];
            let request = Request {
                opcode: 0,
                datatype: 0,
                vb: VbId(0),
                opaque: 0,
                cas: Cas(u64::from(name == "UNLOCK_KEY")),
                framing: &[],
                extras: &[],
                key: &key,
                value: &[],
            };
            assert_eq!(decoder(name)(&request).is_ok(), accepted, "{name} {len}");
        }
    }
}

#[test]
fn add_rejects_a_cas() {
    for (opcode, cas, accepted) in [
        (0x02, 1, false),
        (0x12, 1, false),
        (0x02, 0, true),
        (0x01, 1, true),
    ] {
        let request = Request {
            opcode,
            datatype: 0,
            vb: VbId(0),
            opaque: 0,
            cas: Cas(cas),
            framing: &[],
            extras: &[0; 8],
            key: b"k",
            value: b"v",
        };
        assert_eq!(decoder("SET")(&request).is_ok(), accepted, "{opcode:#x}");
    }
}

proptest! {
    #[test]
    fn request_decoders_survive_random_requests(
        (opcode, datatype, vb, cas) in any::<(u8, u8, u16, u64)>(),
        extras in vec(any::<u8>(), 0..40),
        key in vec(any::<u8>(), 0..300),
        value in vec(any::<u8>(), 0..300),
        lean in any::<bool>(),
    ) {
        let request = Request {
            opcode,
            datatype: if lean { datatype & 1 } else { datatype },
            vb: if lean { VbId(0) } else { VbId(vb) },
            opaque: 0,
            cas: if lean { Cas(0) } else { Cas(cas) },
            framing: &[],
            extras: &extras,
            key: &key,
            value: &value,
        };
        for (_, decode) in DECODERS {
            let _ = decode(&request);
        }
    }
}
