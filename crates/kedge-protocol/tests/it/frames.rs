//! Boundaries of frames.

use crate::{MAX_BODY, hex, whole_request};
use kedge_protocol::binary::{
    FrameError, FrameInfos, HEADER_BYTES, Opcode, Parse, ParseReply, Request, RequestWriter,
    parse_frame, parse_response,
};
use kedge_types::{Cas, Datatype, Durability, DurabilityLevel, VbId};
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes in hexadecimal; then opcode, frame infos, extras, key and value that they stand for.
type Known<'a> = (
    &'a str,
    Opcode,
    FrameInfos<'a>,
    &'a [u8],
    &'a [u8],
    &'a [u8],
);

#[test]
fn known_requests_in_both_directions() {
    let majority = |timeout_ms| {
        Some(Durability {
            level: DurabilityLevel::Majority,
            timeout_ms,
        })
    };
    let plain = FrameInfos::default();
    let durable = FrameInfos {
        durability: majority(None),
        ..plain
    };
    let durable_keeping = FrameInfos {
        durability: majority(Some(5000)),
        preserve_ttl: true,
        ..plain
    };
    let cases: [Known<'_>; 6] = [
        (
            "80 00 0005 00 00 0210 00000005 00000000 0000000000000000 68656c6c6f",
            Opcode::Get,
            plain,
            b"",
            b"hello",
            b"",
        ),
        (
            "80 00 0006 00 00 0210 00000006 00000000 0000000000000000 08 68656c6c6f",
            Opcode::Get,
            plain,
            b"",
            b"\x08hello",
            b"",
        ),
        (
            "80 49 0006 00 00 0210 00000006 00000000 0000000000000000 08 68656c6c6f",
            Opcode::GetEx,
            plain,
            b"",
            b"\x08hello",
            b"",
        ),
        (
            "80 4a 0006 00 00 0210 00000006 00000000 0000000000000000 00 68656c6c6f",
            Opcode::GetExReplica,
            plain,
            b"",
            b"\0hello",
            b"",
        ),
        (
            "08 01 02 05 08 00 0210 00000014 00000000 0000000000000000
             11 01 00000000 00000000 68656c6c6f 776f726c64",
            Opcode::Set,
            durable,
            &[0; 8],
            b"hello",
            b"world",
        ),
        (
            "08 01 05 05 08 00 0210 00000017 00000000 0000000000000000
             13 01 1388 50 00000000 00000000 68656c6c6f 776f726c64",
            Opcode::Set,
            durable_keeping,
            &[0; 8],
            b"hello",
            b"world",
        ),
    ];
    for (text, opcode, infos, extras, key, value) in cases {
        let bytes = hex(text);
        let request = whole_request(&bytes);
        assert_eq!(request.opcode, opcode.wire());
        assert_eq!(request.vb, VbId(528));
        assert_eq!(FrameInfos::parse(request.framing), Ok(infos));
        assert_eq!(
            (request.extras, request.key, request.value),
            (extras, key, value)
        );
        let mut written = Vec::new();
        RequestWriter {
            vb: VbId(528),
            infos,
            ..RequestWriter::new(opcode)
        }
        .write(extras, key, value, &mut written);
        assert_eq!(written, bytes);
    }
}

