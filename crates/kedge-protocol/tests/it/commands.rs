//! Every codec: what a client writes is what the server reads.

use crate::{hex, whole_request};
use kedge_protocol::binary::commands::{
    Arithmetic, Concat, Flush, Get, GetAllVbSeqnos, GetClusterConfig, GetCmdTimer, GetCollectionId,
    GetErrorMap, GetKeys, GetLocked, GetManifest, GetMeta, GetRandomKey, GetScopeId, HeaderOnly,
    Hello, MetaVersion, MutateKind, MutateWithMeta, Observe, ObserveSeqno, ObservedKey, Remove,
    ReturnMeta, ReturnMetaKind, ReturnMetaReply, SaslStart, SelectBucket, SeqnoPersistence,
    SetManifest, Stat, Store, Touch, Unlock, VbStateFilter, Verbosity, WithMeta, WithMetaOptions,
    range_scan,
};
use kedge_protocol::binary::{Feature, Features, Opcode, RequestWriter};
use kedge_types::{Cas, CollectionId, Datatype, RevSeqno, Seqno, Status, VbId, VbUuid};
use proptest::collection::vec;
use proptest::prelude::*;

/// Writes `command` with `opcode` and reads it back.
macro_rules! round_trip {
    ($type:ty, $opcode:ident, $command:expr) => {{
        let command: $type = $command;
        let mut bytes = Vec::new();
        command.encode(&RequestWriter::new(Opcode::$opcode), &mut bytes);
        let request = whole_request(&bytes);
        prop_assert_eq!(request.opcode, Opcode::$opcode.wire());
        prop_assert_eq!(<$type>::decode(&request), Ok(command));
    }};
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..251)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    "[a-zA-Z0-9_%-]{1,30}".prop_map(String::into_bytes)
}

fn value_datatype() -> impl Strategy<Value = Datatype> {
    (0_u8..4).prop_map(|bits| Datatype::from_bits(bits).unwrap())
}

