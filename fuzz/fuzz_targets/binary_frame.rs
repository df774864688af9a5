//! Bytes from a client: frames are split, and every codec is tried on every request.
#![no_main]

use kedge_protocol::binary::commands::{
    Agent, Arithmetic, Concat, DelVbucket, Flush, Get, GetAllVbSeqnos, GetClusterConfig,
    GetCmdTimer, GetCollectionId, GetErrorMap, GetKeys, GetLocked, GetManifest, GetMeta,
    GetRandomKey, GetScopeId, HeaderOnly, Hello, MutateWithMeta, Observe, ObserveSeqno, Remove,
    SaslStart, SelectBucket, SeqnoPersistence, SetManifest, SetVbucket, Stat, Store, Touch, Unlock,
    Verbosity, WithMeta, range_scan, subdoc,
};
use kedge_protocol::binary::{
    ConnectionKind, FrameInfos, HEADER_BYTES, Opcode, Parse, ParseReply, Request, RequestWriter,
    parse_frame, parse_response,
};
use libfuzzer_sys::fuzz_target;

const MAX_BODY: usize = 1 << 16;

/// Decodes; what decodes is written again, and must decode to the same.
macro_rules! round_trip {
    ($request:expr, $opcode:expr, $($type:ty)*) => {
        $(if let Ok(command) = <$type>::decode($request) {
            let mut bytes = Vec::new();
            let writer = RequestWriter { vb: $request.vb, ..RequestWriter::new($opcode) };
            command.encode(&writer, &mut bytes);
            let Parse::Frame { request, consumed } = parse_frame(&bytes, usize::MAX) else {
                panic!("what was written is a frame");
            };
            assert_eq!(consumed, bytes.len());
            assert_eq!(<$type>::decode(&request), Ok(command));
        })*
    };
}

fn try_codecs(request: &Request<'_>) {
    for kind in [ConnectionKind::Couchbase, ConnectionKind::Memcached] {
        let Some(opcode) = Opcode::from_wire(request.opcode, kind) else {
            return;
        };
        round_trip!(request, opcode,
            Get<'_> Store<'_> Remove<'_> Arithmetic<'_> Concat<'_> Touch<'_> GetLocked<'_> Unlock<'_>
            GetMeta<'_> WithMeta<'_> MutateWithMeta<'_> GetKeys<'_> GetRandomKey SetVbucket<'_> DelVbucket ObserveSeqno GetAllVbSeqnos
            SeqnoPersistence Hello<'_> SaslStart<'_> GetClusterConfig GetErrorMap SelectBucket<'_>
            GetCollectionId<'_> GetScopeId<'_> GetManifest SetManifest<'_> HeaderOnly Verbosity Flush
            GetCmdTimer<'_> subdoc::SubdocSingle<'_>
            range_scan::RangeScanCreate range_scan::RangeScanContinue range_scan::RangeScanCancel
        );
    }
    if let Ok(observe) = Observe::decode(request) {
        assert!(observe.keys().count() > 0);
    }
    if let Ok(set) = SetVbucket::decode(request) {
        let _ = set.parse_details();
    }
    let _ = Stat::decode(request);
    let _ = Agent::parse(request.key);
    if let Ok(multi) = subdoc::SubdocMulti::decode(request) {
        assert_eq!(multi.specs.len(), multi.specs.count());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    loop {
        match parse_frame(rest, MAX_BODY) {
            Parse::Frame { request, consumed } => {
                assert!(consumed >= HEADER_BYTES && consumed <= rest.len());
                if let Ok(infos) = FrameInfos::parse(request.framing) {
                    let mut framing = Vec::new();
                    infos.encode(&mut framing);
                    assert_eq!(FrameInfos::parse(&framing), Ok(infos));
                }
                try_codecs(&request);
                rest = &rest[consumed..];
            }
            Parse::ServerResponse { consumed, .. } => rest = &rest[consumed..],
            Parse::Incomplete { need } => {
                assert!(need > rest.len());
                break;
            }
            _ => break,
        }
    }
    if let ParseReply::Reply { reply, .. } = parse_response(bytes, MAX_BODY) {
        let _ = reply.server_duration();
        let _ = subdoc::decode_lookup_results(reply.value);
        let _ = subdoc::decode_mutation_results(reply.value);
        let _ = range_scan::ScanDocument::decode_all(reply.value);
    }
});
