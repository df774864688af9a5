use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16).expect("hex"))
        .collect()
}

/// The two headers of the worked example, section 9.
const FIRST: &str = "01 0000002b 978bad3a 0e 000000000000 000000000000 000000000000 0000 0000 0000
    0000000000000000 fffffffffffe";
const SECOND: &str = "01 00000064 194c3ed6 0e 00000000000a 000000000000 000000000000 0011 001c 000c
    17979cfe362a0000 000000000000 0000000003a5 0000000000f2 000000000a
    0000000002b0 0000000000f5 000000000a 0000000000 000000000280 000000000497 000000000183";

#[test]
fn headers_match_the_worked_example() {
    let first = Header::parse(Offset(0), &hex(FIRST)).expect("a header");
    assert_eq!(first, Header::empty(Offset(0), Version::V14, false));
    let second = Header::parse(Offset(4096), &hex(SECOND)).expect("a header");
    assert_eq!(second.update_seqno(), Seqno(10));
    assert_eq!(second.previous(), Previous::At(Offset(0)));
    assert_eq!((second.live_count(), second.deleted_count()), (10, 0));
    assert_eq!(second.body_bytes(), 640);
    let trees = TreeBytes {
        by_id: 245,
        by_seqno: 242,
        local: 387,
    };
    assert_eq!(second.tree_bytes(), trees);
    assert_eq!(
        second.by_seqno.map(|root| (root.offset, root.reduce.count)),
        Some((933, 10))
    );
    for (header, text) in [(first, FIRST), (second, SECOND)] {
        let mut out = Vec::new();
        header.put(HEADER, &mut out);
        assert_eq!(out, hex(text));
    }
}

fn full(version: Version) -> Header {
    let v14 = version == Version::V14;
    Header {
        offset: Offset(0x20_0000),
        version,
        update_seqno: Seqno(77),
        purge_seqno: Seqno(3),
        purge_pointer: 0,
        timestamp_ns: if version >= Version::V13 { 123 } else { 0 },
        previous: if v14 {
            Previous::At(Offset(4096))
        } else {
            Previous::Unknown
        },
        encrypted: v14,
        by_seqno: Some(Pointer {
            offset: 5000,
            subtree_bytes: 100,
            reduce: SeqnoReduce { count: 5 },
        }),
        by_id: Some(Pointer {
            offset: 6000,
            subtree_bytes: 200,
            reduce: IdReduce {
                live: 4,
                deleted: 1,
                body_bytes: 999,
            },
        }),
        local: None,
    }
}

#[test]
fn headers_of_every_version_round_trip_and_damage_is_reported() {
    for version in [Version::V11, Version::V12, Version::V13, Version::V14] {
        let header = full(version);
        let mut bytes = Vec::new();
        header.put(HEADER, &mut bytes);
        assert_eq!(Header::parse(header.offset, &bytes), Ok(header.clone()));
        // Further bytes of the file do not matter, but missing ones do.
        bytes.extend_from_slice(b"data of the next commit");
        assert_eq!(Header::parse(header.offset, &bytes), Ok(header.clone()));
        bytes.truncate(bytes.len() - 24);
        assert_eq!(
            Header::parse(header.offset, &bytes),
            Err(DamageKind::HeaderShort.into())
        );
    }
}

#[test]
fn flip_of_any_header_bit_is_detected() {
    let header = full(Version::V14);
    let mut bytes = Vec::new();
    header.put(HEADER, &mut bytes);
    for bit in 8..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(
            matches!(
                Header::parse(header.offset, &damaged),
                Err(InvalidHeader::Damaged(_))
            ),
            "bit {bit}"
        );
    }
}

/// Encodes a header after a change of its body, with a correct checksum.
fn doctored(change: impl FnOnce(&mut Vec<u8>)) -> Result<Header, InvalidHeader> {
    let header = full(Version::V14);
    let mut bytes = Vec::new();
    header.put(HEADER, &mut bytes);
    let mut body = bytes.split_off(PREFIX_BYTES);
    change(&mut body);
    let mut bytes = Vec::new();
    put_framed(HEADER, &body, &mut bytes);
    Header::parse(header.offset, &bytes)
}

#[test]
fn each_kind_of_damage_is_reported() {
    let problem = |change: fn(&mut Vec<u8>)| match doctored(change) {
        Err(InvalidHeader::Damaged(problem)) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        doctored(|body| body[0] = 15),
        Err(InvalidHeader::UnknownVersion(15))
    );
    assert_eq!(
        problem(|body| body[13] = 1),
        DamageKind::PurgePointer(1 << 40)
    );
    assert_eq!(problem(|body| body.push(0)), DamageKind::HeaderParts);
    assert_eq!(problem(|body| body.truncate(30)), DamageKind::HeaderParts);
    assert_eq!(problem(Vec::clear), DamageKind::HeaderParts);
    assert_eq!(
        problem(|body| body[39..45].copy_from_slice(&[0, 0, 0, 0x20, 0, 0])),
        DamageKind::RootOffset(0x20_0000)
    );
    assert_eq!(
        problem(|body| body[39..45].fill(0)),
        DamageKind::RootOffset(0)
    );
    assert_eq!(
        problem(|body| {
            body[20] -= 1;
            body[22] += 1;
        }),
        DamageKind::RootSize {
            expected: 17,
            found: 16
        }
    );
    let lengths = [
        (3_u32, DamageKind::HeaderLength(3)),
        (1025, DamageKind::HeaderLength(1025)),
    ];
    for (length, problem) in lengths {
        let mut bytes = vec![1];
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.resize(2000, 0);
        assert_eq!(Header::parse(Offset(0), &bytes), Err(problem.into()));
    }
}
