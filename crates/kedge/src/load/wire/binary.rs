//! The memcached binary protocol, plain or with Couchbase's vBuckets and durability.

use std::sync::Arc;

use kedge_protocol::binary::{FrameInfos, HEADER_BYTES, Magic, Opcode, RequestWriter};
use kedge_types::limits::KEY_BYTES_MAX;
use kedge_types::{Durability, DurabilityLevel, Status, VbId};

use super::{KEY_DIGITS, ParsedReply, RequestOutcome, WireProtocol, key_zero, write_digits};

/// Extras of SET: flags and expiry, both 0.
const SET_EXTRAS: [u8; 8] = [0; 8];
/// The longest accepted reply body, in bytes: the longest document with room for its key and extras.
const BODY_BYTES_MAX: usize = 32 << 20;

/// A request with item 0 and an empty value.
#[derive(Clone)]
struct Template {
    frame: Vec<u8>,
    key_at: usize,
    key_len: usize,
    body_len: u32,
}

impl Template {
    fn new(opcode: Opcode, infos: FrameInfos<'_>, extras: &[u8], prefix: &str) -> Self {
        let key = key_zero(prefix);
        let mut frame = Vec::new();
        let mut writer = RequestWriter::new(opcode);
        writer.infos = infos;
        writer.write(extras, &key, &[], &mut frame);
        Self {
            key_at: frame.len() - key.len(),
            key_len: key.len(),
            body_len: (frame.len() - HEADER_BYTES) as u32,
            frame,
        }
    }

    /// Returns the vBucket of an item.
    fn vbucket(&self, item: u64, vbuckets: u16) -> VbId {
        let mut key = [0; KEY_BYTES_MAX];
        let key = &mut key[..self.key_len];
        key.copy_from_slice(&self.frame[self.key_at..][..self.key_len]);
        write_digits(&mut key[self.key_len - KEY_DIGITS..], item);
        VbId::of_key(key, vbuckets)
    }

    /// Appends the request without its value.
    #[inline]
    fn write(&self, out: &mut Vec<u8>, item: u64, opaque: u32, vbuckets: u16, value_len: usize) {
        let start = out.len();
        out.reserve(self.frame.len() + value_len);
        out.extend_from_slice(&self.frame);
        let frame = &mut out[start..];
        write_digits(&mut frame[self.key_at + self.key_len - KEY_DIGITS..], item);
        if vbuckets > 0 {
            let vb = VbId::of_key(&frame[self.key_at..], vbuckets);
            frame[6..8].copy_from_slice(&vb.get().to_be_bytes());
        }
        let body = self.body_len + value_len as u32;
        frame[8..12].copy_from_slice(&body.to_be_bytes());
        frame[12..16].copy_from_slice(&opaque.to_be_bytes());
    }
}

/// The binary protocol.
#[derive(Clone)]
pub(in crate::load) struct Binary {
    get: Template,
    set: Template,
    populate: Template,
    /// The number of vBuckets of the bucket; 0 for plain memcached, which has none.
    vbuckets: u16,
    /// The node of each vBucket; empty if one node has all.
    actives: Arc<[Option<u16>]>,
}

impl Binary {
    /// Creates the protocol. Keys begin with `prefix`. `vbuckets` is 0 for plain memcached. `actives` has the node of
    /// each vBucket, and is empty if there is one node.
    pub(in crate::load) fn new(
        prefix: &str,
        vbuckets: u16,
        actives: Vec<Option<u16>>,
        durability: Option<DurabilityLevel>,
    ) -> Self {
        let durable = FrameInfos {
            durability: durability.map(|level| Durability {
                level,
                timeout_ms: None,
            }),
            ..FrameInfos::default()
        };
        let plain = FrameInfos::default();
        Self {
            get: Template::new(Opcode::Get, plain, &[], prefix),
            set: Template::new(Opcode::Set, durable, &SET_EXTRAS, prefix),
            populate: Template::new(Opcode::Set, plain, &SET_EXTRAS, prefix),
            vbuckets,
            actives: actives.into(),
        }
    }
}

impl WireProtocol for Binary {
    const HAS_OPAQUE: bool = true;

    #[inline]
    fn is_at(&self, item: u64, node: u16) -> bool {
        self.actives.is_empty()
            || self.actives[self.get.vbucket(item, self.vbuckets).index()] == Some(node)
    }

    #[inline]
    fn get(&self, out: &mut Vec<u8>, item: u64, opaque: u32) {
        self.get.write(out, item, opaque, self.vbuckets, 0);
    }

    #[inline]
    fn set(&self, out: &mut Vec<u8>, item: u64, opaque: u32, value: &[u8]) {
        self.set
            .write(out, item, opaque, self.vbuckets, value.len());
        out.extend_from_slice(value);
    }

