//! Framing extras of requests.

use crate::hex;
use kedge_protocol::binary::{FrameInfos, Opcode};
use kedge_types::{Durability, DurabilityLevel, Status};

fn durable(level: DurabilityLevel, timeout_ms: Option<u16>) -> FrameInfos<'static> {
    FrameInfos {
        durability: Some(Durability { level, timeout_ms }),
        ..FrameInfos::default()
    }
}

#[test]
fn frame_infos_parse_entries_and_reject_malformed_ones() {
    use DurabilityLevel::{Majority, MajorityAndPersistOnActive, PersistToMajority};
    let none = FrameInfos::default();
    let cases: &[(&str, Result<FrameInfos<'_>, Status>)] = &[
        ("", Ok(none)),
        (
            "00",
            Ok(FrameInfos {
                barrier: true,
                ..none
            }),
        ),
        ("01 00", Err(Status::Invalid)),
        ("11 01", Ok(durable(Majority, None))),
        ("11 02", Ok(durable(MajorityAndPersistOnActive, None))),
        ("13 03 0001", Ok(durable(PersistToMajority, Some(1)))),
        // What a client that swaps the bytes of 2,250 ms sends.
        ("13 01 ca08", Ok(durable(Majority, Some(51_720)))),
        ("13 01 fffe", Ok(durable(Majority, Some(65_534)))),
        ("13 01 0000", Err(Status::Invalid)),
        ("13 01 ffff", Err(Status::Invalid)),
        ("11 00", Err(Status::DurabilityInvalidLevel)),
        ("11 04", Err(Status::DurabilityInvalidLevel)),
        ("13 ff 1388", Err(Status::DurabilityInvalidLevel)),
        ("10", Err(Status::Invalid)),
        ("12 01 00", Err(Status::Invalid)),
        ("14 01 0001 00", Err(Status::Invalid)),
        ("11", Err(Status::Invalid)),
        ("13 01 13", Err(Status::Invalid)),
        // The first of several counts.
        ("11 01 11 03", Ok(durable(Majority, None))),
        (
            "22 0102",
            Ok(FrameInfos {
                stream_id: Some(0x102),
                ..none
            }),
        ),
        ("21 01", Err(Status::Invalid)),
        (
            "43 5e6162",
            Ok(FrameInfos {
                impersonate: Some(b"^ab"),
                ..none
            }),
        ),
        ("40", Err(Status::Invalid)),
        (
            "50",
            Ok(FrameInfos {
                preserve_ttl: true,
                ..none
            }),
        ),
        ("51 00", Err(Status::Invalid)),
        (
            "62 6162 61 63",
            Ok(FrameInfos {
                privilege: Some(b"ab"),
                ..none
            }),
        ),
        ("60", Err(Status::Invalid)),
        (
            "72 0007",
            Ok(FrameInfos {
                token_id: Some(7),
                ..none
            }),
        ),
        ("30", Err(Status::UnknownFrameInfo)),
        ("80", Err(Status::UnknownFrameInfo)),
        // Escapes: id 15 + 0; id 15 + 1 with a length of 15 + 1.
        ("f0 00", Err(Status::UnknownFrameInfo)),
        (
            "ff 01 01 00000000000000000000000000000000",
            Err(Status::UnknownFrameInfo),
        ),
        ("f0", Err(Status::Invalid)),
        ("ff 01", Err(Status::Invalid)),
        ("ff 01 01 00", Err(Status::Invalid)),
        (
            "4f 01 61616161616161616161616161616161",
            Ok(FrameInfos {
                impersonate: Some(b"aaaaaaaaaaaaaaaa"),
                ..none
            }),
        ),
        (
            "4f 02 61616161616161616161616161616161",
            Err(Status::Invalid),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(FrameInfos::parse(&hex(text)), *expected, "{text}");
    }
}

#[test]
fn frame_infos_collect_all_privileges() {
    let framing = hex("62 6162 00 61 63");
    let names: Vec<_> = FrameInfos::privileges(&framing).collect();
    assert_eq!(names, [&b"ab"[..], b"c"]);
}

#[test]
fn frame_infos_are_checked_against_the_opcode() {
    let durable = durable(DurabilityLevel::Majority, None);
    let keeping = FrameInfos {
        preserve_ttl: true,
        ..FrameInfos::default()
    };
    for (infos, opcode, expected) in [
        (durable, Opcode::Set, Ok(())),
        (durable, Opcode::SubdocMultiMutation, Ok(())),
        (durable, Opcode::Setq, Err(Status::Invalid)),
        (durable, Opcode::Get, Err(Status::Invalid)),
        (durable, Opcode::SetWithMeta, Err(Status::Invalid)),
        (keeping, Opcode::Increment, Ok(())),
        (keeping, Opcode::Add, Err(Status::NotSupported)),
        (keeping, Opcode::Get, Err(Status::NotSupported)),
        (FrameInfos::default(), Opcode::Get, Ok(())),
    ] {
        assert_eq!(infos.check_opcode(opcode), expected, "{opcode:?}");
    }
}