proptest! {
    #[test]
    fn documents(
        key in key(),
        value in vec(any::<u8>(), 0..200),
        (flags, expiry, cas) in any::<(u32, u32, u64)>(),
        (delta, initial) in any::<(u64, u64)>(),
        lock_secs in any::<Option<u32>>(),
        datatype in value_datatype(),
    ) {
        let (key, value) = (&key[..], &value[..]);
        let store = Store { flags, expiry, key, value, cas: Cas(cas), datatype };
        round_trip!(Get<'_>, Get, Get { key });
        round_trip!(Get<'_>, Getkq, Get { key });
        round_trip!(Get<'_>, GetReplica, Get { key });
        round_trip!(Get<'_>, GetEx, Get { key });
        round_trip!(Get<'_>, GetExReplica, Get { key });
        round_trip!(Store<'_>, Set, store);
        round_trip!(Store<'_>, Replaceq, store);
        round_trip!(Store<'_>, Add, Store { cas: Cas(0), ..store });
        round_trip!(Concat<'_>, Append, Concat { key, value, cas: Cas(cas), datatype });
        round_trip!(Remove<'_>, Delete, Remove { key, cas: Cas(cas) });
        round_trip!(Arithmetic<'_>, Increment, Arithmetic { delta, initial, expiry, key });
        round_trip!(Touch<'_>, Gat, Touch { expiry, key });
        round_trip!(GetLocked<'_>, GetLocked, GetLocked { lock_secs, key });
        round_trip!(Unlock<'_>, UnlockKey, Unlock { key, cas: Cas(cas | 1) });
        round_trip!(GetKeys<'_>, GetKeys, GetKeys { count: flags, start: key });
    }

    #[test]
    fn metadata(
        key in key(),
        value in vec(any::<u8>(), 0..200),
        (flags, expiry, rev, cas, expected) in any::<(u32, u32, u64, u64, u64)>(),
        options in 0_u32..0x20,
        datatype in 0_u8..8,
    ) {
        let (key, value) = (&key[..], &value[..]);
        round_trip!(GetMeta<'_>, GetMeta, GetMeta { version: MetaVersion::V1, key });
        round_trip!(GetMeta<'_>, GetqMeta, GetMeta { version: MetaVersion::V2, key });
        let plain = datatype & 3;
        if let Ok(options) = WithMetaOptions::from_bits(options) {
            round_trip!(WithMeta<'_>, SetWithMeta, WithMeta {
                flags,
                expiry,
                rev_seqno: RevSeqno(rev),
                cas: Cas(cas),
                expected_cas: Cas(expected),
                options,
                key,
                value,
                datatype: Datatype::from_bits(datatype).unwrap(),
            });
            let kinds = [ReturnMetaKind::Set, ReturnMetaKind::Add, ReturnMetaKind::Delete];
            let kind = kinds[flags as usize % 3];
            round_trip!(ReturnMeta<'_>, ReturnMeta, ReturnMeta {
                kind,
                flags,
                expiry,
                cas: Cas(cas),
                key,
                value: if kind == ReturnMetaKind::Delete { b"" } else { value },
                datatype: Datatype::from_bits(plain).unwrap(),
            });
        } else {
            prop_assert_eq!(options & 0xc, 4, "only the lonely option is refused");
        }
        let options = WithMetaOptions::from_json(options).unwrap();
        let makes_cas = options.contains(WithMetaOptions::REGENERATE_CAS);
        let kinds = [MutateKind::Add, MutateKind::Set, MutateKind::Delete];
        round_trip!(MutateWithMeta<'_>, MutateWithMeta, MutateWithMeta {
            kind: kinds[flags as usize % 3],
            cas: (!makes_cas).then_some(Cas(cas)),
            flags,
            expiry,
            rev_seqno: RevSeqno(rev),
            options,
            cas_offsets: if makes_cas { vec![expiry, flags] } else { vec![] },
            seqno_offsets: vec![flags],
            expected_cas: Cas(expected),
            key,
            value,
            datatype: Datatype::from_bits(datatype).unwrap(),
        });
    }

    #[test]
    fn seqnos(
        (uuid, seqno) in any::<(u64, u64)>(),
        collection in any::<Option<u32>>(),
        keys in vec((any::<u16>(), key()), 1..10),
    ) {
        let collection = collection.map(CollectionId);
        round_trip!(ObserveSeqno, ObserveSeqno, ObserveSeqno { vb_uuid: VbUuid(uuid) });
        round_trip!(SeqnoPersistence, SeqnoPersistence, SeqnoPersistence { seqno: Seqno(seqno) });
        for state in [VbStateFilter::Alive, VbStateFilter::Active, VbStateFilter::Dead] {
            round_trip!(GetAllVbSeqnos, GetAllVbSeqnos, GetAllVbSeqnos { state: Some(state), collection });
        }
        round_trip!(GetAllVbSeqnos, GetAllVbSeqnos, GetAllVbSeqnos { state: None, collection: None });

        let keys: Vec<_> = keys.iter().map(|(vb, key)| ObservedKey { vb: VbId(*vb), key }).collect();
        let mut bytes = Vec::new();
        Observe::encode(&keys, &RequestWriter::new(Opcode::Observe), &mut bytes);
        let request = whole_request(&bytes);
        let observe = Observe::decode(&request).unwrap();
        prop_assert_eq!(observe.keys().collect::<Vec<_>>(), keys);
        let cut = kedge_protocol::binary::Request { value: &request.value[..request.value.len() - 1], ..request };
        prop_assert_eq!(Observe::decode(&cut).err(), Some(Status::Invalid));
    }

    #[test]
    fn connections(
        (scope, collection) in (name(), name()),
        known in any::<Option<(i64, i64)>>(),
        version: u16,
        json in "[ -~]{1,50}",
        message in vec(any::<u8>(), 0..60),
        (id, number) in any::<(u32, u32)>(),
        include_xattrs: bool,
    ) {
        let (scope, collection) = (&scope[..], &collection[..]);
        round_trip!(GetCollectionId<'_>, CollectionsGetId, GetCollectionId { scope, collection });
        round_trip!(GetScopeId<'_>, CollectionsGetScopeId, GetScopeId { scope });
        round_trip!(GetManifest, CollectionsGetManifest, GetManifest);
        round_trip!(SetManifest<'_>, CollectionsSetManifest, SetManifest { manifest: json.as_bytes() });
        round_trip!(GetClusterConfig, GetClusterConfig, GetClusterConfig { known });
        round_trip!(GetErrorMap, GetErrorMap, GetErrorMap { version });
        round_trip!(SelectBucket<'_>, SelectBucket, SelectBucket { name: scope });
        round_trip!(SaslStart<'_>, SaslAuth, SaslStart { mechanism: scope, message: &message });
        round_trip!(Stat<'_>, Stat, Stat { group: scope, arguments: json.as_bytes() });
        round_trip!(Stat<'_>, Stat, Stat { group: b"", arguments: b"" });
        round_trip!(GetCmdTimer<'_>, GetCmdTimer, GetCmdTimer { opcode: 3, bucket: scope });
        round_trip!(HeaderOnly, Noop, HeaderOnly);
        round_trip!(HeaderOnly, SaslListMechs, HeaderOnly);
        round_trip!(Verbosity, Verbosity, Verbosity { level: number });
        round_trip!(Flush, Flush, Flush { delay: number });
        let collection = Some(CollectionId(id));
        round_trip!(GetRandomKey, GetRandomKey, GetRandomKey { collection, include_xattrs });
        round_trip!(GetRandomKey, GetRandomKey, GetRandomKey { collection: None, include_xattrs: false });
        let features = Features::of(&[Feature::Json, Feature::Collections]);
        round_trip!(Hello<'_>, Hello, Hello { agent: scope, features });
    }

    #[test]
    fn range_scans(
        (start, end) in (key(), key()),
        (excl_start, excl_end) in any::<(bool, bool)>(),
        (collection, seed, samples) in (any::<u32>(), any::<u64>(), 1..u64::MAX),
        (key_only, include_xattrs, sampling) in any::<(bool, bool, bool)>(),
        snapshot in any::<Option<(u64, u64, bool, Option<u64>)>>(),
        name in proptest::option::of("[ -~]{0,50}"),
        id: [u8; 16],
        (items_max, time_ms_max, bytes_max) in any::<(u32, u32, u32)>(),
    ) {
        use range_scan::{Bound, RangeScanCancel, RangeScanContinue, RangeScanCreate, ScanId, ScanKind, SnapshotRequirements};
        let create = RangeScanCreate {
            collection: CollectionId(collection),
            key_only,
            include_xattrs,
            kind: if sampling {
                ScanKind::Sampling { seed, samples }
            } else {
                ScanKind::Range {
                    start: Bound { key: start, exclusive: excl_start },
                    end: Bound { key: end, exclusive: excl_end },
                }
            },
            snapshot: snapshot.map(|(uuid, seqno, seqno_exists, timeout_ms)| SnapshotRequirements {
                vb_uuid: VbUuid(uuid),
                seqno: Seqno(seqno),
                seqno_exists,
                timeout_ms,
            }),
            name,
        };
        round_trip!(RangeScanCreate, RangeScanCreate, create);
        let id = ScanId(id);
        round_trip!(RangeScanContinue, RangeScanContinue, RangeScanContinue { id, items_max, time_ms_max, bytes_max });
        round_trip!(RangeScanCancel, RangeScanCancel, RangeScanCancel { id });
    }
}

#[test]
fn collection_paths() {
    let decode = |value: &[u8], key: &[u8]| {
        let mut bytes = Vec::new();
        RequestWriter::new(Opcode::CollectionsGetId).write(&[], key, value, &mut bytes);
        let id = GetCollectionId::decode(&whole_request(&bytes));
        id.map(|id| (id.scope.to_vec(), id.collection.to_vec()))
    };
    let path = |scope: &str, collection: &str| Ok((scope.into(), collection.into()));
    for (value, expected) in [
        ("a.b", path("a", "b")),
        (".b", path("_default", "b")),
        ("a.", path("a", "_default")),
        (".", path("_default", "_default")),
        ("a", Err(Status::Invalid)),
        ("", Err(Status::Invalid)),
        ("a.b.c", Err(Status::Invalid)),
    ] {
        assert_eq!(decode(value.as_bytes(), b""), expected, "{value}");
        assert_eq!(
            decode(b"", value.as_bytes()),
            expected,
            "{value} in the key"
        );
    }
    assert_eq!(decode(b"a.b", b"a.b"), Err(Status::Invalid));
}

#[test]
fn with_meta_accepts_old_layouts() {
    // Flags, expiry, revision, CAS; then options and the length of metadata behind the value, each or neither.
    let base = "00000001 00000002 0000000000000003 0000000000000004";
    for (extras, options, value) in [
        (base.to_owned(), 0, &b"value"[..]),
        (format!("{base} 0000000a"), 10, b"value"),
        (format!("{base} 0002"), 0, b"val"),
        (format!("{base} 00000008 0005"), 8, b""),
    ] {
        let mut bytes = Vec::new();
        RequestWriter::new(Opcode::SetWithMeta).write(&hex(&extras), b"k", b"value", &mut bytes);
        let meta = WithMeta::decode(&whole_request(&bytes)).unwrap();
        assert_eq!((meta.options.bits(), meta.value), (options, value));
        assert_eq!((meta.rev_seqno, meta.cas), (RevSeqno(3), Cas(4)));
    }
    for extras in [
        format!("{base} 0006"),
        format!("{base} 00000004"),
        format!("{base} 00000020"),
        format!("{base} 00"),
    ] {
        let mut bytes = Vec::new();
        RequestWriter::new(Opcode::SetWithMeta).write(&hex(&extras), b"k", b"value", &mut bytes);
        let meta = WithMeta::decode(&whole_request(&bytes));
        assert_eq!(meta, Err(Status::Invalid), "{extras}");
    }
}

#[test]
fn with_meta_removes_extended_metadata_behind_the_value() {
    let decode = |json: &str, len: usize| {
        let mut bytes = Vec::new();
        let len = (len as u32).to_be_bytes();
        let value = [b"value", json.as_bytes()].concat();
        RequestWriter::new(Opcode::MutateWithMeta).write(&len, b"k", &value, &mut bytes);
        MutateWithMeta::decode(&whole_request(&bytes)).map(|wire| {
            assert_eq!((wire.key, wire.value), (&b"k"[..], &b"value"[..]));
            let cas = wire.cas.map(Cas::get);
            (cas, wire.flags, wire.rev_seqno.get(), wire.options.bits())
        })
    };
    let all = r#"{"command":"set","cas":"0xDEADbeef00000001","flags":"a","expiration":7,"rev_seqno":18446744073709551615,"options":"0x28"}"#;
    for (json, expected) in [
        (r#"{"command":"add"}"#, (None, 0, 0, 0)),
        (r#" {"command":"delete"} "#, (None, 0, 0, 0)),
        (all, (Some(0xdead_beef_0000_0001), 10, u64::MAX, 0xa)),
        (
            r#"{"command":"set","cas":5,"options":4,"cas_offsets":[9]}"#,
            (None, 0, 0, 4),
        ),
        (
            r#"{"command":"set","cas":5,"seqno_offsets":[9]}"#,
            (Some(5), 0, 0, 0),
        ),
    ] {
        assert_eq!(decode(json, json.len()), Ok(expected), "{json}");
    }
    for json in [
        "",
        "{}",
        "[]",
        r#"{"command":"replace"}"#,
        r#"{"command":"Set"}"#,
        r#"{"command":"set"} {}"#,
        r#"{"command":"set","command":"add"}"#,
        r#"{"command":"set","ttl":1}"#,
        r#"{"command":"set","cas":-1}"#,
        r#"{"command":"set","cas":"-1"}"#,
        r#"{"command":"set","cas":"+1"}"#,
        r#"{"command":"set","cas":""}"#,
        r#"{"command":"set","cas":"0x"}"#,
        r#"{"command":"set","cas":"0x10000000000000000"}"#,
        r#"{"command":"set","cas":1.5}"#,
        r#"{"command":"set","cas":[1]}"#,
        r#"{"command":"set","rev_seqno":"g"}"#,
        r#"{"command":"set","flags":4294967296}"#,
        r#"{"command":"set","expiration":"0x100000000"}"#,
        r#"{"command":"set","options":"0x40"}"#,
        r#"{"command":"set","options":true}"#,
        r#"{"command":"set","cas_offsets":[9]}"#,
        r#"{"command":"set","options":4,"cas_offsets":9}"#,
        r#"{"command":"set","options":4,"cas_offsets":[-9]}"#,
        r#"{"command":"set","seqno_offsets":["9"]}"#,
        r#"{"command":"set","seqno_offsets":[4294967296]}"#,
    ] {
        assert_eq!(decode(json, json.len()), Err(Status::Invalid), "{json}");
    }
    let good = r#"{"command":"add"}"#;
    for len in [
        0,
        good.len() - 1,
        good.len() + 1,
        good.len() + 6,
        u32::MAX as usize,
    ] {
        assert_eq!(decode(good, len), Err(Status::Invalid), "{len}");
    }
}

#[test]
fn range_scan_rejects_contradictory_requests() {
    let decode = |json: &str, datatype| {
        let mut bytes = Vec::new();
        RequestWriter {
            datatype,
            ..RequestWriter::new(Opcode::RangeScanCreate)
        }
        .write(&[], &[], json.as_bytes(), &mut bytes);
        range_scan::RangeScanCreate::decode(&whole_request(&bytes)).map(|create| create.collection)
    };
    let good = r#"{"collection":"8","range":{"start":"YQ==","excl_end":"Yg=="},"key_only":true}"#;
    assert_eq!(decode(good, Datatype::JSON), Ok(CollectionId(8)));
    assert_eq!(decode(good, Datatype::RAW), Err(Status::Invalid));
    let from_the_first = r#"{"range":{"start":"","end":"Yg=="}}"#;
    assert_eq!(decode(from_the_first, Datatype::JSON), Ok(CollectionId(0)));
    let sampling = r#"{"sampling":{"seed":1,"samples":10},"name":"x"}"#;
    assert_eq!(decode(sampling, Datatype::JSON), Ok(CollectionId(0)));
    for bad in [
        r#"{}"#,
        r#"[]"#,
        r#"{"range":{"start":"YQ=="}}"#,
        r#"{"range":{"start":"YQ==","excl_start":"YQ==","end":"Yg=="}}"#,
        r#"{"range":{"start":"*","end":"Yg=="}}"#,
        r#"{"collection":"x","sampling":{"samples":1}}"#,
        r#"{"sampling":{"samples":0}}"#,
        r#"{"sampling":{"samples":1},"range":{"start":"YQ==","end":"Yg=="}}"#,
        r#"{"sampling":{"samples":1},"snapshot_requirements":{"vb_uuid":"x","seqno":1}}"#,
        r#"{"sampling":{"samples":1},"name":"012345678901234567890123456789012345678901234567890"}"#,
    ] {
        assert_eq!(decode(bad, Datatype::JSON), Err(Status::Invalid), "{bad}");
    }
}

#[test]
fn sasl_debug_output_hides_the_password() {
    let auth = SaslStart {
        mechanism: b"PLAIN",
        message: b"\0user\0secret",
    };
    let shown = format!("{auth:?}");
    assert!(
        shown.contains("PLAIN") && !shown.contains("secret"),
        "{shown}"
    );
}

#[test]
fn return_meta_decodes_its_operation() {
    let decode = |kind: u8, value: &[u8]| {
        let mut bytes = Vec::new();
        let extras = [0, 0, 0, kind, 0, 0, 0, 7, 0, 0, 0, 9];
        RequestWriter::new(Opcode::ReturnMeta).write(&extras, b"k", value, &mut bytes);
        ReturnMeta::decode(&whole_request(&bytes)).map(|wire| (wire.kind, wire.flags, wire.expiry))
    };
    assert_eq!(decode(1, b"v"), Ok((ReturnMetaKind::Set, 7, 9)));
    assert_eq!(decode(2, b""), Ok((ReturnMetaKind::Add, 7, 9)));
    assert_eq!(decode(3, b""), Ok((ReturnMetaKind::Delete, 7, 9)));
    for (kind, value) in [(0, &b""[..]), (4, b""), (3, b"v")] {
        assert_eq!(decode(kind, value), Err(Status::Invalid), "{kind}");
    }
    let reply = ReturnMetaReply {
        flags: 1,
        expiry: 2,
        rev_seqno: RevSeqno(3),
    };
    assert_eq!(ReturnMetaReply::decode(&reply.encode()), Ok(reply));
    assert_eq!(ReturnMetaReply::decode(&[0; 15]), Err(Status::Invalid));
}