#[test]
fn invalid_headers_close_the_connection() {
    let header = |magic: u8, key: u16, extras: u8, body: u32| {
        let mut bytes = vec![magic, 0];
        bytes.extend(key.to_be_bytes());
        bytes.extend([extras, 0, 0, 0]);
        bytes.extend(body.to_be_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes
    };
    let mismatch = |parts, body| FrameError::LengthMismatch { parts, body };
    let cases = [
        (header(0x81, 0, 0, 0), FrameError::BadMagic(0x81)),
        (header(0x82, 0, 0, 0), FrameError::BadMagic(0x82)),
        (header(0x18, 0, 0, 0), FrameError::BadMagic(0x18)),
        (header(b'G', 0, 0, 0), FrameError::BadMagic(b'G')),
        (header(0x80, 5, 0, 4), mismatch(5, 4)),
        (header(0x80, 5, 4, 8), mismatch(9, 8)),
        // Flexible framing: the key length field is framing extras, then key.
        (header(0x08, 0x0305, 4, 11), mismatch(12, 11)),
        (
            header(0x80, 0, 0, MAX_BODY as u32 + 1),
            FrameError::TooLong {
                body: MAX_BODY + 1,
                max: MAX_BODY,
            },
        ),
    ];
    for (bytes, error) in cases {
        assert_eq!(parse_frame(&bytes, MAX_BODY), Parse::Fatal(error));
        assert!(!error.to_string().is_empty());
    }
    // A wrong first byte is judged before the header is complete.
    assert_eq!(
        parse_frame(b"G", MAX_BODY),
        Parse::Fatal(FrameError::BadMagic(b'G'))
    );
    assert_eq!(
        parse_frame(&[], MAX_BODY),
        Parse::Incomplete { need: HEADER_BYTES }
    );
    let longest = header(0x80, 0, 0, MAX_BODY as u32);
    assert_eq!(
        parse_frame(&longest, MAX_BODY),
        Parse::Incomplete {
            need: HEADER_BYTES + MAX_BODY
        }
    );
}

#[test]
fn replies_of_a_duplex_client_are_parsed() {
    let bytes = hex("83 02 0000 00 01 0020 00000002 0000002a 0000000000000000 7b7d");
    let Parse::ServerResponse { reply, consumed } = parse_frame(&bytes, MAX_BODY) else {
        panic!("not a reply");
    };
    assert_eq!(consumed, bytes.len());
    assert_eq!(
        (reply.opcode, reply.status_code, reply.opaque),
        (2, 0x20, 42)
    );
    assert_eq!(reply.value, b"{}");
}

/// Barrier, durability level with its timeout, stream id, preserve-TTL.
type Infos = (bool, Option<(u8, Option<u16>)>, Option<u16>, bool);

fn any_infos() -> impl Strategy<Value = Infos> {
    let timeout = proptest::option::of(1..u16::MAX);
    (
        any::<bool>(),
        proptest::option::of((1_u8..=3, timeout)),
        any::<Option<u16>>(),
        any::<bool>(),
    )
}

proptest! {
    #[test]
    fn requests_round_trip(
        (barrier, durability, stream_id, preserve_ttl) in any_infos(),
        (vb, opaque, cas) in any::<(u16, u32, u64)>(),
        user in vec(any::<u8>(), 1..100),
        impersonate in any::<bool>(),
        extras in vec(any::<u8>(), 0..40),
        key in vec(any::<u8>(), 0..255),
        value in vec(any::<u8>(), 0..400),
        tail in vec(any::<u8>(), 0..60),
    ) {
        let infos = FrameInfos {
            barrier,
            durability: durability.map(|(level, timeout_ms)| Durability {
                level: DurabilityLevel::from_wire(level).unwrap(),
                timeout_ms,
            }),
            stream_id,
            impersonate: impersonate.then_some(&user[..]),
            preserve_ttl,
            ..FrameInfos::default()
        };
        let mut bytes = Vec::new();
        RequestWriter {
            opcode: Opcode::Set,
            vb: VbId(vb),
            opaque,
            cas: Cas(cas),
            datatype: Datatype::JSON,
            infos,
        }
        .write(&extras, &key, &value, &mut bytes);
        let len = bytes.len();
        for cut in 0..len {
            let Parse::Incomplete { need } = parse_frame(&bytes[..cut], MAX_BODY) else {
                panic!("{cut} of {len} bytes are no frame");
            };
            prop_assert_eq!(need, if cut < HEADER_BYTES { HEADER_BYTES } else { len });
        }
        // What follows a frame does not change it.
        bytes.extend(&tail);
        let Parse::Frame { request, consumed } = parse_frame(&bytes, MAX_BODY) else {
            panic!("a whole frame");
        };
        prop_assert_eq!(consumed, len);
        let expected = Request {
            opcode: 1,
            datatype: 1,
            vb: VbId(vb),
            opaque,
            cas: Cas(cas),
            framing: request.framing,
            extras: &extras,
            key: &key,
            value: &value,
        };
        prop_assert_eq!(request, expected);
        prop_assert_eq!(FrameInfos::parse(request.framing), Ok(infos));
    }

    #[test]
    fn parser_survives_random_bytes_and_reads_none_past_the_end(
        magic in prop_oneof![Just(0x80_u8), Just(0x08), Just(0x83), Just(0x81), Just(0x18), Just(0x82), any::<u8>()],
        small in any::<bool>(),
        mut bytes in vec(any::<u8>(), 1..200),
    ) {
        bytes[0] = magic;
        if small && bytes.len() > 12 {
            // Lengths that have a chance to fit.
            bytes[2] &= 0x0f;
            bytes[3] &= 0x0f;
            bytes[4] &= 0x0f;
            bytes[8..11].fill(0);
        }
        // A copy without spare capacity: an address sanitizer would see a read past the end.
        let exact = bytes.into_boxed_slice();
        match parse_frame(&exact, MAX_BODY) {
            Parse::Frame { request, consumed } => {
                prop_assert!(consumed <= exact.len());
                let parts = request.framing.len() + request.extras.len()
                    + request.key.len() + request.value.len();
                prop_assert_eq!(parts + HEADER_BYTES, consumed);
                let _ = FrameInfos::parse(request.framing);
                prop_assert!(FrameInfos::privileges(request.framing).count() <= exact.len());
            }
            Parse::Incomplete { need } => prop_assert!(need > exact.len()),
            _ => {}
        }
        if let ParseReply::Reply { reply, consumed } = parse_response(&exact, MAX_BODY) {
            prop_assert!(consumed <= exact.len());
            let _ = (reply.server_duration(), reply.status());
        }
    }

    #[test]
    fn parser_splits_many_frames_in_one_buffer(keys in vec(vec(any::<u8>(), 1..20), 1..20)) {
        let mut bytes = Vec::new();
        for key in &keys {
            RequestWriter::new(Opcode::Get).write(&[], key, &[], &mut bytes);
        }
        let mut at = 0;
        for key in &keys {
            let Parse::Frame { request, consumed } = parse_frame(&bytes[at..], MAX_BODY) else {
                panic!("a frame");
            };
            prop_assert_eq!(request.key, &key[..]);
            at += consumed;
        }
        prop_assert_eq!(at, bytes.len());
    }
}