    #[inline]
    fn populate(&self, out: &mut Vec<u8>, item: u64, opaque: u32, value: &[u8]) {
        self.populate
            .write(out, item, opaque, self.vbuckets, value.len());
        out.extend_from_slice(value);
    }

    #[inline]
    fn reply<'a>(&self, buf: &'a [u8]) -> ParsedReply<'a> {
        const OK: u16 = Status::Success as u16;
        const MISSING: u16 = Status::KeyNotFound as u16;
        let Some(header) = buf.first_chunk::<HEADER_BYTES>() else {
            return ParsedReply::Incomplete { need: HEADER_BYTES };
        };
        if header[0] != Magic::ClientResponse.wire() && header[0] != Magic::AltClientResponse.wire()
        {
            return ParsedReply::Broken("not a reply of the binary protocol");
        }
        let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if body > BODY_BYTES_MAX {
            return ParsedReply::Broken("reply too long");
        }
        let consumed = HEADER_BYTES + body;
        if buf.len() < consumed {
            return ParsedReply::Incomplete { need: consumed };
        }
        let outcome = match u16::from_be_bytes([header[6], header[7]]) {
            OK => RequestOutcome::Done,
            MISSING => RequestOutcome::Missing,
            other => RequestOutcome::Status(other),
        };
        let opaque = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
        ParsedReply::Done {
            consumed,
            opaque,
            outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use kedge_protocol::binary::{Parse, Response, parse_frame};
    use kedge_types::limits::FRAME_BODY_BYTES_MAX;

    use super::super::tests::check_ends;
    use super::*;

    #[test]
    fn generated_requests_are_valid_for_the_server_parser() {
        let level = DurabilityLevel::PersistToMajority;
        let wire = Binary::new("p:", 1024, Vec::new(), Some(level));
        let mut out = Vec::new();
        wire.get(&mut out, 1234, 7);
        wire.set(&mut out, 99, 8, b"value");
        wire.populate(&mut out, 99, 9, b"");
        let key = |item: u64| format!("p:{item:020}").into_bytes();
        let expected: [(u8, u64, u32, &[u8], bool); 3] = [
            (Opcode::Get.wire(), 1234, 7, b"", false),
            (Opcode::Set.wire(), 99, 8, b"value", true),
            (Opcode::Set.wire(), 99, 9, b"", false),
        ];
        let mut rest = &out[..];
        for (opcode, item, opaque, value, durable) in expected {
            let Parse::Frame { request, consumed } = parse_frame(rest, FRAME_BODY_BYTES_MAX) else {
                panic!("no frame in {rest:?}");
            };
            assert_eq!(request.opcode, opcode);
            assert_eq!(request.key, key(item));
            assert_eq!(request.vb, VbId::of_key(&key(item), 1024));
            assert_eq!(request.opaque, opaque);
            assert_eq!(request.value, value);
            let infos = FrameInfos::parse(request.framing).expect("framing extras");
            assert_eq!(infos.durability.map(|d| d.level), durable.then_some(level));
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn items_are_requested_from_the_node_of_their_vbucket() {
        let actives = (0..64).map(|vb| (vb > 0).then_some(vb % 3)).collect();
        let wire = Binary::new("p:", 64, actives, None);
        let mut without_a_node = 0;
        for item in 0..1000 {
            let vb = VbId::of_key(format!("p:{item:020}").as_bytes(), 64).get();
            let nodes: Vec<u16> = (0..3).filter(|&node| wire.is_at(item, node)).collect();
            if vb == 0 {
                without_a_node += 1;
                assert!(nodes.is_empty());
            } else {
                assert_eq!(nodes, [vb % 3]);
            }
        }
        assert!(without_a_node > 0);
    }

    #[test]
    fn binary_reply_ends_are_found() {
        let wire = Binary::new("", 0, Vec::new(), None);
        let table = [
            (Status::Success, RequestOutcome::Done),
            (Status::KeyNotFound, RequestOutcome::Missing),
            (
                Status::TemporaryFailure,
                RequestOutcome::Status(Status::TemporaryFailure as u16),
            ),
        ];
        for (status, outcome) in table {
            for server_duration in [None, Some(5)] {
                let mut reply = Vec::new();
                let response = Response {
                    extras: &[0; 4],
                    value: b"some value",
                    server_duration,
                    ..Response::new(0, 3, status)
                };
                response.write(&mut reply);
                check_ends(&wire, &reply, outcome);
            }
        }
        assert!(matches!(
            wire.reply(&[b'E'; HEADER_BYTES]),
            ParsedReply::Broken(_)
        ));
    }
}
